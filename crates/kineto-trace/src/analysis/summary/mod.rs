//! A summary of a trace: figures of devices, streams, launches, steps and operations.

mod counters;
mod csv;
mod findings;
mod groups;
mod idle;
mod intervals;
mod json;
mod launches;
mod losses;
mod memory;
mod occupation;
mod overlong;
mod path;
mod requests;
mod screen;
mod series;
mod steps;
#[cfg(test)]
mod tests;
mod utilization;
mod work;

pub use counters::CounterFigures;
pub use findings::Finding;
#[doc(hidden)]
pub use findings::format_ns;
pub(super) use findings::percent_of;
pub use groups::{AnnotationFigures, CollectiveFigures, CopyFigures, Durations, KernelFigures};
pub use idle::{Gap, GapHost, IdleTime, StreamIdle};
pub(super) use intervals::Intervals;
pub(super) use json::{ns_to_micros, round_to_thousandths, signed_micros};
pub use launches::{LaunchFigures, QueueFigures};
pub(super) use losses::recorded_losses;
pub use memory::MemoryFigures;
pub(super) use memory::memory_events;
pub use occupation::{Exclusive, Occupation};
pub use overlong::OverlongWork;
pub(super) use overlong::find_overlong;
pub(super) use path::{CallRole, PathContext, PathIndexes};
pub use path::{
    CriticalPath, PathFigures, PathKind, PathKindFigures, PathNameFigures, PathPiece, PathPlace, PathStretch, StepPath,
};
pub use requests::RequestFigures;
pub use screen::{Screen, ScreenSection};
pub use series::{CounterSeries, SeriesPoint};
pub use steps::StepFigures;
pub(super) use steps::step_windows;
pub use utilization::{Utilization, UtilizationBucket};
pub(super) use work::Devices;
pub use work::{StreamId, WorkClass};

use super::averages::KeyAverages;
use super::both::compute_both;
use super::events::{Event, Events, FileFigures, Note, StringId};
use super::percentile::percentile;
use super::relations::{Attribution, AttributionCounts, Forest, Nesting};
use crate::activity::ActivityType;
use crate::analysis::json_reader::{Json, JsonValue};
use crate::hash::HashMap;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt;

/// A summary of where the time of a trace went; made by [`Events::summary`].
///
/// It covers HTA's breakdowns (temporal, idle time, kernels, launches, queues, bandwidth, overlap) and torch's
/// `key_averages`. It uses the trace's own categories and ids. So it differs from HTA for host operations with a
/// `stream`, for equal stream numbers on two devices, and for work launched before the window.
///
/// ```
/// use kineto_trace::analysis::Events;
///
/// let trace = br#"{"traceEvents": [
///     {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 0, "dur": 2,
///      "args": {"correlation": 1}},
///     {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 10,
///      "args": {"correlation": 1, "device": 0, "stream": 7}}
/// ]}"#;
/// let summary = Events::from_reader(trace.as_slice())?.summary();
/// assert_eq!(summary.occupation.as_ref().map(|devices| devices.busy_ns), Some(10_000));
/// assert_eq!(summary.launches.mean_delay_ns, 3_000.0);
/// println!("{}", summary.screen());
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Summary {
    /// The start of the first slice.
    pub start: Timestamp,
    /// The time from `start` to the end of the last slice, in nanoseconds.
    pub span_ns: u64,
    /// The number of slices.
    pub slices: u64,
    /// The number of slices in each category.
    pub categories: BTreeMap<String, u64>,
    /// The rank of the process in `distributedInfo`.
    pub rank: Option<i64>,
    /// The number of pieces of device work.
    pub device_events: u64,
    /// The number of devices with work.
    pub devices: u64,
    /// How devices spent their time; `None` if there is no device work.
    pub occupation: Option<Occupation>,
    /// Kernels, copies and fills by name, sorted by descending sum.
    pub kernels: Vec<KernelFigures>,
    /// Communication on devices by kind.
    pub collectives: Vec<CollectiveFigures>,
    /// Copies and fills by direction.
    pub copies: Vec<CopyFigures>,
    /// The idle time of all streams.
    pub idle: IdleTime,
    /// The idle time of each stream.
    pub stream_idle: Vec<StreamIdle>,
    /// The longest gaps in which no device worked, at most five.
    pub gaps: Vec<Gap>,
    /// The calls that launched work.
    pub launches: LaunchFigures,
    /// Slices whose recorded end cannot be right; `None` if there are none.
    pub overlong: Option<OverlongWork>,
    /// The queues of streams with a known launch.
    pub queues: Vec<QueueFigures>,
    /// The steps of the program.
    pub steps: Vec<StepFigures>,
    /// The critical path of the trace; `None` if there is no slice.
    pub critical_path: Option<PathFigures>,
    /// The critical path of the longest step.
    pub longest_step_path: Option<StepPath>,
    /// Annotations on the host by name.
    pub host_annotations: Vec<AnnotationFigures>,
    /// Annotations on devices by name, each from its first to its last work.
    pub device_annotations: Vec<AnnotationFigures>,
    /// Requests by name: the outermost async spans.
    pub requests: Vec<RequestFigures>,
    /// Memory of the host and of devices.
    pub memory: Vec<MemoryFigures>,
    /// The series of counters.
    pub counters: Vec<CounterFigures>,
    /// Operations and kernels by name, as torch averages them.
    pub averages: KeyAverages,
    /// How device work was attributed to operations.
    pub attribution: AttributionCounts,
    /// What the trace's writer lost, by cause: keys of [`Loss`](crate::Loss).
    pub losses: Vec<(String, u64)>,
    /// What was left out or repaired while reading, or is ambiguous, by cause.
    pub notes: Vec<(Note, u64)>,
    /// The number of slices of no known type, by category.
    unlisted: BTreeMap<String, u64>,
    /// Why a running program was dumped, if the trace is a dump.
    pub dump_reason: Option<String>,
    file: FileFigures,
}

