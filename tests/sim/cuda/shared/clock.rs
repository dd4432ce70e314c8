//! The clock of the simulated machine: CLOCK_REALTIME, and what a profiler gets to see of it.

use super::options::Options;

/// Nanoseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Options {
    /// The stamp that the device and CUPTI give to the moment `at`.
    pub(crate) fn reported(&self, at: u64) -> u64 {
        let stepped = self.clock_step_ns != 0 && at >= self.configured_at + self.clock_step_after_ms * 1_000_000;
        let step = if stepped { self.clock_step_ns } else { 0 };
        at.saturating_add_signed(self.clock_skew_ns).saturating_add_signed(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_and_step_shift_the_stamps() {
        let mut options = Options { configured_at: 1_000, clock_skew_ns: -300, ..Options::default() };
        assert_eq!(options.reported(5_000), 4_700);
        options.clock_step_ns = 50;
        options.clock_step_after_ms = 1;
        assert_eq!(options.reported(1_000_999), 1_000_699);
        assert_eq!(options.reported(1_001_000), 1_000_750);
    }
}
