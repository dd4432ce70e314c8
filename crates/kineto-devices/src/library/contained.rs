//! Contains the panics of collectors, and calls that may hang.

use super::panic::catch_panic;
use crate::{Attempt, Capabilities, Collector, DeviceDescription, RecordSink, Recording, Selection, Unavailable};
use kineto_base::channel::channel;
use kineto_base::os::thread;
use kineto_base::time::Timestamp;
use kineto_model::activity::{ActivityTypes, CorrelationId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wraps a collector that may panic: a panic is the reason why it records nothing.
#[derive(Debug)]
pub struct Contained {
    collector: Arc<dyn Collector>,
    name: &'static str,
    types: Result<ActivityTypes, Unavailable>,
}

/// Wraps a recording that may panic. After a panic only `stop` is called, and a note reports it.
#[derive(Debug)]
struct ContainedRecording {
    recording: Box<dyn Recording>,
    sink: RecordSink,
    /// Whether it has panicked.
    is_broken: AtomicBool,
}

impl Contained {
    /// Contains the panics of a collector.
    pub fn new(collector: Arc<dyn Collector>) -> Contained {
        let name = catch_panic("name", || collector.name());
        let types = name.clone().and_then(|_| catch_panic("types", || collector.types()));
        Contained { name: name.unwrap_or("unnamed"), types, collector }
    }
}

impl ContainedRecording {
    /// Calls a method, or returns the default once the recording has panicked.
    fn call_unless_broken<R: Default>(&self, what: &str, call: impl FnOnce(&dyn Recording) -> R) -> R {
        // Relaxed: a thread that does not see the store yet makes one more call.
        if self.is_broken.load(Ordering::Relaxed) { R::default() } else { self.call_contained(what, call) }
    }

    fn call_contained<R: Default>(&self, what: &str, call: impl FnOnce(&dyn Recording) -> R) -> R {
        catch_panic(what, || call(&*self.recording)).unwrap_or_else(|reason| {
            self.disable(&reason);
            R::default()
        })
    }

    #[cold]
    fn disable(&self, reason: &Unavailable) {
        self.is_broken.store(true, Ordering::Relaxed);
        let what = reason.message();
        self.sink.note(format!("{what}; the collector was disabled for the rest of the recording"));
    }
}

/// Runs the body of a thread that reads a library's records. A panic becomes a note in `sink`, and the thread then
/// releases what it holds as usual.
pub(crate) fn run_reader(sink: &RecordSink, body: impl FnOnce()) {
    if let Err(reason) = catch_panic("the thread that reads records", body) {
        note_panic(sink, &reason);
    }
}

#[cold]
fn note_panic(sink: &RecordSink, reason: &Unavailable) {
    sink.note(format!("{}; unread records are lost", reason.message()));
}

/// Calls foreign code on a thread of its own, since it may hang. Returns `None` if it takes longer than `patience`.
pub(crate) fn call_on_thread<R: Send + 'static>(
    name: &str,
    patience: Duration,
    call: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    try_call_on_thread(name, patience, call).ok().flatten()
}

/// Does the same as [`call_on_thread`].
///
/// # Errors
/// The operating system refuses a thread.
pub(crate) fn try_call_on_thread<R: Send + 'static>(
    name: &str,
    patience: Duration,
    call: impl FnOnce() -> R + Send + 'static,
) -> std::io::Result<Option<R>> {
    let answer = Arc::new(Mutex::new(None));
    let place = answer.clone();
    let work = move || {
        let returned = call();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned);
    };
    let has_returned = run_on_thread(name, patience, Box::new(work))?;
    let answer = if has_returned { answer.lock().unwrap_or_else(PoisonError::into_inner).take() } else { None };
    Ok(answer)
}

/// Runs work on a thread of its own; returns whether it returned within `patience`, without a panic.
fn run_on_thread(name: &str, patience: Duration, work: Box<dyn FnOnce() + Send>) -> std::io::Result<bool> {
    let (done, answer) = channel();
    let work = move || {
        work();
        let _ = done.send(());
    };
    thread::spawn(&format!("kineto-{name}"), Box::new(work))?;
    Ok(answer.recv_timeout(patience).is_ok())
}

/// Runs a callback, which must not unwind into foreign code; returns the default after a panic.
pub(crate) fn in_callback<R: Default>(act: impl FnOnce() -> R) -> R {
    catch_panic("a callback", act).unwrap_or_default()
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
        self.types.is_err() || catch_panic("is_selected", || self.collector.is_selected(selection)).unwrap_or(true)
    }

    fn is_optional(&self) -> bool {
        catch_panic("is_optional", || self.collector.is_optional()).unwrap_or(false)
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.types.clone()?;
        catch_panic("probe", || self.collector.probe())?
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        self.types.clone()?;
        let (capabilities, recording) = catch_panic("start", || self.collector.start(selection, sink.clone()))??;
        Ok((capabilities, Box::new(ContainedRecording { recording, sink, is_broken: AtomicBool::new(false) })))
    }

    fn attempts(&self) -> Vec<Attempt> {
        catch_panic("attempts", || self.collector.attempts()).unwrap_or_default()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        catch_panic("devices", || self.collector.devices()).unwrap_or_default()
    }
}

impl Recording for ContainedRecording {
    fn push(&self, id: CorrelationId) -> bool {
        self.call_unless_broken("push", |recording| recording.push(id))
    }

    fn pop(&self) {
        self.call_unless_broken("pop", |recording| recording.pop());
    }

    fn takes_slices(&self) -> bool {
        self.call_unless_broken("takes_slices", |recording| recording.takes_slices())
    }

    fn push_annotation(&self, id: CorrelationId) -> bool {
        self.call_unless_broken("push", |recording| recording.push_annotation(id))
    }

    fn pop_annotation(&self) {
        self.call_unless_broken("pop", |recording| recording.pop_annotation());
    }

    fn pause(&self) {
        self.call_unless_broken("pause", |recording| recording.pause());
    }

    fn resume(&self) {
        self.call_unless_broken("resume", |recording| recording.resume());
    }

    fn sees_ranges(&self) -> bool {
        self.call_unless_broken("sees_ranges", |recording| recording.sees_ranges())
    }

    fn drain(&self, patience: Duration) {
        self.call_unless_broken("drain", |recording| recording.drain(patience));
    }

    fn stopped(&self) -> Option<String> {
        self.call_unless_broken("stopped", |recording| recording.stopped())
    }

    fn clock(&self) -> Option<u64> {
        self.call_unless_broken("clock", |recording| recording.clock())
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.call_unless_broken("devices", |recording| recording.devices())
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        self.call_contained("stop", |recording| recording.stop(end, deadline));
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::buffered::commands::{EndNotifier, ReaderCommands, RecordingEnd};
    use crate::buffered::pool::Pool;
    use crate::trial;
    use std::time::Duration;

    #[test]
    fn panicking_reader_leaves_a_note_and_ends() {
        static POOL: Pool = Pool::new();
        let sink = trial::unbounded_sink();
        let commands = Arc::new(ReaderCommands::new(&POOL));
        let end = RecordingEnd { at: 0, deadline: Instant::now() };
        let (ended, own) = (EndNotifier(commands.clone()), sink.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let _ended = ended;
            run_reader(&own, || panic!("a number of the vendor's"));
        });
        assert!(commands.end_recording(end, Duration::from_secs(60)));
        let notes = &sink.collect_records(true).notes;
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("a number of the vendor's"), "{notes:?}");
        thread.unwrap().join().unwrap();
        assert!(!in_callback::<bool>(|| panic!("in a callback")));
    }
}
