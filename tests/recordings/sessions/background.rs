//! Files that a thread writes while the program continues, and the progress of saves.

use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;
use support::layer;
use tracing::info_span;
use tracing_kineto::torch::TorchOptions;
use tracing_kineto::{BackgroundSave, ErrorKind, KinetoLayerBuilder, SaveProgress, Trace};
use tracing_subscriber::layer::SubscriberExt;

fn trace_with(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder) -> Trace {
    let (layer, guard) = layer(configure);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("work").in_scope(|| ())
    });
    guard.finish().unwrap()
}

fn trace() -> Trace {
    trace_with(|builder| builder)
}

fn file_names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn background_save_writes_the_same_file_as_save() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (folder.path().join("a.json"), trace());
    let save = trace.save_in_background(&path).unwrap();
    is_shared(&save);
    assert_eq!(save.path(), path);
    while !save.is_finished() {
        std::thread::yield_now();
    }
    let first = std::fs::read_to_string(save.wait().unwrap()).unwrap();
    trace.save(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
    assert!(first.contains("\"work\"") && file_names(folder.path()) == ["a.json"]);
}

#[test]
fn background_saves_of_one_trace_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace();
    let saves: Vec<BackgroundSave> =
        (0..4).map(|n| trace.save_in_background(folder.path().join(format!("{n}.json"))).unwrap()).collect();
    drop(trace);
    for save in saves {
        assert!(std::fs::read_to_string(save.wait().unwrap()).unwrap().contains("\"work\""));
    }
}

#[test]
fn failed_background_save_returns_the_error_of_save() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (folder.path().join("missing/a.json"), trace());
    let error = trace.save_in_background(&path).unwrap().wait().unwrap_err();
    assert_eq!((error.kind(), error.path(), error.to_string()), {
        let error = trace.save(&path).unwrap_err();
        (error.kind(), Some(&*path), error.to_string())
    });
    trace.save(folder.path().join("a.json")).unwrap();
}

#[test]
fn background_save_of_a_saved_strict_trace_fails() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace_with(|builder| builder.torch(TorchOptions::new().strict(true)));
    trace.save_in_background(folder.path().join("a.json")).unwrap().wait().unwrap();
    let again = trace.save_in_background(folder.path().join("b.json")).unwrap();
    assert_eq!(again.wait().unwrap_err().kind(), ErrorKind::AlreadySaved);
    assert_eq!(file_names(folder.path()), ["a.json"]);
}

#[test]
fn panic_of_a_background_save_is_its_error() {
    fn open(_url: &str) -> io::Result<Box<dyn Write + Send>> {
        panic!("in the program's code")
    }
    let trace = trace_with(|builder| builder.sink("broken", open));
    let save = trace.save_in_background("broken://a.json").unwrap();
    let error = save.wait().unwrap_err();
    assert!(
        error.kind() == ErrorKind::Handler && error.to_string().contains("the program's writer panicked"),
        "{error}"
    );
}

/// Checks the reports of a save of `trace` to a plain file of that size.
fn check_reports(reports: &[SaveProgress], trace: &Trace, size: u64) {
    let last = reports.last().unwrap();
    assert_eq!((last.rows, last.all_rows), (trace.stats().slices, trace.stats().slices));
    assert!(reports.is_sorted_by_key(|report| (report.rows, report.bytes)), "{reports:?}");
    assert!(reports.iter().all(|report| report.rows <= report.all_rows && report.bytes <= size), "{reports:?}");
}

#[test]
fn progress_of_a_save_ends_with_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (folder.path().join("a.json"), trace());
    let mut reports = Vec::new();
    trace.saver().on_progress(|progress| reports.push(progress)).save(&path).unwrap();
    check_reports(&reports, &trace, std::fs::metadata(path).unwrap().len());
}

#[test]
fn progress_of_a_background_save_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace();
    let (sender, reports) = mpsc::channel();
    let saver = trace.saver().on_progress(move |progress| sender.send(progress).unwrap());
    let path = saver.save_in_background(folder.path().join("a.json")).unwrap().wait().unwrap();
    check_reports(&reports.iter().collect::<Vec<_>>(), &trace, std::fs::metadata(path).unwrap().len());
}

#[test]
fn callback_that_panics_is_called_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (folder.path().join("a.json"), trace());
    let mut calls = 0;
    let fail = |_| {
        calls += 1;
        panic!("in the program's code");
    };
    trace.saver().on_progress(fail).save(&path).unwrap();
    assert!(calls == 1 && path.exists());
}
