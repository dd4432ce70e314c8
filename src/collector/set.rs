//! The collectors of a session: started and stopped together, each for itself.

use super::apart::apart;
use super::clock::{BracketedReading, ClockMap};
use super::collected::Collected;
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

/// All collectors of a session, and what they are doing.
#[derive(Debug)]
pub(crate) struct CollectorSet {
    collectors: Vec<Arc<dyn Collector>>,
    /// Those that were switched off, with the reason.
    off: Vec<Rejected>,
    running: fork::Own<Vec<StartedCollector>>,
    street: OnceLock<&'static Street>,
}

/// A collector that was asked to record.
#[derive(Debug)]
struct StartedCollector {
    collector: Arc<dyn Collector>,
    sink: RecordSink,
    state: Result<Capabilities, Unavailable>,
    readings: Vec<BracketedReading>,
}

/// What a collector recorded, or why it recorded nothing.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) name: &'static str,
    pub(crate) state: Result<Capabilities, Unavailable>,
    pub(crate) records: Collected,
    pub(crate) clock: ClockMap,
    /// Nothing can have been later, for all that the clocks know: it was handed over by then.
    pub(crate) latest: Timestamp,
    /// When it recorded, as far as somebody knows: more than one stretch after a pause.
    pub(crate) windows: Vec<(Ticks, Ticks)>,
    /// Where it recorded more than was wanted, if the windows were cut: what lies there is not missing.
    pub(crate) beside: Option<(Ticks, Ticks)>,
}

/// The way to the collectors that run and want to know slices. Threads refer to it plainly, so it is never freed: there
/// is one for a layer.
#[derive(Debug)]
struct Street {
    collectors: Vec<Arc<dyn Collector>>,
    /// Which of them are told.
    open: AtomicU64,
}

/// A time that is later than now by no more than this is taken for an error of a clock.
const LENIENCE_NS: u64 = 1_000_000_000;

impl CorrelationSink for Street {
    fn push(&self, slice: u64, annotates: bool) -> u64 {
        let took = |collector: &dyn Collector| match annotates {
            true => collector.push_annotation(CorrelationId(slice)),
            false => collector.push(CorrelationId(slice)),
        };
        self.running(u64::MAX).fold(0, |takers, (at, collector)| takers | u64::from(took(collector)) << at)
    }

    fn pop(&self, annotates: bool, takers: u64) {
        // One that has not taken the slice would leave another.
        self.running(takers).for_each(|(_, collector)| match annotates {
            true => collector.pop_annotation(),
            false => collector.pop(),
        });
    }
}

impl Street {
    /// Those of `among` that run, with their places.
    fn running(&self, among: u64) -> impl Iterator<Item = (usize, &dyn Collector)> {
        // Relaxed: a thread that sees an old value tells one that has stopped, which does not mind.
        let told = self.open.load(Ordering::Relaxed) & among;
        let all = self.collectors.iter().take(64).enumerate();
        all.filter(move |(at, _)| told >> at & 1 != 0).map(|(at, collector)| (at, &**collector))
    }
}

impl CollectorSet {
    pub(crate) fn new(collectors: Vec<Arc<dyn Collector>>, off: Vec<Rejected>) -> CollectorSet {
        CollectorSet { collectors, off, running: fork::Own::default(), street: OnceLock::new() }
    }

    fn running(&self) -> MutexGuard<'_, Vec<StartedCollector>> {
        self.running.lock()
    }

    /// Asks each collector what it can do here.
    pub(crate) fn probe(&self) -> Vec<CollectorReport> {
        let off = self.off.iter().map(|(name, reason)| (*name, Err(reason.clone())));
        let states = self.collectors.iter().map(|collector| (collector.name(), collector.probe())).chain(off);
        CollectorReport::tell_apart(states.map(|(name, state)| CollectorReport::new(name, state)))
    }

    /// Has those collectors begin of which something is selected; returns how each fared.
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

    /// Returns how each has fared that was asked to record.
    pub(crate) fn reports(&self) -> Vec<CollectorReport> {
        let report = |running: &StartedCollector| CollectorReport::new(running.collector.name(), running.state.clone());
        CollectorReport::tell_apart(self.running().iter().map(report))
    }

    /// The recording begins: what has come until now is none of it.
    pub(crate) fn begin(&self) {
        for running in &*self.running() {
            running.sink.discard();
        }
        self.read_clocks();
    }

    /// Returns a switch for each that was asked to record, in their order.
    pub(crate) fn switches(&self) -> Vec<Switch> {
        let switch =
            |each: &StartedCollector| Switch::new(each.collector.clone(), each.sink.clone(), each.state.is_ok());
        self.running().iter().map(switch).collect()
    }

    /// Whether one of those that run sees the marks of ranges.
    pub(crate) fn sees_ranges(&self) -> bool {
        self.running().iter().any(|running| running.state.is_ok() && running.collector.sees_ranges())
    }

    /// Reads the clocks of all that run.
    pub(crate) fn read_clocks(&self) {
        for running in self.running().iter_mut().filter(|running| running.state.is_ok()) {
            let reading = BracketedReading::take(|| running.collector.clock());
            running.readings.extend(reading);
        }
    }

    /// Says which of those that run has stopped by itself, and why.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.running().iter().filter(|running| running.state.is_ok()).find_map(|running| {
            let full = || running.sink.is_full().then(|| "the buffer limit leaves its records no room".to_owned());
            let why = running.collector.stopped().or_else(full)?;
            Some(format!("{}: {why}", running.collector.name()))
        })
    }

    /// Returns whom threads tell which slice they are in, if anybody wants to know.
    pub(crate) fn street(&self, selection: &Selection) -> Option<&'static dyn CorrelationSink> {
        if !selection.types.contains(kineto_trace::activity::ActivityType::ExternalCorrelation) {
            return None;
        }
        let running = self.running();
        let runs = |collector: &Arc<dyn Collector>| {
            running.iter().any(|running| running.state.is_ok() && Arc::ptr_eq(&running.collector, collector))
        };
        let open = self.collectors.iter().take(64).enumerate().filter(|(_, collector)| runs(collector));
        let open = open.fold(0, |open, (at, _)| open | 1 << at);
        let new = || &*Box::leak(Box::new(Street { collectors: self.collectors.clone(), open: AtomicU64::new(0) }));
        (open != 0).then(|| {
            let street: &'static Street = self.street.get_or_init(new);
            street.open.store(open, Ordering::Relaxed);
            street as &'static dyn CorrelationSink
        })
    }

    /// Ends the recording of all; returns what each has.
    pub(crate) fn stop(&self, end: Timestamp, deadline: Instant) -> Vec<Collection> {
        let running = std::mem::take(&mut *self.running());
        if let Some(street) = self.street.get() {
            street.open.store(0, Ordering::Relaxed);
        }
        for each in running.iter().filter(|each| each.state.is_ok()) {
            each.collector.stop(end, deadline);
        }
        self.collections(&running, true)
    }

    /// Returns what each has so far.
    pub(crate) fn look(&self) -> Vec<Collection> {
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
            beside: None,
        });
        let mut all: Vec<_> = ran.chain(off).collect();
        apart(all.iter_mut().map(|collection| &mut collection.records));
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
        let latest = super::clock::now().saturating_add(clock.error_at_most_ns()).saturating_add(LENIENCE_NS);
        let (name, state) = (self.collector.name(), self.state.clone());
        Collection {
            name,
            state,
            records,
            clock,
            latest: Timestamp::from_nanos(latest),
            windows: Vec::new(),
            beside: None,
        }
    }
}
