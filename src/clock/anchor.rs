//! One reading of all clocks at once.

use super::tick;
use crate::time::{Ticks, Timestamp};
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The same moment in ticks, on the monotonic clock and on CLOCK_REALTIME.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub(crate) ticks: Ticks,
    /// Nanoseconds since this process first asked; never stepped, so it tells a step of the other from its drift.
    pub(crate) monotonic_ns: u64,
    pub(crate) unix: Timestamp,
    /// Half the width of the bracket, in ticks: the moment was that near to `ticks`.
    pub(crate) error_ticks: u64,
}

impl Anchor {
    /// Reads the clocks a few times and keeps the tightest bracket, so that a pre-emption in one does not count.
    pub(crate) fn take() -> Anchor {
        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        const TRIES: usize = 7;
        let origin = *ORIGIN;
        let reading = || {
            let before = tick::now().0;
            let monotonic = origin.elapsed();
            let unix = SystemTime::now();
            let after = tick::now().0;
            let half = after.saturating_sub(before) / 2;
            Anchor {
                ticks: Ticks(before + half),
                monotonic_ns: nanos(monotonic),
                unix: Timestamp::from_nanos(nanos(unix.duration_since(UNIX_EPOCH).unwrap_or_default())),
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
}

fn nanos(d: std::time::Duration) -> u64 {
    d.as_secs() * 1_000_000_000 + u64::from(d.subsec_nanos())
}
