//! A chunk: 64 KiB of slots that one thread at a time fills and anyone may read up to the committed length.
//!
//! Everything in it is an atomic, so sharing it needs no `unsafe`: records are written with relaxed stores and become
//! visible by the release store of the committed length. Only a slice's end is written after that; it is a single word.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots in a chunk; the first holds the chunk's own state.
#[cfg(not(loom))]
pub(crate) const SLOTS: usize = 2048;
/// Small enough for loom to walk through.
#[cfg(loom)]
pub(crate) const SLOTS: usize = 4;

/// Four words, of which a record takes one slot or more.
type Slot = [AtomicU64; 4];

/// A shared handle to 64 KiB of slots.
///
/// Slot 0 is the header: committed length, id of slot 0, epoch. The id of the record in slot `i` is the chunk's first id
/// plus `i`: unique in the process, and no bytes are spent on it.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    slots: Arc<[Slot]>,
}

const COMMITTED: usize = 0;
const FIRST_ID: usize = 1;
const EPOCH: usize = 2;

impl Chunk {
    /// Bytes that one chunk takes.
    pub(crate) const BYTES: u64 = (SLOTS * size_of::<Slot>()) as u64;

    /// Makes an empty chunk and touches every page of it.
    pub(crate) fn new() -> Chunk {
        Chunk { slots: (0..SLOTS).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect() }
    }

    /// Puts the chunk into service; nobody else may hold it yet.
    pub(crate) fn open(&self, first_id: u64, epoch: u64) {
        self.header(FIRST_ID).store(first_id, Ordering::Relaxed);
        self.header(EPOCH).store(epoch, Ordering::Relaxed);
        // Release: whoever sees a length of 1 or more sees the id and the epoch.
        self.header(COMMITTED).store(1, Ordering::Release);
    }

    /// Returns whether nobody else holds the chunk, so that it can be opened again.
    pub(crate) fn is_unique(&mut self) -> bool {
        Arc::get_mut(&mut self.slots).is_some()
    }

    /// Returns the id of slot 0.
    pub(crate) fn first_id(&self) -> u64 {
        self.header(FIRST_ID).load(Ordering::Relaxed)
    }

    /// Returns the epoch in which the chunk was opened.
    pub(crate) fn epoch(&self) -> u64 {
        self.header(EPOCH).load(Ordering::Relaxed)
    }

    /// Returns how many slots are filled, the header included.
    pub(crate) fn committed(&self) -> usize {
        // Acquire: pairs with `commit`, so that every slot below the length is seen whole.
        usize::try_from(self.header(COMMITTED).load(Ordering::Acquire)).unwrap_or(0).min(SLOTS)
    }

    /// Writes a slot that is not committed yet.
    #[inline(always)]
    pub(crate) fn write(&self, at: usize, words: [u64; 4]) {
        if let Some(slot) = self.slots.get(at) {
            for (cell, word) in slot.iter().zip(words) {
                cell.store(word, Ordering::Relaxed);
            }
        }
    }

    /// Publishes all slots below `length`.
    #[inline(always)]
    pub(crate) fn commit(&self, length: usize) {
        // Release: a reader that sees the length sees the slots.
        self.header(COMMITTED).store(length as u64, Ordering::Release);
    }

    /// Stores the end of the slice in a slot that may be committed already.
    #[inline(always)]
    pub(crate) fn end(&self, at: usize, ticks: u64) {
        if let Some([_, end, ..]) = self.slots.get(at) {
            // Relaxed: the word stands alone; a reader sees the old or the new one.
            end.store(ticks, Ordering::Relaxed);
        }
    }

    /// Reads a committed slot; a slot out of range reads as zeros.
    #[inline(always)]
    pub(crate) fn read(&self, at: usize) -> [u64; 4] {
        match self.slots.get(at) {
            Some(slot) => std::array::from_fn(|i| slot.get(i).map_or(0, |cell| cell.load(Ordering::Relaxed))),
            None => [0; 4],
        }
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "a chunk has SLOTS slots, so slot 0 is there; words are constants")]
    fn header(&self, word: usize) -> &AtomicU64 {
        &self.slots[0][word]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_64_kib_and_its_slots_are_ids_in_a_row() {
        assert_eq!(Chunk::BYTES, 64 * 1024);
        let chunk = Chunk::new();
        chunk.open(100, 7);
        chunk.write(1, [1, 2, 3, 4]);
        assert_eq!(chunk.committed(), 1, "written is not yet committed");
        chunk.commit(2);
        assert_eq!((chunk.committed(), chunk.first_id(), chunk.epoch(), chunk.read(1)), (2, 100, 7, [1, 2, 3, 4]));
        chunk.end(1, 9);
        assert_eq!(chunk.read(1), [1, 9, 3, 4]);
        assert_eq!(chunk.read(SLOTS), [0; 4]);
    }

    #[test]
    fn a_reader_never_sees_half_a_record() {
        let chunk = Chunk::new();
        chunk.open(0, 1);
        let reader = chunk.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            while reader.committed() < SLOTS {
                for at in 1..reader.committed() {
                    let [a, _, c, d] = reader.read(at);
                    assert_eq!((a, c, d), (at as u64, at as u64, at as u64));
                }
            }
        });
        for at in 1..SLOTS {
            chunk.write(at, [at as u64, 0, at as u64, at as u64]);
            chunk.commit(at + 1);
            chunk.end(at, 5);
        }
        thread.unwrap().join().unwrap();
    }
}

/// Publication under every interleaving that the memory model allows: `RUSTFLAGS="--cfg loom" cargo test --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn a_committed_record_is_seen_whole_and_its_end_is_old_or_new() {
        loom::model(|| {
            let chunk = Chunk::new();
            chunk.open(10, 1);
            let writer = chunk.clone();
            let thread = loom::thread::spawn(move || {
                writer.write(1, [5, 0, 6, 7]);
                writer.commit(2);
                writer.end(1, 8);
                writer.write(2, [1, 1, 1, 1]);
                writer.commit(3);
            });
            let committed = chunk.committed();
            if committed > 1 {
                let [start, end, span, site] = chunk.read(1);
                assert_eq!((start, span, site), (5, 6, 7));
                assert!(end == 0 || end == 8);
            }
            if committed > 2 {
                assert_eq!(chunk.read(2), [1, 1, 1, 1]);
                assert_eq!(chunk.read(1)[1], 8, "an end stored before a commit is seen after it");
            }
            thread.join().unwrap();
        });
    }
}
