//! How much a trace holds and what it lacks.

use crate::buffer::Loss;
use crate::collector::CollectorReport;
use crate::observer::ObserverReport;
use std::fmt;
use std::time::Duration;

/// Counts of a trace.
///
/// Its `Display` is one line of what is there and, below, one for each kind of loss.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceStats {
    /// Slices recorded: enters of spans.
    pub slices: u64,
    /// Events recorded: instants and counters.
    pub events: u64,
    /// Kernels, copies and fills of devices.
    pub device_activities: u64,
    /// Threads that were seen.
    pub threads: usize,
    /// Bytes that the records take in memory.
    pub bytes: u64,
    /// From the start of the recording to its end.
    pub duration: Duration,
    /// How far times may be from CLOCK_REALTIME, in nanoseconds.
    pub clock_error_ns: u64,
    /// What is not there, or not whole, by cause; causes that did not occur are left out.
    pub losses: Vec<(Loss, u64)>,
    /// How each collector fared of which something was asked.
    pub collectors: Vec<CollectorReport>,
    /// How each observer fared.
    pub observers: Vec<ObserverReport>,
}

impl TraceStats {
    /// Returns the count of one cause.
    pub fn lost(&self, loss: Loss) -> u64 {
        self.losses.iter().find(|(cause, _)| *cause == loss).map_or(0, |(_, count)| *count)
    }
}

impl fmt::Display for TraceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceStats { slices, events, threads, bytes, duration, .. } = self;
        let kib = bytes / 1024;
        write!(f, "{slices} slices and {events} events of {threads} threads in {duration:.3?}, {kib} KiB")?;
        self.collectors.iter().try_for_each(|report| write!(f, "\n  {report}"))?;
        self.observers.iter().try_for_each(|report| write!(f, "\n  {report}"))?;
        self.losses.iter().try_for_each(|(loss, count)| write!(f, "\n  {}: {count}", loss.as_str()))
    }
}
