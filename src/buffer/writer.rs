//! The one thread's hand on its chunk.

use super::chunk::{Chunk, SLOTS};
use super::record::{Head, Record, Tag};
use crate::time::Ticks;

/// The place where a thread writes; there is at most one for a chunk.
#[derive(Debug)]
pub(crate) struct Writer {
    chunk: Option<Chunk>,
    first_id: u64,
    /// The next free slot; `SLOTS` where there is no chunk.
    at: usize,
    /// No chunk is to be had any more: what does not fit goes [`NOWHERE`](Writer::NOWHERE).
    exhausted: bool,
}

/// The chunk has no room for a record: give the writer another one.
#[derive(Debug)]
pub(crate) struct Full;

impl Writer {
    /// Where records go that no chunk has room for; as an id, "none".
    pub(crate) const NOWHERE: usize = 0;

    /// A writer without a chunk.
    pub(crate) const fn empty() -> Writer {
        Writer { chunk: None, first_id: 0, at: SLOTS, exhausted: false }
    }

    /// Goes on in `chunk`, behind what is committed there; returns the chunk of before.
    pub(crate) fn install(&mut self, chunk: Chunk) -> Option<Chunk> {
        self.first_id = chunk.first_id();
        self.at = chunk.committed();
        self.exhausted = false;
        self.chunk.replace(chunk)
    }

    /// From now on, what does not fit is lost.
    pub(crate) fn exhaust(&mut self) {
        self.exhausted = true;
    }

    /// Gives up the chunk.
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        self.at = SLOTS;
        self.chunk.take()
    }

    /// Finds room for a record of `slots` slots; [`NOWHERE`](Writer::NOWHERE) once exhausted.
    #[inline(always)]
    pub(crate) fn reserve(&self, slots: usize) -> Result<usize, Full> {
        if self.at + slots <= SLOTS {
            Ok(self.at)
        } else if self.exhausted {
            Ok(Writer::NOWHERE)
        } else {
            Err(Full)
        }
    }

    /// Writes and publishes a record at a reserved place; returns its id, 0 if it went nowhere.
    #[inline(always)]
    pub(crate) fn put(&mut self, at: usize, head: Head, words: [u64; 3], payload: &[u8]) -> u64 {
        let Some(chunk) = self.chunk.as_ref().filter(|_| at != Writer::NOWHERE) else { return 0 };
        Record::write(chunk, at, head, words, payload);
        self.at = at + head.slots();
        chunk.commit(self.at);
        self.first_id + at as u64
    }

    /// Returns the id that a record at a reserved place has.
    #[inline(always)]
    pub(crate) fn id(&self, at: usize) -> u64 {
        if at == Writer::NOWHERE { 0 } else { self.first_id + at as u64 }
    }

    /// Ends the slice `id`: in place if its chunk is still at hand, else by a record of its own.
    #[inline(always)]
    pub(crate) fn end(&mut self, id: u64, end: Ticks) -> Result<bool, Full> {
        if let Some(chunk) = &self.chunk {
            let at = id.wrapping_sub(self.first_id);
            if at < SLOTS as u64 {
                #[expect(clippy::cast_possible_truncation, reason = "smaller than SLOTS")]
                chunk.end(at as usize, end.0);
                return Ok(true);
            }
        }
        self.end_apart(id, end)
    }

    #[cold]
    #[inline(never)]
    fn end_apart(&mut self, id: u64, end: Ticks) -> Result<bool, Full> {
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
        let mut writer = Writer::empty();
        assert!(writer.reserve(1).is_err(), "no chunk yet");
        let first = open(100);
        writer.install(first.clone());
        let head = Head::new(Tag::Slice, 0, 3);
        let at = writer.reserve(1).unwrap();
        let a = writer.put(at, head, [7, 0, 9], &[]);
        let b = writer.put(writer.reserve(1).unwrap(), head, [8, 0, 9], &[]);
        assert_eq!((a, b), (101, 102));
        assert!(writer.end(a, Ticks(50)).unwrap());
        assert_eq!(first.read(1), [7, 50, 9, head.word()]);

        let second = open(5000);
        writer.install(second.clone());
        assert!(writer.end(b, Ticks(60)).unwrap());
        assert_eq!(first.read(2)[1], 0);
        let end = Record::read(&second, 1, second.committed()).unwrap();
        assert_eq!((end.head.tag, end.words[0], end.words[1]), (Tag::End, b, 60));
    }

    #[test]
    fn a_full_chunk_asks_for_another_until_it_is_known_that_there_is_none() {
        let mut writer = Writer::empty();
        writer.install(open(0));
        while let Ok(at) = writer.reserve(1) {
            writer.put(at, Head::new(Tag::Close, 0, 0), [0; 3], &[]);
        }
        assert!(writer.reserve(1).is_err());
        writer.exhaust();
        let at = writer.reserve(1).unwrap();
        assert_eq!((at, writer.put(at, Head::new(Tag::Close, 0, 0), [0; 3], &[])), (Writer::NOWHERE, 0));
    }
}
