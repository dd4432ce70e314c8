//! The journal of a live file: entries by key, of which a later one replaces earlier ones.
//!
//! It is appended to, and copied without the replaced entries when they are the greater part. What is appended counts once the
//! length in the header covers it, so a process may be killed at any time. It uses half of its slots, so that there is always room for
//! the copy; the last of that half are for small entries, without which records mean nothing.
//!
//! Threads append while the copy is made, because words below the published length never change. Only the entries that were appended
//! after the length was last read are copied under the lock.

use super::layout::{GENERATION, HEAD_WORDS, LENGTHS, entry_kind, entry_words};
use super::queue::Backoff;
use super::{SLOT_WORDS, SlotFile, SlotUse};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The journal of a file.
#[derive(Debug)]
pub(super) struct Journal {
    file: &'static SlotFile,
    state: Mutex<JournalState>,
    /// Whether a thread copies it.
    is_copied: AtomicBool,
}

/// Nothing is allocated under the lock, because an allocator with spans would wait for it.
#[derive(Debug)]
struct JournalState {
    text: JournalText,
    /// The length at which it is compacted.
    compact_at: usize,
    /// Compactions that freed little.
    backoff: Backoff,
    /// Whether the last entries had no room in as many slots as it may have.
    is_full: bool,
}

/// The entries of one generation.
#[derive(Debug)]
struct JournalText {
    generation: u64,
    slots: Vec<JournalSlot>,
    /// The list never grows beyond that, which is its capacity.
    slots_max: usize,
    /// In words.
    length: usize,
    entries: usize,
    /// How many of these remove others.
    removals: usize,
}

