//! What a program reaches of the profiler in places that do not have it.

use support::gpu::in_child;
use support::name_of;
use tracing::info_span;
use tracing_kineto::{ErrorKind, Format, KinetoLayer};
use tracing_subscriber::prelude::*;

#[test]
fn profiler_is_found_without_the_guard() {
    in_child(name_of(child_finds_the_profiler), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_finds_the_profiler() {
    assert!(tracing_kineto::profiler().is_none());
    let (_recording, first) = KinetoLayer::builder().no_output().build().unwrap();
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build().unwrap();
    let (_newest, last) = KinetoLayer::builder().no_output().build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    // The idle one, although a newer one records.
    let found = tracing_kineto::profiler().unwrap();
    found.start().unwrap();
    info_span!("work").in_scope(|| ());
    assert_eq!(guard.profiler().stop().unwrap().stats().slices, 1);
    // A handle keeps its layer found; without one, the others are left.
    drop((found, guard));
    last.profiler().add_metadata("which", "last");
    drop(first);
    let trace = tracing_kineto::profiler().unwrap().stop().unwrap();
    let mut json = Vec::new();
    trace.write(&mut json, Format::Json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["which"], "last", "{json}");
}

#[test]
fn close_writes_the_trace_or_returns_why_not() {
    let _subscriber = super::lock_subscriber();
    let folder = tempfile::tempdir().unwrap();
    for fails in [false, true] {
        let below = folder.path().join(fails.to_string());
        std::fs::create_dir(&below).unwrap();
        let output = below.join("app.pt.trace.json");
        let (layer, guard) = KinetoLayer::builder().output(&output).build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            info_span!("work").in_scope(|| ());
        });
        if fails {
            std::fs::remove_dir_all(&below).unwrap();
        }
        let closed = guard.close().map_err(|error| error.kind());
        assert_eq!((closed, output.exists()), (if fails { Err(ErrorKind::Io) } else { Ok(()) }, !fails));
    }
}
