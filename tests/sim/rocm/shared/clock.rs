//! The clock of the simulated machine, CLOCK_MONOTONIC, and the timestamps of profilers.

use super::options::Options;

pub(crate) use sim_core::clock::monotonic as now;

/// Returns the kernel's id of the calling thread.
pub(crate) fn thread() -> u64 {
    sim_core::clock::thread_id().into()
}

impl Options {
    /// The stamp that the device and the profilers give to the moment `at`.
    pub(crate) fn reported(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.clock_skew_ns)
    }
}
