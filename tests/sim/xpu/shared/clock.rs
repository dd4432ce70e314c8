//! The clock of the simulated machine: CLOCK_MONOTONIC.
//!
//! The real PTI reads CLOCK_MONOTONIC_RAW, and finds out each millisecond how far real time is from it. This one keeps
//! pace with real time, so that once is enough, and no record is off because a thread had to wait in between.

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of the machine's clock, by which all work is timed.
pub(crate) fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch: what PTI's stamps are in, unless the client has a clock of its own.
pub(crate) fn wall() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_go_forward() {
        let (own, real) = (now(), wall());
        assert!(own > 0 && real > own);
        assert!(now() >= own);
    }
}
