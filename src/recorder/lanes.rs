//! The rows of the recording threads, their frames while they live, and what they leave behind.

use super::frames::lent;
use super::{Frames, SpanState};
use crate::os::thread;
use crate::time::Ticks;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All threads that have recorded in this session.
///
/// Nothing is allocated under the lock: an allocator that has spans of its own comes back here.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    lanes: Vec<Lane>,
    /// The threads that live, each with its lane: a search for a span skips threads that have ended.
    live: Vec<(&'static Frames, usize)>,
    /// Spans of ended threads that nobody else knows, or that were lent; they may be entered or closed elsewhere.
    left: Vec<(u64, SpanState)>,
}

#[derive(Clone, Debug)]
struct Lane {
    row: Arc<LaneRow>,
    /// Its name is the kernel's, which may change as long as the thread lives.
    is_kernels_name: bool,
    /// `None` as long as the thread lives.
    until: Option<Ticks>,
}

/// A thread as the trace shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneRow {
    /// The kernel's id of the thread.
    pub(crate) thread: i64,
    /// The name that Rust gave it, else the kernel's; empty if it has none.
    pub(crate) name: String,
    /// The lower half of what `pthread_self` returns there, which vendors' records have; used again by later threads.
    pub(crate) handle: u32,
    /// When it began to record.
    pub(crate) since: Ticks,
    /// When it ended, or began another row; `None` if it lives.
    pub(crate) until: Option<Ticks>,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the lists, one of them with room for `more`.
    fn lock_with_room<T>(&self, more: usize, list: fn(&mut Known) -> &mut Vec<T>) -> MutexGuard<'_, Known> {
        loop {
            let mut known = self.lock();
            let wanted = list(&mut known).len() + more;
            if wanted <= list(&mut known).capacity() {
                return known;
            }
            drop(known);
            let mut roomier = Vec::with_capacity(wanted * 2 + 16);
            let mut known = self.lock();
            let full = list(&mut known);
            if full.len() <= wanted {
                roomier.append(full);
                std::mem::swap(full, &mut roomier);
            }
            // Before what it has held until now.
            drop(known);
        }
    }

    /// Adds the calling thread, which begins to record now, with the name that Rust gave it; returns the number of its lane.
    ///
    /// Where that is empty, the kernel's name is read now: it is gone when the thread has ended.
    pub(crate) fn enter(&self, frames: &'static Frames, name: String, now: Ticks) -> u64 {
        let (thread, handle) = (thread::id(), thread::handle());
        let is_kernels_name = name.is_empty();
        let name = if is_kernels_name { thread::own_kernel_name() } else { name };
        let row = LaneRow { thread, name, handle, since: now, until: None };
        let row = Arc::new(row);
        let mut known = loop {
            let known = self.lock_with_room(1, |known| &mut known.lanes);
            if known.live.len() < known.live.capacity() {
                break known;
            }
            drop(known);
            drop(self.lock_with_room(1, |known| &mut known.live));
        };
        let number = known.lanes.len();
        known.lanes.push(Lane { row, is_kernels_name, until: None });
        known.live.push((frames, number));
        number as u64
    }

    /// Gives the lane of that number the name that Rust gave its thread, unless that is empty.
    pub(crate) fn name(&self, number: u64, name: String) {
        if name.is_empty() {
            return;
        }
        let Ok(number) = usize::try_from(number) else { return };
        let before = self.lock().lanes.get(number).map(|lane| lane.row.clone());
        let Some(before) = before else { return };
        let mut named = Arc::new(LaneRow { name, ..LaneRow::clone(&before) });
        if let Some(lane) = self.lock().lanes.get_mut(number) {
            std::mem::swap(&mut lane.row, &mut named);
            lane.is_kernels_name = false;
        }
    }

    /// The thread with those frames ends, or starts another lane; its row stays, and if its epoch goes on, so do the
    /// spans that nobody else knows.
    pub(crate) fn leave(&self, frames: &'static Frames, goes_on: bool, now: Ticks) {
        let left: Vec<_> = frames.only_here().filter(|_| goes_on).collect();
        let mut known = self.lock_with_room(left.len(), |known| &mut known.left);
        if let Some(at) = known.live.iter().position(|(live, _)| std::ptr::eq(*live, frames)) {
            let (_, number) = known.live.swap_remove(at);
            if let Some(lane) = known.lanes.get_mut(number) {
                lane.until = Some(now);
            }
        }
        known.left.extend_from_slice(&left);
    }

    /// Calls `look` with the frames of each live thread until it returns something.
    pub(crate) fn find<R>(&self, look: impl FnMut(&Frames) -> Option<R>) -> Option<R> {
        self.lock().find(look)
    }

    /// Looks for a span that another thread knows, or knew when it ended.
    pub(crate) fn lend(&self, key: u64) -> Option<SpanState> {
        let known = self.lock();
        known.find(|frames| frames.lend(key)).or_else(|| known.left(key).map(|(_, state)| state))
    }

    /// Looks for a span that is gone, and has it forgotten.
    pub(crate) fn take_out(&self, key: u64) -> Option<SpanState> {
        let mut known = self.lock();
        known.find(|frames| frames.take_out(key)).or_else(|| {
            let (at, state) = known.left(key)?;
            known.left.swap_remove(at);
            Some(state)
        })
    }

    /// Takes all rows, for the end of a session.
    pub(crate) fn take(&self) -> Vec<LaneRow> {
        let Known { lanes, .. } = std::mem::take(&mut *self.lock());
        lanes.iter().map(Lane::named).collect()
    }

    /// Returns all rows.
    pub(crate) fn rows(&self) -> Vec<LaneRow> {
        loop {
            let mut lanes = Vec::with_capacity(self.lock().lanes.len());
            let known = self.lock();
            if known.lanes.len() <= lanes.capacity() {
                lanes.extend_from_slice(&known.lanes);
                drop(known);
                return lanes.iter().map(Lane::named).collect();
            }
        }
    }
}

impl Known {
    /// A span that an ended thread has left, and where it stands in the list.
    fn left(&self, key: u64) -> Option<(usize, SpanState)> {
        let at = self.left.iter().position(|(left, _)| *left == key || *left == lent(key))?;
        self.left.get(at).map(|(_, state)| (at, *state))
    }

    fn find<R>(&self, mut look: impl FnMut(&Frames) -> Option<R>) -> Option<R> {
        self.live.iter().find_map(|(frames, _)| look(frames))
    }
}

impl Lane {
    /// Returns the row; the kernel's name of a live thread is read again.
    fn named(&self) -> LaneRow {
        let mut row = LaneRow { until: self.until, ..LaneRow::clone(&self.row) };
        if self.is_kernels_name && self.until.is_none() {
            row.name = thread::kernel_name(row.thread).unwrap_or(row.name);
        }
        row
    }
}
