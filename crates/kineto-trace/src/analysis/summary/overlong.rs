//! Slices whose recorded end cannot be right.
//!
//! The work of a stream runs in the order of its launches. If work lasts until later work of its stream has ended, one of the two
//! ends is wrong: the first, if most of the stream's other work ended meanwhile, or if it lasts longer than the host recorded. The
//! work of one launch, such as that of a graph, may run at once and counts as one.
//!
//! Slices of the host may contain all others, and the last kernel may run for hours after them. So a file without a window bounds an
//! end only by what a trace can hold: it is wrong if nothing began in the last [`EXACT_NS`] before it. Starts are compared, since
//! other ends may be wrong too.

use super::work::{StreamId, Work};
use crate::analysis::events::{Event, Events};
use crate::sorting::sort_few_by_key;
use crate::time::EXACT_NS;
use std::cmp::Reverse;

/// Slices that outlast the recording, or device work that outlasts most of the other work of its stream. Figures contain them as
/// they were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverlongWork {
    /// The number of such slices.
    pub count: u64,
    /// The name of the longest.
    pub name: String,
    /// Its recorded duration, in nanoseconds.
    pub ns: u64,
    /// The number of later launches of its stream whose work ended before it; 0 for other slices.
    pub outlasted: u64,
}

/// The work of one launch on a stream, such as all kernels of a graph.
struct LaunchPiece<'e> {
    /// The work that ends last.
    work: Work<'e>,
    /// The number of later pieces that ended before it.
    outlasted: u64,
}

impl OverlongWork {
    /// Returns `None` if there is no such slice.
    pub(super) fn new(events: &Events, streams: &[(&StreamId, Vec<Work<'_>>)]) -> Option<OverlongWork> {
        let found = find_overlong(events, streams);
        let (longest, outlasted) =
            found.iter().max_by_key(|(event, _)| (event.duration_ns(), Reverse(event.index())))?;
        let (name, ns) = (longest.name().to_owned(), longest.duration_ns());
        Some(OverlongWork { count: found.len() as u64, name, ns, outlasted: *outlasted })
    }
}

/// Returns such slices in order of their start, with the number of later launches of their stream whose work ended before them.
pub(in crate::analysis) fn find_overlong<'e>(
    events: &'e Events,
    streams: &[(&StreamId, Vec<Work<'e>>)],
) -> Vec<(Event<'e>, u64)> {
    let recorded_ns = events.window.map(|(start, end)| end.since(start));
    let host_ns = host_span_ns(events);
    let last_start = events.rows.last().map(|row| row.start);
    let outlasts_file = |event: &Event<'_>| last_start.is_some_and(|last| event.end().since(last) > EXACT_NS);
    let others = events.iter().filter(|event| event.is_slice() && !event.is_device_work());
    let mut found: Vec<_> = others.filter(outlasts_file).map(|event| (event, 0)).collect();
    for (_, work) in streams {
        let mut pieces = pieces_of_launches(work);
        count_outlasted(&mut pieces);
        for piece in &pieces {
            let (event, outlasted) = (piece.work.event, piece.outlasted);
            let outlasts_recording = recorded_ns.is_some_and(|recorded| event.duration_ns() > recorded);
            // Kernels of one stream may overlap a little, so the end before one other piece tells nothing.
            let outlasts_most = outlasted > 1 && outlasted * 2 >= pieces.len() as u64;
            let outlasts_stream = outlasts_most || outlasted > 0 && event.duration_ns() > host_ns;
            if outlasts_recording || outlasts_stream || outlasts_file(&event) {
                found.push((event, outlasted));
            }
        }
    }
    sort_few_by_key(&mut found, |(event, _)| event.index());
    found
}

/// Combines the work of a stream, which is sorted, by launch.
fn pieces_of_launches<'e>(work: &[Work<'e>]) -> Vec<LaunchPiece<'e>> {
    let mut pieces: Vec<LaunchPiece<'e>> = Vec::new();
    for work in work {
        let launch = work.event.correlation();
        match pieces.last_mut().filter(|last| launch.is_some() && last.work.event.correlation() == launch) {
            Some(last) if work.end() > last.work.end() => last.work = *work,
            Some(_) => {}
            None => pieces.push(LaunchPiece { work: *work, outlasted: 0 }),
        }
    }
    pieces
}

