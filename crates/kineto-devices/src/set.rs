//! The collectors of a session, started and stopped together but failing independently.

use super::clock::{BracketedReading, ClockMap};
use super::records::collected::Collected;
use super::records::renumber::renumber_devices;
use super::records::store::RecordSink;
use super::report::CollectorReport;
use super::switch::Switch;
use super::{Capabilities, Collector, Recording, Rejected, Selection, Unavailable};
use crate::correlation::CorrelationSink;
use kineto_base::budget::Budget;
use kineto_base::encoding::encoded;
use kineto_base::live::{JournalKind, LiveFile};
use kineto_base::os::fork;
use kineto_base::time::{Ticks, Timestamp};
use kineto_base::wait::steady;
use kineto_model::activity::CorrelationId;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// All collectors of a session, and their recording.
#[derive(Debug, Default)]
pub struct CollectorSet {
    collectors: Vec<Arc<dyn Collector>>,
    /// Disabled collectors, each with the reason.
    off: Vec<Rejected>,
    started: fork::Own<Vec<StartedCollector>>,
    /// The receiver of slices in the current recording, or in the last.
    slice_sink: fork::Own<Option<Arc<SliceSink>>>,
}

/// A collector that takes part in the recording.
#[derive(Debug)]
struct StartedCollector {
    collector: Arc<dyn Collector>,
    sink: RecordSink,
    /// When it was started.
    since: Timestamp,
    state: Result<(Capabilities, Arc<dyn Recording>), Unavailable>,
    readings: Vec<BracketedReading>,
}

/// The records of a collector, or why it recorded nothing.
#[derive(Debug)]
pub struct Collection {
    /// The collector's name.
    pub name: Cow<'static, str>,
    /// What it recorded, or why it recorded nothing.
    pub state: Result<Capabilities, Unavailable>,
    /// The records.
    pub records: Collected,
    /// Converts their times.
    pub clock: ClockMap,
    /// A lower bound of its timestamps: it was started then.
    pub since: Timestamp,
    /// An upper bound of its timestamps: every record was delivered by then.
    pub latest: Timestamp,
    /// When it recorded, as far as the program knows: several windows after a pause.
    pub windows: Vec<(Ticks, Ticks)>,
    /// The larger window that it recorded before cutting, if the windows were cut. Records there are not missing.
    pub uncut_window: Option<(Ticks, Ticks)>,
}

encoded! {
    Collection { name, state, records, clock, since, latest, windows, uncut_window }
}

/// The recordings that receive slices. A thread holds it until its next recording, so its last calls may come late.
#[derive(Debug)]
struct SliceSink {
    recordings: Vec<Arc<dyn Recording>>,
    is_open: AtomicBool,
}

/// Records before the start or in the future by no more than this are taken for clock errors.
const CLOCK_TOLERANCE_NS: u64 = 1_000_000_000;

impl CorrelationSink for SliceSink {
    fn push_slice(&self, slice: u64, annotates: bool) -> u64 {
        // Relaxed: a thread that sees the old value makes one more call, which recordings tolerate.
        if !self.is_open.load(Ordering::Relaxed) {
            return 0;
        }
        let took = |recording: &dyn Recording| {
            if annotates {
                recording.push_annotation(CorrelationId(slice))
            } else {
                recording.push(CorrelationId(slice))
            }
        };
        self.selected_recordings(u64::MAX).fold(0, |takers, (at, recording)| takers | u64::from(took(recording)) << at)
    }

    fn pop_slice(&self, annotates: bool, takers: u64) {
        // A recording that did not accept the slice would leave another.
        self.selected_recordings(takers)
            .for_each(|(_, recording)| if annotates { recording.pop_annotation() } else { recording.pop() });
    }
}

impl SliceSink {
    /// Returns the recordings of a mask, with their indices.
    fn selected_recordings(&self, mask: u64) -> impl Iterator<Item = (usize, &dyn Recording)> {
        let all = self.recordings.iter().take(64).enumerate();
        all.filter(move |(at, _)| mask >> at & 1 != 0).map(|(at, recording)| (at, &**recording))
    }
}

impl CollectorSet {
    /// Creates the set; `off` are the collectors that settings disable.
    pub fn new(collectors: Vec<Arc<dyn Collector>>, off: Vec<Rejected>) -> CollectorSet {
        CollectorSet { collectors, off, started: fork::Own::default(), slice_sink: fork::Own::default() }
    }

