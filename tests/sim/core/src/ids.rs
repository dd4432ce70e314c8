//! Ids of handles, work and calls.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the handles and the ids of a machine.
#[derive(Debug, Default)]
pub struct Ids {
    handles: u64,
    ids: u64,
}

impl Ids {
    /// Returns a new handle in the range of addresses. It points to nothing.
    pub fn next_handle(&mut self) -> u64 {
        self.handles += 1;
        0x5131_0000_0000 + self.handles * 0x10
    }

    /// Returns a new number for a piece of work or a mark.
    pub fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

/// Counts the calls of an API.
#[derive(Debug, Default)]
pub struct CorrelationIds(AtomicU64);

impl CorrelationIds {
    pub const fn new() -> CorrelationIds {
        CorrelationIds(AtomicU64::new(0))
    }

    /// Returns the id of the next call: from 1 on, and from 1 again after `last` unless that is 0.
    pub fn next(&self, last: u64) -> u64 {
        let next = |id: u64| if last != 0 && id >= last { 1 } else { id + 1 };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| Some(next(id))).map_or(1, next)
    }
}
