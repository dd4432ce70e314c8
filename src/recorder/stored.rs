//! Records in a file, and records that were read from one.

use super::{LargePayload, RecordedPart};
use crate::buffer::{CommittedSlots, ReservedBytes};
use crate::encoding::{Encoded, decode_words, encode_words};
use kineto_trace::fallible::List;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Records that were read from a file: those of a chunk, or a record that outlived its chunk.
#[derive(Debug)]
pub(crate) struct StoredPart {
    /// The id of the first slot.
    pub(super) first_id: u64,
    pub(super) epoch: u64,
    /// The lane of a record that outlived its chunk; a chunk names its lanes itself.
    pub(super) lane: Option<u64>,
    /// From which slot on the records are in no earlier part of the recording.
    pub(super) new_from: Option<usize>,
    slots: Box<[[AtomicU64; 4]]>,
}

impl StoredPart {
    pub(super) fn records(&self) -> CommittedSlots<'_> {
        CommittedSlots::new(&self.slots, self.first_id).with_new_from(self.new_from)
    }

    pub(super) fn bytes(&self) -> u64 {
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

impl Encoded for Arc<LargePayload> {
    fn encode(&self, out: &mut List<u8>) {
        encode_words(self.words.iter().copied(), out);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let words = decode_words(from, |[word]| word)?.into_boxed_slice();
        Some(Arc::new(LargePayload { words, reserved: ReservedBytes::default() }))
    }
}
