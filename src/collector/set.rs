//! The collectors of a session, started and stopped together but failing independently.

use super::clock::{BracketedReading, ClockMap};
use super::collected::Collected;
use super::renumber::renumber_devices;
use super::report::CollectorReport;
use super::store::{Budget, RecordSink};
use super::switch::Switch;
use super::{Capabilities, Collector, Rejected, Selection, Unavailable};
use crate::correlation::CorrelationSink;
use crate::os::fork;
use crate::time::{Ticks, Timestamp};
use kineto_trace::activity::CorrelationId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Instant;

/// All collectors of a session, and their recording.
#[derive(Debug)]
pub(crate) struct CollectorSet {
    collectors: Vec<Arc<dyn Collector>>,
    /// Disabled collectors, each with the reason.
    off: Vec<Rejected>,
    running: fork::Own<Vec<StartedCollector>>,
    slice_sink: OnceLock<&'static SliceSink>,
}

/// A collector that takes part in the recording.
#[derive(Debug)]
struct StartedCollector {
    collector: Arc<dyn Collector>,
    sink: RecordSink,
    state: Result<Capabilities, Unavailable>,
    readings: Vec<BracketedReading>,
}

/// The records of a collector, or why it recorded nothing.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) name: &'static str,
    pub(crate) state: Result<Capabilities, Unavailable>,
    pub(crate) records: Collected,
    pub(crate) clock: ClockMap,
    /// An upper bound of its timestamps: every record was delivered by then.
    pub(crate) latest: Timestamp,
    /// When it recorded, as far as the program knows: several windows after a pause.
    pub(crate) windows: Vec<(Ticks, Ticks)>,
    /// The larger window that it recorded before cutting, if the windows were cut. Records there are not missing.
    pub(crate) uncut_window: Option<(Ticks, Ticks)>,
}

/// The collectors that receive slices. Threads hold plain references to it, so it is never freed; each layer makes at
/// most one.
#[derive(Debug)]
struct SliceSink {
    collectors: Vec<Arc<dyn Collector>>,
    /// A bit for each collector: whether it receives slices.
    open: AtomicU64,
}

/// Records that lie in the future by no more than this are taken for clock errors.
const CLOCK_TOLERANCE_NS: u64 = 1_000_000_000;

impl CorrelationSink for SliceSink {
    fn push(&self, slice: u64, annotates: bool) -> u64 {
        let took = |collector: &dyn Collector| match annotates {
            true => collector.push_annotation(CorrelationId(slice)),
            false => collector.push(CorrelationId(slice)),
        };
        self.running(u64::MAX).fold(0, |takers, (at, collector)| takers | u64::from(took(collector)) << at)
    }

    fn pop(&self, annotates: bool, takers: u64) {
        // A collector that did not accept the slice would leave another.
        self.running(takers).for_each(|(_, collector)| match annotates {
            true => collector.pop_annotation(),
            false => collector.pop(),
        });
    }
}

impl SliceSink {
    /// Returns the running collectors of `among`, with their indices.
    fn running(&self, among: u64) -> impl Iterator<Item = (usize, &dyn Collector)> {
        // Relaxed: a thread that sees an old value may call a stopped collector, which tolerates it.
        let open = self.open.load(Ordering::Relaxed) & among;
        let all = self.collectors.iter().take(64).enumerate();
        all.filter(move |(at, _)| open >> at & 1 != 0).map(|(at, collector)| (at, &**collector))
    }
}

impl CollectorSet {
    pub(crate) fn new(collectors: Vec<Arc<dyn Collector>>, off: Vec<Rejected>) -> CollectorSet {
        CollectorSet { collectors, off, running: fork::Own::default(), slice_sink: OnceLock::new() }
    }

