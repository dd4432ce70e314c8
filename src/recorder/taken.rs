//! What is taken of a recorder for a trace: chunks, records that outlived theirs, and what was read from a file.

use super::lanes::LaneRow;
use super::retained::large_payload_of;
use super::ring::EvictionCounts;
use super::{LargePayload, RetainedRecord};
use crate::buffer::{Chunk, CommittedSlots};
use crate::time::Ticks;
use kineto_base::hash::HashSet;
use kineto_base::sorting::sort_in_place_by_key;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    Stored(CopiedSlots),
}

/// A chunk as it was when it was taken.
#[derive(Debug)]
pub(crate) struct TakenChunk {
    pub(crate) chunk: Chunk,
    pub(crate) committed_len: usize,
    /// From which of its records on no earlier part of the recording has them; `None` if their times decide.
    pub(crate) new_from: Option<usize>,
}

/// Slots that were copied out of a chunk, or read from a file.
#[derive(Debug)]
pub(crate) struct CopiedSlots {
    /// The id of the first slot.
    pub(crate) first_id: u64,
    pub(crate) epoch: u64,
    /// The number of the lane of a record that outlived its chunk; a chunk names its lanes itself.
    pub(super) lane: Option<u64>,
    /// From which slot on the records are in no earlier part of the recording; `None` if their times decide.
    pub(crate) new_from: Option<usize>,
    pub(super) slots: Box<[[AtomicU64; 4]]>,
}

impl RecordedBuffers {
    /// Completes the contents of the ring, whose parts are in no order.
    pub(super) fn with_lanes(mut self, lanes: Vec<LaneRow>) -> RecordedBuffers {
        sort_in_place_by_key(&mut self.parts, RecordedPart::first_id);
        RecordedBuffers { lanes, ..self }
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

impl CopiedSlots {
    /// Returns the records.
    pub(super) fn records(&self) -> CommittedSlots<'_> {
        CommittedSlots::new(&self.slots, self.first_id).with_new_from(self.new_from)
    }

    /// Returns how many bytes the slots have.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }
}

impl RecordedPart {
    /// Returns the chunk, or the slots that were copied.
    #[inline]
    pub(super) fn chunk_or_copy(&self) -> Result<&TakenChunk, &CopiedSlots> {
        match self {
            RecordedPart::Chunk(taken) => Ok(taken),
            RecordedPart::Retained(record) => Err(&record.copied),
            RecordedPart::Stored(copied) => Err(copied),
        }
    }

    /// Returns the id of its first slot.
    pub(crate) fn first_id(&self) -> u64 {
        self.chunk_or_copy().map_or_else(|copied| copied.first_id, |taken| taken.chunk.first_id())
    }

    /// Returns the epoch in which its records were written.
    pub(crate) fn epoch(&self) -> u64 {
        self.chunk_or_copy().map_or_else(|copied| copied.epoch, |taken| taken.chunk.epoch())
    }

    /// Returns the lane of a retained record; a chunk names its lanes itself.
    pub(crate) fn lane(&self) -> Option<u64> {
        self.chunk_or_copy().err().and_then(|copied| copied.lane)
    }

    /// Returns from which of its records on no earlier part of the recording has them; `None` if their times decide.
    pub(crate) fn new_from(&self) -> Option<usize> {
        self.chunk_or_copy().map_or_else(|copied| copied.new_from, |taken| taken.new_from)
    }

    /// Returns the records.
    #[inline]
    pub(crate) fn records(&self) -> CommittedSlots<'_> {
        match self.chunk_or_copy() {
            Ok(taken) => taken.chunk.committed_slots(taken.committed_len).with_new_from(taken.new_from),
            Err(copied) => copied.records(),
        }
    }

    /// Returns how many slots were committed after the part was taken.
    pub(crate) fn committed_late(&self) -> u64 {
        let late = |taken: &TakenChunk| taken.chunk.committed_len().saturating_sub(taken.committed_len) as u64;
        self.chunk_or_copy().map_or(0, late)
    }

    /// Returns how many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            RecordedPart::Chunk(..) => Chunk::BYTES,
            RecordedPart::Retained(record) => record.bytes(),
            RecordedPart::Stored(copied) => copied.bytes(),
        }
    }

    /// Returns the chunk.
    pub(crate) fn into_chunk(self) -> Option<Chunk> {
        if let RecordedPart::Chunk(taken) = self { Some(taken.chunk) } else { None }
    }
}
