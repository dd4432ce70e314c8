//! The rows of the recording threads, and their frames while they live.

use super::Frames;
use crate::os::thread;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All threads that have recorded in this session.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Mutex<Vec<Lane>>,
}

#[derive(Clone, Debug)]
struct Lane {
    row: Arc<LaneRow>,
    live: Option<&'static Frames>,
}

/// A thread as the trace shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneRow {
    /// The kernel's id of the thread.
    pub(crate) thread: i64,
    /// Its name; empty if it has none.
    pub(crate) name: String,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the calling thread; returns the number of its lane.
    pub(crate) fn enter(&self, frames: &'static Frames) -> u64 {
        let row = Arc::new(LaneRow { thread: thread::id(), name: thread::name() });
        let mut lanes = self.lock_with_room();
        lanes.push(Lane { row, live: Some(frames) });
        lanes.len() as u64 - 1
    }

    /// Locks the list with room for one more: an allocator that has spans of its own comes back here, so it may not be
    /// called under the lock.
    fn lock_with_room(&self) -> MutexGuard<'_, Vec<Lane>> {
        loop {
            let lanes = self.lock();
            if lanes.len() < lanes.capacity() {
                return lanes;
            }
            let wanted = lanes.len() * 2 + 16;
            drop(lanes);
            let mut roomier = Vec::with_capacity(wanted);
            let mut lanes = self.lock();
            if lanes.len() == lanes.capacity() && lanes.len() < wanted {
                roomier.append(&mut lanes);
                std::mem::swap(&mut *lanes, &mut roomier);
            }
            // Before what it has held until now.
            drop(lanes);
        }
    }

    /// The thread with those frames ends, or starts another lane; its row stays.
    pub(crate) fn leave(&self, frames: &'static Frames) {
        let mut lanes = self.lock();
        for lane in lanes.iter_mut().filter(|lane| lane.live.is_some_and(|live| std::ptr::eq(live, frames))) {
            lane.live = None;
        }
    }

    /// Calls `look` with the frames of each live thread until it returns something.
    pub(crate) fn find<R>(&self, look: impl FnMut(&Frames) -> Option<R>) -> Option<R> {
        self.lock().iter().filter_map(|lane| lane.live).find_map(look)
    }

    /// Takes all rows, for the end of a session.
    pub(crate) fn take(&self) -> Vec<LaneRow> {
        let lanes = std::mem::take(&mut *self.lock());
        lanes.iter().map(Lane::named).collect()
    }

    /// Returns all rows.
    pub(crate) fn rows(&self) -> Vec<LaneRow> {
        loop {
            let wanted = self.lock().len();
            let mut rows = Vec::with_capacity(wanted);
            let lanes = self.lock();
            if lanes.len() <= rows.capacity() {
                rows.extend(lanes.iter().cloned());
                drop(lanes);
                return rows.iter().map(Lane::named).collect();
            }
        }
    }
}

impl Lane {
    /// The row; a live thread whose name Rust does not know is asked for what the kernel has.
    fn named(&self) -> LaneRow {
        let mut row = LaneRow::clone(&self.row);
        if row.name.is_empty() && self.live.is_some() {
            row.name = thread::kernel_name(row.thread).unwrap_or_default();
        }
        row
    }
}
