//! Spans in unusual places: they are recorded, or counted as lost.
#![allow(clippy::disallowed_methods, reason = "scoped threads need no names here")]

use super::FRAMES;
use serde_json::Value;
use std::thread;
use tracing::{Dispatch, dispatcher, error_span, info_span};
use tracing_kineto::{AsyncSpans, Format, KinetoLayer, KinetoLayerBuilder, Loss, TraceStats};
use tracing_subscriber::layer::SubscriberExt;

/// Records `work`; returns the rows of the file and the statistics.
fn record(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(&Dispatch),
) -> (Vec<Value>, TraceStats) {
    let (layer, guard) = configure(KinetoLayer::builder().no_output()).build().unwrap();
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    dispatcher::with_default(&dispatch, || work(&dispatch));
    let trace = guard.finish().unwrap();
    let mut file = Vec::new();
    trace.write(&mut file, Format::Json).unwrap();
    let mut file: Value = serde_json::from_slice(&file).unwrap();
    let Value::Array(rows) = file["traceEvents"].take() else { panic!("no events") };
    (rows, trace.stats())
}

fn slices<'r>(rows: &'r [Value], name: &str) -> Vec<&'r Value> {
    rows.iter().filter(|row| row["ph"] == "X" && row["name"] == name).collect()
}

fn tracks(rows: &[Value]) -> usize {
    rows.iter().filter(|row| row["ph"] == "b").count()
}

