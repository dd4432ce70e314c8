//! The clocks of the simulated machines, and the id of the calling thread.

pub use crate::wait::sleep;
use crate::wait::{virtual_nanos, wall};
use std::time::UNIX_EPOCH;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic() -> u64 {
    virtual_nanos().unwrap_or_else(|| read(libc::CLOCK_MONOTONIC))
}

/// Returns CLOCK_REALTIME in nanoseconds since the Unix epoch.
pub fn real_time() -> u64 {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}

/// Returns the kernel's number of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: gettid takes no argument and always succeeds.
    unsafe { libc::gettid() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_advance() {
        let (own, real) = (monotonic(), real_time());
        assert!(own > 0 && real > own);
        assert!(monotonic() >= own);
    }
}