    fn running(&self) -> MutexGuard<'_, Vec<StartedCollector>> {
        self.running.lock()
    }

    /// Probes each collector.
    pub(crate) fn probe(&self) -> Vec<CollectorReport> {
        let off = self.off.iter().map(|(name, reason)| (*name, Err(reason.clone())));
        let states = self.collectors.iter().map(|collector| (collector.name(), collector.probe())).chain(off);
        CollectorReport::dedupe_names(states.map(|(name, state)| CollectorReport::new(name, state)))
    }

    /// Starts the collectors that the selection needs; returns a report on each.
    pub(crate) fn start(&self, selection: &Selection, budget: &Arc<dyn Budget>) -> Vec<CollectorReport> {
        let wanted = |collector: &&Arc<dyn Collector>| collector.is_selected(selection);
        let mut running = Vec::new();
        for collector in self.collectors.iter().filter(wanted) {
            let sink = RecordSink::new(budget.clone());
            sink.wait();
            let state = collector.start(selection, sink.clone());
            running.push(StartedCollector { collector: collector.clone(), sink, state, readings: Vec::new() });
        }
        *self.running() = running;
        self.reports()
    }

    /// Returns a report on each collector of the recording.
    pub(crate) fn reports(&self) -> Vec<CollectorReport> {
        let report = |running: &StartedCollector| CollectorReport::new(running.collector.name(), running.state.clone());
        CollectorReport::dedupe_names(self.running().iter().map(report))
    }

    /// Begins the recording: drops the records delivered so far.
    pub(crate) fn begin(&self) {
        for running in &*self.running() {
            running.sink.discard();
        }
        self.read_clocks();
    }

    /// Returns a switch for each collector of the recording, in order.
    pub(crate) fn switches(&self) -> Vec<Switch> {
        let switch =
            |each: &StartedCollector| Switch::new(each.collector.clone(), each.sink.clone(), each.state.is_ok());
        self.running().iter().map(switch).collect()
    }

    /// Returns whether a running collector sees the marks of ranges.
    pub(crate) fn sees_ranges(&self) -> bool {
        self.running().iter().any(|running| running.state.is_ok() && running.collector.sees_ranges())
    }

    /// Reads the clocks of all running collectors.
    pub(crate) fn read_clocks(&self) {
        for running in self.running().iter_mut().filter(|running| running.state.is_ok()) {
            let reading = BracketedReading::take(|| running.collector.clock());
            running.readings.extend(reading);
        }
    }

    /// Returns which running collector has stopped early, and why.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.running().iter().filter(|running| running.state.is_ok()).find_map(|running| {
            let full = || running.sink.is_full().then(|| "the buffer limit leaves no room for its records".to_owned());
            let why = running.collector.stopped().or_else(full)?;
            Some(format!("{}: {why}", running.collector.name()))
        })
    }

    /// Returns the sink for slices, if a running collector wants them.
    pub(crate) fn slice_sink(&self, selection: &Selection) -> Option<&'static dyn CorrelationSink> {
        if !selection.types.contains(kineto_trace::activity::ActivityType::ExternalCorrelation) {
            return None;
        }
        let running = self.running();
        let runs = |collector: &Arc<dyn Collector>| {
            running.iter().any(|running| running.state.is_ok() && Arc::ptr_eq(&running.collector, collector))
        };
        let open = self.collectors.iter().take(64).enumerate().filter(|(_, collector)| runs(collector));
        let open = open.fold(0, |open, (at, _)| open | 1 << at);
        let new = || &*Box::leak(Box::new(SliceSink { collectors: self.collectors.clone(), open: AtomicU64::new(0) }));
        (open != 0).then(|| {
            let slice_sink: &'static SliceSink = self.slice_sink.get_or_init(new);
            slice_sink.open.store(open, Ordering::Relaxed);
            slice_sink as &'static dyn CorrelationSink
        })
    }

    /// Stops all collectors; returns their records.
    pub(crate) fn stop(&self, end: Timestamp, deadline: Instant) -> Vec<Collection> {
        let running = std::mem::take(&mut *self.running());
        if let Some(slice_sink) = self.slice_sink.get() {
            slice_sink.open.store(0, Ordering::Relaxed);
        }
        for each in running.iter().filter(|each| each.state.is_ok()) {
            each.collector.stop(end, deadline);
        }
        self.collections(&running, true)
    }

    /// Returns the records delivered so far.
    pub(crate) fn snapshot(&self) -> Vec<Collection> {
        self.read_clocks();
        let running = self.running();
        for each in running.iter().filter(|each| each.state.is_ok()) {
            each.collector.drain();
        }
        self.collections(&running, false)
    }

    fn collections(&self, running: &[StartedCollector], close: bool) -> Vec<Collection> {
        let ran = running.iter().map(|running| running.collect(close));
        let off = self.off.iter().map(|(name, reason)| Collection {
            name,
            state: Err(reason.clone()),
            records: Collected::empty(),
            clock: ClockMap::default(),
            latest: Timestamp::default(),
            windows: Vec::new(),
            uncut_window: None,
        });
        let mut all: Vec<_> = ran.chain(off).collect();
        renumber_devices(all.iter_mut().map(|collection| &mut collection.records));
        all
    }
}

impl Drop for CollectorSet {
    fn drop(&mut self) {
        let now = Instant::now();
        for each in self.running().drain(..).filter(|each| each.state.is_ok()) {
            each.collector.stop(Timestamp::default(), now);
        }
    }
}

impl StartedCollector {
    fn collect(&self, close: bool) -> Collection {
        let devices = if self.state.is_ok() { self.collector.devices() } else { Vec::new() };
        let mut records = self.sink.collect(close);
        records.devices = devices;
        let clock = ClockMap::new(&self.readings);
        let latest = super::clock::now().saturating_add(clock.error_at_most_ns()).saturating_add(CLOCK_TOLERANCE_NS);
        let (name, state) = (self.collector.name(), self.state.clone());
        Collection {
            name,
            state,
            records,
            clock,
            latest: Timestamp::from_nanos(latest),
            windows: Vec::new(),
            uncut_window: None,
        }
    }
}
