//! The clock of the simulated machine: CLOCK_MONOTONIC, and what a profiler gets to see of it.

use super::options::Options;

/// Nanoseconds since the machine was started.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's number of the calling thread.
pub(crate) fn thread() -> u64 {
    // SAFETY: takes nothing and always succeeds.
    unsafe { libc::gettid() as u64 }
}

impl Options {
    /// The stamp that the device and the profilers give to the moment `at`.
    pub(crate) fn reported(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.clock_skew_ns)
    }
}
