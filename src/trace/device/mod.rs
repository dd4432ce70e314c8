//! What a collector recorded, joined to the host's records once and walked whenever rows are asked for.

mod calls;
mod counters;
mod lanes;
mod memory;
mod ranges;
mod records;
mod rows;
mod spans;
mod threads;

pub(super) use calls::{Call, Calls};
pub(super) use rows::{DEVICES, DeviceRows};

use super::index::Index;
use super::recorded::Recorded;
use crate::buffer::Loss;
use crate::clock::Converter;
use crate::collector::{Collection, CollectorReport, Entry, Role};
use crate::link::{self, Handle, Links, Spans as _, Work};
use crate::time::Timestamp;
use kineto_trace::activity::ActivityType;
use kineto_trace::fallible::List;
use records::Records;
use spans::HostSpans;
use std::collections::BTreeSet;
use threads::Threads;

/// What is found out about a collection once.
#[derive(Debug)]
pub(crate) struct Linked {
    links: Links,
    threads: Threads,
    /// Stretches of time that were recorded.
    windows: Stretches,
    /// The same, with what may lie inside but for an error of the collector's clock.
    reach: Stretches,
    /// When all was over: the end of the recording, or of the work that was waited for.
    over: Timestamp,
    /// Waits and events that are rows, by device, stream and start.
    marks: List<Mark>,
    overheads: List<u32>,
    /// Values of counters, in order of time.
    counters: List<u32>,
    /// What was allocated and given back, in order.
    memory: List<memory::Piece>,
    /// Ranges that have no place among the slices of their thread, in order.
    crossing: List<Handle>,
    counts: Counts,
    /// How many collections of the trace have records before this one.
    number: usize,
}

/// A wait or an event among the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    device: i32,
    stream: u32,
    start: Timestamp,
    at: u32,
}

/// Later than all that was recorded.
const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

/// What is counted on the way.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: u64,
    work: u64,
    unfinished: u64,
    out_of_window: u64,
    beyond_end: u64,
    /// Where more was recorded than was wanted.
    beside: Option<(Timestamp, Timestamp)>,
}

impl Counts {
    /// Counts what lies outside of the recording, unless it was recorded for that.
    fn leave_out(&mut self, times: (Timestamp, Timestamp)) {
        let is_beside = self.beside.is_some_and(|beside| overlaps(&[beside], times));
        self.out_of_window += u64::from(!is_beside);
    }
}

/// What a collection is linked to.
pub(crate) struct Host<'t> {
    pub(crate) recorded: &'t Recorded,
    pub(crate) index: &'t Index,
    pub(crate) converter: &'t Converter,
    /// Whether waits of one stream for another are rows.
    pub(crate) wait_events: bool,
}

impl Linked {
    /// Links the collection of that number.
    pub(crate) fn new(collection: &Collection, number: usize, host: &Host<'_>) -> Linked {
        let error = collection.clock.error_at_most_ns();
        let (windows, reach) = windows(collection, host.converter, error);
        let threads = Threads::new(collection, host.recorded, host.converter);
        let beside =
            collection.beside.map(|(start, end)| wider(error, [start, end].map(|at| host.converter.timestamp(at))));
        let mut counts = Counts { beside, ..Counts::default() };
        let records = Records { collection, threads: &threads };
        let slack = error + host.converter.error_ns();
        let spans = HostSpans::new(host, &threads, slack);
        let mut ranges = List::new();
        let mut calls = link::Calls::new(&records, &spans);
        for entry in collection.records.calls() {
            let call = collection.call(&entry, &threads);
            if !overlaps(&reach, (call.start, call.end)) {
                counts.leave_out((call.start, call.end));
                continue;
            }
            counts.calls += 1;
            counts.beyond_end += u64::from(entry.end() != 0 && call.end == NEVER);
            calls.add(&call);
            if entry.kind() == ActivityType::UserAnnotation {
                ranges.push(link::Call { end: cut(&windows, call.start, call.end).0, ..call });
            }
        }
        let crossing = ranges::crossing(&ranges, &spans, slack);
        let mut joining = calls.finish(records.externals());
        let mut over = windows.last().map_or(Timestamp::default(), |window| window.1);
        for entry in collection.records.work() {
            let work = collection.work(&entry);
            // Some of it lies inside, or it was launched inside; what is known to be launched outside does not.
            let began = || reach.first().is_some_and(|first| work.end >= first.0);
            let is_ours = || match entry.slice() {
                Some(slice) => spans.span_of(slice).is_some(),
                None => joining.is_launched(&work),
            };
            let lies_inside = || overlaps(&reach, (work.start, work.end)) || began() && is_ours();
            if collection.records.was_launched_in_a_pause(entry.correlation()) || !lies_inside() {
                counts.leave_out((work.start, work.end));
                continue;
            }
            counts.work += 1;
            counts.unfinished += u64::from(entry.end() == 0);
            counts.beyond_end += u64::from(entry.end() != 0 && work.end == NEVER);
            let last = if work.end == NEVER { work.start } else { work.end };
            over = if last == NEVER { over } else { over.max(last) };
            match entry.slice() {
                None if entry.correlation() != 0 || is_launched(entry.kind()) => joining.add(&work),
                _ => _ = joining.add_apart(&work),
            }
        }
        let links = joining.finish(records.events());
        let memory = memory::pieces(&records, &reach, &links, &spans, &mut counts);
        let (marks, overheads, counters) = Default::default();
        let mut linked = Linked {
            links,
            threads,
            windows,
            reach,
            over,
            marks,
            overheads,
            counters,
            memory,
            crossing,
            counts,
            number,
        };
        let others = linked.take_the_rest(collection);
        linked.marks = linked.marks_among(collection, &others, host.wait_events);
        linked
    }

