//! The lanes of a track: slices of a lane nest or are disjoint.

use super::sequence::Sequence;
use crate::first_fit::FreeRows;
use kineto_base::hash::HashMap;
use kineto_base::time::Timestamp;

/// All lanes of a track. Events should come in order of their starts; others try each lane.
#[derive(Debug, Default)]
pub(super) struct TrackLanes {
    lanes: Vec<TrackLane>,
    /// The lanes after the first, which most tracks have alone.
    free: FreeRows,
    /// The start of the latest event.
    time: u64,
    /// Of async spans: the last lane of each owner.
    of_owner: HashMap<u64, usize>,
}

/// Nested slices of a track.
#[derive(Debug)]
pub(super) struct TrackLane {
    pub(super) sequence: Sequence,
    /// The ends of slices whose end is not yet written, innermost last.
    pub(super) open: Vec<u64>,
    /// The start of the last event; no later event may begin before it.
    pub(super) time: u64,
    /// The ends of slices that are open at the track's time, innermost last.
    around: Vec<u64>,
    /// For an async track: the span that owns the lane.
    owner: Option<u64>,
}

/// Perfetto never ends slices that are nested more than 512 deep.
const MAX_DEPTH: usize = 500;

/// The end until which an empty lane is free.
const ALWAYS: u64 = u64::MAX;

impl TrackLane {
    fn close_until(&mut self, by: u64) {
        while self.around.pop_if(|end| *end <= by).is_some() {}
    }

    /// Returns the latest end of a slice that begins now.
    fn free_until(&self) -> u64 {
        if self.around.len() < MAX_DEPTH { self.around.last().copied().unwrap_or(ALWAYS) } else { 0 }
    }

    /// Returns whether a slice fits that begins before the latest event of the track.
    fn takes_late(&self, owner: Option<u64>, start: u64, end: u64) -> bool {
        let around = self.open.iter().rev().find(|open| **open > start);
        let fits = around.is_none_or(|around| self.owner == owner && *around >= end);
        start >= self.time && fits && self.open.len() < MAX_DEPTH
    }
}

impl TrackLanes {
    /// Returns the lane for a slice: the first one that it fits in, for async spans one of its owner or an empty one.
    pub(super) fn place_slice(
        &mut self,
        owner: Option<u64>,
        (start, end): (u64, u64),
        sequence: &mut dyn FnMut(usize) -> Sequence,
    ) -> usize {
        let found = self.find_lane(owner, start, end);
        let number = found.unwrap_or_else(|| self.add_lane(sequence));
        let Some(lane) = self.lanes.get_mut(number) else { return number };
        lane.owner = owner;
        owner.map(|owner| self.of_owner.insert(owner, number));
        if end > self.time {
            lane.around.push(end);
        }
        if let Some(row) = number.checked_sub(1) {
            self.free.push_end(Timestamp::from_nanos(end), row);
            self.free.set_free_until(row, Timestamp::from_nanos(lane.free_until()));
        }
        number
    }

    /// Returns the lane for an event at a point in time.
    pub(super) fn place_instant(&mut self, time: u64, sequence: &mut dyn FnMut(usize) -> Sequence) -> usize {
        let found = if time < self.time {
            self.lanes.iter().position(|lane| time >= lane.time)
        } else {
            self.time = time;
            (!self.lanes.is_empty()).then_some(0)
        };
        found.unwrap_or_else(|| self.add_lane(sequence))
    }

