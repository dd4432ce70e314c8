//! Counts and losses of a trace.

use super::recorded::Stretch;
use super::{InvariantViolation, Trace, TraceContents};
use crate::buffer::Loss;
use crate::observer::ObserverReport;
use crate::recorder::CounterReport;
use crate::text::count_with_noun;
use crate::time::Timestamp;
use kineto_devices::{CollectorReport, Why};
use kineto_model::write::json_object;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The numbers of records of devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceCounts {
    /// Kernels, copies and fills.
    pub(super) work: u64,
    /// Of these, those from before the window.
    pub(super) before_window: u64,
    /// Allocations and frees.
    pub(super) memory: u64,
    /// Whether slices of a stream may overlap; only a walk can decide that.
    pub(super) may_overlap: bool,
}

/// Counts of a trace.
///
/// Its `Display` is one line of counts, followed by one line for each cause of loss.
///
/// ```
/// use tracing::info_span;
/// use tracing_kineto::Trace;
///
/// # fn main() -> Result<(), tracing_kineto::Error> {
/// let trace = Trace::of(|| info_span!("work").in_scope(|| ()))?;
/// let stats = trace.stats();
/// assert_eq!(stats.slices, 1);
/// for (loss, count) in &stats.losses {
///     println!("{}: {count}", loss.as_str());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceStats {
    /// Slices recorded: enters of spans.
    pub slices: u64,
    /// Enters recorded that are not slices: a future's drop enters its span once more, which is not drawn when it lasts for
    /// less than a microsecond and contains nothing. The header lists them by name, in `omitted_enters`.
    pub omitted_enters: u64,
    /// Events recorded: instants and counters.
    pub events: u64,
    /// Slices, events and device activities from before the trace's [window](crate::Trace::window): newer ones have replaced
    /// them ([`Overflow::KeepNewest`](crate::Overflow::KeepNewest)), or the trace was cut to requested times.
    pub before_window: u64,
    /// Allocations and frees recorded.
    pub memory_events: u64,
    /// Kernels, copies and fills of devices.
    pub device_activities: u64,
    /// Threads with records.
    pub threads: usize,
    /// Bytes of the records in memory.
    pub bytes: u64,
    /// From the start of the recording to its end.
    pub duration: Duration,
    /// The largest error of times relative to CLOCK_REALTIME, in nanoseconds.
    pub clock_error_ns: u64,
    /// Missing or incomplete records, by cause; causes that did not occur are omitted.
    pub losses: Vec<(Loss, u64)>,
    /// A report for each selected collector.
    pub collectors: Vec<CollectorReport>,
    /// A report for each observer.
    pub observers: Vec<ObserverReport>,
    /// A report for each of the `performance_events`.
    pub counters: Vec<CounterReport>,
    /// When the host and each collector that ran were recorded; empty if nothing was ever paused.
    pub recorded: Vec<RecordedTime>,
    /// Assertions that did not hold.
    pub violations: Vec<InvariantViolation>,
}

/// When the host or a collector recorded, in a recording with pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedTime {
    /// The collector's name, or "host".
    pub name: Cow<'static, str>,
    /// Starts and ends, in order.
    pub stretches: Vec<(Timestamp, Timestamp)>,
}

impl Trace {
    /// Returns the counts of the trace and of its losses, by cause.
    ///
    /// The first call reads all records once; so does the first call of most other methods.
    pub fn stats(&self) -> TraceStats {
        let index = self.index();
        let mut losses = self.inner.info.losses;
        let mut set = |loss: Loss, count: u64| {
            if let Some(slot) = losses.get_mut(loss as usize) {
                *slot = slot.saturating_add(count);
            }
        };
        set(Loss::Late, self.inner.recorded.committed_late());
        let evicted = &self.inner.recorded.evicted;
        // Where the oldest records were replaced, they are not missing.
        set(Loss::Clipped, index.clipped + if evicted.horizon.is_none() { index.cut_slices } else { 0 });
        set(Loss::FieldsOverLimit, evicted.needed);
        set(Loss::NotSpilled, evicted.unsaved);
        set(Loss::Unfinished, index.unfinished.len() as u64);
        set(Loss::FollowsUnlinked, index.unlinked);
        set(Loss::CountsScaled, index.scaled);
        set(Loss::CounterValues, index.counter_values);
        let (devices, replaced) = (self.devices(), self.memory_replaced());
        let device_counts = devices.counts();
        set(Loss::MemoryReplaced, replaced);
        set(Loss::Overlapping, self.walk_counts().overlapping);
        set(Loss::OverlappingWork, self.walk_counts().overlapping_work);
        self.inner.devices.losses().for_each(|(loss, count)| set(loss, count));
        devices.report_losses(|loss, count| match loss {
            // Without slices, launches have nothing to belong to.
            Loss::LaunchesUnlinked if index.slices == 0 => {}
            loss => set(loss, count),
        });
        let omitted = self.omitted().count();
        let (mut slices, mut events, mut own_bytes) = (index.slices - omitted, index.events, 0);
        for own in &self.inner.own {
            let counts = own.count_records(self.inner.info.config.activities);
            set(Loss::Unfinished, counts.unfinished);
            set(Loss::SlicesOverLimit, own.refused);
            (slices, events) = (slices + counts.slices, events + counts.events);
            own_bytes += own.record_bytes();
        }
        let (start, end) = self.inner.recorded.whole;
        let (start, end) = self.inner.converter.slice_times(start, end);
        let mut counted = Vec::new();
        for (loss, count) in Loss::ALL.iter().zip(losses) {
            if count > 0 {
                counted.push((*loss, count));
            }
        }
        TraceStats {
            slices,
            omitted_enters: omitted,
            events,
            before_window: evicted.records + index.before_window + device_counts.before_window,
            memory_events: index.memory - replaced + device_counts.memory,
            threads: self.inner.recorded.count_threads(),
            bytes: self.inner.recorded.record_bytes() + own_bytes + self.inner.devices.record_bytes(),
            device_activities: device_counts.work,
            duration: Duration::from_nanos(end.since(start)),
            clock_error_ns: self.inner.converter.error_ns(),
            collectors: devices.reports(),
            observers: self.inner.info.observers.clone(),
            counters: self.inner.info.counters.clone(),
            losses: counted,
            recorded: self.recorded_times(),
            violations: self.violations().to_vec(),
        }
    }

