//! Recordings of a scope or a closure, and recordings into a writer.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use support::layer;
use tracing::info_span;
use tracing_kineto::analysis::Events;
use tracing_kineto::{ErrorKind, KinetoLayer, Profiler, Schedule, Trace};
use tracing_subscriber::prelude::*;

fn work(name: &str) {
    info_span!("work", kineto.name = name).in_scope(|| ());
}

/// Runs `run` with a layer that writes to `output` and starts no recording itself.
fn with_profiler(output: &Path, run: impl FnOnce(&Profiler)) {
    let (layer, guard) = KinetoLayer::builder().output(output).record_from_start(false).build().unwrap();
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || run(&profiler));
}

fn names(path: &Path) -> Vec<String> {
    let events = Events::read(path).unwrap();
    events.iter().filter(|event| event.is_slice()).map(|event| event.name().to_owned()).collect()
}

#[test]
fn recording_guard_writes_what_its_scope_records() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("app.json");
    with_profiler(&output, |profiler| {
        work("before");
        {
            let _recording = profiler.record().unwrap();
            work("first");
            assert_eq!(profiler.record().unwrap_err().kind(), ErrorKind::AlreadyActive);
        }
        work("between");
        let finished = profiler.record().unwrap();
        work("finished");
        let stats = finished.finish().unwrap().stats().to_string();
        assert!(stats.starts_with("1 slice and 0 events of 1 thread in "), "{stats}");
        for name in ["second", "third"] {
            let _recording = profiler.record().unwrap();
            work(name);
        }
        profiler.start().unwrap();
        work("by the guard");
    });
    assert_eq!(names(&output), ["first"]);
    for (number, name) in [(2, "second"), (3, "third"), (4, "by the guard")] {
        assert_eq!(names(&folder.path().join(format!("app.{number}.json"))), [name]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn recording_during_a_write_has_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("app.json");
    with_profiler(&output, |profiler| {
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let first = profiler.record().unwrap();
        // Enough to take some time to write.
        (0..100_000).for_each(|_| work("first"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let second = std::iter::repeat_with(|| profiler.record()).find_map(Result::ok);
                tracing::dispatcher::with_default(&subscriber, || work("second"));
                drop(second);
            });
            drop(first);
        });
    });
    assert_eq!(names(&output).len(), 100_000);
    assert_eq!(names(&folder.path().join("app.2.json")), ["second"]);
}

#[test]
fn flush_never_replaces_the_final_trace() {
    const WAIT: Duration = Duration::from_secs(60);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("app.json");
    let (begun, is_begun) = mpsc::channel();
    let (released, is_released) = mpsc::channel();
    let flushed = Mutex::new(Some((begun, is_released)));
    let (layer, guard) = KinetoLayer::builder()
        .output(&output)
        .post_process(move |_| {
            let first = flushed.lock().unwrap().take();
            if let Some((begun, is_released)) = first {
                begun.send(()).unwrap();
                is_released.recv_timeout(WAIT).unwrap();
            }
        })
        .build()
        .unwrap();
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        work("early");
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| profiler.flush());
            is_begun.recv_timeout(WAIT).unwrap();
            work("late");
            let ending = scope.spawn(|| drop(guard));
            // If it does not wait for the flush, the final trace is there first.
            let waited = Instant::now();
            while !output.exists() && waited.elapsed() < Duration::from_millis(500) {
                std::thread::yield_now();
            }
            released.send(()).unwrap();
            flush.join().unwrap().unwrap();
            ending.join().unwrap();
        });
    });
    assert_eq!(names(&output), ["early", "late"]);
}

#[test]
fn recording_guard_of_a_schedule_writes_its_cycles() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("app.json");
    with_profiler(&output, |profiler| {
        profiler.schedule(Schedule::default().active(2)).unwrap();
        let _recording = profiler.record().unwrap();
        for step in ["0", "1", "2"] {
            work(step);
            profiler.step();
        }
    });
    assert!(names(&folder.path().join("app.1.json")).contains(&"1".to_owned()));
    assert!(names(&folder.path().join("app.2.json")).contains(&"2".to_owned()));
}

#[test]
fn is_recording_while_spans_are_recorded() {
    let (_layer, guard) = layer(|builder| builder.record_from_start(false));
    let profiler = guard.profiler();
    assert!(!profiler.is_recording());
    let recording = profiler.record().unwrap();
    assert!(profiler.is_recording());
    profiler.pause().unwrap();
    assert!(!profiler.is_recording());
    profiler.resume().unwrap();
    assert!(profiler.is_recording());
    drop(recording);
    assert!(!profiler.is_recording());
}

#[test]
fn trace_of_a_closure_has_its_spans_alone() {
    work("before");
    let trace = Trace::of(|| {
        work("inside");
        std::thread::scope(|scope| scope.spawn(|| work("elsewhere")).join().unwrap());
    });
    let events = trace.unwrap().events();
    let names: Vec<_> = events.iter().map(|event| event.name()).collect();
    assert_eq!(names, ["inside"]);
}

/// Keeps the bytes that are written to it.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn writer_gets_one_trace_at_the_end() {
    let kept = SharedBuffer::default();
    let (layer, guard) = KinetoLayer::builder().writer(kept.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        work("before");
        let error = guard.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        work("after");
    });
    assert!(kept.0.lock().unwrap().is_empty());
    drop(guard);
    let events = Events::from_reader(kept.0.lock().unwrap().as_slice()).unwrap();
    let names = || events.iter().map(|event| event.name());
    assert_eq!(names().filter(|name| ["before", "after"].contains(name)).count(), 2);
}
