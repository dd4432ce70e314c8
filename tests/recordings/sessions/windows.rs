//! Recording windows: starts, stops and pauses between enters and exits, and successive recordings.
#![allow(clippy::mem_forget, reason = "tests")]

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use support::{File, enter, exit, layer, on_thread, record, spawn};
use tracing::info_span;
use tracing_kineto::{AsyncSpans, ErrorKind, Fields, KinetoLayerBuilder, Loss, Profiler, Status};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` with the profiler of a layer that does not record yet.
fn with_profiler(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder, work: impl FnOnce(&Profiler)) {
    let (layer, guard) = layer(|builder| configure(builder.record_from_start(false)));
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&profiler));
}

fn stop(profiler: &Profiler) -> File {
    File::of(profiler.stop().unwrap())
}

const MARKS: &[&str] = &["finished", "clipped"];

#[test]
fn span_opened_before_the_recording_is_clipped() {
    with_profiler(
        |b| b,
        |profiler| {
            let outer = info_span!("outer").entered();
            let inner = info_span!("inner").entered();
            profiler.start().unwrap();
            info_span!("new").in_scope(|| ());
            drop(inner);
            info_span!("newer").in_scope(|| ());
            drop(outer);
            let file = stop(profiler);
            assert_eq!(file.tree(MARKS), "main\n  outer clipped=true\n    inner clipped=true\n      new\n    newer\n");
            let (start, end) = file.trace.window();
            let outer = file.slice("outer");
            assert_eq!(outer.start, file.slice("inner").start, "both begin with the recording");
            assert!(outer.end - outer.start <= end.as_nanos() - start.as_nanos());
            assert_eq!((file.lost(Loss::Clipped), file.lost(Loss::Overlapping)), (2, 0));
        },
    );
}

#[test]
fn clipped_slice_is_not_a_second_poll() {
    for mode in AsyncSpans::ALL.iter().copied() {
        with_profiler(
            |b| b.async_spans(mode),
            |profiler| {
                let span = info_span!("sync").entered();
                profiler.start().unwrap();
                drop(span);
                let file = stop(profiler);
                assert_eq!(file.tree(MARKS), "main\n  sync clipped=true\n", "{mode:?}");
                assert!(file.rows("b").is_empty(), "{mode:?}");
            },
        );
    }
}

#[test]
fn span_open_at_the_stop_ends_there_as_unfinished() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.start().unwrap();
            let outer = info_span!("outer").entered();
            let inner = info_span!("inner", n = 1).entered();
            let file = stop(profiler);
            drop(inner);
            drop(outer);
            assert_eq!(file.tree(MARKS), "main\n  outer finished=false\n    inner finished=false\n");
            // Where readers round times, the inner slice is a little shorter.
            let shorter = file.slice("outer").end - file.slice("inner").end;
            assert!(matches!(shorter, 0 | 2), "both end with the recording");
            assert_eq!((file.lost(Loss::Unfinished), file.fields("inner")), (2, r#"{"n":1}"#.to_owned()));
            let again = File::of(file.trace.clone());
            assert_eq!(again.tree(MARKS), file.tree(MARKS), "exits after the stop change nothing");
            assert_eq!(again.slice("outer").end, file.slice("outer").end);
        },
    );
}

#[test]
fn stop_inside_spans_leaves_the_next_recording_clean() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.start().unwrap();
            let outer = info_span!("outer").entered();
            drop(stop(profiler));
            profiler.start().unwrap();
            info_span!("inside").in_scope(|| ());
            drop(outer);
            info_span!("after").in_scope(|| ());
            let file = stop(profiler);
            assert_eq!(file.tree(MARKS), "main\n  outer clipped=true\n    inside\n  after\n");
            assert_eq!(file.slice("after").parent(), 0);
        },
    );
}

#[test]
fn second_recording_has_no_rows_of_the_first() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.start().unwrap();
            // A guard that is never dropped, a span unwound by a panic, and one left open on another thread.
            std::mem::forget(info_span!("forgotten", n = 1).entered());
            let panicked = catch_unwind(|| {
                let _span = info_span!("panicking").entered();
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(panicked.is_err());
            info_span!("first").in_scope(|| ());
            on_thread("worker", || {
                std::mem::forget(info_span!("left").entered());
            });
            let first = stop(profiler);
            assert_eq!(
                first.tree(MARKS),
                "main\n  forgotten finished=false\n    panicking\n    first\nworker\n  left finished=false\n"
            );
            profiler.start().unwrap();
            info_span!("second", n = 2).in_scope(|| ());
            let second = stop(profiler);
            assert_eq!(second.tree(MARKS), "main\n  second\n");
            assert_eq!((second.parents(), second.trace.tracks().len()), ("second<".to_owned(), 1));
            let ids = |file: &File| {
                let args: Vec<_> = file.slices().iter().map(|slice| slice.args.clone()).collect();
                let of = |key: &str| args.iter().filter_map(|args| args[key].as_u64()).collect::<Vec<_>>();
                [of("External id"), of("span id"), of("parent id")].concat().into_iter().collect::<HashSet<_>>()
            };
            assert!(ids(&first).is_disjoint(&ids(&second)));
            assert_eq!(first.tree(&[]), File::of(first.trace).tree(&[]), "the first trace is still whole");
        },
    );
}

#[test]
fn pause_records_nothing() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.start().unwrap();
            let across = info_span!("across").entered();
            info_span!("before").in_scope(|| ());
            profiler.pause().unwrap();
            assert_eq!(profiler.status(), Status::Paused);
            info_span!("hidden").in_scope(|| ());
            on_thread("worker", || info_span!("hidden").in_scope(|| ()));
            profiler.pause().unwrap();
            profiler.resume().unwrap();
            profiler.resume().unwrap();
            assert_eq!(profiler.status(), Status::Recording);
            info_span!("after").in_scope(|| ());
            drop(across);
            let file = stop(profiler);
            let expected = "main\n  across finished=false\n    before\n  across clipped=true\n    after\n";
            assert_eq!(file.tree(MARKS), expected);
        },
    );
}

#[test]
fn recording_may_stop_while_paused() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.start().unwrap();
            info_span!("before").in_scope(|| ());
            profiler.pause().unwrap();
            info_span!("hidden").in_scope(|| ());
            assert_eq!(stop(profiler).tree(MARKS), "main\n  before\n");
            assert_eq!(profiler.status(), Status::Idle);
        },
    );
}

#[test]
fn snapshot_has_the_rows_so_far_and_does_not_change() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.start().unwrap();
            let open = info_span!("open", n = 1).entered();
            info_span!("done").in_scope(|| ());
            let snapshot = File::of(profiler.snapshot().unwrap());
            let expected = "main\n  open finished=false\n    done\n";
            assert_eq!(snapshot.tree(MARKS), expected);
            drop(open);
            for n in 0..10_000 {
                info_span!("later", n).in_scope(|| ());
            }
            let file = stop(profiler);
            assert_eq!((file.all("later").len(), file.tree(MARKS).contains("finished")), (10_000, false));
            drop(file);
            // Dropping a trace frees its chunks, except those that the snapshot still uses.
            profiler.start().unwrap();
            for n in 0..10_000 {
                info_span!("much later", n).in_scope(|| ());
            }
            assert_eq!(File::of(snapshot.trace.clone()).tree(MARKS), expected);
            assert_eq!(snapshot.fields("open"), r#"{"n":1}"#);
            assert_eq!(stop(profiler).slices().len(), 10_000);
        },
    );
}

#[test]
fn snapshot_counts_no_rows_as_late() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.start().unwrap();
            info_span!("before").in_scope(|| ());
            let snapshot = profiler.snapshot().unwrap();
            (0..100).for_each(|_| info_span!("after").in_scope(|| ()));
            assert_eq!(snapshot.stats().losses, [], "later rows are in the next snapshot");
            assert_eq!(stop(profiler).all("after").len(), 100);
        },
    );
}

#[test]
fn snapshot_has_no_rows_that_begin_after_its_end() {
    with_profiler(
        |b| b,
        |profiler| {
            let (stop_work, count) = (AtomicBool::new(false), AtomicU64::new(0));
            let work = || {
                while !stop_work.load(Ordering::Relaxed) {
                    info_span!("work").in_scope(|| info_span!("inside").in_scope(|| ()));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            let short = |_| {
                profiler.start().unwrap();
                let before = count.load(Ordering::Relaxed);
                while count.load(Ordering::Relaxed) < before + 10 {
                    std::thread::yield_now();
                }
                let snapshot = File::of(profiler.snapshot().unwrap());
                drop(profiler.stop().unwrap());
                snapshot
            };
            let snapshots: Vec<_> = std::thread::scope(|scope| {
                let working = spawn(scope, "working", work);
                let snapshots = catch_unwind(AssertUnwindSafe(|| (0..30).map(short).collect()));
                stop_work.store(true, Ordering::Relaxed);
                working.join().unwrap();
                snapshots.unwrap()
            });
            for file in &snapshots {
                let unfinished = file.slices().iter().filter(|slice| slice.args["finished"] == false).count() as u64;
                assert_eq!(file.lost(Loss::Unfinished), unfinished);
                assert!(unfinished <= 2, "a thread is inside of two slices at most: {unfinished}");
            }
        },
    );
}

#[test]
fn flush_writes_the_file_during_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let read = || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap() };
    let (layer, guard) = tracing_kineto::KinetoLayer::builder().output(&path).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("first").in_scope(|| ());
        guard.flush().unwrap();
        let first = read().to_string();
        assert!(first.contains(r#""first""#) && !first.contains(r#""second""#));
        info_span!("second").in_scope(|| ());
        guard.profiler().flush().unwrap();
        assert!(read().to_string().contains(r#""second""#));
        assert_eq!(guard.profiler().status(), Status::Recording);
    });
    assert_eq!(File::of(guard.finish().unwrap()).tree(MARKS), "main\n  first\n  second\n");
}

// Shows the key FIELDS_WHILE_IDLE.
#[test]
fn spans_made_while_idle_have_no_fields_and_are_counted() {
    for (kept, fields, not_seen) in [(false, "{}", 1), (true, r#"{"n":1,"text":"a"}"#, 0)] {
        with_profiler(
            |b| b.fields(Fields::new().while_idle(kept)),
            |profiler| {
                let outer = info_span!("outer");
                let (plain, with_fields) =
                    outer.in_scope(|| (info_span!("plain"), info_span!("with_fields", n = 1, text = "a")));
                profiler.start().unwrap();
                for _ in 0..2 {
                    plain.in_scope(|| ());
                    with_fields.in_scope(|| ());
                }
                let file = stop(profiler);
                assert_eq!(file.tree(MARKS), "main\n  plain\n  with_fields\n  plain\n  with_fields\n");
                for slice in file.all("with_fields") {
                    assert_eq!(slice.fields(), fields);
                }
                assert_eq!(file.lost(Loss::FieldsNotSeen), not_seen);
            },
        );
    }
}

#[test]
fn values_recorded_after_the_start_show_on_older_spans() {
    with_profiler(
        |b| b,
        |profiler| {
            let span = info_span!("early", n = 1, late = tracing::field::Empty);
            profiler.start().unwrap();
            span.record("late", "yes");
            span.in_scope(|| ());
            assert_eq!(stop(profiler).fields("early"), r#"{"late":"yes"}"#);
        },
    );
}

#[test]
fn span_exited_elsewhere_after_the_start_is_clipped_there() {
    with_profiler(
        |b| b,
        |profiler| {
            let span = info_span!("moved");
            enter(&span);
            profiler.start().unwrap();
            on_thread("worker", || exit(&span));
            assert_eq!(stop(profiler).tree(MARKS), "worker\n  moved clipped=true\n");
        },
    );
}

#[test]
fn start_twice_and_stop_while_idle_are_typed_errors() {
    with_profiler(
        |b| b,
        |profiler| {
            assert_eq!(profiler.status(), Status::Idle);
            for answer in
                [profiler.stop().map(drop), profiler.pause(), profiler.resume(), profiler.snapshot().map(drop)]
            {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::NotActive);
            }
            profiler.start().unwrap();
            assert_eq!(profiler.start().unwrap_err().kind(), ErrorKind::AlreadyActive);
            profiler.pause().unwrap();
            assert_eq!(
                profiler.start().unwrap_err().kind(),
                ErrorKind::AlreadyActive,
                "a pause is part of a recording"
            );
            assert_eq!(profiler.flush().unwrap_err().kind(), ErrorKind::Config, "there is no output");
            profiler.stop().unwrap();
            assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::NotActive);
        },
    );
}

#[test]
fn one_of_many_threads_wins_each_start_and_stop() {
    const THREADS: usize = 16;
    with_profiler(
        |b| b,
        |profiler| {
            for _ in 0..20 {
                let (together, started, stopped) = (Barrier::new(THREADS), AtomicUsize::new(0), AtomicUsize::new(0));
                let count =
                    |answer: Result<(), tracing_kineto::Error>, winners: &AtomicUsize, lost: ErrorKind| match answer {
                        Ok(()) => drop(winners.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert_eq!(error.kind(), lost),
                    };
                std::thread::scope(|scope| {
                    for i in 0..THREADS {
                        spawn(scope, &format!("starter {i}"), || {
                            together.wait();
                            count(profiler.start(), &started, ErrorKind::AlreadyActive);
                            together.wait();
                            count(profiler.stop().map(drop), &stopped, ErrorKind::NotActive);
                        });
                    }
                });
                assert_eq!((started.into_inner(), stopped.into_inner()), (1, 1));
            }
        },
    );
}

#[test]
fn metadata_is_kept_at_any_time() {
    with_profiler(
        |b| b.metadata("at build", "1").metadata_json("list", "[1, 2]"),
        |profiler| {
            profiler.add_metadata("before", "start \"quoted\"\n");
            profiler.start().unwrap();
            profiler.add_metadata("during", "recording");
            profiler.add_metadata("before", "again");
            let trace = profiler.stop().unwrap();
            profiler.add_metadata("after the stop", "but before the file");
            profiler.add_metadata_json("json", r#"{"a": [null, 1.5]}"#).unwrap();
            trace.add_metadata("on the trace", "too");
            let json = File::of(trace.clone()).json;
            for (key, value) in [
                ("at build", serde_json::json!("1")),
                ("list", serde_json::json!([1, 2])),
                ("before", serde_json::json!("again")),
                ("during", serde_json::json!("recording")),
                ("after the stop", serde_json::json!("but before the file")),
                ("json", serde_json::json!({"a": [null, 1.5]})),
                ("on the trace", serde_json::json!("too")),
            ] {
                assert_eq!(json[key], value, "{key}");
                assert!(trace.metadata().iter().any(|(known, _)| known == key), "{key}");
            }
            // The next recording keeps earlier metadata; the first trace does not get the next one's.
            profiler.start().unwrap();
            profiler.add_metadata("second", "only");
            assert_eq!(stop(profiler).json["second"], "only");
            assert!(File::of(trace).json.get("second").is_none());
        },
    );
}

#[test]
fn metadata_is_refused_when_it_is_not_json() {
    let refused = |answer: Result<(), tracing_kineto::Error>| {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Json);
        assert!(error.to_string().contains("\"key\""), "{error}");
    };
    for bad in ["", "nan", "{", "[1,]", "'a'", "1 2", "{\"a\": NaN}"] {
        with_profiler(
            |b| b,
            |profiler| {
                refused(profiler.add_metadata_json("key", bad));
                profiler.start().unwrap();
                let trace = profiler.stop().unwrap();
                refused(trace.add_metadata_json("key", bad));
                assert!(File::of(trace).json.get("key").is_none());
            },
        );
        refused(tracing_kineto::KinetoLayer::builder().no_output().metadata_json("key", bad).build().map(drop));
    }
}

#[test]
fn trace_can_be_saved_and_read_repeatedly() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(|| info_span!("work").in_scope(|| ()));
    let read = |name: &str| {
        let path = folder.path().join(name);
        file.trace.save(&path).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    let (first, second) = (read("a.json"), read("a.json"));
    assert_eq!(first, second);
    assert!(first.contains("\"work\""));
    let mut seen = 0;
    file.trace.for_each(|activity| seen += usize::from(activity.name == "work"));
    assert_eq!(seen, 1);
}

#[test]
fn empty_recording_has_a_reason() {
    let silent = record(|| ());
    let never_entered = record(|| drop(info_span!("never")));
    let filtered = support::record_with(
        |builder| builder.filter(tracing_subscriber::filter::Targets::new()),
        || info_span!("filtered").in_scope(|| ()),
    );
    for (file, why) in [(silent, "no span reached"), (never_entered, "was entered"), (filtered, "left out")] {
        let reason = file.json["tracing_kineto"]["empty"].as_str().unwrap().to_owned();
        assert!(reason.contains(why), "{reason}");
        assert_eq!((file.trace.why_empty(), file.slices().len()), (Some(reason.as_str()), 0));
    }
    assert_eq!(record(|| info_span!("work").in_scope(|| ())).trace.why_empty(), None);
}
