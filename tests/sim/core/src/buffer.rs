//! Buffers of the client with records, and the work whose times are unknown.

use crate::engine::NEVER;
use crate::record::Record;

/// A buffer.
#[derive(Debug)]
pub struct RecordBuffer {
    pub address: *mut u8,
    pub size: usize,
    pub used: usize,
    /// The most records that the client allows, 0 for as many as fit.
    most: usize,
    records: usize,
    pending: Vec<PendingRecord>,
    /// When all its work is complete.
    done_at: u64,
    has_garbage: bool,
}

// SAFETY: the client does not use the memory until it gets it back.
unsafe impl Send for RecordBuffer {}

/// A record whose work has not ended.
#[derive(Clone, Copy, Debug)]
pub struct PendingRecord {
    /// The work's id, by which its times are set later if unknown.
    pub id: u64,
    pub begun_at: u64,
    pub done_at: u64,
    /// The offsets of start and end in the record.
    pub start: Option<usize>,
    pub end: usize,
    /// The record's offset, set by the buffer.
    pub record: usize,
}

/// Bytes without meaning, at the end of a buffer with garbage.
const NONSENSE: [u8; 20] = [0xa5; 20];

impl RecordBuffer {
    pub fn new(address: *mut u8, size: usize, most: usize) -> RecordBuffer {
        let (pending, has_garbage) = (Vec::new(), false);
        RecordBuffer { address, size, used: 0, most, records: 0, pending, done_at: 0, has_garbage }
    }

    pub fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes <= self.size && (self.most == 0 || self.records < self.most)
    }

    /// Adds a record, for which there must be room.
    pub fn add(&mut self, record: &Record, pending: Option<PendingRecord>) {
        let offset = self.used;
        self.used += record.bytes().len();
        self.records += 1;
        self.write(offset, record.bytes());
        if let Some(pending) = pending {
            self.done_at = self.done_at.max(pending.done_at);
            self.pending.push(PendingRecord { record: offset, ..pending });
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        debug_assert!(offset + bytes.len() <= self.size);
        // SAFETY: the range is inside the buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address.add(offset), bytes.len()) };
    }

    /// Returns whether all its work has ended.
    pub fn is_complete(&self, now: u64) -> bool {
        self.done_at <= now
    }

    /// Marks that a record here is garbage.
    pub fn note_garbage(&mut self) {
        self.has_garbage = true;
    }

    /// Fills in times that have become known; false if the work has no record here.
    pub fn retime(&mut self, id: u64, start: u64, end: u64, done_at: u64) -> bool {
        let Some(index) = self.pending.iter().position(|pending| pending.id == id) else { return false };
        let pending = self.pending[index];
        if let Some(offset) = pending.start.filter(|_| pending.begun_at == NEVER) {
            self.write(pending.record + offset, &start.to_le_bytes());
        }
        self.write(pending.record + pending.end, &end.to_le_bytes());
        self.pending[index].begun_at = done_at.saturating_sub(end.saturating_sub(start));
        self.pending[index].done_at = done_at;
        self.done_at = self.pending.iter().map(|pending| pending.done_at).max().unwrap_or_default();
        true
    }

    /// Prepares it for the client: work that has not ended has no end, and what has not begun has no start.
    pub fn close(&mut self, now: u64) {
        for pending in std::mem::take(&mut self.pending) {
            if pending.done_at > now {
                self.write(pending.record + pending.end, &[0; 8]);
            }
            if let Some(start) = pending.start.filter(|_| pending.begun_at > now) {
                self.write(pending.record + start, &[0; 8]);
            }
        }
        if self.has_garbage && self.size - self.used >= NONSENSE.len() {
            self.write(self.used, &NONSENSE);
            self.used += NONSENSE.len();
        }
    }
}
