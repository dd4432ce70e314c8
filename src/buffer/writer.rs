//! The one thread's hand on its chunk.

use super::chunk::{Chunk, SLOTS, Slots};
use super::record::{Head, Record, Tag};
use crate::time::Ticks;
use std::cell::Cell;

/// The place where a thread writes; there is at most one for a chunk.
///
/// The chunk's handle is kept by whoever keeps the writer: the writer only knows where to write.
#[derive(Debug)]
pub(crate) struct Writer {
    slots: Cell<Slots>,
    first_id: Cell<u64>,
    /// No chunk is to be had any more: what does not fit goes [`NOWHERE`](Writer::NOWHERE).
    exhausted: Cell<bool>,
}

/// The chunk has no room for a record: give the writer another one.
#[derive(Debug)]
pub(crate) struct Full;

impl Writer {
    /// Where records go that no chunk has room for; as an id, "none".
    pub(crate) const NOWHERE: usize = 0;

    /// A writer without a chunk.
    pub(crate) fn empty() -> Writer {
        let (slots, first_id) = (Cell::new(Slots::none()), Cell::new(0));
        Writer { slots, first_id, exhausted: Cell::new(false) }
    }

    /// Goes on in `chunk`, behind what is committed there; the handle is to be kept until the next one is installed.
    pub(crate) fn install(&self, chunk: &Chunk) {
        self.slots.set(chunk.slots());
        self.first_id.set(chunk.first_id());
        self.exhausted.set(false);
    }

    /// Gives up the chunk.
    pub(crate) fn uninstall(&self) {
        self.first_id.set(0);
        self.slots.set(Slots::none());
        self.exhausted.set(false);
    }

    /// From now on, what does not fit is lost.
    pub(crate) fn exhaust(&self) {
        self.exhausted.set(true);
    }

    /// Returns the place for a record of one slot, and the id that the record will have, if there is one.
    #[inline(always)]
    pub(crate) fn free(&self) -> Option<(usize, u64)> {
        let at = self.slots.get().filled();
        (at < SLOTS).then(|| (at, self.first_id.get() + at as u64))
    }

    /// Returns the place for a record of `slots` slots, if there is one.
    #[inline(always)]
    pub(crate) fn room(&self, slots: usize) -> Option<usize> {
        let at = self.slots.get().filled();
        (at + slots <= SLOTS).then_some(at)
    }

    /// Finds room for a record of `slots` slots; [`NOWHERE`](Writer::NOWHERE) once exhausted.
    #[inline(always)]
    pub(crate) fn reserve(&self, slots: usize) -> Result<usize, Full> {
        if let Some(at) = self.room(slots) {
            Ok(at)
        } else if self.exhausted.get() {
            Ok(Writer::NOWHERE)
        } else {
            Err(Full)
        }
    }

    /// Writes and publishes a record of one slot at a [`free`](Writer::free) place.
    #[inline(always)]
    pub(crate) fn put_slice(&self, at: usize, head: u64, start: Ticks, span: u64) {
        let slots = self.slots.get();
        slots.write(at, [start.0, 0, span, head]);
        slots.commit(at + 1);
    }

    /// Writes and publishes a record at a reserved place; returns its id, 0 if it went nowhere.
    #[inline(always)]
    pub(crate) fn put(&self, at: usize, head: Head, words: [u64; 3], payload: &[u8]) -> u64 {
        if at == Writer::NOWHERE {
            return 0;
        }
        let slots = self.slots.get();
        Record::write(slots, at, head, words, payload);
        slots.commit(at + head.slots());
        self.first_id.get() + at as u64
    }

    /// Returns the id that a record at a reserved place has.
    #[inline(always)]
    pub(crate) fn id(&self, at: usize) -> u64 {
        if at == Writer::NOWHERE { 0 } else { self.first_id.get() + at as u64 }
    }

    /// Ends the slice `id` in place, if its chunk is still at hand.
    #[inline(always)]
    pub(crate) fn end_here(&self, id: u64, end: Ticks) -> bool {
        let at = id.wrapping_sub(self.first_id.get());
        let here = at.wrapping_sub(1) < SLOTS as u64 - 1;
        if here {
            #[expect(clippy::cast_possible_truncation, reason = "smaller than SLOTS")]
            self.slots.get().end(at as usize, end.0);
        }
        here
    }

    /// Ends the slice `id`: in place if its chunk is still at hand, else by a record of its own; `false` if lost.
    pub(crate) fn end(&self, id: u64, end: Ticks) -> Result<bool, Full> {
        if self.end_here(id, end) {
            return Ok(true);
        }
        let at = self.reserve(1)?;
        Ok(self.put(at, Head::new(Tag::End, 0, 0), [id, end.0, 0], &[]) != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn open(first_id: u64) -> Chunk {
        let chunk = Chunk::new();
        chunk.open(first_id, 1);
        chunk
    }

    #[test]
    fn a_slice_ends_in_place_while_its_chunk_is_at_hand_and_apart_afterwards() {
        let writer = Writer::empty();
        assert!(writer.reserve(1).is_err() && writer.free().is_none(), "no chunk yet");
        let first = open(100);
        writer.install(&first);
        let head = Head::new(Tag::Slice, 0, 3);
        let (at, a) = writer.free().unwrap();
        writer.put_slice(at, head.word(), Ticks(7), 9);
        assert_eq!(writer.id(at), a);
        let b = writer.put(writer.reserve(1).unwrap(), head, [8, 0, 9], &[]);
        assert_eq!((a, b), (101, 102));
        assert!(writer.end(a, Ticks(50)).unwrap());
        assert_eq!(first.read(1), [7, 50, 9, head.word()]);

        let second = open(5000);
        writer.install(&second);
        assert!(!writer.end_here(b, Ticks(60)) && !writer.end_here(0, Ticks(60)));
        assert!(writer.end(b, Ticks(60)).unwrap());
        assert_eq!(first.read(2)[1], 0);
        let end = Record::read(&second, 1, second.committed()).unwrap();
        assert_eq!((end.head.tag, end.words[0], end.words[1]), (Tag::End, b, 60));
    }

    #[test]
    fn a_full_chunk_asks_for_another_until_it_is_known_that_there_is_none() {
        let writer = Writer::empty();
        let chunk = open(0);
        writer.install(&chunk);
        while let Ok(at) = writer.reserve(1) {
            writer.put(at, Head::new(Tag::Close, 0, 0), [0; 3], &[]);
        }
        assert!(writer.reserve(1).is_err());
        writer.exhaust();
        let at = writer.reserve(1).unwrap();
        assert_eq!((at, writer.put(at, Head::new(Tag::Close, 0, 0), [0; 3], &[])), (Writer::NOWHERE, 0));
    }
}
