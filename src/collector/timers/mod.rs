//! Device times around spans, measured by pairs of events: for devices that no profiler's library records.

mod timeline;
mod timer;

pub use timer::{DeviceTimer, NotTimed, Token};

use super::clock::now;
use super::{
    Capabilities, Collector, DeviceDescription, DeviceWork, RecordLayout, RecordSink, RecordView, Selection,
    Unavailable, Why,
};
use crate::os::fork;
use crate::time::Timestamp;
use kineto_trace::activity::{ActivityType, ActivityTypes, ArgValue, CorrelationId};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use timeline::{Pair, Timed, TimelineMark};

/// Times spans on a device by a pair of events around each; torch's `KINETO_GPU_FALLBACK` as a collector.
///
/// A slice becomes one row of its own name, a [`GpuUserAnnotation`](ActivityType::GpuUserAnnotation) on the stream that its
/// events were recorded on, with the slice's id and marked `"timing_source": "events"`. It lasts from the one event to the
/// other: all that was put on that stream between them, by whichever thread, and the gaps in between. It is no kernel, of
/// which readers want a launch, and which do not nest; averages count it as the operation's device time all the same, less
/// that of operations within. Beside a collector that records kernels they count both.
///
/// How rows of a stream lie to one another is measured. Where the stream lies on the host's clock is not: as early as it can
/// be with no event before the host recorded it, which the rows say by `"start_source": "earliest_possible"`.
///
/// Rows come when the recording stops, which waits for the device; a snapshot has none. Not timed are spans that are deeper
/// than 64, that were entered before the recording or a pause of it began or were open when it ended, or that were left on
/// another stream; what failed is counted in the [notes](crate::CollectorReport::notes). Needs
/// [`ExternalCorrelation`](ActivityType::ExternalCorrelation) among the selected types, which it is by default.
///
/// It costs two events for each span, a microsecond or more each, and bears them until the stop.
pub struct EventTimers<T> {
    timer: T,
    most: usize,
    runs: AtomicBool,
    taken: fork::Own<TimerRecords>,
}

impl<T: fmt::Debug> fmt::Debug for EventTimers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventTimers").field("timer", &self.timer).field("most", &self.most).finish_non_exhaustive()
    }
}

/// What a recording has so far.
#[derive(Debug, Default)]
struct TimerRecords {
    /// Of the recording that goes on, if one does.
    sink: Option<RecordSink>,
    /// The spans that each thread is in.
    open: HashMap<ThreadId, Vec<(u64, TimelineMark)>>,
    pairs: Vec<Pair>,
    /// Pairs that have begun, ended or not.
    pending: usize,
    events: u64,
    missed: Vec<(NotTimed, u64)>,
    over_limit: u64,
    cut_by_pause: u64,
}

/// How many pairs of events a recording may have, unless [`EventTimers::most`] says otherwise.
const MOST: usize = 1 << 17;
/// How many causes are told apart.
const CAUSES: usize = 8;

/// The shape of rows that events have measured.
#[derive(Debug)]
struct ByEvents;

impl RecordLayout for ByEvents {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("device", ArgValue::I64(record.device_id.into()));
        each("stream", ArgValue::I64(record.stream.into()));
        each("timing_source", ArgValue::Str("events"));
        each("start_source", ArgValue::Str("earliest_possible"));
    }
}

impl<T: DeviceTimer> EventTimers<T> {
    /// Makes a collector of what that timer measures. Does nothing yet.
    pub fn new(timer: T) -> EventTimers<T> {
        EventTimers { timer, most: MOST, runs: AtomicBool::new(false), taken: fork::Own::default() }
    }

    /// The most pairs of events in one recording; spans beyond it are counted and not timed. Default: 131,072.
    #[must_use]
    pub fn most(mut self, pairs: usize) -> EventTimers<T> {
        self.most = pairs;
        self
    }

    /// Has an event recorded; counts it if that fails. The lock is not held meanwhile: the timer may take its time.
    fn record(&self) -> Option<(Token, u64)> {
        let host = now();
        self.timer.record().map(|token| (token, host)).map_err(|cause| self.taken.lock().miss(cause)).ok()
    }

    fn release(&self, mark: TimelineMark) {
        self.timer.release(mark.token);
    }

    /// Waits for the device to come to the end of each pair; returns how many it came to.
    fn wait(&self, pairs: &mut [Pair], deadline: Instant) -> usize {
        pairs.sort_unstable_by_key(|pair| pair.last.nth);
        let passed = |pair: &Pair| loop {
            if self.timer.has_passed(pair.last.token) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(Duration::from_micros(200)));
        };
        // What stands behind the deadline on one stream may have passed on another.
        let mut came = 0;
        for at in 0..pairs.len() {
            if pairs.get(at).is_some_and(passed) {
                pairs.swap(came, at);
                came += 1;
            }
        }
        came
    }
}

impl TimerRecords {
    /// Begins a pair, if there may be one more.
    fn admit(&mut self, most: usize) -> bool {
        let is_full = self.pending >= most;
        self.over_limit += u64::from(is_full);
        self.pending += usize::from(!is_full);
        !is_full
    }

