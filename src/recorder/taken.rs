//! What is taken of a recorder for a trace: chunks, records that outlived theirs, and what was read from a file.

use super::lanes::LaneRow;
use super::retained::large_payload_of;
use super::ring::{EvictionCounts, RingContents};
use super::{LargePayload, RetainedRecord, StoredPart};
use crate::buffer::{Chunk, CommittedSlots};
use crate::time::Ticks;
use kineto_base::hash::HashSet;
use kineto_base::sorting::sort_in_place_by_key;
use std::sync::Arc;

/// What was recorded up to a stop or a snapshot.
#[derive(Debug, Default)]
pub(crate) struct RecordedBuffers {
    /// Sorted by their first ids.
    pub(crate) parts: Vec<RecordedPart>,
    pub(crate) lanes: Vec<LaneRow>,
    /// Payloads too large for a chunk, by the id that replaces them there.
    pub(crate) large_payloads: Vec<(u64, Arc<LargePayload>)>,
    pub(crate) evicted: EvictionCounts,
    /// When all of this was taken.
    pub(crate) at: Ticks,
}

/// Records with consecutive ids.
#[derive(Debug)]
pub(crate) enum RecordedPart {
    Chunk(TakenChunk),
    /// Records that outlived their chunk.
    Retained(Arc<RetainedRecord>),
    /// Records from a file.
    Stored(StoredPart),
}

/// A chunk as it was when it was taken.
#[derive(Debug)]
pub(crate) struct TakenChunk {
    pub(crate) chunk: Chunk,
    pub(crate) committed_len: usize,
    /// From which of its records on no earlier part of the recording has them; `None` if their times decide.
    pub(crate) new_from: Option<usize>,
}

impl RecordedBuffers {
    pub(super) fn new(contents: RingContents, lanes: Vec<LaneRow>) -> RecordedBuffers {
        let RingContents { at, mut parts, large_payloads, evicted } = contents;
        sort_in_place_by_key(&mut parts, RecordedPart::first_id);
        RecordedBuffers { parts, lanes, large_payloads, evicted, at }
    }

    /// Drops the payloads that no record names.
    pub(crate) fn drop_unnamed_payloads(&mut self) {
        if self.large_payloads.is_empty() {
            return;
        }
        let mut named = HashSet::default();
        for part in &self.parts {
            for record in part.records().records_from(0) {
                named.insert(large_payload_of(&record));
            }
        }
        self.large_payloads.retain(|(id, _)| named.contains(id));
    }

    /// Makes times decide about all records.
    pub(crate) fn forget_earlier_parts(&mut self) {
        for part in &mut self.parts {
            if let RecordedPart::Chunk(taken) = part {
                taken.new_from = None;
            }
        }
    }
}

impl RecordedPart {
    /// Returns the id of its first slot.
    pub(crate) fn first_id(&self) -> u64 {
        match self {
            RecordedPart::Chunk(taken) => taken.chunk.first_id(),
            RecordedPart::Retained(record) => record.first_id,
            RecordedPart::Stored(part) => part.first_id(),
        }
    }

    /// Returns the epoch in which its records were written.
    pub(crate) fn epoch(&self) -> u64 {
        match self {
            RecordedPart::Chunk(taken) => taken.chunk.epoch(),
            RecordedPart::Retained(record) => record.epoch,
            RecordedPart::Stored(part) => part.epoch(),
        }
    }

    /// Returns the lane of a retained record; a chunk names its lanes itself.
    pub(crate) fn lane(&self) -> Option<u64> {
        match self {
            RecordedPart::Chunk(..) => None,
            RecordedPart::Retained(record) => Some(record.lane),
            RecordedPart::Stored(part) => part.lane(),
        }
    }

    /// Returns the records.
    #[inline]
    pub(crate) fn records(&self) -> CommittedSlots<'_> {
        match self {
            RecordedPart::Chunk(taken) => {
                taken.chunk.committed_slots(taken.committed_len).with_new_from(taken.new_from)
            }
            RecordedPart::Retained(record) => record.records(),
            RecordedPart::Stored(part) => part.records(),
        }
    }

    /// Returns from which of its records on no earlier part of the recording has them.
    pub(super) fn new_from(&self) -> Option<usize> {
        match self {
            RecordedPart::Chunk(taken) => taken.new_from,
            RecordedPart::Retained(_) => None,
            RecordedPart::Stored(part) => part.new_from(),
        }
    }

    /// Returns how many slots were committed after the part was taken.
    pub(crate) fn committed_late(&self) -> u64 {
        match self {
            RecordedPart::Chunk(taken) => taken.chunk.committed_len().saturating_sub(taken.committed_len) as u64,
            RecordedPart::Retained(_) | RecordedPart::Stored(_) => 0,
        }
    }

    /// Returns how many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            RecordedPart::Chunk(..) => Chunk::BYTES,
            RecordedPart::Retained(record) => record.bytes(),
            RecordedPart::Stored(part) => part.bytes(),
        }
    }

    /// Returns the chunk.
    pub(crate) fn into_chunk(self) -> Option<Chunk> {
        match self {
            RecordedPart::Chunk(taken) => Some(taken.chunk),
            RecordedPart::Retained(_) | RecordedPart::Stored(_) => None,
        }
    }
}
