//! Tests on a clock that moves only if they advance it.

use crate::own_process::run_again;
use kineto_base::wait::virtual_clock::selected;
pub use kineto_base::wait::virtual_clock::{VARIABLE as CLOCK_VARIABLE, VirtualClock as Clock};

/// Runs a test on a virtual clock, in a process of its own: the clock is that of the whole process, its children and the
/// libraries that it loads. Called first thing in the test, which runs once more there.
///
/// # Panics
/// If the test fails.
pub fn virtual_time<F: FnOnce(&'static Clock)>(test: F) {
    if let Some(clock) = selected() {
        return test(clock);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clock");
    Clock::create(&file).unwrap();
    run_again::<F>(&[(CLOCK_VARIABLE, file.as_os_str())]);
}