    fn lock_started(&self) -> MutexGuard<'_, Vec<StartedCollector>> {
        self.started.lock()
    }

    /// Probes each collector, except optional ones that are not selected.
    pub fn probe(&self, selection: &Selection) -> Vec<CollectorReport> {
        let off = self.off.iter().map(|(name, reason)| (*name, Err(reason.clone())));
        let wanted = |collector: &&Arc<dyn Collector>| !collector.is_optional() || collector.is_selected(selection);
        let probed = self.collectors.iter().filter(wanted);
        let states = probed.map(|collector| (collector.name(), collector.probe())).chain(off);
        CollectorReport::dedupe_names(states.map(|(name, state)| CollectorReport::new(name, state)))
    }

    /// Starts the collectors that the selection needs; returns a report on each.
    pub fn start(&self, selection: &Selection, budget: &Arc<dyn Budget>) -> Vec<CollectorReport> {
        let wanted = |collector: &&Arc<dyn Collector>| collector.is_selected(selection);
        let mut started = Vec::new();
        for collector in self.collectors.iter().filter(wanted) {
            let (sink, since) = (RecordSink::new(budget.clone()), Timestamp::from_nanos(super::clock::realtime_now()));
            sink.set_waiting();
            let state = collector.start(selection, sink.clone());
            let state = state.map(|(capabilities, recording)| (capabilities, Arc::from(recording)));
            started.push(StartedCollector { collector: collector.clone(), sink, since, state, readings: Vec::new() });
        }
        *self.lock_started() = started;
        self.reports()
    }

    /// Returns a report on each collector of the recording.
    pub fn reports(&self) -> Vec<CollectorReport> {
        let report = |each: &StartedCollector| CollectorReport::new(each.collector.name(), each.capabilities());
        CollectorReport::dedupe_names(self.lock_started().iter().map(report))
    }

    /// Begins the recording: drops the records delivered so far.
    ///
    /// With a live file, records are copied there.
    pub fn begin_recording(&self, live: Option<&Arc<LiveFile>>) {
        for (number, each) in (0..).zip(&*self.lock_started()) {
            each.sink.discard_early_records();
            if let Some(live) = live {
                each.sink.set_live(live.clone(), number);
            }
        }
        self.read_clocks();
        if let Some(live) = live {
            self.note_all(live);
        }
    }

    /// Notes in a live file what belongs to collectors, except their records.
    pub fn note_all(&self, live: &LiveFile) {
        let all = self.collect_all(&self.lock_started(), RecordSink::tables);
        for (number, collection) in (0..).zip(&all) {
            live.put_value(JournalKind::Collection, (number, 0), collection);
        }
    }

    /// Returns a switch for each collector of the recording, in order.
    pub fn create_switches(&self) -> Vec<Switch> {
        let switch =
            |each: &StartedCollector| Switch::new(each.collector.types(), each.recording().cloned(), each.sink.clone());
        self.lock_started().iter().map(switch).collect()
    }

    /// Returns whether a collector of the recording sees the marks of ranges.
    pub fn sees_ranges(&self) -> bool {
        self.lock_started().iter().filter_map(StartedCollector::recording).any(|recording| recording.sees_ranges())
    }

    /// Reads the clocks of all recordings.
    pub fn read_clocks(&self) {
        for StartedCollector { state, readings, .. } in self.lock_started().iter_mut() {
            if let Ok((_, recording)) = state {
                readings.extend(BracketedReading::read_clock(|| recording.clock()));
            }
        }
    }

    /// Returns when the oldest block of records that no snapshot holds was full.
    pub fn oldest_free_block(&self) -> Option<Ticks> {
        self.lock_started().iter().filter_map(|each| each.sink.oldest_free_block()).min()
    }

    /// Returns how many bytes of full blocks there are.
    pub fn full_bytes(&self) -> u64 {
        self.lock_started().iter().map(|each| each.sink.full_bytes()).sum()
    }

    /// Drops the blocks of records that were full by then.
    pub fn drop_blocks(&self, until: Ticks) {
        self.lock_started().iter().for_each(|each| each.sink.drop_blocks(until));
    }

    /// Returns which collector has stopped early, and why.
    pub fn early_stop_reason(&self) -> Option<String> {
        self.lock_started().iter().find_map(|each| {
            let full = || each.sink.is_full().then(|| "the buffer limit leaves no room for its records".to_owned());
            let why = each.recording()?.stopped().or_else(full)?;
            Some(format!("{}: {why}", each.collector.name()))
        })
    }

    /// Returns the receiver of slices for a recording, if a collector wants them.
    pub fn slice_sink(&self, selection: &Selection) -> Option<Arc<dyn CorrelationSink>> {
        if !selection.types.contains(kineto_model::activity::ActivityType::ExternalCorrelation) {
            return None;
        }
        let started = self.lock_started();
        let recordings = started.iter().filter_map(StartedCollector::recording);
        let recordings: Vec<_> = recordings.filter(|recording| recording.takes_slices()).cloned().collect();
        drop(started);
        (!recordings.is_empty()).then(|| {
            let slice_sink = Arc::new(SliceSink { recordings, is_open: AtomicBool::new(true) });
            *self.slice_sink.lock() = Some(slice_sink.clone());
            slice_sink as Arc<dyn CorrelationSink>
        })
    }

    /// Stops all collectors; returns their records.
    pub fn stop(&self, end: Timestamp, deadline: Instant) -> Vec<Collection> {
        let started = self.stop_recordings(end, deadline);
        self.collect_all(&started, |sink| sink.collect_records(true))
    }

    fn stop_recordings(&self, end: Timestamp, deadline: Instant) -> Vec<StartedCollector> {
        let started = std::mem::take(&mut *self.lock_started());
        if let Some(slice_sink) = self.slice_sink.lock().take() {
            slice_sink.is_open.store(false, Ordering::Relaxed);
        }
        // Otherwise these sample beyond the end, while another one waits for its work.
        for is_first in [true, false] {
            let now = started.iter().filter(|each| each.collector.is_optional() == is_first);
            now.filter_map(StartedCollector::recording).for_each(|recording| recording.stop(end, deadline));
        }
        started
    }

    /// Waits a moment for records that libraries hold back: on a device that is never idle, they may do that for long.
    pub fn await_ended_work(&self) {
        const PATIENCE: Duration = Duration::from_millis(200);
        drain(&self.lock_started(), PATIENCE);
    }

    /// Returns the records delivered so far.
    pub fn snapshot(&self) -> Vec<Collection> {
        self.drain_and_collect(|sink| sink.collect_records(false))
    }

    /// Moves the records out that were delivered so far.
    pub fn take_records(&self) -> Vec<Collection> {
        self.drain_and_collect(RecordSink::take_records)
    }

    fn drain_and_collect(&self, collect: fn(&RecordSink) -> Collected) -> Vec<Collection> {
        self.read_clocks();
        let started = self.lock_started();
        drain(&started, Duration::ZERO);
        self.collect_all(&started, collect)
    }

    /// Returns a collection for each collector, with the records that `collect` returns.
    fn collect_all(&self, started: &[StartedCollector], collect: impl Fn(&RecordSink) -> Collected) -> Vec<Collection> {
        let ran = started.iter().map(|each| each.to_collection(collect(&each.sink)));
        let off = self.off.iter().map(|(name, reason)| Collection {
            name: (*name).into(),
            state: Err(reason.clone()),
            records: Collected::empty(),
            clock: ClockMap::default(),
            since: Timestamp::default(),
            latest: Timestamp::default(),
            windows: Vec::new(),
            uncut_window: None,
        });
        let mut all: Vec<_> = ran.chain(off).collect();
        renumber_devices(all.iter_mut().map(|collection| &mut collection.records));
        all
    }
}

