//! Triggers of dumps: hooks post them without a lock, and the session takes them.

use crate::callsite::Site;
use crate::wait::{since, steady, wall};
use crossbeam_queue::ArrayQueue;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tracing_core::Metadata;

/// A cause of a dump, and when it occurred.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TriggerEvent {
    pub(crate) cause: TriggerCause,
    pub(crate) at: SystemTime,
}

/// The cause of a dump.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TriggerCause {
    SlowSpan { name: &'static str, took: Duration, longer_than: Duration },
    SlowStep { step: u64, took: Duration, median: Duration },
    Event(&'static Metadata<'static>),
    Panic,
    Signal,
}

impl TriggerCause {
    /// Returns the cause in a few words, for a file name.
    pub(crate) fn label(&self) -> String {
        match self {
            TriggerCause::SlowSpan { name, .. } => format!("slow span {name}"),
            TriggerCause::SlowStep { .. } => "slow step".to_owned(),
            TriggerCause::Event(metadata) => format!("{} event", metadata.level()),
            TriggerCause::Panic => "panic".to_owned(),
            TriggerCause::Signal => "signal".to_owned(),
        }
    }
}

/// Formats the whole cause.
impl fmt::Display for TriggerCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TriggerCause::SlowSpan { name, took, longer_than } => {
                write!(f, "span {name} took {took:.1?}, longer than {longer_than:?}")
            }
            TriggerCause::SlowStep { step, took, median } => {
                write!(f, "step {step} took {took:.1?}, the median of the steps before it {median:.1?}")
            }
            TriggerCause::Event(metadata) => {
                let place = metadata.file().unwrap_or_default();
                write!(f, "{} event at {place}:{}", metadata.level(), metadata.line().unwrap_or_default())
            }
            TriggerCause::Panic => f.write_str("a thread panicked"),
            TriggerCause::Signal => f.write_str("the process received SIGUSR2"),
        }
    }
}

/// A span that triggers a dump if it was slow when it closes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedSpan {
    site: &'static Site,
    created: Instant,
}

impl WatchedSpan {
    pub(crate) fn begin(site: &'static Site) -> WatchedSpan {
        WatchedSpan { site, created: steady() }
    }

    /// Returns the cause of a dump if the span, which closes now, was slow.
    pub(crate) fn cause_at_close(&self) -> Option<TriggerCause> {
        let (took, longer_than) = (since(self.created), self.site.slow_after?);
        let name = self.site.metadata.name();
        (took > longer_than).then_some(TriggerCause::SlowSpan { name, took, longer_than })
    }
}

/// The triggers that the session has not taken yet.
#[derive(Debug)]
pub(crate) struct TriggerQueue {
    events: ArrayQueue<TriggerEvent>,
    /// How many there were while the queue was full.
    overflowed: AtomicU64,
}

impl TriggerQueue {
    pub(super) fn new() -> TriggerQueue {
        const CAPACITY: usize = 64;
        TriggerQueue { events: ArrayQueue::new(CAPACITY), overflowed: AtomicU64::new(0) }
    }

    pub(super) fn post(&self, cause: TriggerCause) {
        if self.events.push(TriggerEvent { cause, at: wall() }).is_err() {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the oldest trigger.
    pub(crate) fn take(&self) -> Option<TriggerEvent> {
        self.events.pop()
    }

    /// Takes the number of triggers that did not fit.
    pub(crate) fn take_overflowed(&self) -> u64 {
        self.overflowed.swap(0, Ordering::Relaxed)
    }
}
