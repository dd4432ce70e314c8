//! Where records wait between the span path and the trace: chunks with one writer each, and who hands them out.
//!
//! A thread writes into its own chunk and publishes each record by storing the chunk's committed length, so a session
//! can take what is committed at any time without waiting for a thread. Chunks are made and touched by the session's
//! thread ahead of need, so the span path meets neither the allocator nor a page fault in steady state.

mod chunk;
mod losses;
mod pool;
mod record;
mod writer;

pub(crate) use chunk::{Chunk, SLOTS};
pub use losses::Loss;
pub(crate) use losses::Losses;
pub(crate) use pool::{ChunkPool, Starter};
pub(crate) use record::{CommittedRecord, Head, PAYLOAD_MAX, Tag, Whose, flag};
pub(crate) use writer::{RecordPayload, Writer};
