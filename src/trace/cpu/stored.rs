//! Pushed records in a file: first a builder without records, then its records in pieces.

use super::owned::OwnActivity;
use super::{CpuTrace, CpuTraceBuilder, MemoryLimit};
use crate::encoding::{Encoded, encode_items, encoded};
use crate::time::Timestamp;
use kineto_base::fallible::{List, may_grow};

/// The pushed records of a file while they are read.
#[derive(Debug)]
pub(crate) struct StoredCpuTrace {
    builder: CpuTraceBuilder,
    end: Timestamp,
}

/// Some records of a trace.
#[derive(Debug)]
pub(crate) struct CpuTracePiece<'t>(&'t [OwnActivity]);

encoded! {
    StoredCpuTrace { builder, end }
    CpuTraceBuilder { name, start, refused } + {
        records: Vec::new(),
        memory: MemoryLimit::unlimited(),
    }
}

impl CpuTrace {
    /// Returns the trace without its records.
    pub(crate) fn without_records(&self) -> StoredCpuTrace {
        let (name, start, refused) = (self.name.clone(), self.start, self.refused);
        let builder = CpuTraceBuilder { name, start, records: Vec::new(), memory: MemoryLimit::unlimited(), refused };
        StoredCpuTrace { builder, end: self.end }
    }

    /// Returns the records in pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = CpuTracePiece<'_>> {
        self.records.chunks(256).map(CpuTracePiece)
    }
}

impl CpuTracePiece<'_> {
    pub(crate) fn encode(&self, out: &mut List<u8>) {
        encode_items(self.0.iter(), out);
    }
}

impl StoredCpuTrace {
    /// Adds a piece; `None` if the bytes are none.
    pub(crate) fn add_piece(&mut self, from: &mut &[u8]) -> Option<()> {
        let piece = Vec::<OwnActivity>::decode(from)?;
        let CpuTraceBuilder { records, memory, .. } = &mut self.builder;
        memory.bytes += piece.iter().map(OwnActivity::memory_bytes).sum::<u64>();
        may_grow(records.try_reserve(piece.len())).then(|| records.extend(piece))
    }

    /// Returns the trace with all of its records.
    pub(crate) fn close(self) -> CpuTrace {
        self.builder.close(self.end)
    }
}