    /// Takes what it cost to record and the values of counters, and returns waits and events.
    fn take_the_rest<'t>(&mut self, collection: &'t Collection) -> List<Entry<'t>> {
        let mut others = List::new();
        for entry in collection.records.rest() {
            match entry.role() {
                Role::Overhead if overlaps(&self.windows, collection.interval(&entry)) => {
                    self.counts.beyond_end += collection.is_beyond_end(&entry);
                    self.overheads.push(entry.at);
                }
                // What it took to begin is none of the recording.
                Role::Overhead if self.windows.first().is_some_and(|first| collection.interval(&entry).1 < first.0) => {
                }
                Role::Overhead => self.counts.leave_out(collection.interval(&entry)),
                Role::Counter if overlaps(&self.reach, collection.interval(&entry)) => self.counters.push(entry.at),
                Role::Counter => self.counts.leave_out(collection.interval(&entry)),
                Role::External | Role::Memory => {}
                _ => others.push(entry),
            }
        }
        self.counters.sort_unstable_by_key(|at| (collection.records.entry(*at).map(|entry| entry.start()), *at));
        others
    }

    /// The waits and events that are shown: those inside the recording, and of the waits of streams for streams those
    /// of streams that did something.
    fn marks_among(&mut self, collection: &Collection, others: &[Entry<'_>], wait_events: bool) -> List<Mark> {
        let busy: BTreeSet<_> = self.links.streams().map(|(device, stream, _)| (device, stream)).collect();
        let mut marks = List::with_capacity(others.len());
        for entry in others {
            let (start, end) = collection.interval(entry);
            let device = collection.records.device_of(entry.device_or_context());
            let stream = entry.stream();
            let is_wait = collection.records.names.text(entry.name) == "Stream Wait Event";
            let shown = !is_wait || (wait_events && busy.contains(&(device, stream)));
            // An event whose time on the device is not known is none of a row.
            if entry.start() == 0 && entry.role() == Role::Event || !shown {
                continue;
            }
            if overlaps(&self.reach, (start, end)) {
                self.counts.beyond_end += collection.is_beyond_end(entry);
                marks.push(Mark { device, stream, start, at: entry.at });
            } else {
                self.counts.leave_out((start, end));
            }
        }
        marks.sort_unstable();
        marks
    }

    fn records<'t>(&'t self, collection: &'t Collection) -> Records<'t> {
        Records { collection, threads: &self.threads }
    }

    /// Returns the threads that made calls.
    pub(super) fn threads(&self) -> impl Iterator<Item = i64> {
        self.links.threads().map(|(number, _)| self.threads.id(number))
    }

    /// Returns when something is drawn to be: what had not come when all was over, then.
    fn drawn(&self, at: Timestamp) -> Timestamp {
        if at == NEVER { self.over } else { at }
    }

    /// Returns when something of the host's is drawn to end, and whether it did: with the recording at last, as slices.
    fn cut(&self, start: Timestamp, end: Timestamp) -> (Timestamp, bool) {
        cut(&self.windows, start, end)
    }

    /// Whether something began before the recording did.
    fn is_clipped(&self, start: Timestamp) -> bool {
        self.windows.first().is_some_and(|window| start < window.0)
    }

    /// Adds what is not there, or not whole, to `add`.
    pub(crate) fn losses(&self, mut add: impl FnMut(Loss, u64)) {
        let counts = self.links.counts();
        add(Loss::OutOfWindow, self.counts.out_of_window);
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

    /// Returns whether slices of a stream may overlap, which only a walk over them can tell.
    pub(crate) fn may_overlap(&self) -> bool {
        self.counts.unfinished > 0 || self.links.may_overlap() || !self.marks.is_empty()
    }

    /// Returns how much a device did.
    pub(crate) fn work(&self) -> u64 {
        self.counts.work
    }

    /// The name of an arrow between a launch and its work: the correlation id, or where those come again something else,
    /// apart from those of other collectors.
    fn arrow(&self, launch: &link::Call) -> u64 {
        const BY_PLACE: u64 = 1 << 40;
        let again = self.links.counts().correlations_reused > 0;
        let name = if again { BY_PLACE | u64::from(launch.at.0) } else { launch.correlation };
        name | (self.number as u64) << 48
    }
}

impl Collection {
    /// Says how the collector fared.
    pub(crate) fn report(&self, linked: &Linked) -> CollectorReport {
        let mut report = CollectorReport::new(self.name, self.state.clone());
        report.records = linked.counts.calls + linked.counts.work + linked.counters.len() as u64;
        report.notes.extend(self.records.notes.iter().cloned());
        report.clock_error_ns = self.clock.error_at_most_ns().saturating_add(self.records.clock_error_ns);
        report.clock_offset_ns = self.clock.offset_ns();
        report
    }

    /// When a record began and ended; [`NEVER`] if it had not, or if that cannot be.
    #[inline]
    fn interval(&self, entry: &Entry<'_>) -> (Timestamp, Timestamp) {
        let possible = |at: Timestamp| if at > self.latest { NEVER } else { at };
        let at = |theirs| if theirs == 0 { NEVER } else { possible(self.clock.timestamp(theirs)) };
        let (start, end) = (at(entry.start()), at(entry.end()));
        (start, end.max(start))
    }

    /// Returns 1 if a record is said to end later than anything can.
    fn is_beyond_end(&self, entry: &Entry<'_>) -> u64 {
        u64::from(entry.end() != 0 && self.interval(entry).1 == NEVER)
    }

    #[inline]
    fn call(&self, entry: &Entry<'_>, threads: &Threads) -> link::Call {
        let (start, end) = self.interval(entry);
        let thread = threads.number(entry.thread(), start);
        let (at, correlation, external) = (Handle(entry.at), entry.correlation(), entry.external());
        link::Call { at, correlation, thread, start, end, external, launches: entry.launches() }
    }

    #[inline]
    fn work(&self, entry: &Entry<'_>) -> Work {
        let (start, end) = self.interval(entry);
        let device = self.records.device(entry);
        Work { at: Handle(entry.at), correlation: entry.correlation(), device, stream: entry.stream(), start, end }
    }
}

/// Stretches of time, in order.
type Stretches = List<(Timestamp, Timestamp)>;

/// When a collection was recorded, and the same with what may lie inside but for an error of its clock.
fn windows(collection: &Collection, converter: &Converter, error: u64) -> (Stretches, Stretches) {
    let at = |ticks| converter.timestamp(ticks);
    let windows: Stretches = collection.windows.iter().map(|(start, end)| (at(*start), at(*end))).collect();
    let reach = windows.iter().map(|(start, end)| wider(error, [*start, *end])).collect();
    (windows, reach)
}

/// Returns a stretch with what may lie inside but for an error of a clock.
fn wider(error: u64, [start, end]: [Timestamp; 2]) -> (Timestamp, Timestamp) {
    let [start, end] = [start.as_nanos().saturating_sub(error), end.as_nanos().saturating_add(error)];
    (Timestamp::from_nanos(start), Timestamp::from_nanos(end))
}

/// Whether that lies in one of the windows, in part at least. A program may pause with each of its steps, so there may be
/// many; they are in order by both of their ends.
#[inline]
fn overlaps(windows: &[(Timestamp, Timestamp)], (start, end): (Timestamp, Timestamp)) -> bool {
    let begun = windows.partition_point(|window| window.0 <= end);
    begun.checked_sub(1).and_then(|last| windows.get(last)).is_some_and(|last| start <= last.1)
}

/// Whether work of that kind has a launch, whether it is known or not.
fn is_launched(kind: ActivityType) -> bool {
    is_work(kind) && !matches!(kind, ActivityType::MtiaInsight | ActivityType::CudaProfilerRange)
}

fn cut(windows: &[(Timestamp, Timestamp)], start: Timestamp, end: Timestamp) -> (Timestamp, bool) {
    let around = windows.get(windows.partition_point(|window| window.1 < start));
    around.filter(|window| window.1 < end).map_or((end, true), |window| (window.1, false))
}

/// Whether arrows lead from calls of that kind to work: of Intel's, as libkineto has it, from those of the runtime alone.
fn has_arrows(kind: ActivityType) -> bool {
    kind != ActivityType::XpuDriver
}

/// Whether that kind is done by a device.
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
    fn what_was_recorded_ahead_of_a_window_is_not_missing() {
        let stretch = |start, end| (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
        let mut counts = Counts { beside: Some(wider(5, [100, 900].map(Timestamp::from_nanos))), ..Counts::default() };
        for (start, end, out) in [(80, 94, 1), (80, 95, 1), (200, 300, 1), (905, 950, 1), (906, 950, 2)] {
            counts.leave_out(stretch(start, end));
            assert_eq!(counts.out_of_window, out, "{start} {end}");
        }
        counts.beside = None;
        counts.leave_out(stretch(200, 300));
        assert_eq!(counts.out_of_window, 3);
    }
}
