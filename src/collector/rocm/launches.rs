//! What calls have launched, for the work that comes later with the same correlation id.

use super::hip::Does;
use crate::collector::Name;
use std::collections::{HashMap, VecDeque};

/// The launches of a recording, by their correlation ids.
///
/// The newest of them are kept, whether their work has come or not: a graph's comes in many records. An id that comes again
/// is another launch.
#[derive(Debug, Default)]
pub(super) struct PendingLaunches {
    /// With the turn in which each came.
    by_id: HashMap<u64, (u64, PendingLaunch)>,
    /// In the order in which they came, with their turn.
    order: VecDeque<(u64, u64)>,
    turn: u64,
    /// How many have no work yet of which it is sure to come, and of which it may.
    owed: usize,
    hoped: usize,
    graphs: HashMap<u64, u32>,
}

/// A launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingLaunch {
    /// What the call did.
    pub(super) does: Does,
    /// HIP's stream; `None` if the call does not say it.
    pub(super) stream: Option<u64>,
    /// What was copied or filled, 0 if that is not known.
    pub(super) bytes: u64,
    /// The graph, 0 if none: a number from [`Launches::graph`].
    pub(super) graph: u32,
    /// The kernel, if the call says it.
    pub(super) kernel: Option<Name>,
    /// Its size in blocks, zeros if that is not known.
    pub(super) grid: [u32; 3],
    /// That of a block in threads, zeros if that is not known.
    pub(super) block: [u32; 3],
    /// HIP's number of the device, if the call tells it.
    pub(super) device: Option<i32>,
    /// Whether work will come for which the end of a recording is to wait.
    pub(super) is_owed: bool,
    /// Whether work may come for which the end of a recording is to wait a little.
    pub(super) is_hoped: bool,
}

impl PendingLaunch {
    pub(super) fn new(does: Does) -> PendingLaunch {
        let (kernel, grid, block, device) = (None, [0; 3], [0; 3], None);
        let (is_owed, is_hoped) = (false, false);
        PendingLaunch { does, stream: None, bytes: 0, graph: 0, kernel, grid, block, device, is_owed, is_hoped }
    }
}

/// How many launches are kept, and how many graphs are told apart.
const MOST: usize = 1 << 16;

impl PendingLaunches {
    /// A call launches something.
    pub(super) fn add(&mut self, correlation: u64, launch: PendingLaunch) {
        if correlation == 0 {
            return;
        }
        self.turn += 1;
        self.count(launch);
        let before = self.by_id.insert(correlation, (self.turn, launch));
        before.into_iter().for_each(|(_, before)| self.settle(before));
        self.order.push_back((correlation, self.turn));
        if self.order.len() > MOST
            && let Some((oldest, turn)) = self.order.pop_front()
            && self.by_id.get(&oldest).is_some_and(|(current, _)| *current == turn)
        {
            self.forget(oldest);
        }
    }

    /// A call that was added has failed: nothing comes of it.
    pub(super) fn forget(&mut self, correlation: u64) {
        if let Some((_, launch)) = self.by_id.remove(&correlation) {
            self.settle(launch);
        }
    }

    /// Work has come with that id; returns its launch, if that is known.
    pub(super) fn worked(&mut self, correlation: u64) -> Option<PendingLaunch> {
        let (_, launch) = self.by_id.get_mut(&correlation)?;
        let before = *launch;
        (launch.is_owed, launch.is_hoped) = (false, false);
        self.settle(before);
        Some(before)
    }

    /// Returns a launch, if it is known.
    pub(super) fn get(&self, correlation: u64) -> Option<PendingLaunch> {
        self.by_id.get(&correlation).map(|(_, launch)| *launch)
    }

    /// Returns how many launches have no work yet of which it is sure to come.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// Returns how many launches have no work yet of which it may come.
    pub(super) fn hoped(&self) -> usize {
        self.hoped
    }

    fn count(&mut self, launch: PendingLaunch) {
        self.owed += usize::from(launch.is_owed);
        self.hoped += usize::from(launch.is_hoped);
    }

    fn settle(&mut self, launch: PendingLaunch) {
        self.owed -= usize::from(launch.is_owed);
        self.hoped -= usize::from(launch.is_hoped);
    }

    /// Returns the number of a graph, 1, 2 … in the order in which they are launched; 0 beyond the last that is told apart.
    pub(super) fn graph(&mut self, handle: u64) -> u32 {
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
        PendingLaunch { is_owed: true, ..PendingLaunch::new(Does::Launch) }
    }

    #[test]
    fn a_launch_is_owed_until_its_first_work_comes() {
        let mut launches = PendingLaunches::default();
        launches.add(1, PendingLaunch { stream: Some(7), ..launch() });
        launches.add(2, launch());
        launches.add(3, PendingLaunch { is_hoped: true, ..PendingLaunch::new(Does::Copy) });
        launches.add(0, launch());
        assert_eq!((launches.owed(), launches.hoped()), (2, 1), "id 0 is none");
        launches.worked(3);
        assert_eq!((launches.owed(), launches.hoped()), (2, 0));
        assert_eq!(launches.worked(1).and_then(|launch| launch.stream), Some(7));
        assert_eq!(launches.worked(1).map(|launch| launch.does), Some(Does::Launch), "a graph's next");
        assert_eq!((launches.owed(), launches.worked(9)), (1, None));
        launches.forget(2);
        launches.forget(2);
        assert_eq!(launches.owed(), 0);
    }

    #[test]
    fn an_id_that_comes_again_is_another_launch() {
        let mut launches = PendingLaunches::default();
        launches.add(1, launch());
        launches.add(1, PendingLaunch { bytes: 5, ..launch() });
        assert_eq!((launches.owed(), launches.get(1).unwrap().bytes), (1, 5));
        launches.worked(1);
        assert_eq!(launches.owed(), 0);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_are_kept() {
        let mut launches = PendingLaunches::default();
        let most = MOST as u64;
        (1..=2 * most).for_each(|id| launches.add(id, launch()));
        assert_eq!((launches.by_id.len(), launches.owed()), (MOST, MOST));
        assert!(launches.get(most).is_none() && launches.get(most + 1).is_some());
        (0..3 * most).for_each(|_| launches.add(1, launch()));
        assert!(launches.order.len() <= MOST && launches.owed() == 1, "{}", launches.owed());
    }

    #[test]
    fn graphs_are_numbered_as_they_come() {
        let mut launches = PendingLaunches::default();
        assert_eq!([0xA0, 0xB0, 0xA0].map(|graph| launches.graph(graph)), [1, 2, 1]);
        (0..2 * MOST as u64).for_each(|graph| _ = launches.graph(graph << 16));
        assert!(launches.graphs.len() <= MOST && launches.graph(1) == 0);
    }
}
