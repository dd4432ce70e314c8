//! Figures of counters: the range and the mean of each series.

use crate::activity::Args;
use crate::analysis::events::values::as_float;
use crate::analysis::events::{Event, Events, ProcessTitles, StringId, TrackId};
use crate::sorting::sort_few_by;
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
    let titles = events.process_titles();
    let mut all: BTreeMap<CounterKey<'_>, Series> = BTreeMap::new();
    for event in events.iter().filter(Event::is_counter) {
        event.visit(&mut |key, value| {
            if let Some(value) = as_float(value).filter(|value| value.is_finite()) {
                all.entry(CounterKey::new(&event, key)).or_default().add(value);
            }
        });
    }
    let figures = |(key, found): (CounterKey<'_>, Series)| {
        let [track, name, series] = key.into_texts(events, &titles);
        found.into_figures(name, series, track)
    };
    let mut rows: Vec<_> = all.into_iter().map(figures).collect();
    sort_few_by(&mut rows, |a, b| (&a.track, &a.name, &a.series).cmp(&(&b.track, &b.name, &b.series)));
    rows
}

/// Identifies a series: its process or device, counter and name. Values of several threads are one series, as in viewers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CounterKey<'e>(&'e TrackId, StringId, String);

impl<'e> CounterKey<'e> {
    pub(super) fn new(event: &Event<'e>, series: &str) -> CounterKey<'e> {
        CounterKey(&event.track().process, event.name_id(), series.to_owned())
    }

    /// Returns the heading of its process or device, its counter and its name.
    pub(super) fn into_texts(self, events: &Events, titles: &ProcessTitles<'_>) -> [String; 3] {
        let CounterKey(process, name, series) = self;
        [titles.title(process), events.strings.get(name).to_owned(), series]
    }
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
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 values")]
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
