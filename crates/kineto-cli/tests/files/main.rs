//! Tests of commands that read trace files: output and exit status.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod averages;
mod check;
mod convert;
mod diff;
#[cfg(unix)]
mod hostile;
mod inputs;
mod path;
mod repair;
mod report;
mod summary;
mod validate;
mod view;
#[cfg(target_os = "linux")]
mod widths;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const TRACE: &str = r#"{"traceEvents": [
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":0,"dur":2,"args":{"correlation":1}},
    {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":5,"dur":10,"args":{"correlation":1,"device":0,"stream":7}},
    {"ph":"X","cat":"cpu_op","name":"train","pid":1,"tid":1,"ts":0,"dur":4}
]}"#;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kineto"));
    command.args(arguments);
    command
}

/// Runs the command; returns its output, errors and exit status.
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
