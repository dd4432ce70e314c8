//! The budget of records: collectors see what threads and snapshots leave of the memory, without knowing these.

use crate::time::Ticks;
use std::fmt;

/// The memory budget of records.
pub trait Budget: fmt::Debug + Send + Sync {
    /// Reserves that many bytes; returns `false` if they are not left.
    fn reserve_bytes(&self, bytes: u64) -> bool;
    /// Does the same for records other than device work, which may not use the last share.
    fn reserve_non_work(&self, bytes: u64) -> bool;
    /// Releases that many bytes.
    fn release_bytes(&self, bytes: u64);
    /// Evicts the oldest records, if new ones replace them. `oldest` is when the collector's oldest block
    /// became full, of those that no snapshot holds.
    fn evict_for_collector(&self, _oldest: Option<Ticks>) -> Eviction {
        Eviction::None
    }
    /// Returns whether dropped records are lost: they were to be moved to disk before.
    fn needs_all_records(&self) -> bool {
        false
    }
}

/// What a budget evicted for new records of a collector.
#[derive(Debug)]
pub enum Eviction {
    /// Nothing.
    None,
    /// A chunk of a thread; it reserved that many bytes for the caller; 0 if others took them.
    Elsewhere(u64),
    /// The caller must drop that block of its own, and the older ones.
    OldestBlock,
}
