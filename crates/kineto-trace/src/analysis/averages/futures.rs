//! Combines all enters of a future's span into one call.

use crate::hash::HashMap;
use crate::time::Timestamp;

/// The spans whose enters are one call, by span id.
#[derive(Debug, Default)]
pub(super) struct Futures(HashMap<u64, FutureCall>);

/// A call of a future.
#[derive(Debug)]
pub(super) struct FutureCall {
    first: Timestamp,
    /// The index of the row of the first enter.
    pub(super) place: usize,
    /// The total time of its slices, in nanoseconds.
    pub(super) busy_ns: u64,
    pub(super) enters: u64,
}

impl Futures {
    /// Adds a slice of a span with so many enters, in the row at `place`, with its start and its nanoseconds.
    pub(super) fn add_enter(&mut self, span: u64, place: usize, (start, ns): (Timestamp, u64), enters: u64) {
        let known = self.0.entry(span).or_insert(FutureCall { first: start, place, busy_ns: 0, enters });
        known.busy_ns = known.busy_ns.saturating_add(ns);
        if start < known.first {
            (known.first, known.place) = (start, place);
        }
    }

    pub(super) fn into_calls(self) -> impl Iterator<Item = FutureCall> {
        self.0.into_values()
    }
}
