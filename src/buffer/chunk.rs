//! A chunk: 64 KiB of slots that one thread at a time fills and any thread may read up to the committed length.
//!
//! Everything in it is an atomic, so sharing it needs no `unsafe`: records are written with relaxed stores and become visible
//! by the release store of the committed length. Only a slice's end, a single word, is written after that.
//!
//! The memory of a chunk is never freed. When its last handle is dropped, its pages go back to the operating system, and the
//! chunk is reused. So a thread may keep a plain reference to its slots, and the span path counts no references.

use super::budget::{BufferBudget, ReservedBytes};
use super::record::CommittedSlots;
#[cfg(not(all(test, loom)))]
use crate::live::{SlotFile, SlotUse};
#[cfg(not(all(test, loom)))]
use crate::os::fork::PerProcess;
#[cfg(not(all(test, loom)))]
use crate::os::memory;
#[cfg(not(all(test, loom)))]
use crate::time::Ticks;
#[cfg(not(all(test, loom)))]
use crossbeam_queue::SegQueue;
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots in a chunk; the first holds the chunk's own state.
#[cfg(not(all(test, loom)))]
pub(crate) const SLOTS: usize = 2048;
/// Small enough for loom to explore (`tests/loom.rs`).
#[cfg(all(test, loom))]
pub(crate) const SLOTS: usize = 4;

/// The slots of a chunk, four words each. A record takes one slot or more.
///
/// Slot 0 is the header: id of the next record, id of slot 0, epoch, holders. The id of the record in slot `i` is the chunk's
/// first id, a multiple of [`SLOTS`], plus `i`: unique in the process, without taking any bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots(&'static [[AtomicU64; 4]; SLOTS]);

/// A counted handle to 64 KiB of slots.
#[derive(Debug)]
pub(crate) struct Chunk {
    slots: Slots,
    /// The budget to which the last handle returns the chunk's bytes.
    budget: Option<Arc<BufferBudget>>,
    /// The file for which it was made, and its slot there; no slot if the file had no memory.
    #[cfg(not(all(test, loom)))]
    file: Option<(&'static SlotFile, Option<usize>)>,
}

/// Index of the header word for the next record's id; all slots below that id are committed.
const NEXT_ID: usize = 0;
const FIRST_ID: usize = 1;
const EPOCH: usize = 2;
const HOLDERS: usize = 3;

/// Chunks without a handle, their pages given back.
#[cfg(not(all(test, loom)))]
static SPARE: PerProcess<SegQueue<Slots>> = PerProcess::of_first(SegQueue::new());

impl Slots {
    /// Maps some chunks and returns one of them; `None` if there is no memory for one.
    #[cfg(not(all(test, loom)))]
    #[cold]
    fn map_new() -> Option<Slots> {
        // Few enough to cost no time, as their pages are not present yet; enough for one sizable mapping.
        const AT_ONCE: usize = if cfg!(miri) { 1 } else { 16 };
        const WORDS: usize = SLOTS * 4;
        let (slots, _) = memory::zeroed_words(AT_ONCE * WORDS).or_else(|| memory::zeroed_words(WORDS))?.as_chunks();
        let (one, others) = slots.as_chunks().0.split_first()?;
        let spare = SPARE.get(|_| SegQueue::new());
        others.iter().for_each(|slots| spare.push(Slots(slots)));
        Some(Slots(one))
    }

    /// A placeholder for a missing chunk; never written.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn full_placeholder() -> Slots {
        // Zeros, which take no room in the program's file: a chunk whose next id is 0 is full.
        static NONE: [[AtomicU64; 4]; SLOTS] = [const { [const { AtomicU64::new(0) }; 4] }; SLOTS];
        let none = Slots(&NONE);
        // No id belongs to it.
        none.header_word(FIRST_ID).store(u64::MAX, Ordering::Relaxed);
        none
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "SLOTS is a power of two, so the mask keeps the index inside")]
    fn slot(self, at: usize) -> &'static [AtomicU64; 4] {
        const { assert!(SLOTS.is_power_of_two()) };
        &self.0[at & (SLOTS - 1)]
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "slot 0 exists; words are constants below 4")]
    fn header_word(self, word: usize) -> &'static AtomicU64 {
        &self.0[0][word]
    }

    /// Returns how many slots are committed, the header included.
    pub(crate) fn committed_len(self) -> usize {
        // Acquire: pairs with `commit_below`, so that every slot below the length is complete.
        let next = self.header_word(NEXT_ID).load(Ordering::Acquire);
        usize::try_from(next.saturating_sub(self.first_id())).unwrap_or(0).min(SLOTS)
    }

    /// Returns the id of the next record, for the writing thread; a multiple of [`SLOTS`] once the chunk is full.
    #[inline(always)]
    pub(crate) fn next_id(self) -> u64 {
        self.header_word(NEXT_ID).load(Ordering::Relaxed)
    }

    /// Returns the id of slot 0.
    #[inline(always)]
    pub(crate) fn first_id(self) -> u64 {
        self.header_word(FIRST_ID).load(Ordering::Relaxed)
    }

    /// Writes a slot below [`SLOTS`] that is not committed yet.
    #[inline(always)]
    pub(crate) fn write_slot(self, at: usize, words: [u64; 4]) {
        let ([a, b, c, d], [wa, wb, wc, wd]) = (self.slot(at), words);
        a.store(wa, Ordering::Relaxed);
        b.store(wb, Ordering::Relaxed);
        c.store(wc, Ordering::Relaxed);
        d.store(wd, Ordering::Relaxed);
    }

    /// Returns the words of all slots, for writing uncommitted ones.
    #[inline(always)]
    pub(crate) fn all_words(self) -> &'static [AtomicU64] {
        self.0.as_flattened()
    }

    /// Publishes all records with ids below `next_id`.
    #[inline(always)]
    pub(crate) fn commit_below(self, next_id: u64) {
        // Release: a reader that sees the id sees the slots.
        self.header_word(NEXT_ID).store(next_id, Ordering::Release);
    }

    /// Stores the end of the slice in a slot below [`SLOTS`], which may be committed already.
    #[inline(always)]
    pub(crate) fn store_end(self, at: usize, ticks: u64) {
        let [_, _, end, _] = self.slot(at);
        // Relaxed: the word is independent; a reader sees the old or the new one.
        end.store(ticks, Ordering::Relaxed);
    }
}

