//! When a recording was paused, by the clock of a collector's records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The stretches of time whose records are not wanted. Its lock is never held for longer than a look.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// There is one.
    any: AtomicBool,
    /// Begin and end of each, in order; the last one may go on.
    stretches: Mutex<Vec<(u64, u64)>>,
}

impl Pauses {
    fn stretches(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What begins from then on is not wanted.
    pub(super) fn begin(&self, at: u64) {
        let mut stretches = self.stretches();
        if stretches.last().is_none_or(|last| last.1 != u64::MAX) {
            stretches.push((at, u64::MAX));
        }
        self.any.store(true, Ordering::Release);
    }

    /// What begins from then on is wanted again.
    pub(super) fn end(&self, at: u64) {
        if let Some(last) = self.stretches().last_mut().filter(|last| last.1 == u64::MAX) {
            last.1 = at.max(last.0);
        }
    }

    /// Whether all of that lay in a pause; an end of 0 is none.
    #[inline]
    pub(super) fn cover(&self, start: u64, end: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.find(start, if end == 0 { u64::MAX } else { end })
    }

    /// Whether some of that lay in a pause.
    #[inline]
    pub(super) fn meet(&self, start: u64, end: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.last_before(end).is_some_and(|stretch| start < stretch.1)
    }

    fn find(&self, start: u64, end: u64) -> bool {
        self.last_before(start).is_some_and(|stretch| end < stretch.1)
    }

    /// The last pause that began before then.
    fn last_before(&self, at: u64) -> Option<(u64, u64)> {
        let stretches = self.stretches();
        let before = stretches.partition_point(|stretch| stretch.0 < at);
        stretches.get(before.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_a_pause_is_covered() {
        let pauses = Pauses::default();
        assert!(!pauses.cover(15, 16));
        pauses.end(1);
        pauses.begin(10);
        pauses.begin(12);
        assert!(pauses.cover(11, 1000) && !pauses.cover(10, 11) && !pauses.cover(11, 0), "one that goes on");
        pauses.end(20);
        pauses.end(25);
        pauses.begin(30);
        pauses.end(40);
        let covered = [(5, 6), (5, 15), (11, 19), (19, 20), (19, 35), (22, 24), (31, 39), (31, 0), (41, 42)];
        let covered = covered.map(|(start, end)| pauses.cover(start, end));
        assert_eq!(covered, [false, false, true, false, false, false, true, false, false]);
        let met = [(5, 6), (5, 15), (11, 19), (19, 22), (20, 30), (22, 24), (5, 50)];
        assert_eq!(met.map(|(start, end)| pauses.meet(start, end)), [false, true, true, true, false, false, true]);
    }
}
