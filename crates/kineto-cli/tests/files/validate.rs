//! Tests of `kineto validate`: output and exit status.

use super::{TRACE, run};
use std::fs;

#[test]
fn broken_rules_are_named_with_their_first_event() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good.pt.trace.json"), folder.path().join("bad.json"));
    fs::write(&good, TRACE).unwrap();
    fs::write(&bad, TRACE.replace(",\"stream\":7", "")).unwrap();
    let (out, errors, status) = run(&["validate", good.to_str().unwrap()]);
    assert_eq!(
        (out.as_str(), errors.as_str(), status),
        (&*format!("{}: no problem in 3 events\n", good.display()), "", Some(0))
    );
    let (out, errors, status) = run(&["validate", folder.path().to_str().unwrap()]);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[1], "  HTA takes them for host events: device events have no integer argument `stream` (1)");
    assert_eq!(lines[2], "    first: `gemm` on 0/7, 5000 ns after the start; to do: write the stream");
    assert!(
        lines[3].contains("TensorBoard does not list the file") && lines[5].ends_with("no problem in 3 events"),
        "{out}"
    );
    assert_eq!((errors.as_str(), status), ("", Some(1)));
}

#[test]
fn file_that_is_no_trace_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    fs::write(&path, "[{\"ph\": \"X\"").unwrap();
    let (out, errors, status) = run(&["validate", path.to_str().unwrap()]);
    assert!(
        out.is_empty() && errors.contains("cut off at line 1, column 12 (byte 11)") && status == Some(1),
        "{out}{errors}"
    );
}

#[test]
fn standard_input_has_no_name_to_check() {
    let mut child = super::command(&["validate", "-"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    fs::write(&path, TRACE).unwrap();
    let (out, errors, status) = super::texts(child.stdin(fs::File::open(&path).unwrap()).output().unwrap());
    assert_eq!((out.as_str(), errors.as_str(), status), ("-: no problem in 3 events\n", "", Some(0)));
}

#[cfg(unix)]
#[test]
fn pipe_has_no_name_to_check() {
    let (out, errors, status) = run_piped("validate");
    assert!(out.ends_with(": no problem in 3 events\n") && errors.is_empty() && status == Some(0), "{out}{errors}");
}

/// Runs a command on a pipe that holds a trace.
#[cfg(unix)]
fn run_piped(name: &str) -> (String, String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::Builder::new().spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, TRACE)
    });
    let result = run(&[name, pipe.to_str().unwrap()]);
    writer.unwrap().join().unwrap().unwrap();
    result
}
