//! Device times of spans, measured by pairs of events: for devices without a vendor's profiling library.

mod timeline;
mod timer;

use kineto_base::sorting::sort_in_place_by_key;
use kineto_base::wait::{sleep, steady};
pub use timer::{DeviceTimer, NotTimed, Token};

use super::clock::realtime_now;
use super::registry::layouts;
use super::{
    Capabilities, Collector, DeviceDescription, DeviceWork, RecordLayout, RecordSink, RecordView, Recording, Selection,
    Unavailable, Why,
};
use kineto_base::os::fork;
use kineto_base::text::count_with_noun;
use kineto_base::time::Timestamp;
use kineto_model::activity::{ActivityType, ActivityTypes, ArgValue, CorrelationId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use timeline::{Pair, TimedSpan, TimelineMark};

/// Times spans on a device by a pair of events around each span; torch's `KINETO_GPU_FALLBACK` as a collector.
///
/// A slice becomes a row of the same name: a [`GpuUserAnnotation`](ActivityType::GpuUserAnnotation) on the stream of
/// its events, with the slice's id, marked `"timing_source": "events"`. It includes all work on that stream between
/// the two events, of any thread, and the gaps. It is not a kernel row, since readers expect a launch for each
/// kernel, and no nesting. Averages still count it as the operation's device time, less that of nested operations.
/// Together with a collector that records kernels, averages count both.
///
/// The distances between rows of a stream are measured. The offset of a stream from the host's clock is not: each
/// stream is placed as early as possible, with no event before the host recorded it. The rows mark this by
/// `"start_source": "earliest_possible"`.
///
/// Rows appear when the recording stops, which waits for the device; a snapshot has none. Some spans are not timed:
///
/// - spans nested deeper than 64,
/// - spans entered before the recording, or before a pause of it ended,
/// - spans that are open when the recording ends,
/// - spans left on another stream than they were entered on.
///
/// Failures are counted in the [notes](crate::CollectorReport::notes). The selected types must include
/// [`ExternalCorrelation`](ActivityType::ExternalCorrelation), as they do by default.
///
/// It costs two events for each span, a microsecond or more each, which are kept until the stop.
pub struct EventTimers<T> {
    timer: Arc<T>,
    most: usize,
    /// Whether a recording uses the timer; not in a forked child.
    is_in_use: Arc<fork::Own<bool>>,
}

impl<T: fmt::Debug> fmt::Debug for EventTimers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventTimers").field("timer", &self.timer).field("most", &self.most).finish_non_exhaustive()
    }
}

/// A recording of [`EventTimers`].
struct TimerRecording<T> {
    timer: Arc<T>,
    most: usize,
    sink: RecordSink,
    records: fork::Own<TimerRecords>,
    is_in_use: Arc<fork::Own<bool>>,
}

impl<T: fmt::Debug> fmt::Debug for TimerRecording<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerRecording").field("timer", &self.timer).finish_non_exhaustive()
    }
}

/// The pairs of events of a recording.
#[derive(Debug, Default)]
struct TimerRecords {
    /// Whether the recording has ended.
    is_over: bool,
    /// The spans that each thread is in.
    open: HashMap<ThreadId, Vec<(u64, TimelineMark)>>,
    pairs: Vec<Pair>,
    /// Pairs that have begun, whether ended or not.
    pending: usize,
    events: u64,
    missed: Vec<(NotTimed, u64)>,
    over_limit: u64,
    cut_by_pause: u64,
}

/// The default of [`EventTimers::most`].
const MOST: usize = 1 << 17;
/// The most causes that are counted separately.
const CAUSES: usize = 8;

layouts! {
    /// The layout of rows measured by events.
    TimerLayout
    BY_EVENTS = ByEvents: 1, "timers.events";
}

impl RecordLayout for TimerLayout {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("device", ArgValue::I64(record.device_id.into()));
        each("stream", ArgValue::I64(record.stream.into()));
        each("timing_source", ArgValue::Str("events"));
        each("start_source", ArgValue::Str("earliest_possible"));
    }
}

impl<T: DeviceTimer> EventTimers<T> {
    /// Makes a collector that uses that timer. Calls nothing yet.
    pub fn new(timer: T) -> EventTimers<T> {
        EventTimers { timer: Arc::new(timer), most: MOST, is_in_use: Arc::default() }
    }

    /// Limits the pairs of events in a recording; further spans are only counted. Default: 131,072.
    #[must_use]
    pub fn most(mut self, pairs: usize) -> EventTimers<T> {
        self.most = pairs;
        self
    }
}

impl<T: DeviceTimer> TimerRecording<T> {
    /// Records an event; counts a failure. The lock is not held meanwhile, since the timer may be slow.
    fn record_event(&self) -> Option<(Token, u64)> {
        let host = realtime_now();
        self.timer.record().map(|token| (token, host)).map_err(|cause| self.records.lock().count_missed(cause)).ok()
    }

    fn release_event(&self, mark: TimelineMark) {
        self.timer.release(mark.token);
    }

