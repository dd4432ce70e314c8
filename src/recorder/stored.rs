//! Records in a file, and records that were read from one.

use super::{CopiedSlots, LargePayload, RecordedPart};
use crate::buffer::{CommittedSlots, ReservedBytes, SLOTS};
use crate::encoding::{Encoded, decode_words, encode_words};
use kineto_base::fallible::List;
use std::sync::atomic::{AtomicU64, Ordering};

impl CopiedSlots {
    /// Makes the part of a chunk that was found in a live file. Records end where one makes no sense; also returns how many
    /// slots lie behind that. `None` if it is no chunk, or an empty one.
    pub(crate) fn of_chunk(words: &[u64]) -> Option<(CopiedSlots, u64)> {
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
        let part = CopiedSlots { first_id: first_id + 1, epoch: *epoch, lane: None, new_from: None, slots };
        (whole > 0).then_some((part, (committed - whole) as u64))
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
}

/// Encodes the committed records, whatever memory holds them.
impl Encoded for RecordedPart {
    fn encode(&self, out: &mut List<u8>) {
        let records = self.records();
        (records.first_id, self.epoch()).encode(out);
        (self.lane(), self.new_from()).encode(out);
        encode_words(records.words(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let (first_id, epoch) = <(u64, u64)>::decode(from)?;
        let (lane, new_from) = <(Option<u64>, Option<usize>)>::decode(from)?;
        let slots = decode_words(from, |slot: [u64; 4]| slot.map(AtomicU64::new))?.into_boxed_slice();
        // Ids are added to without a check.
        first_id.checked_add(slots.len() as u64)?;
        Some(RecordedPart::Stored(CopiedSlots { first_id, epoch, lane, new_from, slots }))
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
