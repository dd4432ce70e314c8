//! The records of a collector: linked to the host's records once, and walked each time that rows are requested.

#[cfg(feature = "perfetto")]
mod arrows;
mod call_ids;
mod calls;
mod counters;
mod lanes;
mod memory;
mod ranges;
mod records;
mod rows;
mod set;
mod slices;
mod spans;
mod threads;

pub(super) use calls::HostCalls;
pub(crate) use set::DeviceRecords;
pub(super) use set::LinkedRecords;

use self::call_ids::CallIds;
use super::TraceContents;
use super::index::Index;
use crate::link::{self, Links, RecordHandle, Spans as _, Work};
use crate::time::Timestamp;
use kineto_base::fallible::List;
use kineto_base::sorted::SortedSet;
use kineto_devices::{Collection, CollectorReport, Entry, NEVER, Role};
use kineto_model::activity::ActivityType;
use records::CollectionRecords;
use spans::HostSpans;
use std::cell::Cell;
use threads::DeviceThreads;

/// A collection with its links.
#[derive(Debug)]
struct LinkedCollection {
    links: Links,
    threads: DeviceThreads,
    /// The recorded stretches of time.
    windows: Stretches,
    /// The same, widened by the error of the collector's clock.
    widened_windows: Stretches,
    /// The end of the recording, or of the last work if that is later.
    end: Timestamp,
    /// Waits and events that are rows, by device, stream and start.
    marks: List<StreamMark>,
    overheads: List<u32>,
    /// Values of counters, in order of time.
    counters: List<u32>,
    /// Allocations and frees, in order.
    memory: List<memory::MemoryChange>,
    /// Ranges that do not nest with the slices of their thread, in order.
    crossing: List<RecordHandle>,
    counts: RecordCounts,
    /// The number of earlier collections with records.
    number: usize,
}

/// A wait or an event among the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StreamMark {
    device: i32,
    stream: u32,
    start: Timestamp,
    at: u32,
}

/// Counts of records while linking.
#[derive(Debug, Default)]
struct RecordCounts {
    calls: u64,
    work: u64,
    unfinished: u64,
    out_of_window: u64,
    beyond_end: u64,
    /// The number of device activities before the window.
    before_window: u64,
    /// Records with times at which the collector did not run.
    impossible: u64,
    /// When the collector was started.
    since: Timestamp,
    /// The recorded time before it was cut to the requested one.
    uncut: Stretches,
}

impl RecordCounts {
    /// Counts a record outside the windows, unless it is inside the uncut time.
    fn count_outside(&mut self, times: (Timestamp, Timestamp)) {
        if times.0 == NEVER || times.1 < self.since {
            self.impossible += 1;
        } else {
            self.out_of_window += u64::from(!self.is_cut_off(times));
        }
    }

    /// Adds the calls in the windows; returns the ranges among them.
    fn add_calls<'t>(
        &mut self,
        calls: &mut link::Linker<'_, CollectionRecords<'t>, HostSpans<'t>>,
        ids: &mut CallIds,
        records: &CollectionRecords<'t>,
        windows: &[(Timestamp, Timestamp)],
        reach: &[(Timestamp, Timestamp)],
    ) -> List<link::Call> {
        let (collection, mut ranges) = (records.collection, List::new());
        for entry in collection.records.calls() {
            let call = call_from_entry(collection, &entry, records.threads);
            let Some(window) = window_around(reach, (call.start, call.end)) else {
                self.count_outside((call.start, call.end));
                if call.end >= self.since && reach.first().is_some_and(|first| call.end < first.0) {
                    ids.add_before(call.correlation);
                }
                continue;
            };
            self.calls += 1;
            self.beyond_end += u64::from(entry.end() != 0 && call.end == NEVER);
            ids.add(window, call.correlation);
            calls.add_call(&call);
            if entry.kind() == ActivityType::UserAnnotation {
                ranges.push(link::Call { end: cut_to_windows(windows, call.start, call.end).0, ..call });
            }
        }
        ids.finish();
        ranges
    }

    /// Counts device work outside the windows; unless they had begun, it ended before them.
    fn count_work_outside(&mut self, work: &Work, began: bool) {
        self.count_outside((work.start, work.end));
        self.before_window += u64::from(!began && self.is_cut_off((work.start, work.end)));
    }

    /// Returns whether a record lies in the time that was cut off.
    fn is_cut_off(&self, times: (Timestamp, Timestamp)) -> bool {
        overlaps_any(&self.uncut, times)
    }
}

