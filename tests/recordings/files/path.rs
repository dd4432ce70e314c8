//! Critical paths of real traces: they fill their windows exactly.
#![cfg(feature = "gzip")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use support::traces::{are_available, folder};
use tracing_kineto::Timestamp;
use tracing_kineto::analysis::Events;
use tracing_kineto::analysis::summary::PathPlace;

/// Returns all traces below a folder, except those that are not valid JSON.
fn trace_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_trace = |path: &PathBuf| {
        path.to_string_lossy().ends_with(".json.gz") || path.extension().is_some_and(|end| end == "json")
    };
    let below = folders.iter().filter(|path| !path.ends_with("invalid")).flat_map(|path| trace_files(path));
    files.into_iter().filter(is_trace).chain(below).collect()
}

#[track_caller]
fn check_tiles(trace: &Path, events: &Events, window: Range<Timestamp>) {
    let path = events.critical_path(window.clone());
    let end = path.pieces().iter().fold(window.start, |at, piece| {
        assert!(piece.start == at && piece.end > at, "{}: {piece:?} does not follow {at:?}", trace.display());
        piece.end
    });
    assert_eq!(end, window.end, "{}", trace.display());
    let figures = path.figures();
    assert_eq!(figures.kinds.iter().map(|row| row.ns).sum::<u64>(), window.end.since(window.start));
    let named: u64 = figures.names.iter().map(|row| row.ns).sum();
    assert!(named <= figures.place_ns(PathPlace::Device) + figures.place_ns(PathPlace::Host), "{}", trace.display());
}

#[test]
fn paths_of_real_traces_fill_their_windows() {
    if !are_available() {
        return;
    }
    let files = trace_files(&folder());
    assert!(files.len() >= 13, "{files:?}");
    for file in &files {
        let events = Events::read(file).unwrap();
        check_tiles(file, &events, events.slice_range());
        for step in &events.summary().steps {
            check_tiles(file, &events, events.step_range(step.number).unwrap());
        }
        let annotations = events.iter().filter(|event| event.category() == "user_annotation");
        annotations.step_by(20).take(20).for_each(|event| check_tiles(file, &events, event.start()..event.end()));
    }
}
