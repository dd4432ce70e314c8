//! Figures of counters: the range and the mean of each series.

use crate::activity::Args;
use crate::analysis::events::values::as_float;
use crate::analysis::events::{Event, Events, StringId, TrackId};
use crate::sorting::sort_few_by;
use crate::time::Timestamp;
use std::collections::BTreeMap;

/// The values of one series of a counter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CounterFigures {
    /// The counter, such as `queue depth` or `sm__cycles_active.avg`.
    pub name: String,
    /// The series within the counter; may be empty.
    pub series: String,
    /// The process or device, or the name of another group.
    pub track: String,
    /// The number of values.
    pub count: u64,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// The mean of all values; each counts alike, however long it lasted.
    pub mean: f64,
    /// The latest value.
    pub last: f64,
}

/// Returns the figures of each series, in order of track, counter and series. Values that are not finite are left out.
pub(super) fn counter_figures(events: &Events) -> Vec<CounterFigures> {
    let figures = |([track, name, series], found): ([String; 3], Series)| found.into_figures(name, series, track);
    collect_series(events, Series::default, |series, _, value| series.add(value)).into_iter().map(figures).collect()
}

/// Collects the finite values of each series of counters, in order of its texts: the heading of its process or device, its counter and
/// its name. Values of several threads are one series, as in viewers.
pub(super) fn collect_series<S>(
    events: &Events,
    new: impl Fn() -> S,
    add: impl Fn(&mut S, Timestamp, f64),
) -> Vec<([String; 3], S)> {
    let mut all: BTreeMap<(&TrackId, StringId, String), S> = BTreeMap::new();
    for event in events.iter().filter(Event::is_counter) {
        event.visit(&mut |series, value| {
            if let Some(value) = as_float(value).filter(|value| value.is_finite()) {
                let key = (&event.track().process, event.name_id(), series.to_owned());
                add(all.entry(key).or_insert_with(&new), event.start(), value);
            }
        });
    }
    let titles = events.process_titles();
    let texts = |((process, name, series), found): ((&TrackId, StringId, String), S)| {
        ([titles.title(process), events.strings.get(name).to_owned(), series], found)
    };
    let mut rows: Vec<_> = all.into_iter().map(texts).collect();
    sort_few_by(&mut rows, |(a, _), (b, _)| a.cmp(b));
    rows
}

/// The values of a series so far.
#[derive(Default)]
struct Series {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    last: f64,
}

impl Series {
    fn add(&mut self, value: f64) {
        self.count += 1;
        (self.min, self.max) =
            if self.count == 1 { (value, value) } else { (self.min.min(value), self.max.max(value)) };
        // A running mean cannot overflow, unlike a sum, or a difference from the mean.
        let count = self.count as f64;
        self.mean += value / count - self.mean / count;
        self.last = value;
    }

    fn into_figures(self, name: String, series: String, track: String) -> CounterFigures {
        let Series { count, min, max, mean, last } = self;
        CounterFigures { name, series, track, count, min, max, mean, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_the_largest_values_is_finite() {
        let mut series = Series::default();
        [f64::MAX, -f64::MAX, f64::MAX, -f64::MAX].into_iter().for_each(|value| series.add(value));
        assert!(series.mean.abs() <= f64::MAX / 1e10, "{}", series.mean);
        let mut series = Series::default();
        [0.1, 0.1, 0.1, 4.1].into_iter().for_each(|value| series.add(value));
        assert!((series.mean - 1.1).abs() < 1e-12, "{}", series.mean);
    }
}
