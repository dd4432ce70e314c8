//! The journal of a live file: entries by key, of which a later one replaces earlier ones.
//!
//! It is appended to, and copied without the replaced entries when they are the greater part. What is appended counts once the
//! length in the header covers it, so a process may be killed at any time. It uses half of its slots, so that there is always room for
//! the copy; the last of that half are for small entries, without which records mean nothing.

use super::layout::{GENERATION, HEAD_WORDS, LENGTHS, entry_kind, entry_words};
use super::queue::Backoff;
use crate::buffer::{SLOT_WORDS, SlotFile, SlotUse};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The journal of a file.
#[derive(Debug)]
pub(super) struct Journal {
    file: &'static SlotFile,
    state: Mutex<JournalState>,
}

/// Nothing is allocated under the lock, because an allocator with spans would wait for it.
#[derive(Debug)]
struct JournalState {
    generation: u64,
    slots: Vec<JournalSlot>,
    /// The list never grows beyond that, which is its capacity.
    slots_max: usize,
    /// In words.
    length: usize,
    entries: usize,
    /// How many of these remove others.
    removals: usize,
    /// The length at which it is compacted.
    compact_at: usize,
    /// Compactions that freed little.
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug)]
struct JournalSlot {
    slot: usize,
    words: &'static [AtomicU64],
}

/// What an entry is found by.
type EntryKey = (u32, u64, u64);

/// The slots that are left for small entries.
const SLOTS_FOR_SMALL: usize = 16;

/// A compaction is of use if it frees more than one part in that many.
const USEFUL_PART: usize = 16;

/// The slots of these that only removals use, after which others can be freed.
const SLOTS_FOR_REMOVALS: usize = 1;

/// A journal is compacted when it has doubled and grown by so many words.
const LEAST_GROWTH: usize = 1 << 15;

impl Journal {
    /// Creates a journal of at most so many slots of a file.
    pub(super) fn new(file: &'static SlotFile, slots_max: usize) -> Journal {
        let slots = Vec::with_capacity(slots_max / 2);
        let state = JournalState {
            generation: 0,
            slots,
            slots_max: slots_max / 2,
            length: 0,
            entries: 0,
            removals: 0,
            compact_at: LEAST_GROWTH,
            backoff: Backoff::new(),
        };
        Journal { file, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends entries together; returns `false` if there is no room, which is less for large ones.
    pub(super) fn append<'e>(&self, entries: impl Iterator<Item = &'e Vec<u64>> + Clone, are_large: bool) -> bool {
        let words: usize = entries.clone().map(Vec::len).sum();
        let removals = entries.clone().filter_map(|entry| entry.first()).filter(|first| entry_kind(**first).1).count();
        let mut state = self.lock();
        let (before, mut count) = (state.length, 0);
        let left = if are_large { SLOTS_FOR_SMALL } else { usize::from(removals == 0) * SLOTS_FOR_REMOVALS };
        let slots_max = state.slots_max.saturating_sub(left);
        let mut entries = entries.inspect(|_| count += 1);
        let may_fit = before + words <= slots_max * SLOT_WORDS;
        let fits = may_fit && entries.all(|entry| state.write(self.file, slots_max, entry.iter().copied()));
        if fits {
            state.entries += count;
            state.removals += removals;
            state.publish(self.file);
        } else {
            // The next check compacts it.
            (state.length, state.compact_at) = (before, 0);
        }
        fits
    }

    /// Copies the entries that were not replaced, if the others are many.
    pub(super) fn compact_if_due(&self) {
        let (count, slots_max) = {
            let state = self.lock();
            let is_useful = || state.removals > state.entries / USEFUL_PART || state.backoff.is_over();
            if state.length < state.compact_at || !is_useful() {
                return;
            }
            (state.entries, state.slots_max)
        };
        let mut last: HashMap<EntryKey, usize> = HashMap::with_capacity(count + count / 2 + 64);
        let mut copy = JournalState {
            generation: 0,
            slots: Vec::with_capacity(slots_max),
            slots_max,
            length: 0,
            entries: 0,
            removals: 0,
            compact_at: usize::MAX,
            backoff: Backoff::new(),
        };
        let mut state = self.lock();
        if state.entries > last.capacity() {
            // The next call tries again.
            return;
        }
        let positions = state.positions();
        for (at, key, removes) in positions {
            if removes {
                last.remove(&key);
            } else {
                last.insert(key, at);
            }
        }
        copy.generation = state.generation + 1;
        let (mut fits, before) = (true, state.length);
        for (at, key, _) in state.positions() {
            if last.get(&key) == Some(&at) {
                let length = entry_words(state.word(at));
                fits = fits && copy.write(self.file, slots_max, (at..at + length).map(|at| state.word(at)));
                copy.entries += 1;
            }
        }
        if fits {
            // Before it is full.
            let most = slots_max * SLOT_WORDS / 8 * 7;
            copy.compact_at = (copy.length * 2).min(most).max(copy.length + LEAST_GROWTH);
            copy.publish(self.file);
            std::mem::swap(&mut *state, &mut copy);
            std::mem::swap(&mut state.backoff, &mut copy.backoff);
        }
        // If a copy has no room, it may have later.
        let freed = before - state.length;
        state.backoff.note_try(freed > before / USEFUL_PART);
        drop(state);
        copy.slots.iter().for_each(|each| self.file.free_slot(each.slot));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lock().slots.iter().for_each(|each| self.file.free_slot(each.slot));
    }
}

impl JournalState {
    /// Writes words after the others, without publishing them; returns `false` if so many slots have no room.
    fn write(&mut self, file: &'static SlotFile, slots_max: usize, words: impl Iterator<Item = u64>) -> bool {
        for word in words {
            let (slot, at) = (self.length / SLOT_WORDS, self.length % SLOT_WORDS);
            if slot >= slots_max || slot == self.slots.len() && !self.add_slot(file) {
                return false;
            }
            self.slots.get(slot).and_then(|each| each.words.get(at)).into_iter().for_each(|place| {
                place.store(word, Ordering::Relaxed);
            });
            self.length += 1;
        }
        true
    }

    fn add_slot(&mut self, file: &'static SlotFile) -> bool {
        let taken = if self.slots.len() < self.slots_max { file.take_slot() } else { None };
        let Some((slot, words)) = taken else { return false };
        file.set_use(slot, SlotUse::Journal, [self.generation, self.slots.len() as u64, 0, 0]);
        self.slots.push(JournalSlot { slot, words });
        true
    }

    /// Makes everything count that was written.
    fn publish(&self, file: &'static SlotFile) {
        let header = file.header();
        let length = LENGTHS.get((self.generation & 1) as usize).and_then(|at| header.get(*at));
        // Release: what was written precedes the length, and the length the generation.
        length.into_iter().for_each(|place| place.store(self.length as u64, Ordering::Release));
        header.get(GENERATION).into_iter().for_each(|place| place.store(self.generation, Ordering::Release));
    }

    fn word(&self, at: usize) -> u64 {
        let place = self.slots.get(at / SLOT_WORDS).and_then(|each| each.words.get(at % SLOT_WORDS));
        place.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the place and key of each entry, and whether it removes others.
    fn positions(&self) -> impl Iterator<Item = (usize, EntryKey, bool)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let at = next;
            (at + HEAD_WORDS <= self.length).then_some(())?;
            let first = self.word(at);
            next += entry_words(first);
            let (kind, removes) = entry_kind(first);
            Some((at, (kind, self.word(at + 1), self.word(at + 2)), removes))
        })
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(miri)))]
mod tests;
