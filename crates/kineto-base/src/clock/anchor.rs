//! A simultaneous reading of all clocks.

use super::tick;
use crate::encoding::encoded;
use crate::time::{Ticks, Timestamp};
use std::time::UNIX_EPOCH;

/// The same instant on the counter, on the monotonic clock and on CLOCK_REALTIME.
///
/// It can be taken before the clock of the records is determined.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    /// The counter of the records.
    pub counter: Ticks,
    /// Never stepped, so it distinguishes a step of CLOCK_REALTIME from drift.
    pub monotonic: Ticks,
    /// CLOCK_REALTIME.
    pub unix: Timestamp,
    /// Half the width of the bracket, in ticks of the counter: the largest error of `counter`.
    pub error_ticks: u64,
}

encoded! {
    Anchor { counter, monotonic, unix, error_ticks }
}

impl Anchor {
    /// Reads the clocks a few times and keeps the tightest bracket, so that a single pre-emption has no effect.
    pub fn read_clocks() -> Anchor {
        const TRIES: usize = 7;
        let reading = || {
            let before = tick::read_counter().0;
            let monotonic = tick::read_monotonic();
            let unix = crate::wait::wall();
            let after = tick::read_counter().0;
            let half = after.saturating_sub(before) / 2;
            Anchor {
                counter: Ticks(before + half),
                monotonic,
                unix: Timestamp::from_nanos(duration_nanos(unix.duration_since(UNIX_EPOCH).unwrap_or_default())),
                error_ticks: half + 1,
            }
        };
        let mut best = reading();
        for _ in 1..TRIES {
            let next = reading();
            if next.error_ticks < best.error_ticks {
                best = next;
            }
        }
        best
    }

    /// Returns the instant on the clock of the records.
    pub fn ticks(&self) -> Ticks {
        if tick::is_counter() { self.counter } else { self.monotonic }
    }
}

fn duration_nanos(d: std::time::Duration) -> u64 {
    d.as_secs() * 1_000_000_000 + u64::from(d.subsec_nanos())
}
