//! Which call launched what: a table over correlation ids.

use super::bits::Bits;
use super::hash::IdMap;
use super::sparse::{Sparse, SparseLaunch};
use super::{Call, RecordHandle, RecordSource};
use crate::time::Timestamp;
use kineto_trace::fallible::List;

/// A slot without a call.
const EMPTY: u32 = u32::MAX;
/// A slot whose calls must be looked at together, and then one whose launches are in `rest`: calls of an id that several
/// have, or with a handle that has a meaning here.
const SHARED: u32 = u32::MAX - 1;

/// Ids on a page.
const PAGE: u64 = 1024;
/// Pages may have this many times as many slots as there are calls, and there may always be a few.
const SPREAD: u64 = 4;
const PAGES: u64 = 2;

/// The launches, found by correlation id.
///
/// Calls of one id that nest in one another on a thread are one launch, for which the outermost stands. An id of several
/// launches was used again.
///
/// Ids are handed out one after the other, so those near to one another share a page of slots. Those that lie so far
/// apart that pages would stay empty have none.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Where in `slots` each page begins.
    pages: IdMap<u64, usize>,
    /// The page that was met last, which is the next one mostly, and where it begins.
    last: (u64, usize),
    /// For each id of a page the handle of its launch.
    slots: List<u32>,
    /// All other launches.
    rest: Sparse,
    /// For each slot, then for each of `rest`, whether work came of it.
    worked: Bits,
    /// And whether it should have.
    expected: Bits,
    calls: u64,
    /// Calls that must be looked at together.
    shared: List<(u64, RecordHandle)>,
}

/// A launch, and its place in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) at: RecordHandle,
    pub(super) place: usize,
}

impl Launches {
    /// Takes a call that has a correlation id.
    #[inline]
    pub(super) fn add(&mut self, call: &Call) {
        self.calls += 1;
        let place = self.slot(call.correlation).or_else(|| self.make_slot(call.correlation));
        let Some(place) = place else { return self.shared.push((call.correlation, call.at)) };
        match self.slots.get_mut(place) {
            Some(slot) if *slot == EMPTY && call.at.0 < SHARED => {
                *slot = call.at.0;
                if call.launches {
                    self.expected.set(place);
                }
            }
            _ => self.share(place, call.correlation, Some(call.at)),
        }
    }

    /// Has the calls of a slot looked at together.
    fn share(&mut self, place: usize, correlation: u64, another: Option<RecordHandle>) {
        let Some(slot) = self.slots.get_mut(place) else { return };
        let before = Some(RecordHandle(std::mem::replace(slot, SHARED))).filter(|before| before.0 < SHARED);
        self.shared.extend(before.into_iter().chain(another).map(|at| (correlation, at)));
        self.expected.clear(place);
    }

    #[cold]
    fn make_slot(&mut self, correlation: u64) -> Option<usize> {
        let pages = self.pages.len() as u64;
        if pages >= PAGES && pages * PAGE > self.calls.saturating_mul(SPREAD) {
            return None;
        }
        self.last = (correlation / PAGE, self.slots.len());
        self.pages.insert(self.last.0, self.last.1);
        self.slots.extend((0..PAGE).map(|_| EMPTY));
        self.slot(correlation)
    }

    /// Where in `slots` an id is.
    #[inline]
    fn slot(&mut self, correlation: u64) -> Option<usize> {
        let page = correlation / PAGE;
        if self.slots.is_empty() || self.last.0 != page {
            self.last = (page, *self.pages.get(&page)?);
        }
        Some(self.last.1 + (correlation % PAGE) as usize)
    }

    /// The same, wherever the one before was.
    fn any_slot(&self, correlation: u64) -> Option<usize> {
        Some(self.pages.get(&(correlation / PAGE))? + (correlation % PAGE) as usize)
    }

    /// Whether a call must be looked at together with others; known once all have been taken.
    pub(super) fn is_shared(&self, correlation: u64) -> bool {
        let slot = self.any_slot(correlation).and_then(|place| self.slots.get(place));
        correlation != 0 && slot.is_none_or(|slot| *slot == SHARED)
    }

    /// Has all calls of an id that lies apart looked at together, after the last call.
    pub(super) fn gather(&mut self) {
        for nth in 0..self.shared.len() {
            if let Some((correlation, _)) = self.shared.get(nth).copied()
                && let Some(place) = self.any_slot(correlation)
            {
                // It had no page at first.
                self.share(place, correlation, None);
            }
        }
        self.shared.sort_unstable();
    }