impl LinkedCollection {
    /// Links the collection of that number.
    fn new(collection: &Collection, number: usize, contents: &TraceContents, index: &Index) -> LinkedCollection {
        let TraceContents { recorded, converter, .. } = contents;
        let error = collection.clock.error_at_most_ns();
        let windows = converter.stretches_of(&collection.windows);
        let reach = widen_stretches(error, &windows);
        let threads = DeviceThreads::new(collection, recorded, converter);
        let uncut = widen_stretches(error, &converter.stretches_of(collection.uncut_window.as_slice()));
        let mut counts = RecordCounts { uncut, since: collection.since, ..RecordCounts::default() };
        let records = CollectionRecords { collection, threads: &threads };
        let slack_ns = error.saturating_add(converter.error_ns());
        let spans = HostSpans { recorded, index, converter, threads: &threads, slack_ns, last: Cell::default() };
        let mut linker = link::Linker::new(&records, &spans);
        let mut ids = CallIds::new(collection.records.last_call_before, reach.len());
        let ranges = counts.add_calls(&mut linker, &mut ids, &records, &windows, &reach);
        let crossing = ranges::crossing_ranges(&ranges, &spans, slack_ns);
        linker.finish_calls(records.external_records());
        let mut over = windows.last().map_or(Timestamp::default(), |window| window.1);
        for entry in collection.records.work() {
            let work = work_from_entry(collection, &entry);
            // A part of it is inside, or it was launched inside and is not known to be launched outside.
            let began = || reach.first().is_some_and(|first| work.end >= first.0);
            let is_ours = || match entry.work_slice() {
                Some(slice) => spans.span_of(slice).is_some(),
                None => linker.is_launched(&work),
            };
            let lies_inside = || overlaps_any(&reach, (work.start, work.end)) || began() && is_ours();
            if collection.records.was_launched_in_a_pause(entry.correlation_id()) || !lies_inside() {
                counts.count_work_outside(&work, began());
                continue;
            }
            counts.work += 1;
            counts.unfinished += u64::from(entry.end() == 0);
            counts.beyond_end += u64::from(entry.end() != 0 && work.end == NEVER);
            let last = if work.end == NEVER { work.start } else { work.end };
            over = if last == NEVER { over } else { over.max(last) };
            let is_ours = || linker.is_launched(&work) || !ids.is_outside(work.correlation);
            match entry.work_slice() {
                None if (work.correlation != 0 || is_launched(entry.kind())) && is_ours() => linker.add_work(&work),
                _ => linker.add_unlaunched(&work),
            }
        }
        let links = linker.finish_work(records.event_records());
        let memory = memory::memory_changes(&records, &reach, &links, &spans, &mut counts);
        let (marks, overheads, counters) = Default::default();
        let mut linked = LinkedCollection {
            links,
            threads,
            windows,
            widened_windows: reach,
            end: over,
            marks,
            overheads,
            counters,
            memory,
            crossing,
            counts,
            number,
        };
        linked.take_others(collection, contents.info.config.gpu.wait_events);
        linked
    }