impl fmt::Debug for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Summary")
            .field("slices", &self.slices)
            .field("span_ns", &self.span_ns)
            .field("occupation", &self.occupation)
            .finish_non_exhaustive()
    }
}

impl Events {
    /// Returns a summary of where the time of the trace went.
    pub fn summary(&self) -> Summary {
        Summary::new(self)
    }
}

impl Summary {
    fn new(events: &Events) -> Summary {
        let nesting = Nesting::new(events);
        let attribution = Attribution::new(events, &nesting);
        let averages = || events.averages().compute_with(&nesting, &attribution);
        let (averages, summary) = compute_both(averages, || Summary::without_averages(events, &nesting, &attribution));
        Summary { averages, ..summary }
    }

    fn without_averages(events: &Events, nesting: &Nesting, attribution: &Attribution<'_>) -> Summary {
        let devices = Devices::new(events, attribution);
        let busy = devices.busy_times();
        let steps = steps::step_figures(events, &devices, &busy);
        let paths = || path::summary_paths(events, &devices, attribution, &steps);
        let ((critical_path, longest_step_path), summary) =
            compute_both(paths, || Summary::without_paths(events, nesting, attribution, &devices, &busy));
        Summary { steps, critical_path, longest_step_path, ..summary }
    }

    fn without_paths(
        events: &Events,
        nesting: &Nesting,
        attribution: &Attribution<'_>,
        devices: &Devices<'_>,
        busy: &Intervals,
    ) -> Summary {
        const GAPS: usize = 5;

        let forest = Forest::new(events, nesting).merge_same_named_only_children(events);
        let streams = devices.by_stream();
        let stream_idle: Vec<_> = streams
            .iter()
            .map(|(stream, work)| StreamIdle { stream: (*stream).clone(), idle: IdleTime::of_stream(work) })
            .collect();
        let mut idle = IdleTime::default();
        stream_idle.iter().for_each(|stream| idle += stream.idle);
        let slices = || events.iter().filter(Event::is_slice);
        let annotations = |kind| groups::annotation_figures(slices().filter(move |event| event.kind() == Some(kind)));
        let mut numbers: Vec<_> = devices.streams.iter().map(|stream| &stream.device).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let range = events.slice_range();
        let overlong = OverlongWork::new(events, &streams);
        Summary {
            start: range.start,
            span_ns: range.end.since(range.start),
            slices: slices().count() as u64,
            categories: count_categories(slices()),
            unlisted: count_categories(slices().filter(|slice| slice.kind().is_none())),
            rank: distributed_rank(events),
            device_events: devices.work.len() as u64,
            devices: numbers.len() as u64,
            occupation: Occupation::new(devices, busy),
            kernels: groups::kernel_figures(&devices.work),
            collectives: groups::collective_figures(&devices.work),
            copies: groups::copy_figures(&devices.work),
            idle,
            stream_idle,
            gaps: idle::longest_gaps(events, devices, &forest, GAPS),
            launches: LaunchFigures::new(&devices.work),
            queues: streams.iter().filter_map(|(stream, work)| QueueFigures::new(stream, work)).collect(),
            steps: Vec::new(),
            critical_path: None,
            longest_step_path: None,
            host_annotations: annotations(ActivityType::UserAnnotation),
            device_annotations: annotations(ActivityType::GpuUserAnnotation),
            requests: requests::request_figures(events),
            memory: memory::memory_figures(events),
            counters: counters::counter_figures(events),
            averages: KeyAverages::default(),
            attribution: attribution.counts(),
            losses: recorded_losses(events).unwrap_or_default(),
            notes: events.notes().chain(more_notes(&attribution.counts(), overlong.as_ref())).collect(),
            overlong,
            dump_reason: dump_reason(events),
            file: events.file,
        }
    }

