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
pub(super) use rows::DeviceRows;
pub(crate) use set::DeviceRecords;
pub(super) use set::LinkedRecords;

use self::call_ids::CallIds;
use super::index::Index;
use super::recorded::Recorded;
use crate::buffer::Loss;
use crate::clock::Converter;
use crate::link::{self, Links, RecordHandle, Spans as _, Work};
use crate::time::Timestamp;
use kineto_base::fallible::List;
use kineto_base::sorted::SortedSet;
use kineto_devices::{Collection, CollectorReport, Entry, NEVER, Role};
use kineto_model::activity::ActivityType;
use records::CollectionRecords;
use spans::HostSpans;
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
    counts: DeviceCounts,
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
struct DeviceCounts {
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

impl DeviceCounts {
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
        calls: &mut link::CallJoin<'_, CollectionRecords<'t>, HostSpans<'t>>,
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

/// The host's records, to which a collection is linked.
struct HostRecords<'t> {
    recorded: &'t Recorded,
    index: &'t Index,
    converter: &'t Converter,
    /// Whether waits of one stream for another are rows.
    wait_events: bool,
}

impl LinkedCollection {
    /// Links the collection of that number.
    fn new(collection: &Collection, number: usize, host: &HostRecords<'_>) -> LinkedCollection {
        let error = collection.clock.error_at_most_ns();
        let windows = host.converter.stretches_of(&collection.windows);
        let reach = widen_stretches(error, &windows);
        let threads = DeviceThreads::new(collection, host.recorded, host.converter);
        let uncut = widen_stretches(error, &host.converter.stretches_of(collection.uncut_window.as_slice()));
        let mut counts = DeviceCounts { uncut, since: collection.since, ..DeviceCounts::default() };
        let records = CollectionRecords { collection, threads: &threads };
        let slack = error.saturating_add(host.converter.error_ns());
        let spans = HostSpans::new(host, &threads, slack);
        let mut calls = link::CallJoin::new(&records, &spans);
        let mut ids = CallIds::new(collection.records.last_call_before, reach.len());
        let ranges = counts.add_calls(&mut calls, &mut ids, &records, &windows, &reach);
        let crossing = ranges::crossing_ranges(&ranges, &spans, slack);
        let mut joining = calls.finish_calls(records.external_records());
        let mut over = windows.last().map_or(Timestamp::default(), |window| window.1);
        for entry in collection.records.work() {
            let work = work_from_entry(collection, &entry);
            // A part of it is inside, or it was launched inside and is not known to be launched outside.
            let began = || reach.first().is_some_and(|first| work.end >= first.0);
            let is_ours = || match entry.work_slice() {
                Some(slice) => spans.span_of(slice).is_some(),
                None => joining.is_launched(&work),
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
            let is_ours = || joining.is_launched(&work) || !ids.is_outside(work.correlation);
            match entry.work_slice() {
                None if (work.correlation != 0 || is_launched(entry.kind())) && is_ours() => joining.add_work(&work),
                _ => _ = joining.add_unlaunched(&work),
            }
        }
        let links = joining.finish_work(records.event_records());
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
        let others = linked.take_overheads_and_counters(collection);
        linked.marks = linked.marks_among(collection, &others, host.wait_events);
        linked
    }

    /// Stores overheads and counter values, and returns waits and events.
    fn take_overheads_and_counters<'t>(&mut self, collection: &'t Collection) -> List<Entry<'t>> {
        let mut others = List::new();
        for entry in collection.records.other_records() {
            match entry.role() {
                Role::Overhead if overlaps_any(&self.windows, collection.entry_times(&entry)) => {
                    self.counts.beyond_end += collection.is_beyond_end(&entry);
                    self.overheads.push(entry.at);
                }
                // The collector's start and stop do not belong to the recording.
                Role::Overhead => {}
                Role::Counter if overlaps_any(&self.widened_windows, collection.entry_times(&entry)) => {
                    self.counters.push(entry.at)
                }
                Role::Counter => self.counts.count_outside(collection.entry_times(&entry)),
                Role::External | Role::Memory => {}
                _ => others.push(entry),
            }
        }
        // Reading a start takes some hundred instructions, which a sort would have in ten places.
        let start = |at: u32| collection.records.entry_at(at).map(|entry| entry.start());
        let start: &dyn Fn(u32) -> Option<u64> = &start;
        self.counters.sort_unstable_by_key(|at| (start(*at), *at));
        others
    }