    /// Takes overheads, values of counters, and the waits and events that are rows: those inside the recording. Waits of one
    /// stream for another are rows only if `wait_events` is set and that stream did some work.
    fn take_others(&mut self, collection: &Collection, wait_events: bool) {
        let busy: SortedSet<_> = self.links.streams.lanes().map(|(stream, _)| stream).collect();
        let records = &collection.records;
        let device_of = |entry: &Entry<'_>| records.device_of(entry.device_or_context());
        let is_hidden_wait = |entry: &Entry<'_>| {
            records.names.text(entry.name) == "Stream Wait Event"
                && !(wait_events && busy.contains(&(device_of(entry), entry.stream())))
        };
        for entry in records.other_records() {
            let times = collection.entry_times(&entry);
            let is_inside = overlaps_any(&self.widened_windows, times);
            match entry.role() {
                Role::Overhead if overlaps_any(&self.windows, times) => {
                    self.counts.beyond_end += collection.is_beyond_end(&entry);
                    self.overheads.push(entry.at);
                }
                // The collector's start and stop do not belong to the recording.
                Role::Overhead | Role::External | Role::Memory => {}
                // Events without a device timestamp get no row.
                Role::Event if entry.start() == 0 => {}
                Role::Counter if is_inside => self.counters.push(entry.at),
                Role::Counter => self.counts.count_outside(times),
                _ if is_hidden_wait(&entry) => {}
                _ if is_inside => {
                    self.counts.beyond_end += collection.is_beyond_end(&entry);
                    let (device, stream, start) = (device_of(&entry), entry.stream(), times.0);
                    self.marks.push(StreamMark { device, stream, start, at: entry.at });
                }
                _ => self.counts.count_outside(times),
            }
        }
        // Reading a start takes some hundred instructions, which a sort would have in ten places.
        let start = |at: u32| collection.records.entry_at(at).map(|entry| entry.start());
        let start: &dyn Fn(u32) -> Option<u64> = &start;
        self.counters.sort_unstable_by_key(|at| (start(*at), *at));
        self.marks.sort_unstable();
    }

    fn collection_records<'t>(&'t self, collection: &'t Collection) -> CollectionRecords<'t> {
        CollectionRecords { collection, threads: &self.threads }
    }

    /// Returns the time at which `at` is drawn: unfinished work ends with the recording.
    fn drawn_end(&self, at: Timestamp) -> Timestamp {
        if at == NEVER { self.end } else { at }
    }

    /// Returns whether a record began before the recording.
    fn is_clipped(&self, start: Timestamp) -> bool {
        self.windows.first().is_some_and(|window| start < window.0)
    }

    /// Returns the id of the arrow between a launch and its work: the correlation id, or the launch's index if those repeat.
    /// Ids of different collectors differ.
    fn arrow_id(&self, launch: &link::Call) -> u64 {
        const BY_PLACE: u64 = 1 << 40;
        let again = self.links.counts.correlations_reused > 0;
        let name = if again { BY_PLACE | u64::from(launch.at.0) } else { launch.correlation };
        name | (self.number as u64) << 48
    }
}

/// Returns a collector's report.
fn collector_report(collection: &Collection, linked: &LinkedCollection) -> CollectorReport {
    let Collection { name, state, records, clock, .. } = collection;
    let mut report = CollectorReport::new(name, state.clone());
    report.records = linked.counts.calls + linked.counts.work + linked.counters.len() as u64;
    report.notes.extend(records.notes.iter().cloned());
    report.clock_error_ns = clock.error_at_most_ns().saturating_add(records.clock_error_ns);
    report.clock_offset_ns = clock.offset_ns();
    report
}

#[inline]
fn call_from_entry(collection: &Collection, entry: &Entry<'_>, threads: &DeviceThreads) -> link::Call {
    let (start, end) = collection.entry_times(entry);
    let thread = threads.thread_number(entry.thread(), start);
    let (at, correlation, external) = (RecordHandle(entry.at), entry.correlation_id(), entry.call_slice());
    link::Call { at, correlation, thread, start, end, external, launches: entry.launches_work() }
}

#[inline]
fn work_from_entry(collection: &Collection, entry: &Entry<'_>) -> Work {
    let (start, end) = collection.entry_times(entry);
    let device = collection.records.entry_device(entry);
    Work {
        at: RecordHandle(entry.at),
        correlation: entry.correlation_id(),
        device,
        stream: entry.stream(),
        start,
        end,
        includes_launch: entry.kind() == ActivityType::CudaProfilerRange,
    }
}

