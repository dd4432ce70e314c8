//! A collector of the program's own, whose panics go no further.

use super::{Attempt, Capabilities, Collector, DeviceDescription, RecordSink, Selection, Unavailable, Why};
use crate::os::fork;
use crate::time::Timestamp;
use kineto_trace::activity::{ActivityTypes, CorrelationId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A collector that may panic.
///
/// One that panics when it is to start leaves that for a reason. One that panics later is asked for nothing more but its
/// stop, and leaves a note.
#[derive(Debug)]
pub(crate) struct Contained {
    collector: Arc<dyn Collector>,
    name: &'static str,
    types: Result<ActivityTypes, Unavailable>,
    /// It has panicked in the recording that goes on.
    is_broken: AtomicBool,
    /// That of the recording that goes on, or of the last one.
    sink: fork::Own<Option<RecordSink>>,
}

impl Contained {
    pub(crate) fn new(collector: Arc<dyn Collector>) -> Contained {
        let name = attempt("name", || collector.name());
        let types = name.clone().and_then(|_| attempt("types", || collector.types()));
        let (is_broken, sink) = (AtomicBool::new(false), fork::Own::default());
        Contained { name: name.unwrap_or("unnamed"), types, collector, is_broken, sink }
    }

    /// Asks for something, of which there is none once it has panicked.
    fn ask<R: Default>(&self, what: &str, call: impl FnOnce(&dyn Collector) -> R) -> R {
        // Relaxed: a thread that does not know yet asks once more.
        if self.is_broken.load(Ordering::Relaxed) { R::default() } else { self.ask_all_the_same(what, call) }
    }

    fn ask_all_the_same<R: Default>(&self, what: &str, call: impl FnOnce(&dyn Collector) -> R) -> R {
        attempt(what, || call(&*self.collector)).unwrap_or_else(|reason| {
            self.is_broken.store(true, Ordering::Relaxed);
            if let Some(sink) = &*self.sink.lock() {
                sink.note(format!("{}; from then on it was asked for nothing", reason.message()));
            }
            R::default()
        })
    }
}

/// Calls what may panic.
pub(crate) fn attempt<R>(what: &str, call: impl FnOnce() -> R) -> Result<R, Unavailable> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        // It is the program's too, and may panic when it is dropped.
        let message = format!("it panicked in `{what}`: {}", text(Box::leak(panic)));
        Unavailable::new(Why::Failed, message, "fix that code")
    })
}

/// Runs the body of a thread that reads a library's records. A panic is a note in `sink` by the time this returns, so the
/// thread can give up what it holds as it does otherwise.
pub(super) fn run_reader(sink: &RecordSink, body: impl FnOnce()) {
    if let Err(reason) = attempt("the thread that reads records", body) {
        sink.note(format!("{}; the records that it had not read are lost", reason.message()));
    }
}

/// Runs a callback, which must not unwind into foreign code; the default value stands for what a panic left undone.
pub(super) fn in_callback<R: Default>(act: impl FnOnce() -> R) -> R {
    attempt("a callback", act).unwrap_or_default()
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

impl Collector for Contained {
    fn name(&self) -> &'static str {
        self.name
    }

    fn types(&self) -> ActivityTypes {
        // Of one that cannot say, the reason is to be seen whatever is selected.
        self.types.clone().unwrap_or(ActivityTypes::ALL)
    }

    fn is_selected(&self, selection: &Selection) -> bool {
        self.types.is_err() || attempt("is_selected", || self.collector.is_selected(selection)).unwrap_or(true)
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.types.clone()?;
        attempt("probe", || self.collector.probe())?
    }

    fn start(&self, selection: &Selection, sink: RecordSink) -> Result<Capabilities, Unavailable> {
        self.types.clone()?;
        self.is_broken.store(false, Ordering::Relaxed);
        *self.sink.lock() = Some(sink.clone());
        attempt("start", || self.collector.start(selection, sink))?
    }

    fn push(&self, id: CorrelationId) -> bool {
        self.ask("push", |collector| collector.push(id))
    }

    fn pop(&self) {
        self.ask("pop", |collector| collector.pop());
    }

    fn push_annotation(&self, id: CorrelationId) -> bool {
        self.ask("push", |collector| collector.push_annotation(id))
    }

    fn pop_annotation(&self) {
        self.ask("pop", |collector| collector.pop_annotation());
    }

    fn pause(&self) {
        self.ask("pause", |collector| collector.pause());
    }

    fn resume(&self) {
        self.ask("resume", |collector| collector.resume());
    }

    fn sees_ranges(&self) -> bool {
        self.ask("sees_ranges", |collector| collector.sees_ranges())
    }

    fn drain(&self) {
        self.ask("drain", |collector| collector.drain());
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        self.ask_all_the_same("stop", |collector| collector.stop(end, deadline));
    }

    fn stopped(&self) -> Option<String> {
        self.ask("stopped", |collector| collector.stopped())
    }

    fn attempts(&self) -> Vec<Attempt> {
        attempt("attempts", || self.collector.attempts()).unwrap_or_default()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.ask("devices", |collector| collector.devices())
    }

    fn clock(&self) -> Option<u64> {
        self.ask("clock", |collector| collector.clock())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::orders::{Orders, SaysEnded};
    use super::super::pool::Pool;
    use super::super::trial;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_reader_that_panics_leaves_a_note_and_ends() {
        static POOL: Pool = Pool::new();
        let sink = trial::sink();
        let orders = Arc::new(Orders::<()>::new(&POOL));
        let (ended, own) = (SaysEnded(orders.clone()), sink.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let _ended = ended;
            run_reader(&own, || panic!("a number of the vendor's"));
        });
        assert!(orders.end((), Duration::from_secs(60)));
        let notes = &sink.collect(true).notes;
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("a number of the vendor's"), "{notes:?}");
        thread.unwrap().join().unwrap();
        assert!(!in_callback::<bool>(|| panic!("in a callback")));
    }
}
