//! Timestamp queries with their readback memory.

use std::ops::Range;
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, Device, MapMode, QuerySet, QuerySetDescriptor, QueryType,
};

/// The number of timestamps in a set.
const QUERIES: u32 = 128;
const BYTES: u64 = size_of::<u64>() as u64;

/// A set of queries; an encoder writes those before `used`.
#[derive(Debug)]
pub(crate) struct Queries {
    pub(crate) set: QuerySet,
    /// The buffers that the GPU writes and the host reads.
    resolved: Buffer,
    readback: Buffer,
    used: u32,
}

impl Queries {
    pub(crate) fn new(device: &Device) -> Queries {
        let set = device.create_query_set(&QuerySetDescriptor {
            label: Some("timestamps"),
            ty: QueryType::Timestamp,
            count: QUERIES,
        });
        let buffer = |usage| {
            let size = u64::from(QUERIES) * BYTES;
            device.create_buffer(&BufferDescriptor {
                label: Some("timestamps"),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let resolved = buffer(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC);
        Queries { set, resolved, readback: buffer(BufferUsages::COPY_DST | BufferUsages::MAP_READ), used: 0 }
    }

    /// Takes the next two queries, if there are two.
    pub(crate) fn take(&mut self) -> Option<[u32; 2]> {
        let next = [self.used, self.used + 1];
        (self.used + 2 <= QUERIES).then(|| {
            self.used += 2;
            next
        })
    }

    fn bytes(&self) -> Range<u64> {
        0..u64::from(self.used) * BYTES
    }

    /// Copies the timestamps on the GPU to memory that the host can read.
    pub(crate) fn resolve(&self, encoder: &mut CommandEncoder) {
        encoder.resolve_query_set(&self.set, 0..self.used, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readback, 0, self.bytes().end);
    }

    /// Calls `read` with the ticks when the GPU has written them, on the thread that polls the device; never, if the device
    /// is lost.
    pub(crate) fn read(self, read: impl FnOnce(Queries, &[u64]) + Send + 'static) {
        let (readback, bytes) = (self.readback.clone(), self.bytes());
        readback.map_async(MapMode::Read, bytes, move |mapped| {
            if mapped.is_ok() {
                let ticks = self.ticks().unwrap_or_default();
                self.readback.unmap();
                read(Queries { used: 0, ..self }, &ticks);
            }
        });
    }

    fn ticks(&self) -> Option<Vec<u64>> {
        let view = self.readback.get_mapped_range(self.bytes()).ok()?;
        let ticks =
            view.chunks_exact(size_of::<u64>()).filter_map(|bytes| bytes.try_into().ok().map(u64::from_le_bytes));
        Some(ticks.collect())
    }
}
