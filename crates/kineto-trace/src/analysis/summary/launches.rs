//! Launch delays and queue lengths.

use super::work::{StreamId, Work};
use crate::analysis::percentile::percentile;

/// Durations of launches and delays of work, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LaunchFigures {
    /// Pieces of work with a known launch, whose number does not repeat.
    pub count: u64,
    /// Pieces of work without one.
    pub unlinked: u64,
    /// Mean time from the end of the call to the start of the work; 0 for work that starts before.
    pub mean_delay_ns: f64,
    /// The longest delay.
    pub max_delay_ns: u64,
    /// The median delay (nearest rank).
    pub p50_delay_ns: u64,
    /// The 95th percentile of the delays (nearest rank).
    pub p95_delay_ns: u64,
    /// Pieces of work that started before their call returned.
    pub started_before_return: u64,
    /// Pieces of work that started before their call, due to an imprecise clock.
    pub started_before_call: u64,
    /// Mean time from the start of the call to the start of the work.
    pub mean_latency_ns: f64,
    /// The longest such time.
    pub max_latency_ns: i64,
    /// Mean duration of the calls, once for each piece of work.
    pub mean_call_ns: f64,
    /// Kernels shorter than their call, if the call took at most 50 µs.
    pub short_kernels: u64,
    /// Calls longer than 50 µs.
    pub slow_calls: u64,
    /// Delays longer than 100 µs.
    pub long_delays: u64,
}

impl LaunchFigures {
    pub(super) fn new(work: &[Work<'_>]) -> LaunchFigures {
        const SLOW_CALL_NS: u64 = 50_000;
        const LONG_DELAY_NS: u64 = 100_000;

        let mut figures = LaunchFigures::default();
        let (mut delays, mut latency_sum, mut call_sum) = (Vec::new(), 0i128, 0u128);
        for (work, launch) in work.iter().filter_map(|work| Some((work, work.sure_launch()?))) {
            let (start, call_ns) = (work.start(), launch.duration_ns());
            let delay = start.max(launch.end()).since(launch.end());
            let latency = i128::from(start.as_nanos()) - i128::from(launch.start().as_nanos());
            delays.push(delay);
            (latency_sum, call_sum) = (latency_sum + latency, call_sum + u128::from(call_ns));
            let latency = i64::try_from(latency).unwrap_or(i64::MAX);
            figures.max_latency_ns = if figures.count == 0 { latency } else { figures.max_latency_ns.max(latency) };
            figures.count += 1;
            figures.started_before_return += u64::from(start < launch.end());
            figures.started_before_call += u64::from(start < launch.start());
            figures.short_kernels += u64::from(work.duration_ns() < call_ns && call_ns <= SLOW_CALL_NS);
            figures.slow_calls += u64::from(call_ns > SLOW_CALL_NS);
            figures.long_delays += u64::from(delay > LONG_DELAY_NS);
        }
        figures.unlinked = work.len() as u64 - figures.count;
        delays.sort_unstable();
        let count = figures.count.max(1) as f64;
        figures.mean_delay_ns = delays.iter().map(|ns| u128::from(*ns)).sum::<u128>() as f64 / count;
        figures.mean_latency_ns = latency_sum as f64 / count;
        figures.mean_call_ns = call_sum as f64 / count;
        figures.max_delay_ns = delays.last().copied().unwrap_or(0);
        figures.p50_delay_ns = percentile(&delays, 500);
        figures.p95_delay_ns = percentile(&delays, 950);
        figures
    }
}

/// The number of launches of one stream that were waiting to run, over time.
///
/// A launch counts from the start of its call to the start of its work.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QueueFigures {
    /// The stream.
    pub stream: StreamId,
    /// Changes of the queue length: two for each launch.
    pub points: u64,
    /// The maximum length.
    pub max: i64,
    /// The minimum length; negative due to an imprecise clock.
    pub min: i64,
    /// The mean over all changes, as in HTA.
    pub mean_of_points: f64,
    /// The mean over time.
    pub time_mean: f64,
}

impl QueueFigures {
    /// Returns `None` for a stream without a known launch.
    pub(super) fn new(stream: &StreamId, work: &[Work<'_>]) -> Option<QueueFigures> {
        let launched = || work.iter().filter_map(|work| Some((work.sure_launch()?.start(), work.start())));
        // At equal times, launches come first.
        let mut points: Vec<_> = launched().map(|(call, _)| (call, false)).collect();
        points.extend(launched().map(|(_, start)| (start, true)));
        // Two nearly sorted runs, which a stable sort merges.
        points.sort();
        let (first, mut last) = (points.first()?.0, points.first()?.0);
        let (mut level, mut max, mut min, mut sum, mut area) = (0i64, 0i64, 0i64, 0i128, 0i128);
        for (at, is_start) in &points {
            area += i128::from(level) * i128::from(at.since(last));
            last = *at;
            level += if *is_start { -1 } else { 1 };
            (max, min, sum) = (max.max(level), min.min(level), sum + i128::from(level));
        }
        let span = last.since(first);
        let time_mean = if span == 0 { 0.0 } else { area as f64 / span as f64 };
        let mean_of_points = sum as f64 / points.len() as f64;
        Some(QueueFigures { stream: stream.clone(), points: points.len() as u64, max, min, mean_of_points, time_mean })
    }
}
