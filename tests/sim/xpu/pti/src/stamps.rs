//! The clock that records are stamped by: real time.

use crate::link;
use crate::shared::clock;
use sim_core::handles::lock;
use std::sync::Mutex;

/// How far stamps are from the machine's clock, with the number of the options that it is of.
static SHIFT: Mutex<Option<(u64, i64)>> = Mutex::new(None);

/// Now, as records are stamped.
pub(crate) fn now() -> u64 {
    clock::wall().saturating_add_signed(link::options().clock_skew_ns)
}

/// The stamp of a moment of the machine's clock.
pub(crate) fn of(at: u64) -> u64 {
    let mut known = lock(&SHIFT);
    let configured = link::configurations();
    let shift = known.filter(|(number, _)| *number == configured).map_or_else(measure, |(_, shift)| shift);
    *known = Some((configured, shift));
    at.saturating_add_signed(shift)
}

/// The best of some tries: the thread may have to wait between the readings.
fn measure() -> i64 {
    const TRIES: usize = 20;
    let once = |_| {
        let (before, stamp, after) = (clock::now(), now(), clock::now());
        (after - before, stamp.wrapping_sub(before.midpoint(after)) as i64)
    };
    (0..TRIES).map(once).min_by_key(|(width, _)| *width).map_or(0, |(_, shift)| shift)
}
