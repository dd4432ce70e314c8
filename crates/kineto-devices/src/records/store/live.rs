//! Keeps the copy of a store in a live file up to date.

use super::super::collected::{ARENAS, Collected};
use super::super::live::LiveRecords;
use super::StoreState;
use kineto_base::live::{LiveBlock, LiveFile};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The copy of a store in a live file, if there is one; it changes while the state is locked.
#[derive(Debug, Default)]
pub(super) struct LiveCopy {
    records: Mutex<Option<LiveRecords>>,
    is_set: AtomicBool,
}

/// A snapshot, and which blocks it has.
#[derive(Clone, Debug)]
pub(super) struct HoldingSnapshot {
    hold: Weak<()>,
    /// For each arena, the number of the last block, counted from the first one of the recording.
    until: [u64; ARENAS],
}

impl HoldingSnapshot {
    fn is_alive(&self) -> bool {
        self.hold.strong_count() > 0
    }

    fn holds(&self, arena: usize, number: u64) -> bool {
        self.is_alive() && self.until.get(arena).is_some_and(|until| number <= *until)
    }
}

impl LiveCopy {
    /// Locks the copy; returns `None` without a live file.
    fn lock(&self) -> Option<MutexGuard<'_, Option<LiveRecords>>> {
        // Relaxed: the lock of the state orders it.
        self.is_set.load(Ordering::Relaxed).then(|| self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, records: Option<LiveRecords>) -> Option<LiveRecords> {
        self.is_set.store(records.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner), records)
    }
}

impl StoreState {
    /// Copies to that file from now on, as the records of that collector.
    pub(super) fn set_live(&mut self, copy: &LiveCopy, file: Arc<LiveFile>, collector: u64) {
        let mut live = LiveRecords::new(file, collector);
        live.begin_after(self.dropped);
        drop(copy.replace(Some(live)));
        self.copy_to_live(copy);
    }

    /// Copies what was added.
    pub(super) fn copy_to_live(&mut self, copy: &LiveCopy) {
        let mut copy = copy.lock();
        let Some(live) = copy.as_mut().and_then(|copy| copy.as_mut()) else { return };
        let lengths = [self.shapes.len(), self.contexts.len(), self.threads.count()];
        live.put_tables(lengths, || self.tables());
        live.put_names(&self.names);
        // Before the blocks are dropped in which these calls and this work are.
        live.put_dropped(self.last_call_before, self.evicted_work);
        let is_held = |arena, number| self.snapshots.iter().any(|snapshot| snapshot.holds(arena, number));
        live.release_held(is_held);
        for (number, (arena, dropped)) in self.arenas.iter().zip(self.dropped).enumerate() {
            live.drop_blocks(number, dropped, is_held);
            live.copy_added(number, arena);
        }
    }

    /// Notes that a snapshot has all blocks; returns what it must keep.
    pub(super) fn note_snapshot(&mut self, copy: &LiveCopy) -> Option<Arc<()>> {
        copy.is_set.load(Ordering::Relaxed).then(|| {
            let hold = Arc::new(());
            let mut until = self.dropped;
            until.iter_mut().zip(&self.arenas).for_each(|(until, arena)| *until += arena.full.len() as u64);
            self.snapshots.retain(HoldingSnapshot::is_alive);
            self.snapshots.push(HoldingSnapshot { hold: Arc::downgrade(&hold), until });
            hold
        })
    }

    /// Ends the copy; returns its blocks, which stay until the trace is dropped.
    pub(super) fn take_live(&self, copy: &LiveCopy) -> Vec<LiveBlock> {
        let taken = if copy.is_set.load(Ordering::Relaxed) { copy.replace(None) } else { None };
        taken.map(|mut live| live.take_blocks(None)).unwrap_or_default()
    }

    /// Marks the blocks as moved out, and copies those that are left; returns the moved ones.
    pub(super) fn move_live(&mut self, copy: &LiveCopy) -> Vec<LiveBlock> {
        let moved = copy.lock().as_mut().and_then(|copy| copy.as_mut()).map(|live| {
            let now = kineto_base::clock::now();
            live.take_blocks(Some(now))
        });
        self.copy_to_live(copy);
        moved.unwrap_or_default()
    }

    /// Returns the tables, without records.
    pub(super) fn tables(&self) -> Collected {
        let mut tables = Collected::empty();
        tables.shapes.clone_from(&self.shapes);
        tables.contexts.clone_from(&self.contexts);
        tables.threads.clone_from(&self.threads);
        tables.losses.clone_from(&self.losses);
        tables.notes.clone_from(&self.notes);
        tables.unwanted.clone_from(&self.unwanted);
        tables.clock_error_ns = self.clock_error_ns;
        (tables.evicted_work, tables.last_call_before) = (self.evicted_work, self.last_call_before);
        tables
    }
}
