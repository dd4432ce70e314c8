//! Tests for a virtual clock where there is none: they run on the machine's.

use crate::own_process::{owns_process, run_again};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The environment variable that selects no clock here.
pub const CLOCK_VARIABLE: &str = "VIRTUAL_CLOCK_FILE";

/// The machine's clock.
#[derive(Debug)]
pub struct Clock;

impl Clock {
    /// Returns the machine's clock.
    ///
    /// # Errors
    /// None.
    pub fn create(_: &Path) -> io::Result<&'static Clock> {
        Ok(&Clock)
    }

    /// Waits that long.
    pub fn advance(&self, by: Duration) {
        std::thread::sleep(by);
    }

    /// Gives threads time to come to rest.
    pub fn settle(&self) {
        std::thread::sleep(Duration::from_millis(100));
    }

    /// Calls `work`.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// Runs a test on the machine's clock, in a process of its own.
///
/// # Panics
/// If the test fails.
pub fn virtual_time<F: FnOnce(&'static Clock)>(test: F) {
    if owns_process() { test(&Clock) } else { run_again::<F>(&[]) }
}
