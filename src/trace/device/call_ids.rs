//! Tells by correlation ids which work was launched at another time than the recording's.

use kineto_base::fallible::List;
use kineto_base::sorting::sort_in_place_by;

/// The ids of recorded calls.
///
/// Libraries count their calls, so work whose id lies before or between those of the windows was launched outside of them.
#[derive(Debug)]
pub(super) struct CallIds {
    /// The highest id of calls from before the first window; 0 if none is known.
    before: u64,
    /// The lowest and the highest id in each window; without calls, the lowest is the higher one.
    windows: List<(u64, u64)>,
    highest: u64,
    /// Whether an id was far below an earlier one: ids wrap around, or number something else.
    is_disordered: bool,
}

impl CallIds {
    /// Creates the ids of that many windows; `before` is the highest known id from before them.
    pub(super) fn new(before: u64, windows: usize) -> CallIds {
        let mut ids = CallIds { before, windows: List::new(), highest: 0, is_disordered: false };
        ids.windows.resize(windows, (u64::MAX, 0));
        ids
    }

    /// Adds a call from before the first window.
    pub(super) fn add_before(&mut self, id: u64) {
        self.before = self.before.max(id);
    }

    /// Adds a call in a window. Calls arrive almost in the order of their ids.
    #[inline]
    pub(super) fn add(&mut self, window: usize, id: u64) {
        /// Calls of several threads arrive in less disorder.
        const DISORDER: u64 = 1 << 20;
        if id == 0 {
            return;
        }
        self.is_disordered |= id.saturating_add(DISORDER) < self.highest;
        self.highest = self.highest.max(id);
        if let Some((first, last)) = self.windows.get_mut(window) {
            (*first, *last) = ((*first).min(id), (*last).max(id));
        }
    }

    /// Ends the adding of calls.
    pub(super) fn finish(&mut self) {
        self.windows.retain(|(first, last)| first <= last);
        // Windows are in order of time, which is not that of their calls if the clock was set back.
        sort_in_place_by(&mut self.windows, Ord::cmp);
    }

    /// Returns whether a call that was not recorded was made outside of the windows.
    pub(super) fn is_outside(&self, id: u64) -> bool {
        if id == 0 || self.is_disordered {
            return false;
        }
        // A corrupt record from before may carry any id, so it counts only below the ids of the windows.
        let is_before = id <= self.before && (self.before < self.highest || self.windows.is_empty());
        let begun = self.windows.partition_point(|(first, _)| *first <= id);
        let ended = begun.checked_sub(1).and_then(|last| self.windows.get(last)).is_some_and(|(_, last)| *last < id);
        is_before || ended && begun < self.windows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(before: u64, windows: &[&[u64]], asked: &[u64]) -> Vec<u64> {
        let mut ids = CallIds::new(before, windows.len());
        for (window, calls) in windows.iter().enumerate() {
            calls.iter().for_each(|id| ids.add(window, *id));
        }
        ids.finish();
        asked.iter().copied().filter(|id| ids.is_outside(*id)).collect()
    }

    #[test]
    fn ids_before_and_between_windows_are_outside() {
        let windows: &[&[u64]] = &[&[11, 10, 12, 14], &[], &[0, 20, 22]];
        assert_eq!(outside(9, windows, &[0, 1, 9, 13, 15, 19, 21, 23]), [1, 9, 15, 19]);
        assert_eq!(outside(0, windows, &[0, 1, 9, 13, 15, 19, 21, 23]), [15, 19]);
        // The calls of several threads were replaced by newer ones in another order.
        assert_eq!(outside(12, &[&[10, 13, 14]], &[9, 11, 12, 15]), [9, 11, 12]);
        assert_eq!(outside(9, &[&[]], &[1, 9, 10]), [1, 9]);
        // The clock was set back between the windows.
        assert_eq!(outside(9, &[&[20, 22], &[10, 14]], &[9, 13, 15, 19, 21, 23]), [9, 15, 19]);
    }

    #[test]
    fn ids_that_do_not_count_calls_tell_nothing() {
        assert!(outside(9, &[&[1 << 40, 10]], &[1, 9]).is_empty());
        // A corrupt record has a larger id than any call.
        assert!(outside(u64::MAX, &[&[10, 11]], &[1, 9]).is_empty());
    }
}
