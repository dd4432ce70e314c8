//! Entries that the journal had no room for, in their order, until it has room again.

use super::layout::{HEAD_WORDS, entry_kind};
use crate::wait::steady;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most entries of a queue, as many removals more, and the words of all: 1 MiB.
const ENTRIES_MAX: usize = 2048;
const WORDS_MAX: usize = 1 << 17;

/// A queue of entries. Nothing is allocated or freed under its lock, because an allocator with spans would wait for it.
#[derive(Debug)]
pub(super) struct EntryQueue {
    state: Mutex<QueueState>,
    has_entries: AtomicBool,
}

#[derive(Debug)]
struct QueueState {
    /// The list never grows beyond its capacity.
    entries: VecDeque<Vec<u64>>,
    words: usize,
}

impl EntryQueue {
    pub(super) fn new() -> EntryQueue {
        let state = QueueState { entries: VecDeque::with_capacity(ENTRIES_MAX * 2), words: 0 };
        EntryQueue { state: Mutex::new(state), has_entries: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether entries wait.
    pub(super) fn has_entries(&self) -> bool {
        self.has_entries.load(Ordering::Acquire)
    }

    /// Returns how many entries wait.
    pub(super) fn count(&self) -> u64 {
        if self.has_entries() { self.lock().entries.len() as u64 } else { 0 }
    }

    /// Calls `write` with the entries, or queues them behind those that wait. Returns how many the queue had no room for.
    pub(super) fn append<'e>(
        &self,
        entries: impl Iterator<Item = &'e Vec<u64>>,
        write: impl Fn(&Vec<u64>) -> bool,
    ) -> u64 {
        // Freed after the lock, which is declared later.
        let mut entries: Vec<Vec<u64>> = entries.cloned().collect();
        let (mut state, mut lost) = (self.lock(), 0);
        for entry in &mut entries {
            let is_first = state.entries.is_empty();
            // A removal lets space be freed, so it never waits; an entry of its key that waits becomes a removal.
            let removes = state.remove_queued(entry);
            if (is_first || removes) && write(entry) {
                continue;
            }
            let most = ENTRIES_MAX * if removes { 2 } else { 1 };
            if state.entries.len() >= most || state.words + entry.len() > WORDS_MAX {
                lost += 1;
                continue;
            }
            state.words += entry.len();
            state.entries.push_back(std::mem::take(entry));
        }
        self.has_entries.store(!state.entries.is_empty(), Ordering::Release);
        lost
    }

    /// Calls `write` with what waits, oldest first, while it returns `true`. Returns whether nothing waits any more.
    pub(super) fn flush(&self, write: impl Fn(&Vec<u64>) -> bool) -> bool {
        while self.has_entries() {
            let mut state = self.lock();
            let Some(first) = state.entries.front() else { break };
            if !write(first) {
                return false;
            }
            let written = state.entries.pop_front();
            state.words -= written.as_ref().map_or(0, Vec::len);
            self.has_entries.store(!state.entries.is_empty(), Ordering::Release);
            drop(state);
            drop(written);
        }
        true
    }
}

impl QueueState {
    /// Makes the queued entries of a removal's key removals too; returns `false` if it is no removal.
    fn remove_queued(&mut self, removal: &[u64]) -> bool {
        let [first, key @ ..] = removal else { return false };
        let (kind, removes) = entry_kind(*first);
        if !removes {
            return false;
        }
        for queued in &mut self.entries {
            if queued.get(1..HEAD_WORDS) == Some(key)
                && queued.first().is_some_and(|first| entry_kind(*first).0 == kind)
            {
                self.words -= queued.len() - HEAD_WORDS;
                queued.truncate(HEAD_WORDS);
                if let Some(place) = queued.first_mut() {
                    *place = *first;
                }
            }
        }
        true
    }
}

/// Says when to try again what was of no use: each time after twice as long.
#[derive(Debug)]
pub(super) struct Backoff {
    until: Option<Instant>,
    wait: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_secs(20);

    pub(super) const fn new() -> Backoff {
        Backoff { until: None, wait: Backoff::FIRST }
    }

    /// Returns whether it may be tried now.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_none_or(|until| steady() >= until)
    }

    /// Notes that it was tried; `is_useful` says whether that was of use.
    pub(super) fn note_try(&mut self, is_useful: bool) {
        if is_useful {
            *self = Backoff::new();
            return;
        }
        self.until = steady().checked_add(self.wait);
        self.wait = (self.wait * 2).min(Backoff::LONGEST);
    }
}
