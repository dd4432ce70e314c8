//! Launches of a recording, for the work that arrives later with the same correlation id.
//!
//! Libraries that write whole records need only bits of each launch ([`UnfinishedLaunches`](crate::buffered::launches)). Here,
//! work finds its stream, graph and kernel in its launch, ids have 64 bits and are reused, and some launches may have no work.

use super::hip::CallEffect;
use crate::Name;
use crate::buffered::engine::Cutoff;
use kineto_base::wait::steady;
use std::collections::{HashMap, VecDeque};

/// The launches of a recording, by correlation id.
///
/// The newest launches are kept, whether their work has arrived or not: the work of a graph arrives in many records.
/// A reused id is a new launch.
#[derive(Debug, Default)]
pub(super) struct PendingLaunches {
    /// Each with its sequence number.
    by_id: HashMap<u64, (u64, PendingLaunch)>,
    /// In order of arrival, with their sequence numbers.
    order: VecDeque<(u64, u64)>,
    sequence: u64,
    /// The launches whose work must still arrive.
    pending: usize,
    /// The launches whose work may still arrive.
    maybe_pending: usize,
    graphs: HashMap<u64, u32>,
}

/// A launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingLaunch {
    /// The effect of the call.
    pub(super) does: CallEffect,
    /// HIP's stream; `None` if the call does not name it.
    pub(super) stream: Option<u64>,
    /// The bytes copied or filled, 0 if not known.
    pub(super) bytes: u64,
    /// The graph, 0 if none: a number from [`PendingLaunches::graph_number`].
    pub(super) graph: u32,
    /// The kernel, if the call names it.
    pub(super) kernel: Option<Name>,
    /// The grid in blocks, zeros if not known.
    pub(super) grid: [u32; 3],
    /// The block in threads, zeros if not known.
    pub(super) block: [u32; 3],
    /// HIP's number of the device, if the call names it.
    pub(super) device: Option<i32>,
    /// Whether the end of a recording waits for its work.
    pub(super) is_owed: bool,
    /// Whether the end of a recording waits briefly for its work: the host performs some copies itself, without a record.
    pub(super) may_have_work: bool,
}

impl PendingLaunch {
    pub(super) fn new(does: CallEffect) -> PendingLaunch {
        let (stream, kernel, device) = (None, None, None);
        let (bytes, graph, grid, block) = (0, 0, [0; 3], [0; 3]);
        let (is_owed, may_have_work) = (false, false);
        PendingLaunch { does, stream, bytes, graph, kernel, grid, block, device, is_owed, may_have_work }
    }
}

/// Returns whether the work of launches has arrived: all that is owed, and what may arrive, unless it had time to.
pub(super) fn has_arrived([owed, hoped]: [usize; 2], cutoff: &Cutoff) -> bool {
    owed == 0 && (hoped == 0 || steady() >= cutoff.patience_ends)
}

/// The most launches, and the most graphs, that are kept.
const MOST: usize = 1 << 16;

impl PendingLaunches {
    /// Adds a launch.
    pub(super) fn add(&mut self, correlation: u64, launch: PendingLaunch) {
        if correlation == 0 {
            return;
        }
        self.sequence += 1;
        self.add_to_counts(launch);
        let before = self.by_id.insert(correlation, (self.sequence, launch));
        if let Some((_, before)) = before {
            self.subtract_from_counts(before);
        }
        self.order.push_back((correlation, self.sequence));
        if self.order.len() > MOST
            && let Some((oldest, sequence)) = self.order.pop_front()
            && self.by_id.get(&oldest).is_some_and(|(current, _)| *current == sequence)
        {
            self.forget(oldest);
        }
    }

    /// Removes a launch that has failed.
    pub(super) fn forget(&mut self, correlation: u64) {
        if let Some((_, launch)) = self.by_id.remove(&correlation) {
            self.subtract_from_counts(launch);
        }
    }