/// Lets collectors deliver the records of work that has ended.
fn drain(started: &[StartedCollector], patience: Duration) {
    started.iter().filter_map(StartedCollector::recording).for_each(|recording| recording.drain(patience));
}

impl Collection {
    /// Extends the bounds of its timestamps to these times: CLOCK_REALTIME was set between them.
    pub fn allow_times(&mut self, (first, last): (Timestamp, Timestamp)) {
        let tolerance = self.clock.error_at_most_ns().saturating_add(CLOCK_TOLERANCE_NS);
        self.since = self.since.min(Timestamp::from_nanos(first.as_nanos().saturating_sub(tolerance)));
        self.latest = self.latest.max(Timestamp::from_nanos(last.as_nanos().saturating_add(tolerance)));
    }
}

impl Drop for CollectorSet {
    fn drop(&mut self) {
        drop(self.stop_recordings(Timestamp::default(), steady()));
    }
}

impl StartedCollector {
    /// Returns the recording, unless the collector failed to start.
    fn recording(&self) -> Option<&Arc<dyn Recording>> {
        self.state.as_ref().ok().map(|(_, recording)| recording)
    }

    fn capabilities(&self) -> Result<Capabilities, Unavailable> {
        self.state.clone().map(|(capabilities, _)| capabilities)
    }

