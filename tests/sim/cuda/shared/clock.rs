//! The clock of the simulated machine, CLOCK_REALTIME, and the timestamps of profilers.

use super::options::{ClockStep, Options};

pub(crate) use sim_core::clock::real_time as now;

impl Options {
    /// Returns the timestamp that the device and CUPTI report for the moment `at`.
    pub(crate) fn reported(&self, at: u64) -> u64 {
        let ClockStep { ns, after_ms, since } = self.clock_step_ns;
        let step = if ns != 0 && at >= since + after_ms * 1_000_000 { ns } else { 0 };
        at.saturating_add_signed(self.clock_skew_ns).saturating_add_signed(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_and_step_shift_timestamps() {
        let mut options = Options { clock_skew_ns: -300, ..Options::default() };
        assert_eq!(options.reported(5_000), 4_700);
        options.clock_step_ns = ClockStep { ns: 50, after_ms: 1, since: 1_000 };
        assert_eq!(options.reported(1_000_999), 1_000_699);
        assert_eq!(options.reported(1_001_000), 1_000_750);
    }
}
