//! A table of launches by correlation id.

use super::bits::Bits;
use super::sparse::{Sparse, SparseLaunch};
use super::{Call, RecordHandle, RecordSource};
use crate::time::Timestamp;
use kineto_base::fallible::{List, Map};

/// A slot without a call.
const EMPTY: u32 = u32::MAX;
/// Marks a slot whose id several calls use. Until they are compared, the calls are in `shared`; afterwards their launches are in
/// `rest`. Handles from here up cannot be stored in a slot, so their calls are treated the same.
const SHARED: u32 = u32::MAX - 1;

/// Ids in a page.
const PAGE: u64 = 1024;
/// Bounds the slots to a multiple of the number of calls, plus a few pages.
const SPREAD: u64 = 4;
const PAGES: u64 = 2;

/// The launches, by correlation id.
///
/// Calls with the same id that nest on a thread are a single launch, represented by the outermost call. If an id has
/// several launches, it was reused.
///
/// Ids are consecutive, so neighbours share a page of slots. Ids so sparse that pages would stay empty get none.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// The first slot of each page.
    pages: Map<u64, usize>,
    /// The handle of the launch of each id of a page.
    slots: List<u32>,
    /// All other launches.
    rest: Sparse,
    /// Whether work followed, for each slot and then for each launch of `rest`.
    has_work: Bits,
    /// Whether work was expected, in the same order.
    expected: Bits,
    calls: u64,
    /// Calls that must be compared.
    shared: List<(u64, RecordHandle)>,
}

/// A launch, and its index in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundLaunch {
    pub(super) at: RecordHandle,
    pub(super) place: usize,
}

impl Launches {
    /// Adds a call that has a correlation id.
    #[inline]
    pub(super) fn add_call(&mut self, call: &Call) {
        self.calls += 1;
        let place = self.find_slot(call.correlation).or_else(|| self.make_slot(call.correlation));
        let Some(place) = place else { return self.shared.push((call.correlation, call.at)) };
        match self.slots.get_mut(place) {
            Some(slot) if *slot == EMPTY && call.at.0 < SHARED => {
                *slot = call.at.0;
                if call.launches {
                    self.expected.set_bit(place);
                }
            }
            _ => self.move_to_shared(place, call.correlation, Some(call.at)),
        }
    }

    /// Moves the calls of a slot to `shared`.
    fn move_to_shared(&mut self, place: usize, correlation: u64, another: Option<RecordHandle>) {
        let Some(slot) = self.slots.get_mut(place) else { return };
        let before = Some(RecordHandle(std::mem::replace(slot, SHARED))).filter(|before| before.0 < SHARED);
        self.shared.extend(before.into_iter().chain(another).map(|at| (correlation, at)));
        self.expected.clear_bit(place);
    }

    #[cold]
    fn make_slot(&mut self, correlation: u64) -> Option<usize> {
        let pages = self.pages.len() as u64;
        if pages >= PAGES && pages * PAGE > self.calls.saturating_mul(SPREAD) {
            return None;
        }
        self.pages.insert(correlation / PAGE, self.slots.len());
        self.slots.extend((0..PAGE).map(|_| EMPTY));
        self.find_slot(correlation)
    }

    /// Returns the slot of an id.
    #[inline]
    fn find_slot(&self, correlation: u64) -> Option<usize> {
        Some(self.pages.get(&(correlation / PAGE))? + (correlation % PAGE) as usize)
    }

    /// Returns whether a call must be compared with others; valid after the last call.
    pub(super) fn is_shared(&self, correlation: u64) -> bool {
        let slot = self.find_slot(correlation).and_then(|place| self.slots.get(place));
        correlation != 0 && slot.is_none_or(|slot| *slot == SHARED)
    }

    /// Moves all calls of sparse ids to `shared`, after the last call.
    pub(super) fn move_sparse_calls(&mut self) {
        for nth in 0..self.shared.len() {
            if let Some((correlation, _)) = self.shared.get(nth).copied()
                && let Some(place) = self.find_slot(correlation)
            {
                // It had no page at first.
                self.move_to_shared(place, correlation, None);
            }
        }
        self.shared.sort_unstable();
    }

