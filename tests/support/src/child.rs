//! Tests in child processes: ignored tests, which other tests start by name.

use std::process::{Command, Output};

/// Returns the command that runs one ignored test of this binary, named with its module.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test, "--test-threads=1", "--nocapture"]);
    command
}

/// Runs such a command and waits for it.
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
