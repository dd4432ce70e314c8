//! At the buffer limit, recorded rows and counted losses add up exactly.
#![allow(clippy::cast_possible_truncation, reason = "a test")]

use serde_json::Value;
use std::sync::Barrier;
use tracing::{Dispatch, dispatcher::with_default, info_span};
use tracing_kineto::{Fields, Format, KinetoGuard, KinetoLayer, KinetoLayerBuilder, Loss, Trace};
use tracing_subscriber::prelude::*;

const MIB: u64 = 1 << 20;

fn set_up(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder) -> (Dispatch, KinetoGuard) {
    let (layer, guard) = configure(KinetoLayer::builder().no_output().buffer_limit_bytes(MIB)).build().unwrap();
    (Dispatch::new(tracing_subscriber::registry().with(layer)), guard)
}

/// Records `work` with a buffer limit of 1 MiB.
fn record(work: impl FnOnce()) -> Trace {
    let (dispatch, guard) = set_up(|builder| builder);
    with_default(&dispatch, work);
    guard.finish().unwrap()
}

/// Returns the rows of the trace's file.
fn rows(trace: &Trace, ph: &str) -> Vec<Value> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes, Format::Json).unwrap();
    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
    let Value::Array(rows) = json["traceEvents"].take() else { panic!("no rows") };
    rows.into_iter().filter(|row| row["ph"] == ph && row["cat"] != "Trace").collect()
}

fn slices(trace: &Trace) -> u64 {
    rows(trace, "X").len() as u64
}

// Shows the key BUFFER_LIMIT_MB.
#[test]
fn slices_beyond_the_limit_are_counted_exactly() {
    const MADE: u64 = 60_000;
    let trace = record(|| (0..MADE).for_each(|_| info_span!("bare").in_scope(|| ())));
    let (kept, stats) = (slices(&trace), trace.stats());
    assert!(stats.bytes <= MIB && kept > 30_000, "1 MiB is 32 Ki records of 32 bytes: {kept} in {} bytes", stats.bytes);
    assert_eq!(kept + stats.lost(Loss::SlicesOverLimit), MADE, "{stats}");
    assert_eq!((kept, stats.losses.len()), (stats.slices, 1), "{stats}");
}

#[test]
fn slices_of_threads_beyond_the_limit_are_counted_exactly() {
    const THREADS: u64 = 8;
    const MADE: u64 = 10_000;
    let (dispatch, guard) = set_up(|builder| builder);
    let together = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let work = || {
                together.wait();
                with_default(&dispatch, || (0..MADE).for_each(|_| info_span!("bare").in_scope(|| ())));
            };
            std::thread::Builder::new().spawn_scoped(scope, work).unwrap();
        }
    });
    let trace = guard.finish().unwrap();
    let stats = trace.stats();
    assert_eq!(slices(&trace) + stats.lost(Loss::SlicesOverLimit), THREADS * MADE, "{stats}");
}

#[test]
fn fields_beyond_the_limit_are_counted_exactly() {
    const MADE: u64 = 50_000;
    let trace = record(|| (0..MADE).for_each(|i| info_span!("full", i, text = "some text").in_scope(|| ())));
    let stats = trace.stats();
    let rows = rows(&trace, "X");
    assert_eq!(rows.len() as u64 + stats.lost(Loss::SlicesOverLimit), MADE, "{stats}");
    let with_fields = rows.iter().filter(|row| row["args"].get("text").is_some()).count() as u64;
    // The last field may belong to a slice that no longer fitted.
    let found = with_fields + stats.lost(Loss::FieldsOverLimit);
    assert!(found == MADE || found + 1 == MADE, "{with_fields} of {MADE}, {stats}");
}

#[test]
fn fields_are_counted_when_only_the_slice_fits() {
    let text = "x".repeat(400);
    let trace = record(|| (0..20_000).for_each(|_| info_span!("full", text).in_scope(|| ())));
    let stats = trace.stats();
    let rows = rows(&trace, "X");
    let without = rows.iter().filter(|row| row["args"].get("text").is_none()).count() as u64;
    assert!(without > 0, "a slice fits where 400 bytes do not: {stats}");
    assert_eq!(rows.len() as u64 + stats.lost(Loss::SlicesOverLimit), 20_000, "{stats}");
    assert_eq!(rows.len() as u64 - without + stats.lost(Loss::FieldsOverLimit), 20_000, "{stats}");
}

#[test]
fn slice_ends_beyond_the_limit_are_counted() {
    const DEEP: u64 = 1_000;
    let trace = record(|| {
        let open: Vec<_> = (0..DEEP).map(|_| info_span!("open").entered()).collect();
        (0..40_000).for_each(|_| info_span!("filler").in_scope(|| ()));
        open.into_iter().rev().for_each(drop);
    });
    let stats = trace.stats();
    assert_eq!(slices(&trace) + stats.lost(Loss::SlicesOverLimit), DEEP + 40_000, "{stats}");
    let unfinished = rows(&trace, "X").iter().filter(|row| row["args"]["finished"] == false).count() as u64;
    assert!(unfinished > 0, "the first slices lie in chunks that filled up long before");
    assert_eq!((unfinished, unfinished), (stats.lost(Loss::EndsOverLimit), stats.lost(Loss::Unfinished)), "{stats}");
}

