//! The pauses of a recording, on the clock of a collector's records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The periods whose records are not wanted. Its lock is only held for short lookups.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// Whether there is a pause.
    has_pauses: AtomicBool,
    /// Begin and end of each, in order; the last may be open.
    periods: Mutex<Vec<(u64, u64)>>,
}

impl Pauses {
    fn lock_periods(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.periods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a pause: records that begin from then on are not wanted. A time before the end of the last pause is stale, since
    /// clocks are read without a lock, so the pause begins at that end.
    pub(crate) fn begin_pause(&self, at: u64) {
        let mut periods = self.lock_periods();
        if periods.last().is_none_or(|last| last.1 != u64::MAX) {
            let ended = periods.last().map_or(0, |last| last.1);
            periods.push((at.max(ended), u64::MAX));
        }
        self.has_pauses.store(true, Ordering::Release);
    }

    /// Ends the pause.
    pub(crate) fn end_pause(&self, at: u64) {
        if let Some(last) = self.lock_periods().last_mut().filter(|last| last.1 == u64::MAX) {
            last.1 = at.max(last.0);
        }
    }

    /// Forgets the pauses that ended before then.
    pub(crate) fn forget_before(&self, at: u64) {
        self.lock_periods().retain(|period| period.1 >= at);
    }

    /// Returns whether the whole period lies in a pause; an end of 0 means that it has not ended.
    #[inline]
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        self.has_pauses.load(Ordering::Acquire) && self.has_pause_around(start, if end == 0 { u64::MAX } else { end })
    }

    /// Returns whether some of the period lies in a pause.
    #[inline]
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.has_pauses.load(Ordering::Acquire) && self.last_before(end).is_some_and(|stretch| start < stretch.1)
    }

    fn has_pause_around(&self, start: u64, end: u64) -> bool {
        self.last_before(start).is_some_and(|stretch| end < stretch.1)
    }

    /// Returns the last pause that began before then.
    fn last_before(&self, at: u64) -> Option<(u64, u64)> {
        let periods = self.lock_periods();
        let before = periods.partition_point(|stretch| stretch.0 < at);
        periods.get(before.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_periods_inside_a_pause_are_covered() {
        let pauses = Pauses::default();
        assert!(!pauses.covers(15, 16));
        pauses.end_pause(1);
        pauses.begin_pause(10);
        pauses.begin_pause(12);
        assert!(pauses.covers(11, 1000) && !pauses.covers(10, 11) && !pauses.covers(11, 0), "an open pause");
        pauses.end_pause(20);
        pauses.end_pause(25);
        pauses.begin_pause(30);
        pauses.end_pause(40);
        let covered = [(5, 6), (5, 15), (11, 19), (19, 20), (19, 35), (22, 24), (31, 39), (31, 0), (41, 42)];
        let covered = covered.map(|(start, end)| pauses.covers(start, end));
        assert_eq!(covered, [false, false, true, false, false, false, true, false, false]);
        let met = [(5, 6), (5, 15), (11, 19), (19, 22), (20, 30), (22, 24), (5, 50)];
        assert_eq!(met.map(|(start, end)| pauses.overlaps(start, end)), [false, true, true, true, false, false, true]);
        pauses.forget_before(40);
        assert_eq!([(11, 19), (31, 39)].map(|(start, end)| pauses.covers(start, end)), [false, true]);
    }

    #[test]
    fn stale_pause_begins_where_the_last_one_ended() {
        let pauses = Pauses::default();
        pauses.begin_pause(0);
        pauses.end_pause(50);
        pauses.begin_pause(200);
        pauses.end_pause(300);
        // Its clock was read before the pause at 200.
        pauses.begin_pause(100);
        assert!(!pauses.covers(60, 70) && !pauses.covers(100, 150) && pauses.covers(301, 302));
        pauses.end_pause(400);
        assert!(pauses.covers(210, 220) && !pauses.covers(401, 402));
    }
}
