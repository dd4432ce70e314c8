//! Reads fields of rocprofiler-sdk's records by offset; the layouts are those of version 1.0 and newer.
//!
//! A record begins with its own size, and versions only append fields. A field exists if it lies within both that
//! size and the available bytes.

use crate::records::fields::{Field, records};
use crate::rocm::arguments::in_blocks;

/// A record of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'b> {
    Dispatch(Dispatch<'b>),
    Copy(Copy<'b>),
    /// A record of another kind.
    Other,
}

/// The category and kind of a record, from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) category: u32,
    pub(super) kind: u32,
}

/// The category of tracing records.
const TRACING: u32 = 1;
/// Kinds of tracing records.
pub(super) const MEMORY_COPY: u32 = 10;
pub(super) const KERNEL_DISPATCH: u32 = 11;

/// The longest possible record; a larger size is invalid.
pub(super) const LONGEST: usize = 4096;

records! {
    /// A kernel that ran. The dispatch is a nested struct at offset 56.
    Dispatch, 184 bytes {
        kind: u32 = 8, correlation: u64 = 16, start: u64 = 40, end: u64 = 48, agent: u64 = 64, queue: u64 = 72,
        kernel: u64 = 80, block_x: u32 = 104, block_y: u32 = 108, block_z: u32 = 112, items_x: u32 = 116,
        items_y: u32 = 120, items_z: u32 = 124,
    }
    /// A copy.
    Copy, 96 bytes {
        kind: u32 = 8, operation: u32 = 12, correlation: u64 = 16, start: u64 = 40, end: u64 = 48, target: u64 = 56,
        source: u64 = 64, bytes_copied: u64 = 72,
    }
}

/// Returns the size that a record names, if it is valid.
pub(super) fn record_size(record: &[u8]) -> Option<usize> {
    let size = usize::try_from(<u64 as Field>::read_at(record, 0)?).ok()?;
    (8..=LONGEST).contains(&size).then_some(size)
}

impl<'b> Record<'b> {
    /// Reads a record; returns `None` if it contradicts its header.
    pub(super) fn from_bytes(header: Kind, record: &'b [u8]) -> Option<Record<'b>> {
        if header.category != TRACING || !matches!(header.kind, MEMORY_COPY | KERNEL_DISPATCH) {
            return Some(Record::Other);
        }
        let record = record.get(..record_size(record)?)?;
        let record = match header.kind {
            MEMORY_COPY => Record::Copy(Copy::new(record).filter(|copy| copy.kind() == MEMORY_COPY)?),
            _ => Record::Dispatch(Dispatch::new(record).filter(|kernel| kernel.kind() == KERNEL_DISPATCH)?),
        };
        Some(record)
    }
}

impl Dispatch<'_> {
    /// Returns the block in threads.
    pub(super) fn block(&self) -> [u32; 3] {
        [self.block_x(), self.block_y(), self.block_z()]
    }

    /// Returns the grid in blocks; the record has it in threads.
    pub(super) fn grid_in_blocks(&self) -> [u32; 3] {
        in_blocks([self.items_x(), self.items_y(), self.items_z()], self.block())
    }
}

/// A callback's record, as passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Callback([u64; 8]);

/// The phase of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before a call, or when an object was loaded.
    Enter,
    /// After a call, or before an object is unloaded.
    Exit,
    Other,
}

impl Callback {
    #[cfg(test)]
    pub(super) fn new(words: [u64; 8]) -> Callback {
        Callback(words)
    }

    fn word_at(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn low_u32_at(&self, at: usize) -> u32 {
        (self.word_at(at) & 0xFFFF_FFFF) as u32
    }

    /// Returns the kernel's id of the calling thread.
    pub(super) fn thread_id(&self) -> i64 {
        self.word_at(1).cast_signed()
    }

    pub(super) fn correlation(&self) -> u64 {
        self.word_at(2)
    }

    pub(super) fn kind(&self) -> u32 {
        self.low_u32_at(5)
    }

    pub(super) fn operation(&self) -> u32 {
        (self.word_at(5) >> 32) as u32
    }

    pub(super) fn phase(&self) -> Phase {
        match self.low_u32_at(6) {
            1 => Phase::Enter,
            2 => Phase::Exit,
            _ => Phase::Other,
        }
    }

    /// Returns the address of the payload.
    pub(super) fn payload_address(&self) -> u64 {
        self.word_at(7)
    }
}

/// Returns a loaded kernel's id, and the address of its name.
pub(super) fn kernel_symbol(record: &[u8]) -> Option<(u64, u64)> {
    const LEAST: usize = 72;
    let record = record.get(..record_size(record)?).filter(|record| record.len() >= LEAST)?;
    Some((Field::read_at(record, 8)?, Field::read_at(record, 24)?))
}

/// Returns whether a call has failed, from the record of its return value. That is at the end, after the arguments of
/// the function with the most.
pub(super) fn has_failed(record: &[u8]) -> bool {
    /// The longest return value of a HIP function, and HIP's last error code.
    const RETURNED: usize = 24;
    const LAST: u32 = 1999;
    let known = record_size(record).and_then(|size| record.get(..size)?.get(8..)?.last_chunk::<RETURNED>());
    let code: u32 = known.and_then(|returned| Field::read_at(returned, 0)).unwrap_or(0);
    (1..=LAST).contains(&code)
}

#[cfg(test)]
pub(super) mod tests;