    /// Returns the median duration of the steps on the host, by nearest rank, in nanoseconds; `None` without steps.
    pub fn median_step_ns(&self) -> Option<u64> {
        let mut durations: Vec<u64> = self.steps.iter().map(|step| step.ns).collect();
        durations.sort_unstable();
        (!durations.is_empty()).then(|| percentile(&durations, 500))
    }

    /// Returns all figures as a JSON object; times are in microseconds with three decimals.
    pub fn to_json(&self) -> String {
        self.to_json_value().to_string()
    }

    pub(super) fn to_json_value(&self) -> serde_json::Value {
        json::summary_json(self)
    }

    /// Returns the summary as text.
    pub fn screen(&self) -> Screen<'_> {
        Screen::new(self)
    }

    fn note_count(&self, note: Note) -> u64 {
        self.notes.iter().find(|(found, _)| *found == note).map_or(0, |(_, count)| *count)
    }
}

/// Returns the number of slices in each category.
fn count_categories<'e>(slices: impl Iterator<Item = Event<'e>>) -> BTreeMap<String, u64> {
    let (mut counts, mut all): (HashMap<StringId, u64>, _) = (HashMap::default(), BTreeMap::new());
    for slice in slices {
        let count = counts.entry(slice.category_id()).or_default();
        *count += 1;
        if *count == 1 {
            all.insert(slice.category().to_owned(), slice.category_id());
        }
    }
    all.into_iter().map(|(name, id)| (name, counts.get(&id).copied().unwrap_or(0))).collect()
}

/// Returns the notes about launches of equal numbers, and about device work.
fn more_notes(
    counts: &AttributionCounts,
    overlong: Option<&OverlongWork>,
) -> impl Iterator<Item = (Note, u64)> + use<> {
    let overlong = overlong.map_or(0, |found| found.count);
    let ids = [(Note::RepeatedId, counts.repeated_ids), (Note::AmbiguousId, counts.ambiguous_ids)];
    let notes = ids.into_iter().chain([(Note::OverlongWork, overlong)]);
    notes.filter(|(_, count)| *count > 0)
}

/// Returns the reason in the header of a dump.
fn dump_reason(events: &Events) -> Option<String> {
    let (_, reason) = events.metadata().find(|(key, _)| *key == "dump_reason")?;
    match Json::new(reason.as_bytes(), 0).read_value().ok()? {
        JsonValue::Text(text) => Some(text.decode_text().0.into_owned()),
        _ => None,
    }
}

/// Returns the rank in `distributedInfo`.
pub(super) fn distributed_rank(events: &Events) -> Option<i64> {
    let (_, info) = events.metadata().find(|(key, _)| *key == "distributedInfo")?;
    let mut rank = None;
    let read = Json::new(info.as_bytes(), 0).read_object(|key, json| {
        let value = json.read_value()?;
        if let (JsonValue::Number(number), Some("rank")) = (value, key.as_plain_str()) {
            rank = number.as_integer();
        }
        Ok(())
    });
    rank.filter(|_| read.is_ok())
}
