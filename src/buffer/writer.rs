//! Writes records into a thread's chunk.

use super::chunk::{SLOTS, Slots};
use super::record::{CommittedRecord, Head, Tag};
use crate::time::Ticks;
use std::sync::atomic::Ordering;

/// The payload of a record, written in its final position.
///
/// It is invisible before the record is [put](Slots::put_with); another record of the thread meanwhile overwrites it.
#[derive(Debug)]
pub(crate) struct RecordPayload {
    slots: Slots,
    /// Index after the last payload word, counted over all words of the chunk.
    end: usize,
}

const SLOT_MASK: u64 = SLOTS as u64 - 1;

/// Returns the slot of a record.
#[inline(always)]
const fn slot_index(id: u64) -> usize {
    (id & SLOT_MASK) as usize
}

/// Returns the word index at which the payload of a record begins.
#[inline(always)]
const fn payload_start(id: u64, tag: Tag) -> usize {
    slot_index(id) * 4 + 1 + tag.fixed_words()
}

/// Methods of the writing thread; a chunk has at most one. A handle of the chunk must live meanwhile.
///
/// A record's id determines its slot by its low bits; id 0 is no record.
impl Slots {
    /// Returns the id of the next record of one slot, if it fits.
    #[inline(always)]
    pub(crate) fn next_slot_id(self) -> Option<u64> {
        let id = self.next_id();
        (slot_index(id) != 0).then_some(id)
    }

    /// Returns the id of the next record of `slots` slots, if it fits.
    #[inline(always)]
    pub(crate) fn id_for(self, slots: usize) -> Option<u64> {
        self.next_slot_id().filter(|id| slot_index(*id) + slots <= SLOTS)
    }

    /// Writes and publishes a record of one slot, with the id from [`next_slot_id`](Slots::next_slot_id).
    #[inline(always)]
    pub(crate) fn put_slice(self, id: u64, head: u64, start: Ticks, span: u64) {
        self.write_slot(slot_index(id), [head, start.0, 0, span]);
        self.commit_below(id + 1);
    }

    /// Writes and publishes the record for which [`id_for`](Slots::id_for) returned an id.
    #[inline(always)]
    pub(crate) fn put_record(self, id: u64, head: Head, words: [u64; 3], payload: &[u64]) {
        CommittedRecord::write_head(self, slot_index(id), head, words);
        let mut place = self.begin_payload(id, head.tag);
        payload.iter().for_each(|word| place.push_words([*word]));
        self.commit_below(id + head.slot_count() as u64);
    }

    /// Begins a record of any length, with the id from [`next_slot_id`](Slots::next_slot_id), by its payload.
    #[inline(always)]
    pub(crate) fn begin_payload(self, id: u64, tag: Tag) -> RecordPayload {
        RecordPayload { slots: self, end: payload_start(id, tag) }
    }

    /// Writes and publishes the record whose payload was written already; `false` if it did not fit.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a chunk has fewer words")]
    pub(crate) fn put_with(self, id: u64, payload: RecordPayload, head: Head, words: [u64; 3]) -> bool {
        let head = Head { payload: (payload.end - payload_start(id, head.tag)) as u16, ..head };
        let fits = payload.end <= SLOTS * 4;
        if fits {
            CommittedRecord::write_head(self, slot_index(id), head, words);
            self.commit_below(id + head.slot_count() as u64);
        }
        fits
    }

    /// Ends a slice in place; `false` if it is in another chunk.
    #[inline(always)]
    pub(crate) fn end_slice(self, slice: u64, end: Ticks) -> bool {
        // Chunks' ids begin at multiples of SLOTS, so the XOR of an id of this chunk is its slot.
        let at = slice ^ self.first_id();
        let here = at <= SLOT_MASK;
        if here {
            self.store_end(slot_index(at), end.0);
        }
        here
    }
}

impl RecordPayload {
    /// Adds words; counts those that do not fit without writing them.
    #[inline(always)]
    pub(crate) fn push_words<const N: usize>(&mut self, words: [u64; N]) {
        if let Some(place) = self.slots.all_words().get(self.end..self.end + N) {
            place.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        }
        self.end += N;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::Chunk;

    const FIRST: u64 = 3 * SLOTS as u64;

    #[expect(clippy::unwrap_used, reason = "a test has memory")]
    fn open(first_id: u64) -> Chunk {
        let chunk = Chunk::new().unwrap();
        chunk.open(first_id, 1);
        chunk
    }

    #[test]
    fn slice_ends_in_place_only_in_the_current_chunk() {
        let none = Slots::full_placeholder();
        assert!(
            none.next_slot_id().is_none()
                && none.id_for(1).is_none()
                && !none.end_slice(0, Ticks(1))
                && !none.end_slice(FIRST, Ticks(1))
        );
        let (first, head) = (open(FIRST), Head::new(Tag::Slice, 0, 3));
        let writer = first.slots();
        let a = writer.next_slot_id().unwrap();
        writer.put_slice(a, head.to_word(), Ticks(7), 9);
        let b = writer.id_for(1).unwrap();
        writer.put_record(b, head, [8, 0, 9], &[]);
        assert_eq!((a, b), (FIRST + 1, FIRST + 2));
        assert!(writer.end_slice(a, Ticks(50)));
        assert_eq!(first.read_slot(1), [head.to_word(), 7, 50, 9]);

        let second = open(5 * SLOTS as u64);
        let writer = second.slots();
        assert!(!writer.end_slice(b, Ticks(60)) && !writer.end_slice(0, Ticks(60)));
        assert_eq!((first.read_slot(2)[2], second.committed_len()), (0, 1));
    }

    #[test]
    fn too_large_payload_leaves_chunk_unchanged() {
        let chunk = open(FIRST);
        let writer = chunk.slots();
        let id = writer.next_slot_id().unwrap();
        let mut payload = writer.begin_payload(id, Tag::Span);
        (0..SLOTS as u64 * 5).for_each(|word| payload.push_words([word]));
        assert!(!writer.put_with(id, payload, Head::new(Tag::Span, 0, 0), [0; 3]));
        assert_eq!(chunk.committed_len(), 1);
    }

    #[test]
    fn chunk_is_filled_to_its_last_slot() {
        let chunk = open(FIRST);
        let writer = chunk.slots();
        let mut put = 0;
        while let Some(id) = writer.next_slot_id() {
            assert!(writer.id_for(SLOTS - put - 1).is_some() && writer.id_for(SLOTS - put).is_none());
            writer.put_record(id, Head::new(Tag::Close, 0, 0), [0; 3], &[]);
            put += 1;
        }
        assert_eq!((put, chunk.committed_len()), (SLOTS - 1, SLOTS));
        assert!(writer.id_for(1).is_none());
    }
}
