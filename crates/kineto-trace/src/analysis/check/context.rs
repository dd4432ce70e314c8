//! What several rules need of a trace; each part is computed when a rule first needs it.

use crate::analysis::events::Events;
use crate::analysis::relations::{Attribution, Nesting};
use crate::analysis::summary::{Devices, Intervals, PathContext, PathIndexes, WorkClass};
use crate::analysis::tree::EventTree;
use crate::time::Timestamp;
use std::cell::OnceCell;
use std::ops::Range;

pub(super) struct CheckContext<'e> {
    pub(super) events: &'e Events,
    attribution: OnceCell<Attribution<'e>>,
    devices: OnceCell<Devices<'e>>,
    tree: OnceCell<EventTree<'e>>,
    busy: OnceCell<CoveredTime>,
    exposed: OnceCell<(CoveredTime, CoveredTime)>,
    path_indexes: OnceCell<PathIndexes<'e>>,
}

impl<'e> CheckContext<'e> {
    pub(super) fn new(events: &'e Events) -> CheckContext<'e> {
        CheckContext {
            events,
            attribution: OnceCell::new(),
            devices: OnceCell::new(),
            tree: OnceCell::new(),
            busy: OnceCell::new(),
            exposed: OnceCell::new(),
            path_indexes: OnceCell::new(),
        }
    }

    fn attribution(&self) -> &Attribution<'e> {
        self.attribution.get_or_init(|| Attribution::new(self.events, &Nesting::new(self.events)))
    }

    pub(super) fn devices(&self) -> &Devices<'e> {
        self.devices.get_or_init(|| Devices::new(self.events, self.attribution()))
    }

    pub(super) fn tree(&self) -> &EventTree<'e> {
        self.tree.get_or_init(|| self.events.span_tree())
    }

    pub(super) fn paths(&self) -> PathContext<'_, 'e> {
        let new_indexes = || PathIndexes::new(self.events, self.devices(), self.attribution());
        PathContext::new(self.events, self.devices(), self.path_indexes.get_or_init(new_indexes))
    }

    /// Returns the time during which any device worked.
    pub(super) fn busy(&self) -> &CoveredTime {
        self.busy.get_or_init(|| CoveredTime::new(&self.devices().busy_times()))
    }

    /// Returns the time of communication between two times during which no compute kernel ran, in nanoseconds.
    pub(super) fn exposed_ns(&self, start: Timestamp, end: Timestamp) -> u64 {
        let (all, overlapped) = self.exposed.get_or_init(|| {
            let communication = self.devices().times_of(WorkClass::Communication);
            let overlapped = communication.intersection(&self.devices().times_of(WorkClass::Compute));
            (CoveredTime::new(&communication), CoveredTime::new(&overlapped))
        });
        all.ns_within(start, end) - overlapped.ns_within(start, end)
    }
}

/// A set of times whose length in a window is found without a walk through the window.
pub(super) struct CoveredTime {
    parts: Vec<(Timestamp, Timestamp)>,
    /// By part: the length of all parts before it, in nanoseconds.
    before: Vec<u64>,
    /// By block of gaps: the index of the longest; gap `n` follows part `n`.
    block_gaps: Vec<usize>,
}

/// The number of gaps in a block.
const BLOCK: usize = 256;

impl CoveredTime {
    fn new(intervals: &Intervals) -> CoveredTime {
        let parts = intervals.parts().to_vec();
        let mut sum = 0;
        let before = parts.iter().map(|(start, end)| {
            let before = sum;
            sum += end.since(*start);
            before
        });
        let before = before.collect();
        let mut covered = CoveredTime { parts, before, block_gaps: Vec::new() };
        let gaps = covered.parts.len().saturating_sub(1);
        let longest_of = |first| covered.longest_of(first..gaps.min(first + BLOCK));
        covered.block_gaps = (0..gaps).step_by(BLOCK).filter_map(longest_of).collect();
        covered
    }

    /// Returns the time between a part and the next.
    fn gap(&self, number: usize) -> Option<(Timestamp, Timestamp)> {
        Some((self.parts.get(number)?.1, self.parts.get(number + 1)?.0))
    }

    /// Returns the index of the longest gap of a range, the first of several; uses blocks that are already known.
    fn longest_of(&self, gaps: Range<usize>) -> Option<usize> {
        let (mut at, mut longest) = (gaps.start, None);
        while at < gaps.end {
            let block = (at % BLOCK == 0 && at + BLOCK <= gaps.end).then(|| self.block_gaps.get(at / BLOCK)).flatten();
            let number = block.copied().unwrap_or(at);
            let ns = self.gap(number).map_or(0, |(start, end)| end.since(start));
            if longest.is_none_or(|(_, most)| ns > most) {
                longest = Some((number, ns));
            }
            at += if block.is_some() { BLOCK } else { 1 };
        }
        longest.map(|(number, _)| number)
    }

    /// Returns the start of the first part and the end of the last.
    pub(super) fn window(&self) -> Option<(Timestamp, Timestamp)> {
        Some((self.parts.first()?.0, self.parts.last()?.1))
    }

    /// Returns the length between two times, in nanoseconds.
    pub(super) fn ns_within(&self, start: Timestamp, end: Timestamp) -> u64 {
        self.ns_before(end.max(start)) - self.ns_before(start)
    }

    fn ns_before(&self, at: Timestamp) -> u64 {
        let last = self.parts.partition_point(|part| part.0 < at).checked_sub(1);
        let found = last.and_then(|last| Some((self.parts.get(last)?, self.before.get(last)?)));
        found.map_or(0, |((start, end), before)| before + at.min(*end).since(*start))
    }

    /// Returns the times between two parts.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        (0..self.parts.len()).map_while(|number| self.gap(number))
    }

    /// Returns the longest part of a window that is not covered. An empty part ends it too, as work does that took no time.
    pub(super) fn longest_gap(&self, start: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
        let first = self.parts.partition_point(|part| part.1 <= start);
        let behind = self.parts.partition_point(|part| part.0 < end);
        let last = behind.checked_sub(1).filter(|last| *last >= first);
        let inside = last.and_then(|last| Some((last, self.parts.get(first)?, self.parts.get(last)?)));
        let Some((last, from, to)) = inside else { return (start, end.max(start)) };
        let between = self.longest_of(first..last).and_then(|number| self.gap(number));
        let mut longest = (start, start);
        for (begin, end) in [Some((start, from.0)), between, Some((to.1, end))].into_iter().flatten() {
            if end > begin && end.since(begin) > longest.1.since(longest.0) {
                longest = (begin, end);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn covered_time_agrees_with_single_nanoseconds(
            parts in prop::collection::vec((0u64..4000, 1u64..4), 0..900),
            (start, end) in (0u64..4100, 0u64..4100),
        ) {
            let at = Timestamp::from_nanos;
            let intervals = Intervals::union(parts.iter().map(|(start, length)| (at(*start), at(start + length))));
            let covered = CoveredTime::new(&intervals);
            prop_assert_eq!(covered.ns_within(at(start), at(end)), intervals.ns_within(at(start), at(end)));
            let is_covered = |ns: u64| intervals.contains(at(ns));
            let (mut longest, mut length) = (0, 0);
            for ns in start..end {
                length = if is_covered(ns) { 0 } else { length + 1 };
                longest = longest.max(length);
            }
            let gap = covered.longest_gap(at(start), at(end.max(start)));
            prop_assert_eq!(gap.1.since(gap.0), longest);
        }
    }
}