#[test]
fn events_beyond_the_limit_are_counted_exactly() {
    const MADE: u64 = 60_000;
    let trace = record(|| (0..MADE).for_each(|i| tracing_kineto::counter!("depth", i)));
    let stats = trace.stats();
    assert_eq!(rows(&trace, "C").len() as u64 + stats.lost(Loss::EventsOverLimit), MADE, "{stats}");
}

#[test]
fn large_fields_count_towards_the_limit() {
    let large = "x".repeat(100_000);
    let (dispatch, guard) = set_up(|builder| builder.fields(Fields::new().limit_bytes(MIB as usize)));
    with_default(&dispatch, || (0..50).for_each(|_| info_span!("large", text = large.as_str()).in_scope(|| ())));
    let trace = guard.finish().unwrap();
    let stats = trace.stats();
    assert!(stats.bytes <= MIB, "{stats}");
    let kept = rows(&trace, "X").iter().filter(|row| row["args"]["text"] == *large).count() as u64;
    assert!(kept > 0 && kept + stats.lost(Loss::FieldsOverLimit) == 50, "{kept}, {stats}");
    assert_eq!(slices(&trace), 50);
}

#[test]
fn trace_frees_its_buffers_when_dropped() {
    let (dispatch, guard) = set_up(|builder| builder);
    let profiler = guard.profiler();
    let fill = || (0..40_000).for_each(|_| info_span!("bare").in_scope(|| ()));
    let mut before = None;
    for turn in 0..3 {
        with_default(&dispatch, fill);
        let trace = profiler.stop().unwrap();
        let kept = slices(&trace);
        assert!(trace.stats().lost(Loss::SlicesOverLimit) > 0 && kept > 30_000, "turn {turn}: {kept}");
        // One chunk may be under construction when the limit is reached.
        let is_like = |before: u64| before.abs_diff(kept) <= MIB / 32 / 16;
        assert!(before.replace(kept).is_none_or(is_like), "turn {turn}: {kept} after {before:?}");
        if turn == 1 {
            // The trace still holds its memory.
            profiler.start().unwrap();
            with_default(&dispatch, fill);
            let second = profiler.stop().unwrap();
            assert_eq!((second.stats().slices, second.stats().lost(Loss::SlicesOverLimit)), (0, 40_000));
            assert!(second.why_empty().unwrap().contains("raise buffer_limit_bytes"));
        }
        drop(trace);
        profiler.start().unwrap();
    }
}

#[test]
fn recording_counts_losses_while_at_the_limit() {
    let (dispatch, guard) = set_up(|builder| builder);
    let profiler = guard.profiler();
    with_default(&dispatch, || (0..50_000).for_each(|_| info_span!("bare").in_scope(|| ())));
    let first = profiler.snapshot().unwrap().stats();
    profiler.pause().unwrap();
    profiler.resume().unwrap();
    with_default(&dispatch, || (0..1_000).for_each(|_| info_span!("bare").in_scope(|| ())));
    let trace = guard.finish().unwrap();
    let stats = trace.stats();
    assert_eq!(first.slices + first.lost(Loss::SlicesOverLimit), 50_000);
    assert_eq!(slices(&trace) + stats.lost(Loss::SlicesOverLimit), 51_000, "{stats}");
}

#[test]
fn short_lived_threads_share_chunks() {
    let (dispatch, guard) = set_up(|builder| builder.buffer_limit_bytes(64 * MIB));
    for _ in 0..1_000 {
        let three = || with_default(&dispatch, || (0..3).for_each(|_| info_span!("short").in_scope(|| ())));
        std::thread::scope(|scope| {
            std::thread::Builder::new().spawn_scoped(scope, three).unwrap();
        });
    }
    let trace = guard.finish().unwrap();
    let stats = trace.stats();
    assert_eq!((slices(&trace), stats.threads), (3_000, 1_000));
    assert!(stats.losses.is_empty() && stats.bytes <= MIB, "{stats}");
}

#[test]
fn smallest_limit_loses_everything_with_a_reason() {
    let (dispatch, guard) = set_up(|builder| builder.buffer_limit_bytes(1));
    with_default(&dispatch, || info_span!("bare").in_scope(|| ()));
    let trace = guard.finish().unwrap();
    assert_eq!((slices(&trace), trace.stats().lost(Loss::SlicesOverLimit)), (0, 1));
    assert!(trace.why_empty().unwrap().contains("there was no memory for records"));
}