/// Stretches of time, in order.
type Stretches = List<(Timestamp, Timestamp)>;

/// Returns stretches widened by the error of a clock.
fn widen_stretches(error: u64, stretches: &[(Timestamp, Timestamp)]) -> Stretches {
    let widen = |(start, end): &(Timestamp, Timestamp)| {
        let [start, end] = [start.as_nanos().saturating_sub(error), end.as_nanos().saturating_add(error)];
        (Timestamp::from_nanos(start), Timestamp::from_nanos(end))
    };
    stretches.iter().map(widen).collect()
}

/// Returns whether a stretch overlaps one of the windows. A program may pause at each step, so there may be many; they are
/// sorted by both ends.
#[inline]
fn overlaps_any(windows: &[(Timestamp, Timestamp)], times: (Timestamp, Timestamp)) -> bool {
    window_around(windows, times).is_some()
}

/// Returns the last window that a stretch overlaps.
#[inline]
fn window_around(windows: &[(Timestamp, Timestamp)], (start, end): (Timestamp, Timestamp)) -> Option<usize> {
    let last = windows.partition_point(|window| window.0 <= end).checked_sub(1)?;
    windows.get(last).is_some_and(|last| start <= last.1).then_some(last)
}

/// Returns whether work of that kind has a launch, known or unknown.
fn is_launched(kind: ActivityType) -> bool {
    is_work(kind) && !matches!(kind, ActivityType::MtiaInsight | ActivityType::CudaProfilerRange)
}

/// Returns the drawn end of a host record, at the latest the end of its window, and whether the record ended.
fn cut_to_windows(windows: &[(Timestamp, Timestamp)], start: Timestamp, end: Timestamp) -> (Timestamp, bool) {
    match windows.get(windows.partition_point(|window| window.1 < start)) {
        Some(window) if window.1 < end => (window.1, false),
        // It began after the last window, within the error of the clock.
        None if end == NEVER => (start, false),
        _ => (end, true),
    }
}

/// Returns whether arrows lead from calls of that kind to work: for Intel only from those of the runtime, as in libkineto.
fn has_arrows(kind: ActivityType) -> bool {
    kind != ActivityType::XpuDriver
}

/// Returns whether a device performs that kind.
fn is_work(kind: ActivityType) -> bool {
    !matches!(
        kind,
        ActivityType::CudaSync | ActivityType::CudaEvent | ActivityType::XpuSync | ActivityType::GpuUserAnnotation
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_calls_are_cut_to_the_recording() {
        let windows =
            [(10, 20), (30, 40)].map(|(start, end)| (Timestamp::from_nanos(start), Timestamp::from_nanos(end)));
        for (start, end, cut, finished) in [
            (12, 18, 18, true),
            (12, 25, 20, false),
            (12, u64::MAX, 20, false),
            (22, u64::MAX, 40, false),
            (41, 43, 43, true),
            (41, u64::MAX, 41, false),
        ] {
            let found = cut_to_windows(&windows, Timestamp::from_nanos(start), Timestamp::from_nanos(end));
            assert_eq!(found, (Timestamp::from_nanos(cut), finished), "{start} {end}");
        }
    }

    #[test]
    fn records_ahead_of_a_window_are_not_counted_as_lost() {
        let stretch = |start, end| (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
        let mut counts = RecordCounts { uncut: widen_stretches(5, &[stretch(100, 900)]), ..RecordCounts::default() };
        for (start, end, out) in [(80, 94, 1), (80, 95, 1), (200, 300, 1), (905, 950, 1), (906, 950, 2)] {
            counts.count_outside(stretch(start, end));
            assert_eq!(counts.out_of_window, out, "{start} {end}");
        }
        counts.uncut = Stretches::new();
        counts.count_outside(stretch(200, 300));
        assert_eq!(counts.out_of_window, 3);
    }
}
