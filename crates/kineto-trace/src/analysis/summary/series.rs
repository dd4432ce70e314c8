//! The values of counters and of allocated memory over time, reduced to a limited number of points.

use super::counters::collect_series;
use super::memory::{memory_events, memory_title};
use crate::analysis::events::Events;
use crate::time::Timestamp;
use std::collections::BTreeMap;

/// The values of one series over time; made by [`Events::counter_series`] and [`Events::memory_series`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CounterSeries {
    /// The counter, or the memory, such as "CUDA 1".
    pub name: String,
    /// The series within the counter; may be empty.
    pub series: String,
    /// The process or device, or the name of another group; may be empty.
    pub track: String,
    /// The values, in order of time: a point for each interval that has any.
    pub points: Vec<SeriesPoint>,
}

/// The values of a series in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SeriesPoint {
    /// The time of the first value.
    pub at: Timestamp,
    /// The number of values.
    pub count: u64,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// The latest value.
    pub last: f64,
}

/// Reduces values to at most one point for each interval.
struct PointList {
    start: Timestamp,
    interval_ns: u64,
    points: Vec<SeriesPoint>,
}

impl PointList {
    fn new((start, end): (Timestamp, Timestamp), points: usize) -> PointList {
        PointList { start, interval_ns: end.since(start) / points.max(1) as u64 + 1, points: Vec::new() }
    }

    fn add(&mut self, at: Timestamp, value: f64) {
        let interval = |at: Timestamp| at.since(self.start) / self.interval_ns;
        match self.points.last_mut() {
            Some(point) if interval(point.at) == interval(at) => {
                point.count += 1;
                (point.min, point.max) = (point.min.min(value), point.max.max(value));
                point.last = value;
            }
            _ => self.points.push(SeriesPoint { at, count: 1, min: value, max: value, last: value }),
        }
    }
}

impl Events {
    /// Returns the values of all counters in at most `points` intervals each, in the order of
    /// [`Summary::counters`](super::Summary::counters). Values that are not finite are left out.
    pub fn counter_series(&self, points: usize) -> Vec<CounterSeries> {
        let window = self.window();
        let all = collect_series(self, || PointList::new(window, points), PointList::add);
        let series = |([track, name, series], list): ([String; 3], PointList)| CounterSeries {
            name,
            series,
            track,
            points: list.points,
        };
        all.into_iter().map(series).collect()
    }

    /// Returns the allocated bytes of the host and of devices in at most `points` intervals each, in the order of
    /// [`Summary::memory`](super::Summary::memory). Without totals in the trace, the values count from its start.
    pub fn memory_series(&self, points: usize) -> Vec<CounterSeries> {
        let window = self.window();
        let mut all: BTreeMap<(i64, i64), (i64, PointList)> = BTreeMap::new();
        for (key, event) in memory_events(self) {
            let (held, list) = all.entry(key).or_insert_with(|| (0, PointList::new(window, points)));
            *held = held.saturating_add(event.bytes().unwrap_or(0));
            list.add(event.start(), event.total_allocated().map_or(*held as f64, |total| total as f64));
        }
        let series = |((device_type, device), (_, list)): (_, (_, PointList))| {
            let name = memory_title(device_type, device);
            CounterSeries { name, series: String::new(), track: String::new(), points: list.points }
        };
        all.into_iter().map(series).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample::SampleTrace;

    #[test]
    fn series_have_the_figures_of_the_summary() {
        let counter = |us: u64, value: i64| {
            format!(r#"{{"ph":"C","name":"load","pid":1,"tid":1,"ts":{us},"args":{{"a":{value},"b":0.5}}}}"#)
        };
        let rows: Vec<_> = (0..1000).map(|at| counter(at, (at % 7).cast_signed())).collect();
        let events = Events::from_reader(format!("[{}]", rows.join(",")).as_bytes()).unwrap();
        let (series, figures) = (events.counter_series(100), events.summary().counters);
        assert_eq!((series.len(), figures.len()), (2, 2));
        for (series, figures) in series.iter().zip(&figures) {
            assert_eq!((&series.name, &series.series), (&figures.name, &figures.series));
            assert!(series.points.len() <= 100, "{}", series.points.len());
            assert_eq!(series.points.iter().map(|point| point.count).sum::<u64>(), figures.count);
            let least = series.points.iter().map(|point| point.min).fold(f64::INFINITY, f64::min);
            let greatest = series.points.iter().map(|point| point.max).fold(f64::NEG_INFINITY, f64::max);
            assert_eq!((least, greatest), (figures.min, figures.max));
            assert_eq!(series.points.last().unwrap().last, figures.last);
        }
    }

    #[test]
    fn memory_without_totals_counts_from_the_start() {
        let events = SampleTrace::default().memory(1, 1, 100, 1).memory(1, 5, -40, 1).into_events();
        let series = events.memory_series(10);
        assert_eq!((series[0].name.as_str(), series.len()), ("CUDA", 1));
        assert_eq!(series[0].points.iter().map(|point| point.last).collect::<Vec<_>>(), [100.0, 60.0]);
    }
}