impl Chunk {
    /// The size of a chunk in bytes.
    pub(crate) const BYTES: u64 = (SLOTS * 32) as u64;

    /// Returns an empty chunk whose pages are all present, so that no write faults; `None` if there is no memory.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn new() -> Option<Chunk> {
        Chunk::new_in(None)
    }

    /// Returns an empty chunk in a file, if there is one that has memory for it, else one of its own, whose pages are all
    /// present, so that no write faults; `None` if there is no memory.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn new_in(file: Option<&'static SlotFile>) -> Option<Chunk> {
        let taken = file.and_then(SlotFile::take_slot);
        let slots = match taken {
            Some((_, words)) => Slots(words.as_chunks().0.as_chunks().0.first()?),
            None => {
                let slots = SPARE.get(|_| SegQueue::new()).pop().or_else(Slots::map_new)?;
                memory::populate_pages(slots.0.as_flattened());
                slots
            }
        };
        slots.header_word(HOLDERS).store(1, Ordering::Relaxed);
        // A slot that was used before may not have become zeros.
        slots.header_word(NEXT_ID).store(slots.first_id(), Ordering::Relaxed);
        let file = file.map(|file| (file, taken.map(|(slot, _)| slot)));
        if let Some((file, Some(slot))) = file {
            file.set_use(slot, SlotUse::Chunk, [0; 4]);
        }
        Some(Chunk { slots, budget: None, file })
    }

    /// Returns whether it was made for that file, or for none.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn is_of_file(&self, file: Option<&'static SlotFile>) -> bool {
        match (self.file, file) {
            (Some((own, _)), Some(file)) => std::ptr::eq(own, file),
            (own, file) => own.is_none() && file.is_none(),
        }
    }

    /// Returns whether it lies in a file of the parent of this forked child.
    #[cfg(not(all(test, loom)))]
    fn is_of_parent(&self) -> bool {
        matches!(self.file, Some((file, Some(_))) if !file.is_own())
    }

    #[cfg(all(test, loom))]
    fn is_of_parent(&self) -> bool {
        false
    }

    /// Returns whether it was made for a file that had no room for it.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn is_outside_file(&self) -> bool {
        matches!(self.file, Some((_, None)))
    }

    /// Empties the chunk, of which there may be no other handle.
    pub(crate) fn clear(&self) {
        self.slots.header_word(NEXT_ID).store(self.slots.first_id(), Ordering::Release);
        #[cfg(not(all(test, loom)))]
        self.mark_moved(Ticks(0));
    }

    /// Notes in the file that a trace of that time, which is moved to disk, has all records; 0 for no such trace.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn mark_moved(&self, at: Ticks) {
        if let Some((file, Some(slot))) = self.file {
            file.set_word(slot, 0, at.0);
        }
    }

    /// Returns an empty chunk on loom's atomics.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Option<Chunk> {
        let slots = Slots(Box::leak(Box::new(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))));
        slots.header_word(HOLDERS).store(1, Ordering::Relaxed);
        Some(Chunk { slots, budget: None })
    }

    /// Makes the chunk return its bytes, which were reserved from `budget`, when the last handle is dropped.
    pub(crate) fn with_budget(self, budget: &Arc<BufferBudget>) -> Chunk {
        let mut chunk = self;
        chunk.budget = Some(budget.clone());
        chunk
    }

    /// Frees the chunk and returns its bytes, still reserved; `None` if there is another handle.
    pub(crate) fn into_reserved(mut self) -> Option<ReservedBytes> {
        if !self.is_unique() {
            return None;
        }
        self.take_reserved()
    }

    /// Takes the chunk's bytes, still reserved; they do not return when the last handle is dropped.
    pub(crate) fn take_reserved(&mut self) -> Option<ReservedBytes> {
        let budget = self.budget.take()?;
        Some(ReservedBytes::new(&budget, Chunk::BYTES))
    }

    /// Puts the chunk into service with ids from `first_id`, a multiple of [`SLOTS`] above 0; there may be no other handle
    /// yet.
    pub(crate) fn open(&self, first_id: u64, epoch: u64) {
        debug_assert!(first_id > 0 && first_id.is_multiple_of(SLOTS as u64), "{first_id}");
        // Release: it is empty until all words are stored, also for a reader that finds it after the process was killed.
        self.slots.header_word(FIRST_ID).store(first_id, Ordering::Release);
        self.slots.header_word(EPOCH).store(epoch, Ordering::Relaxed);
        // Release: a reader that sees a length of 1 or more sees the epoch.
        self.slots.commit_below(first_id + 1);
    }

    /// Returns the slots, to be written by one thread at a time and only while a handle is held.
    pub(crate) fn slots(&self) -> Slots {
        self.slots
    }

    /// Returns whether this is the only handle, so that the chunk can be opened again.
    pub(crate) fn is_unique(&self) -> bool {
        // Acquire: everything that the last other holder did has happened.
        self.slots.header_word(HOLDERS).load(Ordering::Acquire) == 1
    }

    /// Returns the id of slot 0.
    pub(crate) fn first_id(&self) -> u64 {
        self.slots.first_id()
    }

    /// Returns the epoch in which the chunk was opened.
    pub(crate) fn epoch(&self) -> u64 {
        self.slots.header_word(EPOCH).load(Ordering::Relaxed)
    }

    /// Returns how many slots are committed, the header included.
    pub(crate) fn committed_len(&self) -> usize {
        self.slots.committed_len()
    }

    /// Returns the slots of records among the first `committed` slots.
    pub(crate) fn committed_slots(&self, committed: usize) -> CommittedSlots<'_> {
        CommittedSlots::new(self.slots.0.get(1..committed).unwrap_or_default(), self.first_id() + 1)
    }

    /// Reads a slot; one out of range reads as zeros.
    #[cfg(test)]
    pub(crate) fn read_slot(&self, at: usize) -> [u64; 4] {
        match self.slots.0.get(at) {
            Some([a, b, c, d]) => [a, b, c, d].map(|word| word.load(Ordering::Relaxed)),
            None => [0; 4],
        }
    }
}

