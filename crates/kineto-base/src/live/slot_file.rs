//! Memory for chunks in a file that outlives the process, and the layout of that file.
//!
//! The file begins with a header of words, then has a directory with eight words for each slot, then the slots: 64 KiB each, for a
//! chunk, a block of packed records, or a part of the journal. The directory says what a slot holds. Everything in it is
//! written by plain stores, which the kernel keeps when the process is killed.

use crate::os::fork;
use crate::os::shared_file::{SharedFile, Unusable};
use crossbeam_queue::ArrayQueue;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Words in a slot: as many as a chunk has.
pub const SLOT_WORDS: usize = 8192;
/// Words in the header.
pub const HEADER_WORDS: usize = 512;
/// Words of a slot's entry in the directory.
pub const ENTRY_WORDS: usize = 8;
/// The largest page for which slots are aligned.
const PAGE_WORDS: usize = 8192;

/// What a part of a file holds: its slot, or its place in a segment. The numbers are in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SlotUse {
    /// A thread's chunk: the time of the trace that has all its records, if that was moved to disk; in a segment, from which record on no
    /// earlier part of the recording has them, from 1, or 0 if their times decide.
    Chunk = 1,
    /// A part of the journal: its generation, its place there. In a segment, each has whole entries.
    Journal = 2,
    /// Packed records: collector and arena, place among the blocks, committed words, when they were moved out.
    Block = 3,
    /// The end of a segment: it is complete.
    End = 4,
}

/// A file of slots, mapped for ever. When its recording is over and no slot is in use, it shows another file.
#[derive(Debug)]
pub struct SlotFile {
    file: &'static SharedFile,
    slots: usize,
    /// Never allocates: slots are taken and freed under locks that an allocator with spans needs.
    free: ArrayQueue<usize>,
    /// How many slots are in use.
    used: AtomicUsize,
    /// Whether slots may be taken: its recording is not over.
    is_open: AtomicBool,
    /// Whether its slots stay as they are.
    is_kept: AtomicBool,
    /// How many slots were refused because the memory was full.
    refused: AtomicU64,
}

/// All files of this process, for use by later recordings.
static FILES: fork::Own<Vec<&'static SlotFile>> = fork::Own::of_first(Vec::new());

/// Returns how many words lie before the first slot.
pub const fn slots_start(slots: usize) -> usize {
    (HEADER_WORDS + slots * ENTRY_WORDS).next_multiple_of(PAGE_WORDS)
}

impl SlotUse {
    /// Returns the use of that number.
    pub fn from_number(number: u64) -> Option<SlotUse> {
        [SlotUse::Chunk, SlotUse::Journal, SlotUse::Block, SlotUse::End]
            .into_iter()
            .find(|holds| *holds as u64 == number)
    }
}

impl SlotFile {
    /// Creates a file at `path` with so many slots.
    ///
    /// # Errors
    /// Why the folder cannot hold it.
    pub fn create(path: &Path, slots: usize) -> Result<&'static SlotFile, Unusable> {
        let mut files = FILES.lock();
        let is_idle =
            |file: &&&'static SlotFile| file.slots == slots && !file.is_open() && file.used.load(Ordering::SeqCst) == 0;
        let idle = files.iter().find(is_idle).copied();
        let made = match idle {
            Some(idle) => {
                idle.file.replace(path)?;
                idle
            }
            None => {
                let file = SharedFile::create(path, slots_start(slots) + slots * SLOT_WORDS)?;
                let (free, used, refused) = (ArrayQueue::new(slots), AtomicUsize::new(0), AtomicU64::new(0));
                let (is_open, is_kept) = (AtomicBool::new(false), AtomicBool::new(false));
                let made = SlotFile { file, slots, free, used, is_open, is_kept, refused };
                (0..slots).for_each(|slot| _ = made.free.push(slot));
                let made: &'static SlotFile = Box::leak(Box::new(made));
                files.push(made);
                made
            }
        };
        if !made.file.allocate(0..slots_start(slots)) {
            let _ = fs::remove_file(path);
            return Err(Unusable::TooSmall(0));
        }
        made.refused.store(0, Ordering::Relaxed);
        made.is_open.store(true, Ordering::SeqCst);
        Ok(made)
    }

    /// Returns whether slots may be taken.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst) && self.file.is_own()
    }

    /// Ends the use of the file: no further slots are taken.
    pub fn close(&self) {
        if self.file.is_own() {
            self.is_open.store(false, Ordering::SeqCst);
        }
    }

    /// Ends the use of the file, and keeps all its slots: nothing else has their records.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
        self.close();
        self.file.unlock();
    }

    /// Returns whether this is the process that made it.
    pub fn is_own(&self) -> bool {
        self.file.is_own()
    }

    /// Returns how many slots were refused since the last call because the memory was full.
    pub fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// Returns the words of the header.
    pub fn header(&self) -> &'static [AtomicU64] {
        self.file.words().get(..HEADER_WORDS).unwrap_or_default()
    }

    fn entry(&self, slot: usize) -> &'static [AtomicU64] {
        let start = HEADER_WORDS + slot * ENTRY_WORDS;
        self.file.words().get(start..start + ENTRY_WORDS).unwrap_or_default()
    }

    /// Takes a slot of zeros whose pages are present; `None` if all are in use, or the memory is full.
    pub fn take_slot(&self) -> Option<(usize, &'static [AtomicU64])> {
        // SeqCst, as where the file is closed and replaced: either this thread sees that it is closed, or it is not replaced.
        self.used.fetch_add(1, Ordering::SeqCst);
        if !self.is_open() {
            self.used.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let taken = self.free.pop().and_then(|slot| {
            let start = slots_start(self.slots) + slot * SLOT_WORDS;
            if !self.file.allocate(start..start + SLOT_WORDS) {
                let _ = self.free.push(slot);
                return None;
            }
            Some((slot, self.file.words().get(start..start + SLOT_WORDS)?))
        });
        if taken.is_none() {
            self.used.fetch_sub(1, Ordering::SeqCst);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Says what a slot holds.
    pub fn set_use(&self, slot: usize, holds: SlotUse, words: [u64; 4]) {
        if let [kind, rest @ ..] = self.entry(slot)
            && self.is_own()
        {
            rest.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
            // Release: the other words precede it.
            kind.store(holds as u64, Ordering::Release);
        }
    }

    /// Sets a word of a slot's entry, counted without the first.
    pub fn set_word(&self, slot: usize, at: usize, word: u64) {
        if let Some(place) = self.entry(slot).get(at + 1).filter(|_| self.is_own()) {
            place.store(word, Ordering::Release);
        }
    }

    /// Frees a slot.
    pub fn free_slot(&self, slot: usize) {
        if !self.file.is_own() || self.is_kept.load(Ordering::Acquire) {
            return;
        }
        if let Some(kind) = self.entry(slot).first() {
            kind.store(0, Ordering::Release);
        }
        let start = slots_start(self.slots) + slot * SLOT_WORDS;
        self.file.release(start..start + SLOT_WORDS);
        let _ = self.free.push(slot);
        self.used.fetch_sub(1, Ordering::SeqCst);
    }
}
