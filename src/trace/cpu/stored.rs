//! Pushed records in a file: first a builder without records, then its records in pieces.

use super::owned::OwnActivity;
use super::{CpuTrace, CpuTraceBuilder, MemoryLimit};
use crate::encoding::{Encoded, encode_items, encoded};
use crate::time::Timestamp;
use kineto_base::fallible::{List, may_grow};

encoded! {
    CpuTraceBuilder { name, start, refused } + {
        records: Vec::new(),
        memory: MemoryLimit::default(),
    }
}

impl CpuTrace {
    /// Returns the builder without its records, and its end.
    pub(crate) fn without_records(&self) -> (CpuTraceBuilder, Timestamp) {
        let (name, start, refused) = (self.name.clone(), self.start, self.refused);
        (CpuTraceBuilder { name, start, records: Vec::new(), memory: MemoryLimit::default(), refused }, self.end)
    }

    /// Returns functions that encode the records in pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = impl Fn(&mut List<u8>)> {
        self.records.chunks(256).map(|piece| |out: &mut List<u8>| encode_items(piece.iter(), out))
    }
}

impl CpuTraceBuilder {
    /// Adds a piece; `None` if the bytes are none.
    pub(crate) fn add_piece(&mut self, from: &mut &[u8]) -> Option<()> {
        let piece = Vec::<OwnActivity>::decode(from)?;
        self.memory.bytes += piece.iter().map(OwnActivity::memory_bytes).sum::<u64>();
        may_grow(self.records.try_reserve(piece.len())).then(|| self.records.extend(piece))
    }
}