/// Counts for each piece how many later ones ended before it, in n log n.
fn count_outlasted(pieces: &mut [LaunchPiece<'_>]) {
    let mut ends: Vec<_> = pieces.iter().map(|piece| piece.work.end()).collect();
    if ends.is_sorted() {
        return;
    }
    ends.sort_unstable();
    // A Fenwick tree over the ends of the pieces behind.
    let mut tree = vec![0_u64; ends.len() + 1];
    for piece in pieces.iter_mut().rev() {
        let earlier = ends.partition_point(|end| *end < piece.work.end());
        let mut at = earlier;
        while let Some(count) = tree.get(at).filter(|_| at > 0) {
            piece.outlasted += count;
            at &= at - 1;
        }
        at = earlier + 1;
        while let Some(count) = tree.get_mut(at) {
            *count += 1;
            at += at & at.wrapping_neg();
        }
    }
}

/// Returns the time from the first start of the host's slices to their last end.
fn host_span_ns(events: &Events) -> u64 {
    let host = || events.iter().filter(|event| event.is_slice() && !event.is_on_device());
    let (start, end) = (host().map(|slice| slice.start()).min(), host().map(|slice| slice.end()).max());
    start.zip(end).map_or(u64::MAX, |(start, end)| end.since(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::relations::{Attribution, Nesting};
    use crate::analysis::summary::Devices;
    use proptest::prelude::*;

    /// Returns a trace of kernels on one stream: launch, start and duration.
    fn events(kernels: &[(u64, u64, u64)], window: &str) -> Events {
        let kernel = |(launch, start, ns): &(u64, u64, u64)| {
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"{start}+{ns}","pid":0,"tid":7,"ts":{start},"dur":{ns},"args":{{"correlation":{launch}}}}}"#
            )
        };
        let host = r#"{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":0,"dur":100}"#.to_owned();
        let rows: Vec<_> = kernels.iter().map(kernel).chain([host, window.to_owned()]).collect();
        let text = format!("{{\"schemaVersion\":1,\"traceEvents\":[{}]}}", rows.join(",").trim_end_matches(','));
        Events::from_reader(text.as_bytes()).unwrap()
    }

    fn found(kernels: &[(u64, u64, u64)], window: &str) -> Vec<(String, u64)> {
        let events = events(kernels, window);
        let attribution = Attribution::new(&events, &Nesting::new(&events));
        let found = find_overlong(&events, &Devices::new(&events, &attribution).by_stream());
        found.into_iter().map(|(event, outlasted)| (event.name().to_owned(), outlasted)).collect()
    }

    #[test]
    fn work_is_overlong_if_most_of_its_stream_ended_before() {
        let one = |name: &str, outlasted| vec![(name.to_owned(), outlasted)];
        assert_eq!(found(&[(1, 0, 10), (2, 10, 60), (3, 20, 10), (4, 30, 10)], ""), one("10+60", 2));
        assert_eq!(found(&[(1, 0, 10), (2, 10, 60), (3, 20, 10), (4, 80, 10), (5, 90, 1)], ""), []);
        assert_eq!(found(&[(1, 0, 10), (2, 10, 600), (3, 20, 10), (4, 700, 10), (5, 710, 1)], ""), one("10+600", 1));
        assert_eq!(found(&[(1, 0, 60), (1, 5, 10), (1, 20, 10)], ""), [], "one graph");
        assert_eq!(found(&[(1, 0, 60), (2, 50, 20), (3, 60, 0)], ""), [], "the next one begins early");
        assert_eq!(found(&[(1, 0, 50), (2, 10, 5)], ""), [], "one other");
        assert_eq!(found(&[(1, 0, 500)], ""), []);
        let window = r#"{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":0,"dur":400}"#;
        assert_eq!(found(&[(1, 0, 500)], window), one("0+500", 0));
        assert_eq!(found(&[(1, 100, 350)], window), []);
    }

    proptest! {
        #[test]
        fn counts_agree_with_all_pairs(kernels in prop::collection::vec((0u64..40, 0u64..20), 1..30)) {
            let mut kernels: Vec<_> = (1..).zip(kernels).map(|(launch, (start, ns))| (launch, start, ns)).collect();
            kernels.sort_by_key(|(_, start, ns)| (*start, start + ns));
            let events = events(&kernels, "");
            let devices = Devices::without_launches(&events);
            let (_, work) = devices.by_stream().remove(0);
            let mut pieces = pieces_of_launches(&work);
            count_outlasted(&mut pieces);
            for (at, piece) in pieces.iter().enumerate() {
                let outlasted = pieces[at..].iter().filter(|other| other.work.end() < piece.work.end()).count();
                prop_assert_eq!(piece.outlasted, outlasted as u64);
            }
        }
    }
}
