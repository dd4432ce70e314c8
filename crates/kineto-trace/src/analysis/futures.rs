//! The calls that polls of futures make up: all polls of a future are one call.

use crate::time::Timestamp;
use std::collections::HashMap;

/// The polls of each future, by the id of its span.
#[derive(Debug, Default)]
pub(super) struct Futures(HashMap<u64, Polls>);

#[derive(Debug)]
struct Polls {
    first: Timestamp,
    /// The row of the first poll.
    place: usize,
    busy_ns: u64,
}

impl Futures {
    /// Adds a poll of the future of that span, which belongs to the row at `place`.
    pub(super) fn add(&mut self, span: u64, place: usize, start: Timestamp, ns: u64) {
        let known = self.0.entry(span).or_insert(Polls { first: start, place, busy_ns: 0 });
        known.busy_ns = known.busy_ns.saturating_add(ns);
        if start < known.first {
            (known.first, known.place) = (start, place);
        }
    }

    /// Returns each call: the row of its first poll, and how long all its polls took, in nanoseconds.
    pub(super) fn calls(self) -> impl Iterator<Item = (usize, u64)> {
        self.0.into_values().map(|polls| (polls.place, polls.busy_ns))
    }
}
