//! The channel from the span path to the collectors: which slice each thread is in.

use std::fmt::Debug;

/// Receives the slice that the calling thread is in, so that launches inside can be linked to it.
pub(crate) trait CorrelationSink: Debug + Send + Sync {
    /// The thread enters a slice, that of an annotation or of an operation; returns who took it, a bit each. If nobody did,
    /// there is no pop.
    fn push(&self, slice: u64, annotates: bool) -> u64;

    /// The thread leaves the slice that it pushed last, as what that was pushed, which these took.
    fn pop(&self, annotates: bool, takers: u64);
}
