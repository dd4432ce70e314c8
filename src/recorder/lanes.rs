//! The rows of the recording threads, their frames while they live, and what they leave behind.

use super::{Frames, SpanState};
use crate::os::thread;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All threads that have recorded in this session.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    lanes: Vec<Lane>,
    /// Spans of ended threads that nobody else knows; they may be entered or closed elsewhere.
    left: HashMap<u64, SpanState>,
}

#[derive(Debug)]
struct Lane {
    row: LaneRow,
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
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the calling thread; returns the number of its lane.
    pub(crate) fn enter(&self, frames: &'static Frames) -> u64 {
        let row = LaneRow { thread: thread::id(), name: thread::name() };
        let lanes = &mut self.lock().lanes;
        lanes.push(Lane { row, live: Some(frames) });
        lanes.len() as u64 - 1
    }

    /// The thread with those frames ends, or starts another lane; its row stays, and if its epoch goes on, so do the
    /// spans that nobody else knows.
    pub(crate) fn leave(&self, frames: &'static Frames, goes_on: bool) {
        let mut known = self.lock();
        let Known { lanes, left } = &mut *known;
        for lane in lanes.iter_mut().filter(|lane| lane.live.is_some_and(|live| std::ptr::eq(live, frames))) {
            lane.live = None;
            left.extend(frames.only_here().filter(|_| goes_on));
        }
    }

    /// Calls `look` with the frames of each live thread until it returns something.
    pub(crate) fn find<R>(&self, look: impl FnMut(&Frames) -> Option<R>) -> Option<R> {
        self.lock().find(look)
    }

    /// Looks for a span that another thread knows, or knew when it ended.
    pub(crate) fn lend(&self, key: u64) -> Option<SpanState> {
        let known = self.lock();
        known.find(|frames| frames.lend(key)).or_else(|| known.left.get(&key).copied())
    }

    /// Looks for a span that is gone, and has it forgotten.
    pub(crate) fn take_out(&self, key: u64) -> Option<SpanState> {
        let mut known = self.lock();
        known.find(|frames| frames.take_out(key)).or_else(|| known.left.remove(&key))
    }

    /// Takes all rows, for the end of a session.
    pub(crate) fn take(&self) -> Vec<LaneRow> {
        let Known { lanes, .. } = std::mem::take(&mut *self.lock());
        lanes.iter().map(Lane::named).collect()
    }

    /// Returns all rows.
    pub(crate) fn rows(&self) -> Vec<LaneRow> {
        self.lock().lanes.iter().map(Lane::named).collect()
    }
}

impl Known {
    fn find<R>(&self, look: impl FnMut(&Frames) -> Option<R>) -> Option<R> {
        self.lanes.iter().filter_map(|lane| lane.live).find_map(look)
    }
}

impl Lane {
    /// The row; a live thread whose name Rust does not know is asked for what the kernel has.
    fn named(&self) -> LaneRow {
        let mut row = self.row.clone();
        if row.name.is_empty() && self.live.is_some() {
            row.name = thread::kernel_name(row.thread).unwrap_or_default();
        }
        row
    }
}
