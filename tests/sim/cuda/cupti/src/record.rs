//! A record under construction.

use crate::layout::{self, kind};
use crate::link;

/// The bytes of a record; those that nobody sets are zero, and fields that the version does not have are left out.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    bytes: [u8; Record::MOST],
    length: usize,
}

impl Record {
    /// More than any version's longest.
    const MOST: usize = 256;

    /// A record with nothing but its kind; none if the version has no such kind.
    pub(crate) fn new(kind: u32) -> Option<Record> {
        let length = layout::length(kind, link::options().cupti)?;
        Some(Record { bytes: [0; Record::MOST], length }.u32(0, kind))
    }

    fn put<const N: usize>(mut self, offset: usize, value: [u8; N]) -> Record {
        if offset + N <= self.length {
            self.bytes[offset..offset + N].copy_from_slice(&value);
        }
        self
    }

    pub(crate) fn u8(self, offset: usize, value: u32) -> Record {
        self.put(offset, [value as u8])
    }

    pub(crate) fn u16(self, offset: usize, value: u32) -> Record {
        self.put(offset, (value as u16).to_le_bytes())
    }

    pub(crate) fn u32(self, offset: usize, value: u32) -> Record {
        self.put(offset, value.to_le_bytes())
    }

    pub(crate) fn u64(self, offset: usize, value: u64) -> Record {
        self.put(offset, value.to_le_bytes())
    }

    /// Three numbers in a row.
    pub(crate) fn triple(self, offset: usize, [x, y, z]: [u32; 3]) -> Record {
        self.u32(offset, x).u32(offset + 4, y).u32(offset + 8, z)
    }

    pub(crate) fn kind(&self) -> u32 {
        u32::from_le_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Puts an extreme number, or a random one, into a few places that `random` chooses; the kind and the name of a kernel
    /// stay.
    pub(crate) fn mutate(&mut self, mut random: impl FnMut() -> u64) {
        let is_kernel = matches!(self.kind(), kind::KERNEL | kind::CONCURRENT_KERNEL);
        for _ in 0..random() % 4 {
            let width = [1, 4, 8][(random() % 3) as usize];
            let at = 4 + (random() as usize % self.length.saturating_sub(4).max(1)) / 4 * 4;
            let value = match random() % 6 {
                0 => 0,
                1 => 1,
                2 => u64::MAX,
                3 => u64::MAX - 1,
                4 => 1 << 63,
                _ => random(),
            };
            let is_name = is_kernel && at < 112 && at + width > 104;
            if at + width <= self.length && !is_name {
                self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
        }
    }

    /// Makes nonsense of all fields but the kind and the name of a kernel, which a reader cannot but follow.
    pub(crate) fn scramble(&mut self, nonsense: u8) {
        let is_kernel = matches!(self.kind(), kind::KERNEL | kind::CONCURRENT_KERNEL);
        for (index, byte) in self.bytes[..self.length].iter_mut().enumerate() {
            if index >= 4 && !(is_kernel && (104..112).contains(&index)) {
                *byte = nonsense;
            }
        }
    }
}