    /// Waits for the device to reach the end of each pair; returns how many it reached.
    fn wait_for_pairs(&self, pairs: &mut [Pair], deadline: Instant) -> usize {
        sort_in_place_by_key(pairs, |pair| pair.last.nth);
        let passed = |pair: &Pair| loop {
            if self.timer.has_passed(pair.last.token) {
                return true;
            }
            let left = deadline.saturating_duration_since(steady());
            if left.is_zero() {
                return false;
            }
            sleep(left.min(Duration::from_micros(200)));
        };
        // Events of other streams may have passed although one stream missed the deadline.
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
    /// Reserves a pair, unless the limit is reached.
    fn reserve_pair(&mut self, most: usize) -> bool {
        let is_full = self.pending >= most;
        self.over_limit += u64::from(is_full);
        self.pending += usize::from(!is_full);
        !is_full
    }

    fn add_mark(&mut self, (token, host): (Token, u64)) -> TimelineMark {
        self.events += 1;
        TimelineMark { token, nth: self.events, host }
    }

    fn count_missed(&mut self, cause: NotTimed) {
        self.pending = self.pending.saturating_sub(1);
        let known = self.missed.iter().position(|(known, _)| *known == cause);
        if known.is_none() && self.missed.len() < CAUSES {
            return self.missed.push((cause, 1));
        }
        // Further causes are counted with the last.
        if let Some((_, count)) = self.missed.get_mut(known.unwrap_or(CAUSES - 1)) {
            *count += 1;
        }
    }

    /// Notes the spans that were not timed; `untimed` pairs could not be measured, `late` pairs had not ended.
    fn note_losses(&self, sink: &RecordSink, untimed: usize, late: usize) {
        let open = self.open.values().map(Vec::len).sum::<usize>() as u64;
        let note = |count: u64, why: &dyn fmt::Display| {
            if count > 0 {
                sink.note(format!("{} not timed: {why}", count_with_noun(count, "span")));
            }
        };
        self.missed.iter().for_each(|(cause, count)| note(*count, cause));
        note(self.over_limit, &"limit of event pairs reached");
        note(self.cut_by_pause, &"the recording paused inside them");
        note(open, &"they were open when the recording ended");
        note(late as u64, &"the device had not reached their end by the deadline of the stop");
        note(untimed as u64, &"the time between their events is not available");
    }
}

impl<T: DeviceTimer + 'static> Collector for EventTimers<T> {
    fn name(&self) -> &'static str {
        self.timer.name()
    }

    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::GpuUserAnnotation)
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.timer.probe().map(|can| Capabilities { types: self.types(), ..can })
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        if !selection.types.contains(ActivityType::ExternalCorrelation) {
            let message = "spans are timed only if external_correlation is selected";
            return Err(Unavailable::new(Why::Disabled, message, "add it to the activity types"));
        }
        let can = self.probe()?;
        if std::mem::replace(&mut *self.is_in_use.lock(), true) {
            return Err(Unavailable::new(
                Why::Busy,
                "these timers are in use by another recording",
                "stop that recording first",
            ));
        }
        let (timer, most, is_in_use) = (self.timer.clone(), self.most, self.is_in_use.clone());
        Ok((can, Box::new(TimerRecording { timer, most, sink, records: fork::Own::default(), is_in_use })))
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.timer.devices()
    }
}

impl<T: DeviceTimer> Recording for TimerRecording<T> {
    fn push(&self, id: CorrelationId) -> bool {
        if !self.records.lock().reserve_pair(self.most) {
            return false;
        }
        let Some(recorded) = self.record_event() else { return false };
        let mut records = self.records.lock();
        if records.is_over {
            drop(records);
            self.timer.release(recorded.0);
            return false;
        }
        let mark = records.add_mark(recorded);
        records.open.entry(std::thread::current().id()).or_default().push((id.0, mark));
        true
    }

    fn pop(&self) {
        let thread = std::thread::current().id();
        // There is no mark if the recording ended or paused meanwhile.
        let Some((slice, first)) = self.records.lock().open.get_mut(&thread).and_then(Vec::pop) else { return };
        let Some(recorded) = self.record_event() else { return self.release_event(first) };
        let mut records = self.records.lock();
        let last = records.add_mark(recorded);
        if !records.is_over {
            return records.pairs.push(Pair { slice, first, last });
        }
        drop(records);
        [first, last].into_iter().for_each(|mark| self.release_event(mark));
    }

    fn pause(&self) {
        let open = {
            let mut records = self.records.lock();
            let open = std::mem::take(&mut records.open);
            let cut = open.values().map(Vec::len).sum::<usize>();
            records.cut_by_pause += cut as u64;
            records.pending = records.pending.saturating_sub(cut);
            open
        };
        open.into_values().flatten().for_each(|(_, mark)| self.release_event(mark));
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        let over = TimerRecords { is_over: true, ..TimerRecords::default() };
        let mut records = std::mem::replace(&mut *self.records.lock(), over);
        let came = self.wait_for_pairs(&mut records.pairs, deadline);
        let (done, late) = records.pairs.split_at(came);
        let timed = timeline::measure_spans(done, |from, to| self.timer.elapsed(from, to));
        self.sink.record(|batch| {
            let name = batch.name("");
            for TimedSpan { slice, device, stream, start, end } in timed.iter().copied() {
                let (kind, shape, words) = (ActivityType::GpuUserAnnotation, &BY_EVENTS, &[]);
                let work = DeviceWork { kind, name, device, stream, start, end, correlation: 0, shape, words };
                batch.work_of(CorrelationId(slice), &work);
            }
        });
        records.note_losses(&self.sink, done.len() - timed.len(), late.len());
        let open = records.open.values().flatten().map(|(_, mark)| *mark);
        let ended = records.pairs.iter().flat_map(|pair| [pair.first, pair.last]);
        open.chain(ended).for_each(|mark| self.release_event(mark));
        *self.is_in_use.lock() = false;
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.timer.devices()
    }
}