    /// Groups the calls in `shared` into launches, and passes the calls of each to `take`. Returns how many launches
    /// reused an id.
    pub(super) fn group_shared(
        &mut self,
        records: &impl RecordSource,
        mut take: impl FnMut(&Launches, &[Call]),
    ) -> u64 {
        let (shared, mut calls, mut reused) = (std::mem::take(&mut self.shared), List::new(), 0);
        for same in shared.chunk_by(|a, b| a.0 == b.0) {
            calls.clear();
            calls.extend(same.iter().map(|(_, at)| records.call_at(*at)));
            calls.sort_unstable_by_key(|call: &Call| (call.thread, call.sort_key()));
            reused += self.add_launches(&calls);
            for nest in split_nests(&calls) {
                if nest.iter().any(|call| call.launches)
                    && let Some(place) = nest.first().and_then(|outermost| self.launch_index(outermost))
                {
                    self.expected.set_bit(place);
                }
                take(self, nest);
            }
        }
        self.rest.shrink_to_fit();
        self.slots.shrink_to_fit();
        reused
    }

    /// Adds the launches of an id from all of its calls; returns how many reused it.
    fn add_launches(&mut self, calls: &[Call]) -> u64 {
        let launch = |call: &Call| SparseLaunch { correlation: call.correlation, start: call.start, at: call.at };
        let mut launches = split_nests(calls).filter_map(|nest| nest.first().map(launch));
        let (Some(launch), second) = (launches.next(), launches.next()) else { return 0 };
        let place = self.find_slot(launch.correlation);
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place))
            && second.is_none()
            && launch.at.0 < SHARED
        {
            *slot = launch.at.0;
            return 0;
        }
        self.rest.add_launches([launch].into_iter().chain(second).chain(launches)).saturating_sub(1)
    }

    /// Finds the launch of device work: the last launch that starts no later than the work, otherwise the first.
    #[inline]
    pub(super) fn find_launch(&self, correlation: u64, start: Timestamp) -> Option<FoundLaunch> {
        match self.find_slot(correlation).and_then(|place| Some((place, *self.slots.get(place)?))) {
            Some((place, launch)) if launch < SHARED => Some(FoundLaunch { at: RecordHandle(launch), place }),
            Some((_, EMPTY)) => None,
            _ => {
                let (nth, at) = self.rest.find_launch(correlation, start)?;
                Some(FoundLaunch { at, place: self.slots.len() + nth })
            }
        }
    }

    /// Does the same, and marks the launch as having work.
    #[inline]
    pub(super) fn mark_worked(&mut self, correlation: u64, start: Timestamp) -> Option<FoundLaunch> {
        let found = self.find_launch(correlation, start)?;
        self.has_work.set_bit(found.place);
        Some(found)
    }

    /// Returns the index of this call in the table, if it is a launch.
    pub(super) fn launch_index(&self, call: &Call) -> Option<usize> {
        match self.find_slot(call.correlation).and_then(|place| Some((place, *self.slots.get(place)?))) {
            Some((place, launch)) if launch < SHARED => Some(place).filter(|_| launch == call.at.0),
            _ => {
                let launch = SparseLaunch { correlation: call.correlation, start: call.start, at: call.at };
                self.rest.launch_index(&launch).map(|nth| self.slots.len() + nth)
            }
        }
    }

    /// Returns whether the launch at this index has device work.
    pub(super) fn has_worked(&self, place: usize) -> bool {
        self.has_work.is_set(place)
    }

    /// Returns how many launches lack expected work; valid after the last work.
    pub(super) fn without_work(&mut self) -> u64 {
        self.has_work.shrink_to_fit();
        std::mem::take(&mut self.expected).count_without(&self.has_work)
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let pages = self.pages.capacity() * (size_of::<(u64, usize)>() + 1);
        pages + self.slots.capacity() * size_of::<u32>() + self.rest.heap_bytes() + self.has_work.heap_bytes()
    }
}

/// Splits the calls of an id, in order of thread and place, into groups. Each group is a single launch: an outermost
/// call, which comes first, and the calls nested in it.
///
/// A call nested in several that overlap belongs to the last of these.
fn split_nests(mut calls: &[Call]) -> impl Iterator<Item = &[Call]> {
    std::iter::from_fn(move || {
        let outermost = calls.first()?;
        let lies_in = |call: &&Call| call.thread == outermost.thread && call.end <= outermost.end;
        let (nest, others) = calls.split_at_checked(calls.iter().take_while(lies_in).count())?;
        calls = others;
        Some(nest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_ids_get_few_pages_and_dense_ids_all() {
        let (mut sparse, mut dense) = (Launches::default(), Launches::default());
        let made = (1..=100).filter(|nth| sparse.make_slot(nth * 1_000_000).is_some()).count();
        assert_eq!((made, sparse.slots.len()), (2, 2 * 1024));
        for id in 0..20 * PAGE {
            dense.calls += 1;
            assert!(dense.find_slot(id).or_else(|| dense.make_slot(id)).is_some(), "{id}");
        }
        assert_eq!(dense.slots.len(), 20 * 1024);
    }
}
