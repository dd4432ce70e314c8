//! Observers that receive spans as they happen: NVTX, ITT and the program's own.

#[cfg(feature = "itt")]
pub mod itt;
pub(crate) mod nvtx;
mod span;
mod stack;

pub use span::ObservedSpan;

use crate::collector::{Unavailable, Why, attempt};
use crate::diag::diag;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Receives each span that a thread enters and leaves during a recording, when it happens.
///
/// What torch's profiler states NVTX, ITT and PRIVATEUSE1 do, whose observers push and pop ranges and keep nothing. Given
/// to [`KinetoLayerBuilder::observer`](crate::KinetoLayerBuilder::observer), it receives spans in addition to the recording; in a
/// [`Mode`](crate::Mode) without Kineto, instead of it. It receives what the layer's filter and activity types let
/// through.
///
/// Of what happens to spans it is told on the thread where it happens, outside all locks and borrows of this crate. What
/// spans it opens itself is not told to observers. [`start`](SpanObserver::start) and [`stop`](SpanObserver::stop) may not
/// call the [`Profiler`](crate::Profiler), which waits for them. One that panics is not called again.
pub trait SpanObserver: fmt::Debug + Send + Sync {
    /// Returns its name, one word in lower case, such as "nvtx".
    fn name(&self) -> &'static str;

    /// A recording begins.
    ///
    /// # Errors
    /// If the observer cannot receive spans, with the reason.
    fn start(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// The recording has ended. Spans that threads are inside then, or when it pauses, are left when the thread enters the
    /// next one that is told.
    fn stop(&self) {}

    /// The calling thread enters a span.
    fn enter(&self, span: &ObservedSpan);

    /// The calling thread leaves the span that it entered last. A span that it leaves in another order is told as if
    /// those inside had been left before it and entered again.
    fn exit(&self, span: &ObservedSpan);

    /// An event happens on the calling thread, if events are recorded.
    fn event(&self, _event: &ObservedSpan) {}
}

/// How an observer fared in a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObserverReport {
    /// Its name.
    pub name: &'static str,
    /// `Ok` if it received spans, else the reason.
    pub state: Result<(), Unavailable>,
}

impl fmt::Display for ObserverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            Ok(()) => write!(f, "{}: told of spans", self.name),
            Err(reason) => write!(f, "{}: {reason}", self.name),
        }
    }
}

/// All observers of a layer, and which of them are told.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    all: Vec<Arc<dyn SpanObserver>>,
    /// Those that are told, a bit each.
    running: AtomicU64,
    /// Those that have panicked, a bit each.
    broken: AtomicU64,
    /// Which stretch between pauses it is.
    generation: AtomicU64,
    reports: Mutex<Vec<ObserverReport>>,
}

impl Observers {
    /// More than that are not told.
    pub(crate) const MAX: usize = 64;

    pub(crate) fn new(all: Vec<Arc<dyn SpanObserver>>) -> Observers {
        Observers { all, ..Observers::default() }
    }

    /// Returns whether anybody is told.
    #[inline]
    pub(crate) fn are_told(&self) -> bool {
        // Relaxed: what a new recording needs is published by the epoch.
        self.running.load(Ordering::Relaxed) != 0
    }

    /// A recording begins.
    pub(crate) fn start(&self) {
        let (mut running, mut reports) = (0, Vec::new());
        for (at, observer) in self.all.iter().enumerate().take(Observers::MAX) {
            let state = match self.broken.load(Ordering::Relaxed) >> at & 1 {
                0 => self.contain(at, "start", || observer.start()).and_then(|started| started),
                _ => Err(Unavailable::new(Why::Failed, "it panicked before", "fix its code")),
            };
            running |= u64::from(state.is_ok()) << at;
            reports.push(ObserverReport { name: name_of(&**observer), state });
        }
        *self.reports.lock().unwrap_or_else(PoisonError::into_inner) = reports;
        self.running.store(running, Ordering::Relaxed);
    }

    /// Spans are told from now on, after a pause perhaps: what threads were inside before, they have not been seen to leave.
    pub(crate) fn resume(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The recording has ended.
    pub(crate) fn stop(&self) {
        let running = self.running.swap(0, Ordering::Relaxed);
        self.tell(running, |observer| observer.stop());
    }

    /// Returns how each fared in the last recording that has begun.
    pub(crate) fn reports(&self) -> Vec<ObserverReport> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of(&self, told: u64) -> impl Iterator<Item = (usize, &dyn SpanObserver)> {
        let all = self.all.iter().enumerate().take(Observers::MAX);
        all.filter(move |(at, _)| told >> at & 1 != 0).map(|(at, observer)| (at, &**observer))
    }

    /// Tells those of `told`; who panics is told no more.
    fn tell(&self, told: u64, tell: impl Fn(&dyn SpanObserver)) {
        for (at, observer) in self.of(told & !self.broken.load(Ordering::Relaxed)) {
            let Err(why) = self.contain(at, "a hook", || tell(observer)) else { continue };
            let name = name_of(observer);
            diag!(Error, "observer", "the observer {name}: {}; it is told of nothing more", why.message());
            if let Some(report) = self.reports.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
                report.state = Err(why);
            }
        }
    }

    /// Calls what may panic, and if it does, notes that.
    fn contain<R>(&self, at: usize, what: &str, call: impl FnOnce() -> R) -> Result<R, Unavailable> {
        attempt(what, call).inspect_err(|_| {
            self.broken.fetch_or(1 << at, Ordering::Relaxed);
            self.running.fetch_and(!(1 << at), Ordering::Relaxed);
        })
    }

    /// An event happens on the calling thread.
    pub(crate) fn event(&self, event: &ObservedSpan) {
        self.tell(self.running.load(Ordering::Relaxed), |observer| observer.event(event));
    }
}

fn name_of(observer: &dyn SpanObserver) -> &'static str {
    attempt("name", || observer.name()).unwrap_or("unnamed")
}
