//! Dumps: files that are written while the recording continues.
#![cfg(feature = "gzip")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use support::File;
use tracing::info_span;
use tracing_kineto::analysis::{Events, Note};
use tracing_kineto::integration::{Capabilities, Collector, RecordSink, Recording, Selection, Unavailable};
use tracing_kineto::{ActivityType, ActivityTypes, ErrorKind, KinetoGuard, KinetoLayer, Overflow, Timestamp};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` under a layer that keeps the newest records and writes to `app.json.gz` in that folder.
fn recorded(folder: &Path, work: impl FnOnce(&KinetoGuard)) -> File {
    let builder = KinetoLayer::builder().output(folder.join("app.json.gz")).overflow(Overflow::KeepNewest);
    let (layer, guard) = builder.build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard));
    File::of(guard.finish().unwrap())
}

fn slices(path: &Path) -> Vec<String> {
    slices_of(&Events::read(path).unwrap())
}

fn slices_of(events: &Events) -> Vec<String> {
    events.iter().filter(|event| event.category() == "cpu_op").map(|event| event.name().to_owned()).collect()
}

#[test]
fn dump_is_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let all = recorded(folder.path(), |guard| {
        let profiler = guard.profiler();
        info_span!("first").in_scope(|| ());
        let first = profiler.dump("slow request: GET /").unwrap();
        info_span!("second").in_scope(|| ());
        let second = profiler.dump("").unwrap();
        while !second.is_finished() {
            std::thread::yield_now();
        }
        let (first, second) = (first.wait().unwrap(), second.wait().unwrap());
        let name = first.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("app_{}_20", std::process::id())), "{name}");
        assert!(name.ends_with("Z_001_slow-request-get.json.gz"), "{name}");
        assert!(second > first && second.parent() == Some(folder.path()), "{second:?} sorts after {first:?}");
        assert_eq!((slices(&first), slices(&second)), (vec!["first".into()], vec!["first".into(), "second".into()]));
        let events = Events::read(&first).unwrap();
        let reason = events.metadata().find(|(key, _)| *key == "dump_reason");
        assert_eq!(reason, Some(("dump_reason", "\"slow request: GET /\"")));
    });
    assert_eq!(all.slices().len(), 2);
    assert!(!all.trace.metadata().iter().any(|(key, _)| key == "dump_reason"), "it is the dump's alone");
}

#[test]
fn dump_that_cannot_be_written_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    recorded(&gone, |guard| {
        info_span!("kept").in_scope(|| ());
        std::fs::remove_dir(&gone).unwrap();
        let dump = guard.profiler().dump("no folder").unwrap();
        let path = dump.path().to_owned();
        let error = dump.wait().unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)));
        std::fs::create_dir(&gone).unwrap();
        assert_eq!(slices(&guard.profiler().dump("again").unwrap().wait().unwrap()), ["kept"]);
    });
}

#[test]
fn dump_needs_a_recording_and_an_output() {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let error = guard.profiler().dump("x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("`output`"), "{error}");
    });
    let (layer, guard) = KinetoLayer::builder().writer(Vec::new()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let error = guard.profiler().dump("x").unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("takes one trace"), "{error}");
    });
    drop(guard);
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), |guard| {
        drop(guard.profiler().stop().unwrap());
        assert_eq!(guard.profiler().dump("x").unwrap_err().kind(), ErrorKind::NotActive);
        guard.profiler().start().unwrap();
    });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn dump_ends_at_its_call_and_not_later() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), |guard| {
        let profiler = guard.profiler();
        for n in 1..=50 {
            let open = info_span!("open").entered();
            info_span!("before").in_scope(|| ());
            let dump = profiler.dump("now").unwrap();
            drop(open);
            info_span!("before").in_scope(|| ());
            profiler.pause().unwrap();
            profiler.resume().unwrap();
            info_span!("before").in_scope(|| ());
            let events = Events::read(dump.wait().unwrap()).unwrap();
            let named = |name: &str| events.iter().filter(|event| event.name() == name).count();
            assert_eq!((named("before"), named("open")), (n * 3 - 2, n), "{n}");
            let unfinished = events.iter().filter(|event| event.arg("finished").is_some()).count();
            assert_eq!(unfinished, 1, "the span that was open");
        }
    });
}

#[test]
fn dump_is_whole_when_the_recording_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), |guard| {
        let profiler = guard.profiler();
        for _ in 0..50 {
            info_span!("one").in_scope(|| ());
            let dumps = [profiler.dump("first").unwrap(), profiler.dump("second").unwrap()];
            assert_eq!(profiler.stop().unwrap().stats().slices, 1);
            profiler.start().unwrap();
            for dump in dumps {
                assert_eq!(slices(&dump.wait().unwrap()), ["one"]);
            }
        }
    });
}

/// Notes the threads that take its records.
#[derive(Clone, Debug, Default)]
struct Drained(Arc<Mutex<Vec<ThreadId>>>);

impl Collector for Drained {
    fn name(&self) -> &'static str {
        "drained"
    }
    fn types(&self) -> ActivityTypes {
        ActivityType::ConcurrentKernel.into()
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        Ok((Capabilities::default(), Box::new(self.clone())))
    }
}

impl Recording for Drained {
    fn drain(&self, _: Duration) {
        self.0.lock().unwrap().push(std::thread::current().id());
    }
    fn stop(&self, _: Timestamp, _: Instant) {}
}

#[test]
fn dump_takes_records_on_the_thread_that_writes() {
    let (folder, drained) = (tempfile::tempdir().unwrap(), Drained::default());
    let builder = KinetoLayer::builder().output(folder.path().join("app.json")).collector(drained.clone());
    let (layer, guard) = builder.build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("work").in_scope(|| ());
        guard.profiler().dump("x").unwrap().wait().unwrap();
    });
    let drained = drained.0.lock().unwrap().clone();
    assert!(!drained.is_empty() && !drained.contains(&std::thread::current().id()), "{drained:?}");
    drop(guard);
}

// Shows the key FILE_LIMIT_MB.
/// Writes 100,000 spans whose fields do not compress.
#[test]
fn files_are_closed_at_their_limit() {
    const LIMIT: u64 = 1 << 20;
    const ALL: usize = 100_000;
    for name in ["app.json", "app.json.gz", "app.pftrace", "app.pftrace.gz"] {
        let folder = tempfile::tempdir().unwrap();
        let builder = KinetoLayer::builder().output(folder.path().join(name)).file_limit_bytes(LIMIT);
        let (layer, guard) = builder.build().unwrap();
        let (profiler, mut number) = (guard.profiler(), 1u64);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..ALL {
                number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ 0x9e37_79b9;
                info_span!("work", number, other = !number.rotate_left(31)).in_scope(|| ());
            }
            let dump = profiler.dump("limited").unwrap().wait().unwrap();
            let all = profiler.snapshot().unwrap();
            drop(guard);
            for limited in [dump, folder.path().join(name)] {
                let size = std::fs::metadata(&limited).unwrap().len();
                assert!((LIMIT..LIMIT * 3).contains(&size), "{}: {size}", limited.display());
                let events = Events::read(&limited).unwrap();
                let count = slices_of(&events).len();
                assert!(count > 0 && count < ALL, "{}: {count}", limited.display());
                assert!(events.notes().any(|(note, _)| note == Note::Incomplete), "{}", limited.display());
            }
            if name == "app.json" {
                let whole = folder.path().join("whole.json");
                all.save(&whole).unwrap();
                assert_eq!(slices(&whole).len(), ALL, "saved by the program");
            }
        });
    }
}
