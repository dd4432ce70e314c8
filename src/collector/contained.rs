//! Contains the panics of collectors that the program provides.

use super::{Attempt, Capabilities, Collector, DeviceDescription, RecordSink, Selection, Unavailable, Why};
use crate::os::fork;
use crate::time::Timestamp;
use kineto_trace::activity::{ActivityTypes, CorrelationId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Wraps a collector that may panic.
///
/// If `start` panics, the panic is the reason why it records nothing. After a later panic only `stop` is called, and
/// a note reports it.
#[derive(Debug)]
pub(crate) struct Contained {
    collector: Arc<dyn Collector>,
    name: &'static str,
    types: Result<ActivityTypes, Unavailable>,
    /// Whether it has panicked in the current recording.
    is_broken: AtomicBool,
    /// The sink of the current recording, or of the last one.
    sink: fork::Own<Option<RecordSink>>,
}

impl Contained {
    pub(crate) fn new(collector: Arc<dyn Collector>) -> Contained {
        let name = attempt("name", || collector.name());
        let types = name.clone().and_then(|_| attempt("types", || collector.types()));
        let (is_broken, sink) = (AtomicBool::new(false), fork::Own::default());
        Contained { name: name.unwrap_or("unnamed"), types, collector, is_broken, sink }
    }

    /// Calls a method, or returns the default once the collector has panicked.
    fn call_unless_broken<R: Default>(&self, what: &str, call: impl FnOnce(&dyn Collector) -> R) -> R {
        // Relaxed: a thread that does not see the store yet makes one more call.
        if self.is_broken.load(Ordering::Relaxed) { R::default() } else { self.call_contained(what, call) }
    }

    fn call_contained<R: Default>(&self, what: &str, call: impl FnOnce(&dyn Collector) -> R) -> R {
        attempt(what, || call(&*self.collector)).unwrap_or_else(|reason| {
            self.is_broken.store(true, Ordering::Relaxed);
            if let Some(sink) = &*self.sink.lock() {
                sink.note(format!("{}; the collector was disabled for the rest of the recording", reason.message()));
            }
            R::default()
        })
    }
}

/// Runs code that may panic, and turns a panic into a reason.
pub(crate) fn attempt<R>(what: &str, call: impl FnOnce() -> R) -> Result<R, Unavailable> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        // The payload is the program's too, and may panic when it is dropped.
        let message = format!("it panicked in `{what}`: {}", text(Box::leak(panic)));
        Unavailable::new(Why::Failed, message, "fix that code")
    })
}

/// Runs the body of a thread that reads a library's records. A panic becomes a note in `sink`, and the thread then
/// releases what it holds as usual.
pub(super) fn run_reader(sink: &RecordSink, body: impl FnOnce()) {
    if let Err(reason) = attempt("the thread that reads records", body) {
        sink.note(format!("{}; unread records are lost", reason.message()));
    }
}

/// Runs a callback, which must not unwind into foreign code; returns the default after a panic.
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
        // If `types` panicked, show the reason whatever is selected.
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
        self.call_unless_broken("push", |collector| collector.push(id))
    }

    fn pop(&self) {
        self.call_unless_broken("pop", |collector| collector.pop());
    }

    fn push_annotation(&self, id: CorrelationId) -> bool {
        self.call_unless_broken("push", |collector| collector.push_annotation(id))
    }

    fn pop_annotation(&self) {
        self.call_unless_broken("pop", |collector| collector.pop_annotation());
    }

    fn pause(&self) {
        self.call_unless_broken("pause", |collector| collector.pause());
    }

    fn resume(&self) {
        self.call_unless_broken("resume", |collector| collector.resume());
    }

    fn sees_ranges(&self) -> bool {
        self.call_unless_broken("sees_ranges", |collector| collector.sees_ranges())
    }

    fn drain(&self) {
        self.call_unless_broken("drain", |collector| collector.drain());
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        self.call_contained("stop", |collector| collector.stop(end, deadline));
    }

    fn stopped(&self) -> Option<String> {
        self.call_unless_broken("stopped", |collector| collector.stopped())
    }

    fn attempts(&self) -> Vec<Attempt> {
        attempt("attempts", || self.collector.attempts()).unwrap_or_default()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.call_unless_broken("devices", |collector| collector.devices())
    }

    fn clock(&self) -> Option<u64> {
        self.call_unless_broken("clock", |collector| collector.clock())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::pool::Pool;
    use super::super::reader_commands::{EndNotifier, ReaderCommands};
    use super::super::trial;
    use super::*;
    use std::time::Duration;

    #[test]
    fn panicking_reader_leaves_a_note_and_ends() {
        static POOL: Pool = Pool::new();
        let sink = trial::sink();
        let commands = Arc::new(ReaderCommands::<()>::new(&POOL));
        let (ended, own) = (EndNotifier(commands.clone()), sink.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let _ended = ended;
            run_reader(&own, || panic!("a number of the vendor's"));
        });
        assert!(commands.end((), Duration::from_secs(60)));
        let notes = &sink.collect(true).notes;
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("a number of the vendor's"), "{notes:?}");
        thread.unwrap().join().unwrap();
        assert!(!in_callback::<bool>(|| panic!("in a callback")));
    }
}
