//! Buffers between the span path and the trace: chunks with one writer each, and the pool that supplies them.
//!
//! A thread writes into its own chunk and publishes each record by storing the chunk's committed length. So a session can
//! take the committed records at any time without waiting for a thread. A helper thread allocates chunks and touches their
//! pages ahead of need, so in steady state the span path neither allocates nor page-faults.

mod budget;
mod chunk;
mod losses;
mod pool;
mod record;
mod writer;

pub(crate) use budget::ReservedBytes;
pub(crate) use chunk::{Chunk, SLOTS, Slots};
pub use losses::Loss;
pub(crate) use losses::Losses;
pub(crate) use pool::ChunkPool;
pub(crate) use record::{CommittedRecord, CommittedSlots, Head, MemoryTag, PAYLOAD_MAX, Tag, flag};
pub(crate) use writer::RecordPayload;
