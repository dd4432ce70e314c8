//! Tests on a clock that moves only if they advance it.

use kineto_base::wait::virtual_clock::selected;
pub use kineto_base::wait::virtual_clock::{VARIABLE as CLOCK_VARIABLE, VirtualClock as Clock};
use std::process::Command;

/// Runs a test on a virtual clock, in a process of its own: the clock is that of the whole process, its children and the
/// libraries that it loads. Called first thing in the test, which runs once more there.
///
/// # Panics
/// If the test fails.
pub fn virtual_time<F: FnOnce(&'static Clock)>(test: F) {
    if let Some(clock) = selected() {
        return test(clock);
    }
    let name = std::any::type_name::<F>();
    let name = name.split_once("::").unwrap().1.trim_end_matches("::{{closure}}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clock");
    Clock::create(&file).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--include-ignored", "--nocapture"]).env(CLOCK_VARIABLE, &file);
    let output = child.output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let has_passed = output.status.success() && text[0].contains(" 1 passed");
    assert!(has_passed, "{name} on a virtual clock, {}:\n{}{}", output.status, text[0], text[1]);
}
