//! Device work in each step of a program.

use super::intervals::Intervals;
use super::work::{Devices, Work};
use crate::analysis::events::{Events, TrackId};
use crate::hash::HashMap;
use crate::time::Timestamp;
use std::ops::Range;

/// One step of a program, `ProfilerStep#n`. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepFigures {
    /// The step's number.
    pub number: u64,
    /// The start on the host.
    pub start: Timestamp,
    /// The duration on the host.
    pub ns: u64,
    /// The number of pieces of work that its process launched in it.
    pub device_events: u64,
    /// The sum of their durations.
    pub device_ns: u64,
    /// The time during which at least one of them ran.
    pub device_busy_ns: u64,
    /// The time of the step in which any device worked, regardless of launches.
    pub device_busy_in_window_ns: u64,
    /// The end of the last of them.
    pub device_end: Option<Timestamp>,
}

impl StepFigures {
    /// Returns the duration up to the end of the step or of the last work launched in it.
    pub fn ns_with_device(&self) -> u64 {
        self.ns.max(self.device_end.map_or(0, |end| end.since(self.start)))
    }
}

/// Returns the steps on the host, in order.
pub(super) fn step_figures(events: &Events, devices: &Devices<'_>, busy: &Intervals) -> Vec<StepFigures> {
    let mut launched: HashMap<&TrackId, Vec<(Timestamp, &Work<'_>)>> = HashMap::default();
    for work in &devices.work {
        if let Some(launch) = work.launch {
            launched.entry(&launch.track().process).or_default().push((launch.start(), work));
        }
    }
    launched.values_mut().for_each(|launched| launched.sort_by_key(|(launch, _)| *launch));
    let host = events.iter().filter(|event| event.is_slice() && event.category() != "gpu_user_annotation");
    let numbered = host.filter_map(|event| Some((event, event.step_number()?)));
    let figures = numbered.map(|(step, number)| {
        let launched = launched.get(&step.track().process).map_or(&[][..], Vec::as_slice);
        let first = launched.partition_point(|(launch, _)| *launch < step.start());
        let own = launched.get(first..).unwrap_or_default().iter().take_while(|(launch, _)| *launch < step.end());
        let own = own.map(|(_, work)| *work);
        StepFigures {
            number,
            start: step.start(),
            ns: step.duration_ns(),
            device_events: own.clone().count() as u64,
            device_ns: own.clone().map(|work| work.duration_ns()).sum(),
            device_busy_ns: Intervals::union(own.clone().map(|work| work.interval())).total_ns(),
            device_busy_in_window_ns: busy.ns_within(step.start(), step.end()),
            device_end: own.map(|work| work.end()).max(),
        }
    });
    figures.collect()
}

/// Returns the times of the steps, in order and disjoint: each to the end of its last work, but at most to the next step.
pub(in crate::analysis) fn step_windows(events: &Events, devices: &Devices<'_>) -> Vec<Range<Timestamp>> {
    let steps = step_figures(events, devices, &Intervals::default());
    let starts = steps.iter().skip(1).map(|next| next.start).chain([Timestamp::from_nanos(u64::MAX)]);
    let window = |(step, next): (&StepFigures, Timestamp)| {
        let end = step.start.as_nanos().saturating_add(step.ns_with_device());
        step.start..Timestamp::from_nanos(end).min(next)
    };
    steps.iter().zip(starts).map(window).filter(|window| !window.is_empty()).collect()
}
