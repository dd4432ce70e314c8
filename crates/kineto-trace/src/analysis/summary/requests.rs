//! Figures of requests: the outermost async spans, by name.

use crate::activity::ArgValue;
use crate::analysis::events::{Event, Events, StringId};
use crate::analysis::percentile::percentile;
use crate::hash::HashMap;
use crate::sorting::sort_few_by;
use crate::time::Timestamp;
use std::cmp::Reverse;

/// The requests of one name. A request lasts from the first slice of its span to the end of the last one. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestFigures {
    /// The name of the span.
    pub name: String,
    /// The number of requests.
    pub count: u64,
    /// The sum of their durations.
    pub sum_ns: u64,
    /// The median duration.
    pub p50_ns: u64,
    /// The duration that 95 % of them do not exceed.
    pub p95_ns: u64,
    /// The longest duration.
    pub max_ns: u64,
}

/// Returns the figures of each name, by descending sum. A span is a request if its slices name it as theirs.
pub(super) fn request_figures(events: &Events) -> Vec<RequestFigures> {
    let is_request = |slice: &Event<'_>| match slice.arg("request id") {
        Some(ArgValue::U64(id)) => slice.span() == Some(id),
        Some(ArgValue::I64(id)) => slice.span() == u64::try_from(id).ok(),
        _ => false,
    };
    let mut spans: HashMap<u64, (StringId, Timestamp, Timestamp)> = HashMap::default();
    for slice in events.iter().filter(|event| event.is_slice() && event.is_async() && is_request(event)) {
        let Some(span) = slice.span() else { continue };
        let (_, _, end) = spans.entry(span).or_insert((slice.name_id(), slice.start(), slice.end()));
        *end = slice.end().max(*end);
    }
    let mut durations: HashMap<StringId, Vec<u64>> = HashMap::default();
    for (name, start, end) in spans.into_values() {
        durations.entry(name).or_default().push(end.since(start));
    }
    let figures = |(name, mut durations): (StringId, Vec<u64>)| {
        durations.sort_unstable();
        RequestFigures {
            name: events.strings.get(name).to_owned(),
            count: durations.len() as u64,
            sum_ns: durations.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns)),
            p50_ns: percentile(&durations, 500),
            p95_ns: percentile(&durations, 950),
            max_ns: durations.last().copied().unwrap_or(0),
        }
    };
    let mut rows: Vec<_> = durations.into_iter().map(figures).collect();
    sort_few_by(&mut rows, |a, b| (Reverse(a.sum_ns), &a.name).cmp(&(Reverse(b.sum_ns), &b.name)));
    rows
}
