//! Records in a file, and records that were read from one.

use super::{LargePayload, RecordedPart};
use crate::buffer::{CommittedSlots, ReservedBytes, SLOTS};
use crate::encoding::{Encoded, decode_words, encode_words};
use kineto_base::fallible::List;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records that were read from a file: those of a chunk, or a record that outlived its chunk.
#[derive(Debug)]
pub(crate) struct StoredPart {
    /// The id of the first slot.
    first_id: u64,
    epoch: u64,
    /// The lane of a record that outlived its chunk; a chunk names its lanes itself.
    lane: Option<u64>,
    /// From which slot on the records are in no earlier part of the recording.
    new_from: Option<usize>,
    slots: Box<[[AtomicU64; 4]]>,
}

impl StoredPart {
    /// Makes the part of a chunk that was found in a live file. Records end where one makes no sense; also returns how many
    /// slots lie behind that. `None` if it is no chunk, or an empty one.
    pub(crate) fn of_chunk(words: &[u64]) -> Option<(StoredPart, u64)> {
        let (slots, _) = words.as_chunks::<4>();
        let ([next_id, first_id, epoch, _], rest) = slots.split_first()?;
        let is_valid = *first_id > 0 && first_id.is_multiple_of(SLOTS as u64);
        let committed =
            next_id.checked_sub(*first_id).filter(|_| is_valid && first_id.checked_add(SLOTS as u64).is_some())?;
        let committed = usize::try_from(committed).unwrap_or(SLOTS).min(SLOTS).checked_sub(1)?;
        let slots: Box<[_]> = rest.get(..committed)?.iter().map(|slot| slot.map(AtomicU64::new)).collect();
        let all = CommittedSlots::new(&slots, first_id + 1);
        let whole = all.records_from(0).last().map_or(0, |last| last.next_slot());
        let mut slots = slots.into_vec();
        slots.truncate(whole);
        let slots = slots.into_boxed_slice();
        let part = StoredPart { first_id: first_id + 1, epoch: *epoch, lane: None, new_from: None, slots };
        (whole > 0).then_some((part, (committed - whole) as u64))
    }

    /// Returns the id of the first slot.
    pub(crate) fn first_id(&self) -> u64 {
        self.first_id
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn lane(&self) -> Option<u64> {
        self.lane
    }

    pub(super) fn new_from(&self) -> Option<usize> {
        self.new_from
    }

    /// Marks the records from that slot on as new: no earlier part of the recording has them.
    pub(crate) fn set_new_from(&mut self, slot: usize) {
        self.new_from = Some(slot);
    }

    /// Stores the end of the slice with that id, unless it has one.
    pub(crate) fn set_end(&self, slice: u64, end: u64) {
        let slot = slice.checked_sub(self.first_id).and_then(|at| usize::try_from(at).ok());
        if let Some([_, _, place, _]) = slot.and_then(|at| self.slots.get(at)) {
            let _ = place.compare_exchange(0, end, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns the id after that of the last slot.
    pub(crate) fn end_id(&self) -> u64 {
        self.first_id.saturating_add(self.slots.len() as u64)
    }

    pub(super) fn records(&self) -> CommittedSlots<'_> {
        CommittedSlots::new(&self.slots, self.first_id).with_new_from(self.new_from)
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }
}

/// Encodes the committed records, whatever memory holds them.
impl Encoded for RecordedPart {
    fn encode(&self, out: &mut List<u8>) {
        let records = self.records();
        (records.first_id(), self.epoch()).encode(out);
        (self.lane(), self.new_from()).encode(out);
        encode_words(records.words(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let (first_id, epoch) = <(u64, u64)>::decode(from)?;
        let (lane, new_from) = <(Option<u64>, Option<usize>)>::decode(from)?;
        let slots = decode_words(from, |slot: [u64; 4]| slot.map(AtomicU64::new))?.into_boxed_slice();
        // Ids are added to without a check.
        first_id.checked_add(slots.len() as u64)?;
        Some(RecordedPart::Stored(StoredPart { first_id, epoch, lane, new_from, slots }))
    }
}

impl Encoded for LargePayload {
    fn encode(&self, out: &mut List<u8>) {
        encode_words(self.words.iter().copied(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let words = decode_words(from, |[word]| word)?.into_boxed_slice();
        Some(LargePayload { words, reserved: ReservedBytes::default() })
    }
}
