//! Combines all polls of a future into one call.

use crate::hash::HashMap;
use crate::time::Timestamp;

/// The polls of each future, by span id.
#[derive(Debug, Default)]
pub(super) struct Futures(HashMap<u64, Polls>);

#[derive(Debug)]
struct Polls {
    first: Timestamp,
    /// The index of the row of the first poll.
    place: usize,
    busy_ns: u64,
}

impl Futures {
    /// Adds a poll of a span's future in the row at `place`.
    pub(super) fn add_poll(&mut self, span: u64, place: usize, start: Timestamp, ns: u64) {
        let known = self.0.entry(span).or_insert(Polls { first: start, place, busy_ns: 0 });
        known.busy_ns = known.busy_ns.saturating_add(ns);
        if start < known.first {
            (known.first, known.place) = (start, place);
        }
    }

    /// Returns for each future the row of its first poll and the total time of its polls, in nanoseconds.
    pub(super) fn into_calls(self) -> impl Iterator<Item = (usize, u64)> {
        self.0.into_values().map(|polls| (polls.place, polls.busy_ns))
    }
}