fn elsewhere<R: Send>(dispatch: &Dispatch, work: impl FnOnce() -> R + Send) -> R {
    let work = || dispatcher::with_default(dispatch, work);
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn span_outlives_the_thread_that_made_it() {
    let (rows, stats) = record(
        |builder| builder,
        |dispatch| {
            let outer = info_span!("outer").entered();
            let made = elsewhere(dispatch, || info_span!(parent: &*outer, "made", n = 7));
            made.in_scope(|| ());
            drop(outer);
            let plain = elsewhere(dispatch, || {
                let around = info_span!("around").entered();
                let plain = info_span!("plain");
                drop(around);
                plain
            });
            plain.in_scope(|| ());
        },
    );
    let made = slices(&rows, "made");
    assert_eq!(made[0]["args"]["n"], 7, "{made:#?}");
    assert_eq!(stats.lost(Loss::FieldsNotSeen), 0);
}

#[test]
fn deep_span_can_be_entered_again_after_it_moved_down() {
    let (rows, _) = record(
        |builder| builder,
        |_| {
            let spans: Vec<_> = (0..FRAMES + 2).map(|_| info_span!("deep")).collect();
            let mut guards: Vec<_> = spans.iter().map(|span| Some(span.enter())).collect();
            guards[10] = None;
            spans[FRAMES].in_scope(|| ());
            info_span!("after").in_scope(|| ());
            while guards.pop().is_some() {}
        },
    );
    assert_eq!((slices(&rows, "deep").len(), slices(&rows, "after").len()), (FRAMES + 3, 1));
}

#[test]
fn future_has_a_track_when_polled_outside_its_parent() {
    let (rows, _) = record(
        |builder| builder,
        |_| {
            let made = info_span!("outer").in_scope(|| info_span!("polled"));
            (0..3).for_each(|_| made.in_scope(|| ()));
        },
    );
    assert_eq!(tracks(&rows), 1);
}

#[test]
fn future_has_a_track_when_polled_below_the_frames() {
    let (rows, _) = record(
        |builder| builder,
        |_| {
            let spans: Vec<_> = (0..=FRAMES).map(|_| info_span!("deep")).collect();
            let mut guards: Vec<_> = spans.iter().map(|span| Some(span.enter())).collect();
            let made = info_span!("polled");
            (0..3).for_each(|_| made.in_scope(|| ()));
            drop(made);
            while guards.pop().is_some() {}
        },
    );
    assert_eq!(tracks(&rows), 1);
}

#[test]
fn future_has_a_track_when_first_polled_elsewhere() {
    let (rows, _) = record(
        |builder| builder,
        |dispatch| {
            let made = info_span!("polled");
            elsewhere(dispatch, || made.in_scope(|| ()));
            (0..2).for_each(|_| made.in_scope(|| ()));
        },
    );
    assert_eq!(tracks(&rows), 1);
}

#[test]
fn span_has_no_track_when_entered_once_elsewhere() {
    let (rows, _) = record(
        |builder| builder.async_spans(AsyncSpans::Both),
        |dispatch| {
            let made = info_span!("once");
            elsewhere(dispatch, move || made.in_scope(|| ()));
        },
    );
    assert_eq!((slices(&rows, "once").len(), tracks(&rows)), (1, 0));
}

#[test]
fn error_in_a_filtered_span_marks_the_enclosing_slice() {
    let (rows, _) = record(
        |builder| builder.filter("info,quiet=off".parse().unwrap()),
        |_| {
            let _outer = info_span!("outer").entered();
            let _quiet = info_span!(target: "quiet", "quiet").entered();
            tracing::error!("broken");
        },
    );
    assert!(slices(&rows, "quiet").is_empty());
    assert_eq!(slices(&rows, "outer")[0]["args"]["error"], "broken");
}

#[test]
fn error_in_a_filtered_span_spares_earlier_slices() {
    let (rows, _) = record(
        |builder| builder.filter("info,quiet=off".parse().unwrap()),
        |_| {
            let _outer = info_span!("outer").entered();
            let again = info_span!(target: "quiet", "quiet");
            for _ in 0..2 {
                info_span!("before").in_scope(|| ());
                again.in_scope(|| tracing::error!("broken"));
                info_span!(target: "quiet", "other").in_scope(|| tracing::error!("broken"));
            }
        },
    );
    assert_eq!(slices(&rows, "outer")[0]["args"]["error"], "broken");
    assert!(slices(&rows, "before").iter().all(|slice| slice["args"]["error"].is_null()), "{rows:#?}");
}

#[test]
fn error_in_deep_filtered_spans_marks_the_enclosing_slice() {
    let (rows, _) = record(
        |builder| builder.filter("info,quiet=off".parse().unwrap()),
        |_| {
            let _outer = info_span!("outer").entered();
            let _quiet: Vec<_> = (0..FRAMES + 40).map(|_| info_span!(target: "quiet", "quiet").entered()).collect();
            tracing::error!("broken");
            let _inner = info_span!("inner").entered();
        },
    );
    let outer = slices(&rows, "outer");
    assert_eq!(outer[0]["args"]["error"], "broken");
    assert_eq!(slices(&rows, "inner")[0]["args"]["parent id"], outer[0]["args"]["span id"]);
}

#[test]
fn explicit_parent_is_replaced_when_it_is_filtered() {
    let (rows, _) = record(
        |builder| builder.filter("info,quiet=off".parse().unwrap()),
        |dispatch| {
            let outer = info_span!("outer");
            let quiet = info_span!(target: "quiet", parent: &outer, "quiet");
            let inner = info_span!(target: "quiet", parent: &quiet, "inner quiet");
            info_span!(parent: &inner, "here").in_scope(|| ());
            elsewhere(dispatch, move || info_span!(parent: &inner, "there").in_scope(|| ()));
            outer.in_scope(|| ());
        },
    );
    let outer = slices(&rows, "outer");
    for name in ["here", "there"] {
        assert_eq!(slices(&rows, name)[0]["args"]["parent id"], outer[0]["args"]["span id"], "{name}");
    }
}

/// The registry does not take a span for the current one that is entered inside itself, whichever thread knows it.
#[test]
fn borrowed_span_inside_itself_is_not_current() {
    let work = |dispatch: &Dispatch| {
        let shared = info_span!("shared");
        let _outer = shared.clone().entered();
        let _around = info_span!("around").entered();
        elsewhere(dispatch, || shared.in_scope(|| ()));
        for _ in 0..3 {
            shared.in_scope(|| info_span!("child").in_scope(|| ()));
        }
    };
    let (rows, _) = record(|builder| builder, work);
    let around = slices(&rows, "around")[0]["args"]["span id"].clone();
    let parents: Vec<_> = slices(&rows, "child").iter().map(|child| child["args"]["parent id"].clone()).collect();
    assert_eq!(parents, [around.clone(), around.clone(), around], "{rows:#?}");
}

#[test]
fn slice_keeps_its_parent_when_the_poll_is_not_drawn() {
    let work = |_: &Dispatch| {
        let _outer = info_span!("outer").entered();
        let made = info_span!("polled");
        made.in_scope(|| info_span!("inner").in_scope(|| ()));
        (0..2).for_each(|_| made.in_scope(|| ()));
    };
    let (rows, _) = record(|builder| builder.async_spans(AsyncSpans::Track), work);
    let track = rows.iter().find(|row| row["ph"] == "b").unwrap();
    let inner = slices(&rows, "inner");
    assert_eq!(inner[0]["args"]["parent id"], track["args"]["span id"], "{inner:#?} {track:#?}");
}

#[test]
fn fields_are_counted_when_the_buffer_is_full() {
    let text = "x".repeat(900);
    let (_, stats) = record(
        |builder| builder.buffer_limit_bytes(1 << 20),
        |_| {
            for _ in 0..5000 {
                info_span!("wide", text).in_scope(|| ());
            }
        },
    );
    let (slices, fields) = (stats.lost(Loss::SlicesOverLimit), stats.lost(Loss::FieldsOverLimit));
    assert!(slices > 0 && fields >= slices, "{stats}");
}

#[test]
fn span_keeps_id_and_fields_when_exited_elsewhere() {
    let (rows, stats) = record(
        |builder| builder,
        |dispatch| {
            let made = error_span!("moved", n = 7);
            let id = made.id().unwrap();
            dispatch.enter(&id);
            elsewhere(dispatch, || dispatch.exit(&id));
            // An empty enter before the close would not be drawn if it took less than a microsecond.
            made.in_scope(|| info_span!("inner").in_scope(|| ()));
        },
    );
    let moved = slices(&rows, "moved");
    assert!(moved.len() == 2 && moved.iter().all(|row| row["args"]["n"] == 7), "{moved:#?}");
    assert_eq!(moved[0]["args"]["span id"], moved[1]["args"]["span id"]);
    assert_eq!((stats.lost(Loss::FieldsNotSeen), stats.lost(Loss::Unfinished)), (0, 0), "{stats}");
}

#[test]
fn name_recorded_late_is_shown() {
    let (rows, _) = record(
        |builder| builder,
        |_| {
            let span = info_span!("early", kineto.name = tracing::field::Empty);
            span.record("kineto.name", "late");
            span.in_scope(|| ());
        },
    );
    assert_eq!(slices(&rows, "late").len(), 1, "{rows:#?}");
}

#[test]
fn reused_registry_keys_are_different_spans() {
    let (rows, stats) = record(
        |builder| builder,
        |dispatch| {
            for n in 0..40_000u64 {
                let span = info_span!("fresh", n);
                match n % 4096 {
                    // Stored, cached, lent or unshared, and closed here or elsewhere.
                    0 => (0..3).for_each(|_| elsewhere(dispatch, || span.in_scope(|| ()))),
                    1 => elsewhere(dispatch, || drop(span)),
                    2 => (0..4).for_each(|_| span.in_scope(|| span.in_scope(|| ()))),
                    3 => elsewhere(dispatch, || span.in_scope(|| ())),
                    _ => span.in_scope(|| ()),
                }
            }
        },
    );
    let fresh = slices(&rows, "fresh");
    let mut ids: Vec<_> =
        fresh.iter().map(|row| (row["args"]["span id"].as_u64(), row["args"]["n"].as_u64())).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut values: Vec<_> = ids.iter().map(|id| id.1).collect();
    values.sort_unstable();
    values.dedup();
    assert_eq!((ids.len(), values.len()), (40_000 - 10, 40_000 - 10), "{stats}");
}