    fn mark(&mut self, (token, host): (Token, u64)) -> TimelineMark {
        self.events += 1;
        TimelineMark { token, nth: self.events, host }
    }

    fn miss(&mut self, cause: NotTimed) {
        self.pending = self.pending.saturating_sub(1);
        let known = self.missed.iter().position(|(known, _)| *known == cause);
        if known.is_none() && self.missed.len() < CAUSES {
            return self.missed.push((cause, 1));
        }
        // What is one cause too many is counted with the last.
        if let Some((_, count)) = self.missed.get_mut(known.unwrap_or(CAUSES - 1)) {
            *count += 1;
        }
    }

    /// Leaves what was not timed as notes; `untimed` are pairs that could not be measured, `late` those that had not ended.
    fn tell(&self, sink: &RecordSink, untimed: usize, late: usize) {
        let open = self.open.values().map(Vec::len).sum::<usize>() as u64;
        let note = |count: u64, why: &dyn fmt::Display| {
            if count > 0 {
                sink.note(format!("{count} spans were not timed: {why}"));
            }
        };
        self.missed.iter().for_each(|(cause, count)| note(*count, cause));
        note(self.over_limit, &"the recording had as many pairs of events as it may");
        note(self.cut_by_pause, &"the recording paused inside of them");
        note(open, &"they were open when the recording ended");
        note(late as u64, &"the device had not come to their end when the stop had waited long enough");
        note(untimed as u64, &"the time between their events cannot be had");
    }
}

impl<T: DeviceTimer> Collector for EventTimers<T> {
    fn name(&self) -> &'static str {
        self.timer.name()
    }

    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::GpuUserAnnotation)
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.timer.probe().map(|can| Capabilities { types: self.types(), ..can })
    }

    fn start(&self, selection: &Selection, sink: RecordSink) -> Result<Capabilities, Unavailable> {
        if !selection.types.contains(ActivityType::ExternalCorrelation) {
            let message = "spans are timed only where external_correlation is selected";
            return Err(Unavailable::new(Why::Disabled, message, "add it to the activity types"));
        }
        let can = self.probe()?;
        let mut taken = self.taken.lock();
        if taken.sink.is_some() {
            return Err(Unavailable::new(
                Why::Busy,
                "these timers are in use by another recording",
                "stop that recording first",
            ));
        }
        *taken = TimerRecords { sink: Some(sink), ..TimerRecords::default() };
        self.runs.store(true, Ordering::Release);
        Ok(can)
    }

    fn push(&self, id: CorrelationId) -> bool {
        if !self.runs.load(Ordering::Acquire) || !self.taken.lock().admit(self.most) {
            return false;
        }
        let Some(recorded) = self.record() else { return false };
        let mut taken = self.taken.lock();
        if taken.sink.is_none() {
            drop(taken);
            self.timer.release(recorded.0);
            return false;
        }
        let mark = taken.mark(recorded);
        taken.open.entry(std::thread::current().id()).or_default().push((id.0, mark));
        true
    }

    fn pop(&self) {
        let thread = std::thread::current().id();
        // None is there where the recording has ended or paused meanwhile.
        let Some((slice, first)) = self.taken.lock().open.get_mut(&thread).and_then(Vec::pop) else { return };
        let Some(recorded) = self.record() else { return self.release(first) };
        let mut taken = self.taken.lock();
        let last = taken.mark(recorded);
        if taken.sink.is_some() {
            return taken.pairs.push(Pair { slice, first, last });
        }
        drop(taken);
        [first, last].into_iter().for_each(|mark| self.release(mark));
    }

    fn pause(&self) {
        let open = {
            let mut taken = self.taken.lock();
            let open = std::mem::take(&mut taken.open);
            let cut = open.values().map(Vec::len).sum::<usize>();
            taken.cut_by_pause += cut as u64;
            taken.pending = taken.pending.saturating_sub(cut);
            open
        };
        open.into_values().flatten().for_each(|(_, mark)| self.release(mark));
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        self.runs.store(false, Ordering::Release);
        let mut taken = std::mem::take(&mut *self.taken.lock());
        let Some(sink) = taken.sink.take() else { return };
        let came = self.wait(&mut taken.pairs, deadline);
        let (done, late) = taken.pairs.split_at(came);
        let timed = timeline::measure(done, |from, to| self.timer.elapsed(from, to));
        sink.record(|batch| {
            let name = batch.name("");
            for Timed { slice, device, stream, start, end } in timed.iter().copied() {
                let (kind, shape, words) = (ActivityType::GpuUserAnnotation, &ByEvents, &[]);
                let work = DeviceWork { kind, name, device, stream, start, end, correlation: 0, shape, words };
                batch.work_of(CorrelationId(slice), &work);
            }
        });
        taken.tell(&sink, done.len() - timed.len(), late.len());
        let open = taken.open.values().flatten().map(|(_, mark)| *mark);
        let ended = taken.pairs.iter().flat_map(|pair| [pair.first, pair.last]);
        open.chain(ended).for_each(|mark| self.release(mark));
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.timer.devices()
    }
}
