//! A chunk of the ring.

use super::{References, remove_reference};
use crate::buffer::{Chunk, ChunkPool, CommittedRecord, ReservedBytes, SLOTS, Tag};
use crate::recorder::taken::TakenChunk;
use crate::time::Ticks;
use std::ops::Range;

/// A chunk, and the records outside of it to which those in it refer.
#[derive(Debug)]
pub(super) struct RingChunk {
    pub(super) chunk: Chunk,
    /// Its committed length when a trace was taken that is moved to disk.
    pub(super) saved_len: usize,
    /// How many of its slots were searched for references.
    pub(super) searched: usize,
    pub(super) references: Vec<u64>,
    /// The numbers of the lanes in the searched slots.
    pub(super) lanes: Vec<u64>,
    pub(super) reserved: ReservedBytes,
}

/// An evicted chunk that a trace holds.
#[derive(Debug)]
pub(super) struct HeldChunk {
    pub(super) chunk: RingChunk,
    pub(super) retired: Ticks,
    /// How many of its records are counted as evicted, and as unsaved.
    pub(super) records: u64,
    pub(super) unsaved: u64,
}

impl RingChunk {
    pub(super) fn new(chunk: Chunk) -> RingChunk {
        RingChunk {
            chunk,
            saved_len: 0,
            searched: 0,
            references: Vec::new(),
            lanes: Vec::new(),
            reserved: ReservedBytes::default(),
        }
    }

    /// Returns a handle to the chunk, with what is committed now. With `saves_until`, what is committed will be moved to disk; `None` if the chunk begins
    /// later. Many parts may wait for the disk, and each would hold the chunks of all later ones.
    pub(super) fn take(&mut self, is_spilling: bool, saves_until: Option<Ticks>) -> Option<TakenChunk> {
        let committed_len = self.chunk.committed_len();
        let new_from = is_spilling.then(|| self.new_from());
        if let Some(until) = saves_until {
            // An event reads its time before the records inside of it, and is committed after them. So a chunk that is left out
            // may get an earlier record: all its records are new in the next part.
            if self.first_time(committed_len) > Some(until) {
                return None;
            }
            self.saved_len = committed_len;
        }
        Some(TakenChunk { chunk: self.chunk.clone(), committed_len, new_from })
    }

    /// Returns when the first record that has a time was written.
    pub(super) fn first_time(&self, committed_len: usize) -> Option<Ticks> {
        let time = |record: CommittedRecord<'_>| match record.head.tag {
            Tag::Slice | Tag::Instant | Tag::Counter | Tag::Memory => Some(record.words[0]),
            Tag::End | Tag::Values | Tag::Close => Some(record.words[1]),
            _ => None,
        };
        let records = self.chunk.committed_slots(committed_len);
        records.records_from(0).find_map(time).map(Ticks)
    }

    /// Returns from which of its records on no trace that is moved to disk has them.
    pub(super) fn new_from(&self) -> usize {
        // The first slot holds no record.
        self.saved_len.saturating_sub(1)
    }

    /// Returns whether a trace that is moved to disk has all its records.
    pub(super) fn is_saved(&self) -> bool {
        self.saved_len == self.chunk.committed_len()
    }

    pub(super) fn own_ids(&self) -> Range<u64> {
        self.chunk.first_id()..self.chunk.first_id() + SLOTS as u64
    }

    /// Searches what was recorded since the last search for references to other chunks, and counts them.
    pub(super) fn search_references(&mut self, counts: &mut References, pool: &ChunkPool) {
        /// Repeated references are usually close to each other.
        const NEAR: usize = 4;
        let (records, own) = (self.chunk.committed_slots(self.chunk.committed_len()), self.own_ids());
        for record in records.records_from(self.searched) {
            self.searched = record.next_slot();
            if record.head.tag == Tag::Lane {
                self.lanes.push(record.words[0]);
            }
            for id in record.references() {
                let is_known = || self.references.iter().rev().take(NEAR).any(|known| *known == id);
                if id != 0 && !own.contains(&id) && !is_known() {
                    self.references.push(id);
                    *counts.entry(id).or_default() += 1;
                }
            }
        }
        // With the entry of `counts`.
        let bytes = (self.references.len() * 40 + self.lanes.len() * 8) as u64;
        if bytes > self.reserved.bytes {
            self.reserved = ReservedBytes::default();
            self.reserved = pool.reserve_bytes(bytes).unwrap_or_default();
        }
    }

    /// Counts its references again, after [`uncount_references`](RingChunk::uncount_references).
    pub(super) fn count_references(&self, counts: &mut References) {
        for id in &self.references {
            *counts.entry(*id).or_default() += 1;
        }
    }

    /// Notes that it refers to nothing any more.
    pub(super) fn uncount_references(&self, counts: &mut References) {
        for id in &self.references {
            remove_reference(counts, *id);
        }
        // What the map gives back counts for other chunks.
        if counts.capacity() / 4 > counts.len() {
            counts.shrink_to(counts.len() * 2);
        }
    }
}
