//! Tests in child processes: ignored tests, which other tests start.

use std::process::{Command, Output};
pub use test_base::command_of as command;

/// Runs the command of a test and waits for it.
///
/// # Panics
///
/// Panics if the test fails, or if no test has that name.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let passed = output.status.success() && text(&output.stdout).contains("1 passed");
    assert!(passed, "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    output
}
