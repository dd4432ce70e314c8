//! Which call launched what: a table over correlation ids.

use super::bits::Bits;
use super::sparse::{Launch, Sparse};
use super::{Call, Handle, Records};
use crate::time::Timestamp;

/// A slot without a launch. A call of this very handle is kept in `rest`.
const EMPTY: u32 = u32::MAX;
/// Ids may be spread this much wider than there are calls for a slot each.
const SPREAD: u64 = 4;

/// The launches, found by correlation id.
///
/// Calls of one id that nest in one another on a thread are one launch, for which the outermost stands. An id of several
/// launches was used again.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// The id of the first slot.
    first: u64,
    /// For each id the handle of its launch.
    slots: Vec<u32>,
    /// The launches of ids that have no slot or several launches.
    rest: Sparse,
    /// For each slot, then for each of `rest`, whether work came of it.
    worked: Bits,
}

/// A launch, and its place in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) at: Handle,
    place: usize,
}

/// Which correlation ids calls have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ids {
    range: Option<(u64, u64)>,
    calls: u64,
}

impl Ids {
    pub(super) fn add(&mut self, correlation: u64) {
        if correlation != 0 {
            let (first, last) = self.range.unwrap_or((correlation, correlation));
            self.range = Some((first.min(correlation), last.max(correlation)));
            self.calls += 1;
        }
    }

    /// The first id and the number of slots; no slots if there would be too many of them.
    fn slots(&self) -> (u64, usize) {
        let (first, last) = self.range.unwrap_or((1, 0));
        let slots = last.wrapping_sub(first).wrapping_add(1);
        let fits = slots <= self.calls.saturating_mul(SPREAD);
        (first, usize::try_from(slots).ok().filter(|_| fits).unwrap_or(0))
    }
}

impl Launches {
    /// Finds the launches among the calls, and the calls that must be looked at together for it.
    pub(super) fn new(records: &impl Records, ids: &Ids) -> (Launches, Shared) {
        let (first, len) = ids.slots();
        let mut launches = Launches { first, slots: vec![EMPTY; len], ..Launches::default() };
        let mut several = Bits::new(len);
        for call in records.calls() {
            if let Some(slot) = launches.slot(call.correlation)
                && let Some(launch) = launches.slots.get_mut(slot)
            {
                if *launch == EMPTY && call.at.0 != EMPTY {
                    *launch = call.at.0;
                } else {
                    several.set(slot);
                }
            }
        }
        let mut shared = Shared { first, has_slots: len > 0, several, calls: Vec::new(), reused: 0 };
        if len == 0 || !shared.several.are_clear() {
            let calls = records.calls().filter(|call| shared.contains(call.correlation));
            shared.calls = calls.map(|call| (call.correlation, call.at)).collect();
            shared.calls.sort_by_key(|(correlation, _)| *correlation);
        }
        launches.add_shared(records, &mut shared);
        launches.worked = Bits::new(len + launches.rest.len());
        (launches, shared)
    }

    fn add_shared(&mut self, records: &impl Records, shared: &mut Shared) {
        let mut reused = 0;
        shared.for_each(records, |calls| {
            let Some(correlation) = calls.first().map(|call| call.correlation) else { return };
            let launch = |call: &Call| Launch { correlation, start: call.start, at: call.at };
            let mut launches = nests(calls).filter_map(|nest| nest.first().map(launch));
            let (Some(launch), second) = (launches.next(), launches.next()) else { return };
            if let Some(slot) = self.slot(correlation).and_then(|slot| self.slots.get_mut(slot)) {
                *slot = if second.is_none() { launch.at.0 } else { EMPTY };
                if *slot != EMPTY {
                    return;
                }
            }
            self.rest.extend([launch].into_iter().chain(second).chain(launches.inspect(|_| reused += 1)));
            reused += u64::from(second.is_some());
        });
        shared.reused = reused;
        self.rest.finish();
    }

    /// Where in `slots` an id is.
    fn slot(&self, correlation: u64) -> Option<usize> {
        slot(self.first, correlation).filter(|slot| *slot < self.slots.len())
    }

    /// Finds the launch of device work: of several, the last one that starts not after it, else the first one.
    pub(super) fn find(&self, correlation: u64, start: Timestamp) -> Option<Found> {
        if let Some(place) = self.slot(correlation)
            && let Some(launch) = self.slots.get(place).filter(|launch| **launch != EMPTY)
        {
            return Some(Found { at: Handle(*launch), place });
        }
        let (nth, at) = self.rest.find(correlation, start)?;
        Some(Found { at, place: self.slots.len() + nth })
    }

    /// Notes that work came of a launch.
    pub(super) fn set_worked(&mut self, launch: Found) {
        self.worked.set(launch.place);
    }

    /// Whether this very call is the launch of device work.
    pub(super) fn has_work(&self, call: &Call) -> bool {
        if let Some(slot) = self.slot(call.correlation)
            && self.slots.get(slot) == Some(&call.at.0)
            && call.at.0 != EMPTY
        {
            return self.worked.get(slot);
        }
        let launch = Launch { correlation: call.correlation, start: call.start, at: call.at };
        self.rest.position(&launch).is_some_and(|nth| self.worked.get(self.slots.len() + nth))
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>() + self.rest.heap_bytes() + self.worked.heap_bytes()
    }
}

fn slot(first: u64, correlation: u64) -> Option<usize> {
    usize::try_from(correlation.checked_sub(first)?).ok()
}

/// Calls that must be looked at together: those of one id, and all where there are no slots.
#[derive(Debug)]
pub(super) struct Shared {
    first: u64,
    has_slots: bool,
    /// The slots of ids that several calls have.
    several: Bits,
    /// In order of ids.
    calls: Vec<(u64, Handle)>,
    /// Launches whose ids earlier ones had.
    pub(super) reused: u64,
}

impl Shared {
    /// Whether the calls of this id are among them.
    pub(super) fn contains(&self, correlation: u64) -> bool {
        correlation != 0 && slot(self.first, correlation).is_some_and(|slot| !self.has_slots || self.several.get(slot))
    }

    /// Hands on the calls of each id, in the order of thread and place that [`nests`] needs.
    pub(super) fn for_each(&self, records: &impl Records, mut take: impl FnMut(&[Call])) {
        let mut calls = Vec::new();
        for same in self.calls.chunk_by(|a, b| a.0 == b.0) {
            calls.clear();
            calls.extend(same.iter().map(|(_, at)| records.call_at(*at)));
            calls.sort_by_key(|call| (call.thread, call.place()));
            take(&calls);
        }
    }
}

/// Cuts the calls of an id into those that lie in one of them, which comes first: all that are one launch.
///
/// One that lies in several that overlap belongs to the last of these.
pub(super) fn nests(mut calls: &[Call]) -> impl Iterator<Item = &[Call]> {
    std::iter::from_fn(move || {
        let outermost = calls.first()?;
        let lies_in = |call: &&Call| call.thread == outermost.thread && call.end <= outermost.end;
        let (nest, others) = calls.split_at_checked(calls.iter().take_while(lies_in).count())?;
        calls = others;
        Some(nest)
    })
}
