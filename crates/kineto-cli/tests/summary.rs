//! Tests of `kineto summary` on good and broken files: output and exit status.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const TRACE: &str = r#"{"traceEvents": [
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":0,"dur":2,"args":{"correlation":1}},
    {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":5,"dur":10,"args":{"correlation":1,"device":0,"stream":7}}
]}"#;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kineto"));
    command.arg("summary").args(arguments);
    command
}

/// Runs the command, and returns its output, errors and exit status.
fn run(arguments: &[&str]) -> (String, String, Option<i32>) {
    texts(command(arguments).output().unwrap())
}

fn texts(output: Output) -> (String, String, Option<i32>) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

/// Creates a folder with a space in its name, a complete trace and a truncated one.
fn traces() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::Builder::new().prefix("a trace ").tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole.json"), folder.path().join("cut.json"));
    fs::write(&whole, TRACE).unwrap();
    fs::write(&cut, TRACE.split_once("},\n").unwrap().0.to_owned() + "},\n{").unwrap();
    (folder, whole, cut)
}

#[test]
fn summary_starts_with_the_answer() {
    let (_folder, whole, _) = traces();
    let (out, errors, status) = run(&[whole.to_str().unwrap()]);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], whole.to_str().unwrap());
    assert_eq!(lines[1], "15.000us   2 slices   1 device   1 stream");
    assert!(lines[3].starts_with("The device is busy 100 % of 10.000us"), "{out}");
    assert!(out.contains("gemm") && out.contains("cudaLaunchKernel") && !out.contains('\u{1b}'), "{out}");
}

#[test]
fn json_is_one_line_for_each_trace() {
    let (_folder, whole, _) = traces();
    let path = whole.to_str().unwrap();
    let (out, _, status) = run(&["--json", path, path]);
    let figures: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((figures.len(), status), (2, Some(0)));
    assert_eq!((&figures[0]["temporal"]["busy"], &figures[1]["launch"]["mean_delay"]), (&10.0.into(), &3.0.into()));
}

#[test]
fn standard_input_is_read() {
    let mut child =
        command(&["-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(TRACE.as_bytes()).unwrap();
    let (out, errors, status) = texts(child.wait_with_output().unwrap());
    assert!(out.contains("gemm"), "{out}");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
}

#[test]
fn broken_files_are_errors_and_others_are_summarized() {
    let (folder, whole, cut) = traces();
    let missing = folder.path().join("missing.json");
    let (out, errors, status) = run(&[missing.to_str().unwrap(), cut.to_str().unwrap(), whole.to_str().unwrap()]);
    assert_eq!(status, Some(1));
    let errors: Vec<_> = errors.lines().collect();
    assert!(
        errors.len() == 2 && errors[0].contains("missing.json") && errors[1].contains("cut off at byte"),
        "{errors:?}"
    );
    assert!(out.contains("gemm"), "{out}");
    let (out, errors, status) = run(&["--partial", cut.to_str().unwrap()]);
    assert!(out.contains("incomplete: cut_off") && out.contains("cudaLaunchKernel"), "{out}");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert_eq!(run(&[]).2, Some(2));
}

#[cfg(unix)]
#[test]
fn closed_pipe_ends_the_command_quietly() {
    let (_folder, whole, _) = traces();
    let mut child = command(&[whole.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (_, errors, status) = texts(child.wait_with_output().unwrap());
    assert_eq!((errors.as_str(), status), ("", Some(0)));
}
