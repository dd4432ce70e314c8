//! Tests for a virtual clock where there is none: they run on the machine's.

/// Lets time pass, as it always does.
pub struct MachineClock;

impl MachineClock {
    /// Calls `work`.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// Runs a test on the machine's clock.
pub fn virtual_time(test: impl FnOnce(&'static MachineClock)) {
    test(&MachineClock);
}