    /// Notes that work arrived with that id; returns its launch, if known.
    pub(super) fn take_work(&mut self, correlation: u64) -> Option<PendingLaunch> {
        let (_, launch) = self.by_id.get_mut(&correlation)?;
        let before = *launch;
        (launch.is_owed, launch.may_have_work) = (false, false);
        self.subtract_from_counts(before);
        Some(before)
    }

    /// Returns a launch, if known.
    pub(super) fn get(&self, correlation: u64) -> Option<PendingLaunch> {
        self.by_id.get(&correlation).map(|(_, launch)| *launch)
    }

    /// Returns how many launches lack work that will certainly arrive.
    pub(super) fn pending_count(&self) -> usize {
        self.pending
    }

    /// Returns how many launches lack work that may arrive.
    pub(super) fn maybe_pending_count(&self) -> usize {
        self.maybe_pending
    }

    fn add_to_counts(&mut self, launch: PendingLaunch) {
        self.pending += usize::from(launch.is_owed);
        self.maybe_pending += usize::from(launch.may_have_work);
    }

    fn subtract_from_counts(&mut self, launch: PendingLaunch) {
        self.pending -= usize::from(launch.is_owed);
        self.maybe_pending -= usize::from(launch.may_have_work);
    }

    /// Returns the number of a graph: 1, 2 … in order of their first launch; 0 beyond the limit.
    pub(super) fn graph_number(&mut self, handle: u64) -> u32 {
        let next = u32::try_from(self.graphs.len()).unwrap_or(0) + 1;
        match self.graphs.get(&handle) {
            Some(known) => *known,
            None if self.graphs.len() < MOST => *self.graphs.entry(handle).or_insert(next),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> PendingLaunch {
        PendingLaunch { is_owed: true, ..PendingLaunch::new(CallEffect::Launch) }
    }

    #[test]
    fn launch_is_owed_until_its_first_work() {
        let mut launches = PendingLaunches::default();
        launches.add(1, PendingLaunch { stream: Some(7), ..launch() });
        launches.add(2, launch());
        launches.add(3, PendingLaunch { may_have_work: true, ..PendingLaunch::new(CallEffect::Copy) });
        launches.add(0, launch());
        assert_eq!((launches.pending_count(), launches.maybe_pending_count()), (2, 1), "id 0 is none");
        launches.take_work(3);
        assert_eq!((launches.pending_count(), launches.maybe_pending_count()), (2, 0));
        assert_eq!(launches.take_work(1).and_then(|launch| launch.stream), Some(7));
        assert_eq!(launches.take_work(1).map(|launch| launch.does), Some(CallEffect::Launch), "a graph's next");
        assert_eq!((launches.pending_count(), launches.take_work(9)), (1, None));
        launches.forget(2);
        launches.forget(2);
        assert_eq!(launches.pending_count(), 0);
    }

    #[test]
    fn reused_id_is_another_launch() {
        let mut launches = PendingLaunches::default();
        launches.add(1, launch());
        launches.add(1, PendingLaunch { bytes: 5, ..launch() });
        assert_eq!((launches.pending_count(), launches.get(1).unwrap().bytes), (1, 5));
        launches.take_work(1);
        assert_eq!(launches.pending_count(), 0);
    }

    #[test]
    fn newest_launches_are_kept() {
        let mut launches = PendingLaunches::default();
        let most = MOST as u64;
        (1..=2 * most).for_each(|id| launches.add(id, launch()));
        assert_eq!((launches.by_id.len(), launches.pending_count()), (MOST, MOST));
        assert!(launches.get(most).is_none() && launches.get(most + 1).is_some());
        (0..3 * most).for_each(|_| launches.add(1, launch()));
        assert!(launches.order.len() <= MOST && launches.pending_count() == 1, "{}", launches.pending_count());
    }

    #[test]
    fn graphs_are_numbered_by_first_launch() {
        let mut launches = PendingLaunches::default();
        assert_eq!([0xA0, 0xB0, 0xA0].map(|graph| launches.graph_number(graph)), [1, 2, 1]);
        (0..2 * MOST as u64).for_each(|graph| _ = launches.graph_number(graph << 16));
        assert!(launches.graphs.len() <= MOST && launches.graph_number(1) == 0);
    }
}