    /// Returns the waits and events to show: those inside the recording. Waits of one stream for another are shown only if
    /// that stream did some work.
    fn marks_among(&mut self, collection: &Collection, others: &[Entry<'_>], wait_events: bool) -> List<StreamMark> {
        let busy: SortedSet<_> = self.links.work_by_stream().map(|(device, stream, _)| (device, stream)).collect();
        let mut marks = List::with_capacity(others.len());
        for entry in others {
            let (start, end) = collection.entry_times(entry);
            let device = collection.records.device_of(entry.device_or_context());
            let stream = entry.stream();
            let is_wait = collection.records.names.text(entry.name) == "Stream Wait Event";
            let shown = !is_wait || (wait_events && busy.contains(&(device, stream)));
            // Events without a device timestamp get no row.
            if entry.start() == 0 && entry.role() == Role::Event || !shown {
                continue;
            }
            if overlaps_any(&self.widened_windows, (start, end)) {
                self.counts.beyond_end += collection.is_beyond_end(entry);
                marks.push(StreamMark { device, stream, start, at: entry.at });
            } else {
                self.counts.count_outside((start, end));
            }
        }
        marks.sort_unstable();
        marks
    }

    fn collection_records<'t>(&'t self, collection: &'t Collection) -> CollectionRecords<'t> {
        CollectionRecords { collection, threads: &self.threads }
    }

    /// Returns the threads that made calls.
    fn calling_threads(&self) -> impl Iterator<Item = i64> {
        self.links.calls_by_thread().map(|(number, _)| self.threads.thread_id(number))
    }

    /// Returns the time at which `at` is drawn: unfinished work ends with the recording.
    fn drawn_end(&self, at: Timestamp) -> Timestamp {
        if at == NEVER { self.end } else { at }
    }

    /// Returns the drawn end of a host record, at the latest the end of its window, and whether the record ended.
    fn cut_to_windows(&self, start: Timestamp, end: Timestamp) -> (Timestamp, bool) {
        cut_to_windows(&self.windows, start, end)
    }

    /// Returns whether a record began before the recording.
    fn is_clipped(&self, start: Timestamp) -> bool {
        self.windows.first().is_some_and(|window| start < window.0)
    }

    /// Reports all losses to `add`.
    fn report_losses(&self, mut add: impl FnMut(Loss, u64)) {
        let counts = self.links.counts();
        add(Loss::OutOfWindow, self.counts.out_of_window);
        add(Loss::ImpossibleTimes, self.counts.impossible);
        add(Loss::UnfinishedWork, self.counts.unfinished);
        add(Loss::TimesBeyondEnd, self.counts.beyond_end);
        add(Loss::LaunchesWithoutWork, counts.launches_without_work);
        add(Loss::WorkWithoutLaunch, counts.work_without_launch);
        add(Loss::CorrelationsReused, counts.correlations_reused);
        add(Loss::LinkedByTime, counts.linked_by_time);
        add(Loss::LaunchesUnlinked, counts.unlinked);
        add(Loss::IdsUnknown, counts.ids_unknown);
        add(Loss::WorkBeforeLaunch, counts.work_before_launch);
    }

    /// Returns whether slices of a stream may overlap; only a walk can decide that.
    fn may_overlap(&self) -> bool {
        self.counts.unfinished > 0 || self.links.may_overlap() || !self.marks.is_empty()
    }

    /// Returns the number of work records before the window.
    fn work_before_window(&self) -> u64 {
        self.counts.before_window
    }

    /// Returns the number of work records.
    fn work_count(&self) -> u64 {
        self.counts.work
    }

    /// Returns the id of the arrow between a launch and its work: the correlation id, or the launch's index if those repeat.
    /// Ids of different collectors differ.
    fn arrow_id(&self, launch: &link::Call) -> u64 {
        const BY_PLACE: u64 = 1 << 40;
        let again = self.links.counts().correlations_reused > 0;
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
        let mut counts = DeviceCounts { uncut: widen_stretches(5, &[stretch(100, 900)]), ..DeviceCounts::default() };
        for (start, end, out) in [(80, 94, 1), (80, 95, 1), (200, 300, 1), (905, 950, 1), (906, 950, 2)] {
            counts.count_outside(stretch(start, end));
            assert_eq!(counts.out_of_window, out, "{start} {end}");
        }
        counts.uncut = Stretches::new();
        counts.count_outside(stretch(200, 300));
        assert_eq!(counts.out_of_window, 3);
    }
}
