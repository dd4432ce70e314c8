//! Dumps: files that are written while the recording continues.
#![cfg(feature = "gzip")]

use std::path::Path;
use support::File;
use tracing::info_span;
use tracing_kineto::analysis::Events;
use tracing_kineto::{ErrorKind, KinetoGuard, KinetoLayer, Overflow};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` under a layer that keeps the newest records and writes to `app.json.gz` in that folder.
fn recorded(folder: &Path, work: impl FnOnce(&KinetoGuard)) -> File {
    let builder = KinetoLayer::builder().output(folder.join("app.json.gz")).overflow(Overflow::KeepNewest);
    let (layer, guard) = builder.build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard));
    File::of(guard.finish().unwrap())
}

fn slices(path: &Path) -> Vec<String> {
    let events = Events::read(path).unwrap();
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
