//! A record under construction.

use crate::layout::{self, kind};
use crate::link;

/// The bytes of a record; those that nobody sets are zero, and fields that the version does not have are left out.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    bytes: Vec<u8>,
}

impl Record {
    /// A record with nothing but its kind; none if the version has no such kind.
    pub(crate) fn new(kind: u32) -> Option<Record> {
        let length = layout::length(kind, link::options())?;
        Some(Record { bytes: vec![0; length] }.u32(0, kind))
    }

    /// Bytes at an offset.
    pub(crate) fn put(mut self, offset: usize, value: &[u8]) -> Record {
        if let Some(place) = self.bytes.get_mut(offset..offset + value.len()) {
            place.copy_from_slice(value);
        }
        self
    }

    pub(crate) fn u32(self, offset: usize, value: u32) -> Record {
        self.put(offset, &value.to_le_bytes())
    }

    pub(crate) fn u64(self, offset: usize, value: u64) -> Record {
        self.put(offset, &value.to_le_bytes())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn kind(&self) -> u32 {
        u32::from_le_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]])
    }

    /// Makes nonsense of all fields but the kind and the texts, which a reader cannot but follow.
    pub(crate) fn scramble(&mut self, nonsense: u8) {
        let texts = texts(self.kind(), self.bytes.len());
        for (index, byte) in self.bytes.iter_mut().enumerate().skip(4) {
            if !texts.iter().any(|text| (*text..text + 8).contains(&index)) {
                *byte = nonsense;
            }
        }
    }
}

/// Where the pointers to texts are, in a record of that kind and length.
pub(crate) fn texts(kind: u32, length: usize) -> &'static [usize] {
    match kind {
        kind::KERNEL => &[24, 32],
        kind::MEMCPY | kind::MEMCPY_PEER => &[32],
        kind::MEMSET => &[24],
        kind::COMMUNICATION => &[48, 56][if length < 64 { 0..1 } else { 1..2 }],
        _ => &[],
    }
}