/// A copy of a journal without the replaced entries, in slots of its own.
#[derive(Debug)]
struct JournalCopy {
    text: JournalText,
    /// What was copied: the journal as it was when it was read last.
    source: JournalText,
    /// Whether all of it had room.
    fits: bool,
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

/// How often a copying thread adds what was appended meanwhile without the lock; fewer words are added under the lock.
const ROUNDS: usize = 8;
const FEW_WORDS: usize = 1 << 12;

impl Journal {
    /// Creates a journal of at most so many slots of a file.
    pub(super) fn new(file: &'static SlotFile, slots_max: usize) -> Journal {
        let text = JournalText::new(0, slots_max / 2);
        let state = JournalState { text, compact_at: LEAST_GROWTH, backoff: Backoff::new(), is_full: false };
        Journal { file, state: Mutex::new(state), is_copied: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends entries together; returns `false` if there is no room, which is less for large ones.
    pub(super) fn append<'e>(&self, entries: impl Iterator<Item = &'e Vec<u64>> + Clone, are_large: bool) -> bool {
        let words: usize = entries.clone().map(Vec::len).sum();
        let removals = entries.clone().filter_map(|entry| entry.first()).filter(|first| entry_kind(**first).1).count();
        let mut state = self.lock();
        let text = &state.text;
        let (before, mut count) = (text.length, 0);
        let left = if are_large { SLOTS_FOR_SMALL } else { usize::from(removals == 0) * SLOTS_FOR_REMOVALS };
        let slots_max = text.slots_max.saturating_sub(left);
        let mut entries = entries.inspect(|_| count += 1);
        let may_fit = before + words <= slots_max * SLOT_WORDS;
        state.is_full = !may_fit;
        let text = &mut state.text;
        let fits = may_fit && entries.all(|entry| text.write(self.file, slots_max, entry.iter().copied()));
        if fits {
            text.entries += count;
            text.removals += removals;
            text.publish(self.file);
        } else {
            // The next check compacts it.
            text.length = before;
            state.compact_at = 0;
        }
        fits
    }

    /// Returns whether the last entries had no room in as many slots as it may have.
    pub(super) fn is_full(&self) -> bool {
        self.lock().is_full
    }

    /// Copies the entries that were not replaced, if the others are many.
    pub(super) fn compact_if_due(&self) {
        if self.is_copied.swap(true, Ordering::Acquire) {
            return;
        }
        if self.is_compaction_due() {
            let mut copy = self.copy_needed();
            // Each round has what was appended during the one before, which is less.
            let _ = (0..ROUNDS).take_while(|_| self.copy_appended(&mut copy) > FEW_WORDS).count();
            self.replace_by(copy);
        }
        self.is_copied.store(false, Ordering::Release);
    }

    fn is_compaction_due(&self) -> bool {
        let state = self.lock();
        let is_useful = || state.text.removals > state.text.entries / USEFUL_PART || state.backoff.is_over();
        state.text.length >= state.compact_at && is_useful()
    }

    /// Copies the entries that were not replaced.
    fn copy_needed(&self) -> JournalCopy {
        let slots_max = self.lock().text.slots_max;
        let (mut source, mut text) = (JournalText::new(0, slots_max), JournalText::new(0, slots_max));
        text.generation = {
            let state = self.lock();
            source.read(&state.text);
            state.text.generation + 1
        };
        let mut last: HashMap<EntryKey, usize> = HashMap::new();
        for (at, key, removes) in source.positions(0) {
            if removes {
                last.remove(&key);
            } else {
                last.insert(key, at);
            }
        }
        let mut fits = true;
        let is_last = |(at, key, _): &(usize, EntryKey, bool)| last.get(key) == Some(at);
        for (at, ..) in source.positions(0).filter(is_last) {
            let end = at + entry_words(source.word(at));
            fits = fits && text.write(self.file, slots_max, (at..end).map(|at| source.word(at)));
            text.entries += 1;
        }
        JournalCopy { text, source, fits }
    }

    /// Copies what was appended since the last call; returns how many words that were.
    fn copy_appended(&self, copy: &mut JournalCopy) -> usize {
        let from = copy.source.length;
        copy.source.read(&self.lock().text);
        copy.add_from(from, self.file);
        copy.source.length - from
    }

    /// Makes a copy the journal, after adding what was appended since.
    fn replace_by(&self, mut copy: JournalCopy) {
        let mut state = self.lock();
        let (from, before) = (copy.source.length, state.text.length);
        copy.source.read(&state.text);
        copy.add_from(from, self.file);
        if copy.fits {
            // Before it is full.
            let most = copy.text.slots_max * SLOT_WORDS / 8 * 7;
            state.compact_at = (copy.text.length * 2).min(most).max(copy.text.length + LEAST_GROWTH);
            copy.text.publish(self.file);
            std::mem::swap(&mut state.text, &mut copy.text);
        }
        // If a copy has no room, it may have later.
        let freed = before.saturating_sub(state.text.length);
        state.backoff.note_try(freed > before / USEFUL_PART);
        drop(state);
        copy.text.slots.iter().for_each(|each| self.file.free_slot(each.slot));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lock().text.slots.iter().for_each(|each| self.file.free_slot(each.slot));
    }
}

impl JournalCopy {
    /// Adds what follows that word of the journal.
    fn add_from(&mut self, from: usize, file: &'static SlotFile) {
        let JournalCopy { text, source, fits } = self;
        for (_, _, removes) in source.positions(from) {
            text.entries += 1;
            text.removals += usize::from(removes);
        }
        *fits = *fits && text.write(file, text.slots_max, (from..source.length).map(|at| source.word(at)));
    }
}

impl JournalText {
    fn new(generation: u64, slots_max: usize) -> JournalText {
        JournalText { generation, slots: Vec::with_capacity(slots_max), slots_max, length: 0, entries: 0, removals: 0 }
    }

    /// Makes this show the same words as another text that has grown.
    fn read(&mut self, other: &JournalText) {
        self.slots.extend(other.slots.iter().skip(self.slots.len()));
        self.length = other.length;
    }

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
        if let Some(place) = length {
            place.store(self.length as u64, Ordering::Release);
        }
        if let Some(place) = header.get(GENERATION) {
            place.store(self.generation, Ordering::Release);
        }
    }

    fn word(&self, at: usize) -> u64 {
        let place = self.slots.get(at / SLOT_WORDS).and_then(|each| each.words.get(at % SLOT_WORDS));
        place.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the place and key of each entry from that word on, and whether it removes others.
    fn positions(&self, from: usize) -> impl Iterator<Item = (usize, EntryKey, bool)> {
        let mut next = from;
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
