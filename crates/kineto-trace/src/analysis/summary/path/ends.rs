//! Finds where the path of a window ends, without a walk through the trace.

use super::device::CallRole;
use super::host::is_host_slice;
use crate::analysis::events::{Event, Events};
use crate::time::Timestamp;
use std::ops::Range;

/// The number of events in a block.
const BLOCK: usize = 256;

/// The events at which a path can end: work, operations and calls, except calls that poll.
pub(super) struct PathEnds {
    /// Start, end and index, by start.
    by_start: Vec<(Timestamp, Timestamp, usize)>,
    /// By block of `by_start`: the last end.
    block_ends: Vec<Timestamp>,
    /// End and index, sorted.
    by_end: Vec<(Timestamp, usize)>,
}

impl PathEnds {
    pub(super) fn new(events: &Events) -> PathEnds {
        let ends_path = |event: &Event<'_>| event.is_slice() && (event.is_device_work() || can_end_path(event));
        let by_start: Vec<_> =
            events.iter().filter(ends_path).map(|event| (event.start(), event.end(), event.index())).collect();
        let last_end = |block: &[(_, Timestamp, _)]| block.iter().map(|(_, end, _)| *end).max().unwrap_or_default();
        let block_ends = by_start.chunks(BLOCK).map(last_end).collect();
        let mut by_end: Vec<_> = by_start.iter().map(|(_, end, index)| (*end, *index)).collect();
        by_end.sort_unstable();
        PathEnds { by_start, block_ends, by_end }
    }

    /// Returns the event that ends last in a window. What ends there comes before what continues, device work before the host, and
    /// the shorter of two before the longer.
    pub(super) fn find_last<'e>(&self, events: &'e Events, window: &Range<Timestamp>) -> Option<Event<'e>> {
        let in_window = |event: &Event<'_>| event.start() < window.end && event.end() > window.start;
        let ended = |at: Timestamp| {
            let first = self.by_end.partition_point(|(end, _)| *end < at);
            let equal = self.by_end.get(first..).unwrap_or_default().iter().take_while(move |(end, _)| *end == at);
            first_choice(equal.filter_map(|(_, index)| events.get(*index)).filter(in_window))
        };
        ended(window.end).or_else(|| first_choice(self.continuing(events, window.end).filter(in_window))).or_else(
            || {
                let before = self.by_end.partition_point(|(end, _)| *end < window.end).checked_sub(1)?;
                ended(self.by_end.get(before)?.0)
            },
        )
    }

    /// Returns the events that run at a time, and end later.
    fn continuing<'e>(&self, events: &'e Events, at: Timestamp) -> impl Iterator<Item = Event<'e>> {
        let begun = self.by_start.partition_point(|(start, ..)| *start < at);
        let blocks = self.by_start.get(..begun).unwrap_or_default().chunks(BLOCK).zip(&self.block_ends);
        let blocks = blocks.filter(move |(_, last_end)| **last_end > at).flat_map(|(block, _)| block);
        blocks.filter(move |(_, end, _)| *end > at).filter_map(|(.., index)| events.get(*index))
    }
}

/// Returns the event of several with one end: device work before the host, then the shortest, then the first.
fn first_choice<'e>(events: impl Iterator<Item = Event<'e>>) -> Option<Event<'e>> {
    events.min_by_key(|event| (!event.is_device_work(), event.duration_ns(), event.index()))
}

/// Returns whether a slice of the host can end a path.
fn can_end_path(event: &Event<'_>) -> bool {
    let polls = event.is_call() && CallRole::of(event.name()) == CallRole::Polls;
    is_host_slice(event) && !event.is_python_function() && !polls
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    /// Finds the end by a walk through the trace.
    fn find_last_slowly<'e>(events: &'e Events, window: &Range<Timestamp>) -> Option<Event<'e>> {
        let key = |event: &Event<'_>| {
            let (end, continues) = (event.end().min(window.end), event.end() > window.end);
            (end, !continues, event.is_device_work(), Reverse(event.duration_ns()), Reverse(event.index()))
        };
        let ends_path = |event: &Event<'_>| {
            let can_end = event.is_slice() && (event.is_device_work() || can_end_path(event));
            can_end && event.start() < window.end && event.end() > window.start
        };
        events.iter().filter(ends_path).max_by_key(key)
    }

    proptest! {
        #[test]
        fn ends_agree_with_a_walk(
            slices in prop::collection::vec((0..4_usize, 0..50_u64, 0..20_u64), 0..600),
            (start, length) in (0..60_u64, 1..60_u64),
        ) {
            const NAMES: [&str; 4] =
                ["cpu_op\",\"name\":\"a", "kernel\",\"name\":\"k", "cuda_runtime\",\"name\":\"cudaEventQuery", "cpu_op\",\"name\":\"b"];
            let rows: Vec<_> = slices.iter().map(|(kind, start, dur)| {
                format!(r#"{{"ph":"X","cat":"{}","pid":1,"tid":{kind},"ts":{start},"dur":{dur}}}"#, NAMES[*kind])
            }).collect();
            let events = Events::from_reader(format!("[{}]", rows.join(",")).as_bytes()).unwrap();
            let at = |us: u64| Timestamp::from_nanos(us * 1000);
            let window = at(start)..at(start + length);
            let index = |event: Option<Event<'_>>| event.map(|event| event.index());
            let found = PathEnds::new(&events).find_last(&events, &window);
            prop_assert_eq!(index(found), index(find_last_slowly(&events, &window)));
        }
    }
}