impl Clone for Chunk {
    fn clone(&self) -> Chunk {
        if !self.is_of_parent() {
            self.slots.header_word(HOLDERS).fetch_add(1, Ordering::Relaxed);
        }
        Chunk {
            slots: self.slots,
            budget: self.budget.clone(),
            #[cfg(not(all(test, loom)))]
            file: self.file,
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.is_of_parent() {
            return;
        }
        // Release, and Acquire for the last: all accesses by holders precede the reuse of the chunk.
        if self.slots.header_word(HOLDERS).fetch_sub(1, Ordering::AcqRel) == 1 {
            #[cfg(not(all(test, loom)))]
            match self.file {
                Some((file, Some(slot))) => file.free_slot(slot),
                _ => {
                    memory::discard_pages(self.slots.0.as_flattened());
                    SPARE.get(|_| SegQueue::new()).push(self.slots);
                }
            }
            if let Some(budget) = &self.budget {
                budget.release(Chunk::BYTES);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunk_has_64_kib_and_consecutive_ids() {
        assert_eq!(Chunk::BYTES, 64 * 1024);
        let chunk = Chunk::new().unwrap();
        chunk.open(4096, 7);
        chunk.slots().write_slot(1, [1, 2, 3, 4]);
        assert_eq!(chunk.committed_len(), 1, "written is not yet committed");
        chunk.slots().commit_below(4098);
        assert_eq!(
            (chunk.committed_len(), chunk.first_id(), chunk.epoch(), chunk.read_slot(1)),
            (2, 4096, 7, [1, 2, 3, 4])
        );
        chunk.slots().store_end(1, 9);
        assert_eq!(chunk.read_slot(1), [1, 2, 9, 4]);
        assert_eq!(chunk.read_slot(SLOTS), [0; 4]);
    }

    #[test]
    fn reader_never_sees_half_a_record() {
        const LAST: usize = if cfg!(miri) { 64 } else { SLOTS };
        let chunk = Chunk::new().unwrap();
        chunk.open(SLOTS as u64, 1);
        let reader = chunk.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            while reader.committed_len() < LAST {
                for at in 1..reader.committed_len() {
                    let [a, b, _, d] = reader.read_slot(at);
                    assert_eq!((a, b, d), (at as u64, at as u64, at as u64));
                }
            }
        });
        for at in 1..LAST {
            chunk.slots().write_slot(at, [at as u64, at as u64, 0, at as u64]);
            chunk.slots().commit_below((SLOTS + at + 1) as u64);
            chunk.slots().store_end(at, 5);
        }
        thread.unwrap().join().unwrap();
    }
}