    /// Finds the launches among the calls that must be looked at together, and hands on the calls of each. Returns how
    /// many had an id that an earlier one had.
    pub(super) fn part(&mut self, records: &impl RecordSource, mut take: impl FnMut(&Launches, &[Call])) -> u64 {
        let (shared, mut calls, mut reused) = (std::mem::take(&mut self.shared), List::new(), 0);
        for same in shared.chunk_by(|a, b| a.0 == b.0) {
            calls.clear();
            calls.extend(same.iter().map(|(_, at)| records.call_at(*at)));
            calls.sort_unstable_by_key(|call: &Call| (call.thread, call.place()));
            reused += self.add_launches(&calls);
            for nest in nests(&calls) {
                if nest.iter().any(|call| call.launches)
                    && let Some(place) = nest.first().and_then(|outermost| self.place(outermost))
                {
                    self.expected.set(place);
                }
                take(self, nest);
            }
        }
        self.rest.finish();
        self.slots.shrink_to_fit();
        reused
    }

    /// Adds the launches of an id, of which these are all calls; returns how many there are but the first.
    fn add_launches(&mut self, calls: &[Call]) -> u64 {
        let launch = |call: &Call| SparseLaunch { correlation: call.correlation, start: call.start, at: call.at };
        let mut launches = nests(calls).filter_map(|nest| nest.first().map(launch));
        let (Some(launch), second) = (launches.next(), launches.next()) else { return 0 };
        let place = self.any_slot(launch.correlation);
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place))
            && second.is_none()
            && launch.at.0 < SHARED
        {
            *slot = launch.at.0;
            return 0;
        }
        self.rest.extend([launch].into_iter().chain(second).chain(launches)).saturating_sub(1)
    }

    /// Finds the launch of device work: of several, the last one that starts not after it, else the first one.
    pub(super) fn find(&self, correlation: u64, start: Timestamp) -> Option<Found> {
        self.find_in(self.any_slot(correlation), correlation, start)
    }

    /// Finds the same, and notes that work came of it.
    #[inline]
    pub(super) fn work(&mut self, correlation: u64, start: Timestamp) -> Option<Found> {
        let slot = self.slot(correlation);
        let found = self.find_in(slot, correlation, start)?;
        self.worked.set(found.place);
        Some(found)
    }

    #[inline]
    fn find_in(&self, slot: Option<usize>, correlation: u64, start: Timestamp) -> Option<Found> {
        match slot.and_then(|place| Some((place, *self.slots.get(place)?))) {
            Some((place, launch)) if launch < SHARED => Some(Found { at: RecordHandle(launch), place }),
            Some((_, EMPTY)) => None,
            _ => {
                let (nth, at) = self.rest.find(correlation, start)?;
                Some(Found { at, place: self.slots.len() + nth })
            }
        }
    }

    /// Where this very call is in the table, if it is a launch.
    pub(super) fn place(&self, call: &Call) -> Option<usize> {
        match self.any_slot(call.correlation).and_then(|place| Some((place, *self.slots.get(place)?))) {
            Some((place, launch)) if launch < SHARED => Some(place).filter(|_| launch == call.at.0),
            _ => {
                let launch = SparseLaunch { correlation: call.correlation, start: call.start, at: call.at };
                self.rest.position(&launch).map(|nth| self.slots.len() + nth)
            }
        }
    }

    /// Whether device work came of the launch at this place.
    pub(super) fn has_worked(&self, place: usize) -> bool {
        self.worked.get(place)
    }

    /// How many launches no work came of that should have; known once all work has been taken.
    pub(super) fn without_work(&mut self) -> u64 {
        self.worked.shrink_to_fit();
        std::mem::take(&mut self.expected).count_without(&self.worked)
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let pages = self.pages.capacity() * (size_of::<(u64, usize)>() + 1);
        pages + self.slots.capacity() * size_of::<u32>() + self.rest.heap_bytes() + self.worked.heap_bytes()
    }
}

/// Cuts the calls of an id, in order of thread and place, into those that lie in one of them, which comes first: all that
/// are one launch.
///
/// One that lies in several that overlap belongs to the last of these.
fn nests(mut calls: &[Call]) -> impl Iterator<Item = &[Call]> {
    std::iter::from_fn(move || {
        let outermost = calls.first()?;
        let lies_in = |call: &&Call| call.thread == outermost.thread && call.end <= outermost.end;
        let (nest, others) = calls.split_at_checked(calls.iter().take_while(lies_in).count())?;
        calls = others;
        Some(nest)
    })
}
