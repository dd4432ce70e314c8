//! The channel from the span path to the collectors: which slice each thread is in.

use std::fmt::Debug;

/// Receives the slice that the calling thread is in, so that launches inside can be linked to it.
pub trait CorrelationSink: Debug + Send + Sync {
    /// Called when the thread enters a slice. Returns a bit for each collector that took it; if 0, `pop` is not called.
    fn push_slice(&self, slice: u64, annotates: bool) -> u64;

    /// Called when the thread leaves the slice that it pushed last; `annotates` and `takers` are those of the push.
    fn pop_slice(&self, annotates: bool, takers: u64);
}
