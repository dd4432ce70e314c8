//! Orders records by lane, then by time.

use kineto_base::sorting::sort_in_place_by_key;
use std::cmp::Reverse;
use std::hash::Hash;

use super::{Call, RecordHandle, Work};
use crate::time::Timestamp;
use kineto_base::fallible::{List, Map};

/// How far back a late record may be inserted as it arrives.
const REACH: usize = 64;

/// The sort key of a record in its lane: by start, the longest first, then by handle.
pub(super) type Place = (Timestamp, Reverse<Timestamp>, RecordHandle);

impl Call {
    pub(super) fn sort_key(&self) -> Place {
        (self.start, Reverse(self.end), self.at)
    }
}

impl Work {
    pub(super) fn sort_key(&self) -> Place {
        (self.start, Reverse(self.end), self.at)
    }
}

/// The records of each lane in order of start, the longest first; 4 bytes each.
///
/// Records arrive almost in order: a slightly late record is inserted at once. A lane is sorted at the end only if a
/// record was later than that.
#[derive(Debug, Default)]
pub(crate) struct RecordOrder<L> {
    lanes: List<OrderedLane<L>>,
    numbers: Map<L, usize>,
    /// Whether a record of some lane began before an earlier record had ended.
    pub(crate) may_overlap: bool,
}

#[derive(Debug)]
struct OrderedLane<L> {
    key: L,
    handles: List<RecordHandle>,
    /// The greatest place so far.
    last: Option<Place>,
    /// The latest end so far.
    end: Timestamp,
    is_sorted: bool,
}

impl<L: Copy + Ord + Hash> RecordOrder<L> {
    /// Adds a record; `place_of` returns the place of an earlier record.
    pub(super) fn push_record(&mut self, lane: L, place: Place, place_of: impl Fn(RecordHandle) -> Place) {
        let next = self.lanes.len();
        let number = *self.numbers.get_or_insert_with(lane, || next);
        if number == next {
            self.lanes.push(OrderedLane {
                key: lane,
                handles: List::new(),
                last: None,
                end: Timestamp::default(),
                is_sorted: true,
            });
        }
        if let Some(lane) = self.lanes.get_mut(number) {
            self.may_overlap |= place.0 < lane.end;
            lane.end = lane.end.max(place.1.0);
            lane.push_record(place, place_of);
        }
    }

    /// Orders lanes and records, after the last record.
    pub(super) fn sort_lanes(&mut self, place_of: impl Fn(RecordHandle) -> Place) {
        self.numbers = Map::default();
        sort_in_place_by_key(&mut self.lanes, |lane| lane.key);
        for lane in &mut self.lanes {
            lane.sort_records(&place_of);
        }
    }

    /// Returns the lanes in order of their keys.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (L, &[RecordHandle])> {
        self.lanes.iter().map(|lane| (lane.key, &lane.handles[..]))
    }

    /// Returns the lane of that key, after `finish`.
    pub(crate) fn lane(&self, key: L) -> Option<&[RecordHandle]> {
        let found = self.lanes.binary_search_by_key(&key, |lane| lane.key).ok()?;
        self.lanes.get(found).map(|lane| &lane.handles[..])
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let handles: usize = self.lanes.iter().map(|lane| lane.handles.capacity()).sum();
        handles * size_of::<RecordHandle>() + self.lanes.capacity() * size_of::<OrderedLane<L>>()
    }
}

impl<L> OrderedLane<L> {
    fn push_record(&mut self, place: Place, place_of: impl Fn(RecordHandle) -> Place) {
        let is_late = self.last.is_some_and(|last| place < last);
        if !is_late {
            self.last = Some(place);
        } else if self.is_sorted {
            self.is_sorted = self.insert_late(place, place_of);
            return;
        }
        self.handles.push(place.2);
    }

    /// Inserts a late record; returns whether its place was within reach.
    fn insert_late(&mut self, place: Place, place_of: impl Fn(RecordHandle) -> Place) -> bool {
        let later = self.handles.iter().rev().take(REACH).take_while(|handle| place_of(**handle) > place).count();
        let at = self.handles.len() - later;
        self.handles.insert(at, place.2);
        later < REACH || at == 0
    }

    fn sort_records(&mut self, place_of: &impl Fn(RecordHandle) -> Place) {
        if !self.is_sorted {
            let mut places: List<_> = self.handles.iter().map(|handle| place_of(*handle)).collect();
            // An unstable sort: the stable sort would allocate to merge runs.
            places.sort_unstable();
            self.handles.clear();
            self.handles.extend(places.iter().map(|place| place.2));
            self.is_sorted = true;
        }
        self.handles.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes lanes and starts, and returns the starts in the order of each lane.
    fn ordered(records: &[(u32, u64)]) -> Vec<(u32, Vec<u64>)> {
        let handle = |at: usize| RecordHandle(u32::try_from(at).unwrap());
        let place_of =
            |at: RecordHandle| (Timestamp::from_nanos(records[at.0 as usize].1), Reverse(Timestamp::from_nanos(0)), at);
        let mut order = RecordOrder::default();
        for (at, (lane, _)) in records.iter().enumerate() {
            order.push_record(*lane, place_of(handle(at)), place_of);
        }
        order.sort_lanes(place_of);
        order
            .lanes()
            .map(|(lane, handles)| (lane, handles.iter().map(|at| records[at.0 as usize].1).collect()))
            .collect()
    }

    #[test]
    fn lanes_are_ordered_by_key_and_records_by_place() {
        assert_eq!(ordered(&[]), []);
        assert_eq!(ordered(&[(9, 5), (2, 7), (9, 3), (9, 4), (2, 8)]), [(2, vec![7, 8]), (9, vec![3, 4, 5])]);
    }

    #[test]
    fn late_records_are_ordered_within_and_beyond_reach() {
        for count in [REACH as u64 - 1, REACH as u64, REACH as u64 + 1, 1000] {
            for late in [0, 1, count / 2, count] {
                let starts = (1..=count).map(|n| 2 * n).chain([2 * late + 1, 2 * late + 1, 2 * count + 2]);
                let records: Vec<_> = starts.map(|start| (0, start)).collect();
                let mut sorted: Vec<_> = records.iter().map(|(_, start)| *start).collect();
                sorted.sort_unstable();
                assert_eq!(ordered(&records), [(0, sorted)], "{late} of {count}");
            }
        }
    }
}
