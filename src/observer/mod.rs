//! Observers that receive spans as they happen: NVTX, ITT and the program's own.

#[cfg(feature = "itt")]
pub mod itt;
pub(crate) mod nvtx;
mod span;
mod stack;

pub use span::ObservedSpan;

use crate::diag::diag;
use crate::encoding::encoded;
use kineto_devices::{Unavailable, Why, catch_panic};
use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Receives each span that a thread enters and leaves during a recording, when it happens.
///
/// This is what torch's profiler states NVTX, ITT and PRIVATEUSE1 do: their observers push and pop ranges and store nothing.
/// Passed to [`KinetoLayerBuilder::observer`](crate::KinetoLayerBuilder::observer), it receives spans in addition to the
/// recording; in a [`Mode`](crate::Mode) without Kineto, instead of it. It receives the spans that pass the layer's filter
/// and activity types.
///
/// Methods are called on the thread where the span is entered or left, outside all locks and borrows of this crate. Spans
/// that an observer opens itself are not reported to observers. [`start`](SpanObserver::start) and
/// [`stop`](SpanObserver::stop) must not call the [`Profiler`](crate::Profiler), which waits for them. An observer that
/// panics is disabled.
///
/// ```
/// use tracing_kineto::{KinetoLayer, ObservedSpan, SpanObserver};
///
/// /// Prints what runs.
/// #[derive(Debug)]
/// struct Printer;
///
/// impl SpanObserver for Printer {
///     fn name(&self) -> &'static str {
///         "printer"
///     }
///     fn enter(&self, span: &ObservedSpan) {
///         println!("{} begins", span.name());
///     }
///     fn exit(&self, span: &ObservedSpan) {
///         println!("{} ends", span.name());
///     }
/// }
///
/// let builder = KinetoLayer::builder().observer(Printer);
/// ```
pub trait SpanObserver: fmt::Debug + Send + Sync {
    /// Returns its name, one word in lower case, such as "nvtx".
    fn name(&self) -> &'static str;

    /// Called when a recording begins.
    ///
    /// # Errors
    /// If the observer cannot receive spans, with the reason.
    fn start(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Called when the recording has ended. A span that a thread is still inside then, or at a pause, is left when that
    /// thread enters the next reported span.
    fn stop(&self) {}

    /// Called when the calling thread enters a span.
    fn enter(&self, span: &ObservedSpan);

    /// Called when the calling thread leaves the span that it entered last. If a span is left out of order, the spans inside
    /// it are reported as left before it and entered again.
    fn exit(&self, span: &ObservedSpan);

    /// Called for an event on the calling thread, if events are recorded.
    fn event(&self, _event: &ObservedSpan) {}
}

/// An observer's state in a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObserverReport {
    /// Its name.
    pub name: Cow<'static, str>,
    /// `Ok` if it received spans, else the reason.
    pub state: Result<(), Unavailable>,
}

encoded! {
    ObserverReport { name, state }
}

impl fmt::Display for ObserverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            Ok(()) => write!(f, "{}: received spans", self.name),
            Err(reason) => write!(f, "{}: {reason}", self.name),
        }
    }
}

/// All observers of a layer, and which of them receive spans.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    all: Vec<Arc<dyn SpanObserver>>,
    /// The observers that receive spans, a bit each.
    running: AtomicU64,
    /// The observers that have panicked, a bit each.
    broken: AtomicU64,
    /// Bumped at each start and resume.
    generation: AtomicU64,
    reports: Mutex<Vec<ObserverReport>>,
}

impl Observers {
    /// Further observers receive nothing.
    pub(crate) const MAX: usize = 64;

    pub(crate) fn new(all: Vec<Arc<dyn SpanObserver>>) -> Observers {
        Observers { all, ..Observers::default() }
    }

    /// Returns whether any observer receives spans.
    #[inline]
    pub(crate) fn are_active(&self) -> bool {
        // Relaxed: the epoch publishes what a new recording needs.
        self.running.load(Ordering::Relaxed) != 0
    }

    /// Starts the observers for a recording.
    pub(crate) fn start(&self) {
        let (mut running, mut reports) = (0, Vec::new());
        for (at, observer) in self.all.iter().enumerate().take(Observers::MAX) {
            let state = match self.broken.load(Ordering::Relaxed) >> at & 1 {
                0 => self.call_contained(at, "start", || observer.start()).and_then(|started| started),
                _ => Err(Unavailable::new(Why::Failed, "it panicked before", "fix its code")),
            };
            running |= u64::from(state.is_ok()) << at;
            reports.push(ObserverReport { name: name_of(&**observer).into(), state });
        }
        *self.reports.lock().unwrap_or_else(PoisonError::into_inner) = reports;
        self.running.store(running, Ordering::Relaxed);
    }

    /// Resumes reporting, perhaps after a pause: exits of the spans that threads were inside before were not seen.
    pub(crate) fn resume(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops the observers at a recording's end.
    pub(crate) fn stop(&self) {
        let running = self.running.swap(0, Ordering::Relaxed);
        self.notify(running, &|observer| observer.stop());
    }

    /// Returns each observer's state in the latest recording.
    pub(crate) fn reports(&self) -> Vec<ObserverReport> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notifies the observers in `mask`; disables those that panic.
    fn notify(&self, mask: u64, notify: &dyn Fn(&dyn SpanObserver)) {
        let mask = mask & !self.broken.load(Ordering::Relaxed);
        let all = self.all.iter().enumerate().take(Observers::MAX);
        for (at, observer) in all.filter(|(at, _)| mask >> at & 1 != 0) {
            let observer = &**observer;
            let Err(why) = self.call_contained(at, "a hook", || notify(observer)) else { continue };
            let name = name_of(observer);
            diag!(Error, "observer", "the observer {name}: {}; it is disabled now; fix its code", why.message());
            if let Some(report) = self.reports.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
                report.state = Err(why);
            }
        }
    }

    /// Runs a call that may panic, and disables the observer if it does.
    fn call_contained<R>(&self, at: usize, what: &str, call: impl FnOnce() -> R) -> Result<R, Unavailable> {
        catch_panic(what, call).inspect_err(|_| {
            self.broken.fetch_or(1 << at, Ordering::Relaxed);
            self.running.fetch_and(!(1 << at), Ordering::Relaxed);
        })
    }

    /// Reports an event on the calling thread.
    pub(crate) fn report_event(&self, event: &ObservedSpan) {
        self.notify(self.running.load(Ordering::Relaxed), &|observer| observer.event(event));
    }
}

fn name_of(observer: &dyn SpanObserver) -> &'static str {
    catch_panic("name", || observer.name()).unwrap_or("unnamed")
}