    pub(super) fn get_mut(&mut self, lane: usize) -> Option<&mut TrackLane> {
        self.lanes.get_mut(lane)
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut TrackLane> {
        self.lanes.iter_mut()
    }

    fn find_lane(&mut self, owner: Option<u64>, start: u64, end: u64) -> Option<usize> {
        if start < self.time {
            return self.lanes.iter().position(|lane| lane.takes_late(owner, start, end));
        }
        self.time = start;
        self.close_until(start);
        let lane = |lane: &usize| self.lanes.get(*lane);
        let is_free = |lane: &TrackLane| lane.owner == owner && lane.free_until() >= end;
        let own = owner.and_then(|owner| self.of_owner.get(&owner)).filter(|own| lane(own).is_some_and(is_free));
        own.copied().or_else(|| self.first_free(if owner.is_some() { ALWAYS } else { end.max(1) }))
    }

    fn close_until(&mut self, by: u64) {
        self.lanes.first_mut().into_iter().for_each(|lane| lane.close_until(by));
        while let Some(row) = self.free.pop_ended(Timestamp::from_nanos(by)) {
            if let Some(lane) = self.lanes.get_mut(row + 1) {
                lane.close_until(by);
                self.free.set_free_until(row, Timestamp::from_nanos(lane.free_until()));
            }
        }
    }

    fn first_free(&self, until: u64) -> Option<usize> {
        if self.lanes.first()?.free_until() >= until {
            return Some(0);
        }
        self.free.first_free(Timestamp::from_nanos(until)).map(|row| row + 1)
    }

    fn add_lane(&mut self, sequence: &mut dyn FnMut(usize) -> Sequence) -> usize {
        let number = self.lanes.len();
        let (sequence, open, around) = (sequence(number), Vec::new(), Vec::new());
        self.lanes.push(TrackLane { sequence, open, time: 0, around, owner: None });
        if let Some(row) = number.checked_sub(1) {
            self.free.set_free_until(row, Timestamp::from_nanos(ALWAYS));
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the first lane in which nothing that is open ends before the slice does, found by trying each.
    fn first_fit(slices: &[(u64, u64)]) -> Vec<usize> {
        let mut lanes: Vec<Vec<u64>> = Vec::new();
        let place = |(start, end): &(u64, u64)| {
            lanes.iter_mut().for_each(|open| open.retain(|end| end > start));
            let lane =
                lanes.iter().position(|open| open.last().is_none_or(|around| end <= around)).unwrap_or(lanes.len());
            lanes.resize_with(lanes.len().max(lane + 1), Vec::new);
            lanes[lane].push(*end);
            lane
        };
        slices.iter().map(place).collect()
    }

    /// Returns the last lane of the slice's owner if nothing that is open there ends before the slice does, else the first lane in
    /// which nothing is open.
    fn own_or_empty(slices: &[(u64, u64, u64)]) -> Vec<usize> {
        let mut lanes: Vec<(u64, Vec<u64>)> = Vec::new();
        let mut last: HashMap<u64, usize> = HashMap::default();
        let place = |(start, end, owner): &(u64, u64, u64)| {
            lanes.iter_mut().for_each(|(_, open)| open.retain(|end| end > start));
            let fits = |lane: &&usize| {
                let (of, open) = &lanes[**lane];
                of == owner && open.last().is_none_or(|around| end <= around)
            };
            let empty = || lanes.iter().position(|(_, open)| open.is_empty()).unwrap_or(lanes.len());
            let lane = last.get(owner).filter(fits).copied().unwrap_or_else(empty);
            lanes.resize_with(lanes.len().max(lane + 1), Default::default);
            lanes[lane].0 = *owner;
            lanes[lane].1.push(*end);
            last.insert(*owner, lane);
            lane
        };
        slices.iter().map(place).collect()
    }

    proptest! {
        #[test]
        fn async_slice_is_in_its_owners_lane_or_an_empty_one(
            mut slices in prop::collection::vec((0u64..20, 0u64..12, 0u64..4), 0..40)
        ) {
            slices.sort_unstable();
            let slices: Vec<_> = slices.into_iter().map(|(start, length, owner)| (start, start + length, owner)).collect();
            let mut lanes = TrackLanes::default();
            let mut sequence = |number: usize| Sequence::new(number as u64, 1);
            let mut place = |(start, end, owner)| lanes.place_slice(Some(owner), (start, end), &mut sequence);
            let placed: Vec<_> = slices.iter().copied().map(&mut place).collect();
            prop_assert_eq!(placed, own_or_empty(&slices));
        }

        #[test]
        fn slice_is_in_the_first_lane_that_fits(mut slices in prop::collection::vec((0u64..100, 0u64..60), 0..80)) {
            slices.sort_unstable();
            let slices: Vec<_> = slices.into_iter().map(|(start, length)| (start, start + length)).collect();
            let mut lanes = TrackLanes::default();
            let mut sequence = |number: usize| Sequence::new(number as u64, 1);
            let placed: Vec<_> = slices.iter().map(|times| lanes.place_slice(None, *times, &mut sequence)).collect();
            prop_assert_eq!(placed, first_fit(&slices));
        }
    }
}