    fn to_collection(&self, mut records: Collected) -> Collection {
        records.devices = self.recording().map(|recording| recording.devices()).unwrap_or_default();
        let clock = ClockMap::new(&self.readings);
        let tolerance = clock.error_at_most_ns().saturating_add(CLOCK_TOLERANCE_NS);
        let since = Timestamp::from_nanos(self.since.as_nanos().saturating_sub(tolerance));
        let latest = super::clock::realtime_now().saturating_add(tolerance);
        let (name, state) = (self.collector.name().into(), self.capabilities());
        Collection {
            name,
            state,
            records,
            clock,
            since,
            latest: Timestamp::from_nanos(latest),
            windows: Vec::new(),
            uncut_window: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kineto_model::activity::ActivityTypes;
    use std::sync::Mutex;

    /// Logs its calls; refuses slice 7.
    #[derive(Debug, Default)]
    struct LoggingRecording(Mutex<Vec<String>>);

    impl Recording for LoggingRecording {
        fn push(&self, id: CorrelationId) -> bool {
            self.0.lock().unwrap().push(format!("push {}", id.0));
            id.0 != 7
        }

        fn pop(&self) {
            self.0.lock().unwrap().push("pop".to_owned());
        }

        fn stop(&self, _: Timestamp, _: Instant) {}
    }

    /// A collector whose recordings need slices, or not.
    #[derive(Clone, Debug)]
    struct SliceCollector(bool);

    impl Collector for SliceCollector {
        fn name(&self) -> &'static str {
            "slices"
        }

        fn types(&self) -> ActivityTypes {
            ActivityTypes::ALL
        }

        fn probe(&self) -> Result<Capabilities, Unavailable> {
            Ok(Capabilities::default())
        }

        fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
            Ok((Capabilities::default(), Box::new(self.clone())))
        }
    }

    impl Recording for SliceCollector {
        fn takes_slices(&self) -> bool {
            self.0
        }

        fn stop(&self, _: Timestamp, _: Instant) {}
    }

    #[test]
    fn slices_are_pushed_only_to_recordings_that_take_them() {
        let selection = Selection::of(ActivityTypes::ALL);
        let receivers = |takes: &[bool]| {
            let collectors = takes.iter().map(|takes| Arc::new(SliceCollector(*takes)) as Arc<dyn Collector>);
            let set = CollectorSet::new(collectors.collect(), Vec::new());
            set.start(&selection, &(Arc::new(crate::trial::Unbounded) as Arc<dyn Budget>));
            set.slice_sink(&selection).is_some().then(|| set.slice_sink.lock().as_ref().unwrap().recordings.len())
        };
        assert_eq!([&[][..], &[false], &[false, true, true]].map(receivers), [None, None, Some(2)]);
    }

    #[test]
    fn ended_recording_takes_no_slices_but_pops_its_own() {
        let [one, other] = [(); 2].map(|()| Arc::new(LoggingRecording::default()));
        let sink = SliceSink { recordings: vec![one.clone(), other.clone()], is_open: AtomicBool::new(true) };
        assert_eq!((sink.push_slice(7, false), sink.push_slice(8, true)), (0, 0b11));
        sink.is_open.store(false, Ordering::Relaxed);
        assert_eq!(sink.push_slice(9, false), 0);
        sink.pop_slice(true, 0b10);
        assert_eq!(*one.0.lock().unwrap(), ["push 7", "push 8"]);
        assert_eq!(*other.0.lock().unwrap(), ["push 7", "push 8", "pop"]);
    }
}