    /// Returns when the host and the collectors recorded, if any of them paused.
    fn recorded_times(&self) -> Vec<RecordedTime> {
        let TraceContents { recorded, devices, converter, .. } = &*self.inner;
        let (mut all, mut has_pauses) = (Vec::new(), false);
        let mut add = |name: Cow<'static, str>, stretches: Vec<Stretch>| {
            has_pauses |= *stretches != [recorded.whole];
            let mut times = Vec::with_capacity(stretches.len());
            for (start, end) in stretches {
                times.push(converter.slice_times(start, end));
            }
            all.push(RecordedTime { name, stretches: times });
        };
        add("host".into(), recorded.host_stretches());
        for (name, stretches) in devices.stretches() {
            add(name, stretches);
        }
        if has_pauses { all } else { Vec::new() }
    }
}

impl RecordedTime {
    /// Returns the total recorded time.
    pub fn total(&self) -> Duration {
        let lengths = self.stretches.iter().map(|(start, end)| end.since(*start));
        Duration::from_nanos(lengths.fold(0, u64::saturating_add))
    }

    /// Returns the header's entry: the first stretches, in nanoseconds since `start`.
    pub(super) fn to_json(&self, start: Timestamp) -> Value {
        const SHOWN: usize = 1000;
        let mut shown = Vec::new();
        for (from, to) in self.stretches.iter().take(SHOWN) {
            shown.push(Value::Array(vec![from.since(start).into(), to.since(start).into()]));
        }
        let nanos = u64::try_from(self.total().as_nanos()).unwrap_or(u64::MAX);
        json_object(vec![
            ("stretches", self.stretches.len().into()),
            ("total_ns", nanos.into()),
            ("ns", Value::Array(shown)),
        ])
    }
}

impl fmt::Display for RecordedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: recorded for {:.3?}, in {} stretches", self.name, self.total(), self.stretches.len())
    }
}

impl TraceStats {
    /// Returns the count of one cause.
    pub fn lost(&self, loss: Loss) -> u64 {
        self.losses.iter().find(|(cause, _)| *cause == loss).map_or(0, |(_, count)| *count)
    }

    /// Removes the reports of collectors that are disabled or have no device.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "used for requests"))]
    pub(crate) fn without_absent(mut self) -> TraceStats {
        let is_absent = |why| matches!(why, Why::NoDevice | Why::Disabled);
        self.collectors.retain(|report| !report.state.as_ref().is_err_and(|reason| is_absent(reason.why())));
        self
    }
}

impl fmt::Display for TraceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slices, events) = (count_with_noun(self.slices, "slice"), count_with_noun(self.events, "event"));
        let (threads, kib) = (count_with_noun(self.threads as u64, "thread"), self.bytes / 1024);
        write!(f, "{slices} and {events} of {threads} in {:.3?}, {kib} KiB", self.duration)?;
        if self.before_window > 0 {
            write!(f, "\n  not shown: {} before the window", count_with_noun(self.before_window, "row"))?;
        }
        if self.memory_events > 0 {
            write!(f, "\n  {} of memory", count_with_noun(self.memory_events, "event"))?;
        }
        self.collectors.iter().try_for_each(|report| write!(f, "\n  {report}"))?;
        self.observers.iter().try_for_each(|report| write!(f, "\n  {report}"))?;
        self.counters.iter().try_for_each(|report| write!(f, "\n  {report}"))?;
        self.recorded.iter().try_for_each(|recorded| write!(f, "\n  {recorded}"))?;
        self.violations.iter().try_for_each(|violation| write!(f, "\n  {violation}"))?;
        self.losses.iter().try_for_each(|(loss, count)| write!(f, "\n  {}: {count}", loss.as_str()))
    }
}
