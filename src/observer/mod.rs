//! Who is told of spans as they happen, beside what is recorded: whoever listens to NVTX, and the program's own.

#[cfg(feature = "itt")]
pub mod itt;
pub(crate) mod nvtx;
mod span;
mod stack;

pub use span::ObservedSpan;

use crate::collector::Unavailable;
use crate::diag::diag;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Is told of each span that a thread enters and leaves while a recording goes on, when it does.
///
/// What torch's profiler states NVTX, ITT and PRIVATEUSE1 do, whose observers push and pop ranges and keep nothing. Given
/// to [`KinetoLayerBuilder::observer`](crate::KinetoLayerBuilder::observer), it is told beside the recording; in a
/// [`Mode`](crate::Mode) without Kineto, instead of it. It is told of what the layer's filter and activity types let
/// through.
///
/// Methods are called on the thread where it happens, outside all locks and borrows of this crate. What spans they open
/// themselves is not told to observers. One that panics is not called again.
pub trait SpanObserver: fmt::Debug + Send + Sync {
    /// Returns its name, one word in lower case, such as "nvtx".
    fn name(&self) -> &'static str;

    /// A recording begins.
    ///
    /// # Errors
    /// Why it need not be told of anything.
    fn start(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// The recording has ended. Spans that threads are inside then are left at their next hook of another recording.
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
    /// Nothing, or why it was told of nothing.
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
    /// Which recording it is.
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
            let state = observer.start();
            running |= u64::from(state.is_ok()) << at;
            reports.push(ObserverReport { name: observer.name(), state });
        }
        *self.reports.lock().unwrap_or_else(PoisonError::into_inner) = reports;
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.running.store(running, Ordering::Relaxed);
    }

    /// The recording has ended.
    pub(crate) fn stop(&self) {
        let running = self.running.swap(0, Ordering::Relaxed);
        self.of(running).for_each(|(_, observer)| observer.stop());
    }

    /// Returns how each fared in the last recording that has begun.
    pub(crate) fn reports(&self) -> Vec<ObserverReport> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of(&self, told: u64) -> impl Iterator<Item = (usize, &dyn SpanObserver)> {
        let all = self.all.iter().enumerate().take(Observers::MAX);
        all.filter(move |(at, _)| told >> at & 1 != 0).map(|(at, observer)| (at, &**observer))
    }

    /// Tells those of `told` that still are to be told; who panics is told no more.
    fn tell(&self, told: u64, tell: impl Fn(&dyn SpanObserver)) {
        for (at, observer) in self.of(told & self.running.load(Ordering::Relaxed)) {
            if catch_unwind(AssertUnwindSafe(|| tell(observer))).is_err() {
                self.running.fetch_and(!(1 << at), Ordering::Relaxed);
                let name = observer.name();
                diag!(Error, "observer", "the observer {name} panicked, and is told of nothing more");
            }
        }
    }

    /// An event happens on the calling thread.
    pub(crate) fn event(&self, event: &ObservedSpan) {
        self.tell(u64::MAX, |observer| observer.event(event));
    }
}
