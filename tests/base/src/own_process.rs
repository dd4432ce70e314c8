//! Tests in processes of their own, for what a process has once: a simulated machine, a clock.

use std::ffi::OsStr;
use std::process::{Command, Output};

/// The environment variable of such a process.
pub const PROCESS_VARIABLE: &str = "TEST_OWNS_PROCESS";

/// Runs a test in a process of its own. Called first thing in the test, which runs once more there.
///
/// # Panics
/// If the test fails.
pub fn own_process<F: FnOnce()>(test: F) {
    if owns_process() { test() } else { run_again::<F>(&[]) }
}

/// Returns whether this process was started for the test that it runs.
#[allow(clippy::disallowed_methods, reason = "it is no variable of the library")]
pub fn owns_process() -> bool {
    std::env::var_os(PROCESS_VARIABLE).is_some()
}

/// Returns the command that runs one test of this binary, by its path, in a process of its own.
pub fn command_of(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--test-threads=1", "--nocapture"]).env(PROCESS_VARIABLE, "1");
    command
}

/// Returns the path of a test within its binary.
pub fn name_of<F: FnOnce()>(_: F) -> &'static str {
    path_of::<F>()
}

/// Runs the command of a test and waits for it.
///
/// # Panics
/// If the test fails, or if no test has that name.
#[track_caller]
pub fn run_command(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let has_passed = output.status.success() && out.contains(" 1 passed");
    assert!(has_passed, "{command:?}, {}:\n{out}{err}", output.status);
    output
}

/// Runs the test whose body is the closure once more, in a process with these variables.
pub(crate) fn run_again<F>(variables: &[(&str, &OsStr)]) {
    run_command(command_of(path_of::<F>()).envs(variables.iter().copied()));
}

/// Returns the path of a function, or of the function around a closure, without its crate.
fn path_of<F>() -> &'static str {
    std::any::type_name::<F>().split_once("::").unwrap().1.trim_end_matches("::{{closure}}")
}
