//! Counts and losses of a trace.

use super::InvariantViolation;
use crate::buffer::Loss;
use crate::observer::ObserverReport;
use crate::recorder::CounterReport;
use crate::text::count_with_noun;
use crate::time::Timestamp;
use kineto_devices::{CollectorReport, Why};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Counts of a trace.
///
/// Its `Display` is one line of counts, followed by one line for each cause of loss.
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

impl RecordedTime {
    /// Returns the total recorded time.
    pub fn total(&self) -> Duration {
        let lengths = self.stretches.iter().map(|(start, end)| end.since(*start));
        Duration::from_nanos(lengths.fold(0, u64::saturating_add))
    }

    /// Returns the header's entry: the first stretches, in nanoseconds since `start`.
    pub(super) fn to_json(&self, start: Timestamp) -> Value {
        const SHOWN: usize = 1000;
        let stretch = |(from, to): &(Timestamp, Timestamp)| json!([from.since(start), to.since(start)]);
        let shown: Vec<_> = self.stretches.iter().take(SHOWN).map(stretch).collect();
        let nanos = u64::try_from(self.total().as_nanos()).unwrap_or(u64::MAX);
        json!({ "stretches": self.stretches.len(), "total_ns": nanos, "ns": shown })
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

    /// Returns the number of slices over the buffer limit.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "used for requests"))]
    pub(crate) fn lost_slices(&self) -> u64 {
        self.lost(Loss::SlicesOverLimit)
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
