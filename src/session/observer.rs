//! Observers of a session's recordings, and the order in which they are notified.

use crate::config::RecordingFlags;
use crate::diag::diag;
use crate::error::Error;
use crate::os::{fork, thread};
use crate::recorder::Recorder;
use kineto_devices::catch_panic;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Receives the events of a session's recordings: the program's own, and those of external requests. It corresponds to
/// libkineto's `ClientInterface`.
///
/// Register it with [`KinetoLayerBuilder::session_observer`](crate::KinetoLayerBuilder::session_observer). With it, a
/// framework does costly work, such as computing shapes, only while a recording wants it:
///
/// ```
/// # use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// # use tracing::field::{Empty, debug};
/// # use tracing_kineto::torch::TorchOptions;
/// # use tracing_kineto::{KinetoLayer, RecordingFlags, SessionObserver};
/// # use tracing_subscriber::prelude::*;
/// /// Whether operations record the shapes of their inputs.
/// static SHAPES: AtomicBool = AtomicBool::new(false);
///
/// #[derive(Debug)]
/// struct Framework;
///
/// impl SessionObserver for Framework {
///     fn prepared(&self, flags: &RecordingFlags) {
///         SHAPES.store(flags.record_shapes, Relaxed);
///     }
///     fn stopped(&self) {
///         SHAPES.store(false, Relaxed);
///     }
///     fn cancelled(&self, _reason: &str) {
///         SHAPES.store(false, Relaxed);
///     }
/// }
///
/// fn matmul(left: &[usize], right: &[usize]) {
///     let span = tracing::info_span!("matmul", dims = Empty);
///     if SHAPES.load(Relaxed) {
///         span.record("dims", debug([left, right]));
///     }
///     span.in_scope(|| { /* ... */ });
/// }
///
/// // Here the program wants shapes; `dyno gputrace --record-shapes` requests them from outside.
/// let shapes = TorchOptions::new().record_shapes(true);
/// let (layer, guard) = KinetoLayer::builder().no_output().torch(shapes).session_observer(Framework).build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || matmul(&[2, 3], &[3, 4]));
/// let events = guard.finish()?.events();
/// assert_eq!(events.iter().next().and_then(|event| event.input_dims()).map(|dims| dims.len()), Some(2));
/// assert!(!SHAPES.load(Relaxed));
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
///
/// For each recording, [`prepared`](Self::prepared) and [`started`](Self::started) are called once, then either
/// [`stopped`](Self::stopped) or [`cancelled`](Self::cancelled). A recording that is not started is cancelled, unless the
/// process exits first. Observers receive events in their order, one observer after the other as they were given to the
/// builder, and never two at once.
///
/// They are called on the thread that makes the change, right before its call returns, so they should be quick. No lock of
/// this crate is held, and they may call the [`Profiler`](crate::Profiler). A thread that is notifying also delivers events
/// that occur meanwhile, even those that an observer causes; other threads do not wait for it. An observer that panics is
/// not called again, and a message reports it.
///
/// A forked child has no recording; its observers receive the events of those that it starts itself.
pub trait SessionObserver: fmt::Debug + Send + Sync {
    /// Called when collectors have started for a recording with these flags.
    ///
    /// Nothing is recorded yet after a [`Libkineto::prepare`](crate::torch::Libkineto::prepare), in the warm-up of a schedule, and for
    /// an external request with a start time. If one call prepares and starts, such as
    /// [`Profiler::start`](crate::Profiler::start), the recording has already started.
    fn prepared(&self, _flags: &RecordingFlags) {}

    /// Called when the recording has started.
    fn started(&self) {}

    /// Called when the recording has ended, or the process exits while it runs.
    fn stopped(&self) {}

    /// Called when the recording was discarded or never started.
    fn cancelled(&self, _reason: &str) {}

    /// Called when a memory profile has started, by
    /// [`start_memory_profile`](crate::torch::Libkineto::start_memory_profile) or an external `PROFILE_MEMORY` request.
    fn memory_profile_started(&self) {}

    /// Called when the memory profile has ended.
    fn memory_profile_stopped(&self) {}

    /// Called when the memory profile was written to that file.
    fn memory_profile_exported(&self, _path: &Path) {}

    /// Called when the file of a dump is complete, or was not written; `reason` is the whole reason of the header's
    /// `dump_reason`. This concerns dumps that [triggers](crate::Dumps::on) cause and those of
    /// [`Profiler::dump`](crate::Profiler::dump).
    ///
    /// It is called on the thread that wrote the file, or that calls an observer just then; mostly before the process ends. Pass
    /// the file to another thread to upload it:
    ///
    /// ```
    /// use std::path::{Path, PathBuf};
    /// use std::sync::mpsc::{Sender, channel};
    /// use tracing_kineto::{DumpTrigger, Dumps, Error, KinetoLayer, SessionObserver};
    ///
    /// #[derive(Debug)]
    /// struct Uploads(Sender<PathBuf>);
    ///
    /// impl SessionObserver for Uploads {
    ///     fn dump_ended(&self, reason: &str, dump: Result<&Path, &Error>) {
    ///         match dump {
    ///             Ok(path) => drop(self.0.send(path.to_owned())),
    ///             Err(error) => eprintln!("no dump for: {reason}: {error}"),
    ///         }
    ///     }
    /// }
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let output = folder.path().join("app.pt.trace.json");
    /// let (uploads, dumps) = channel();
    /// let builder = KinetoLayer::builder().output(output).dumps(Dumps::on([DumpTrigger::Panic]));
    /// let (layer, guard) = builder.session_observer(Uploads(uploads)).build()?;
    /// # drop(layer);
    /// # guard.profiler().dump("example")?.wait()?;
    /// // On the thread that uploads:
    /// let dump = dumps.recv().unwrap();
    /// assert!(dump.exists());
    /// # drop(guard);
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    fn dump_ended(&self, _reason: &str, _dump: Result<&Path, &Error>) {}
}

/// A call of a method of an observer.
type ObserverCall<'e> = Box<dyn Fn(&dyn SessionObserver) + 'e>;

/// An event of a session.
#[derive(Debug)]
pub(super) enum SessionEvent {
    Prepared(RecordingFlags),
    Started,
    Stopped,
    Cancelled(String),
    MemoryProfileStarted,
    MemoryProfileStopped,
    MemoryProfileExported(PathBuf),
    DumpEnded { reason: String, dump: Result<PathBuf, Error> },
}

/// All observers of a session.
#[derive(Debug)]
pub(super) struct SessionObservers {
    recorder: Arc<Recorder>,
    of_program: OnceLock<Vec<NamedObserver>>,
    /// The events that are not delivered yet.
    pending: fork::Own<PendingEvents>,
}

/// An observer of the program.
#[derive(Debug)]
pub(crate) struct NamedObserver {
    observer: Box<dyn SessionObserver>,
    name: &'static str,
    /// Whether it has panicked.
    is_broken: AtomicBool,
}

#[derive(Debug, Default)]
struct PendingEvents {
    events: VecDeque<SessionEvent>,
    /// The threads inside calls that may hold locks, once for each call.
    inside: Vec<i64>,
    /// Whether a thread is delivering events.
    is_delivering: bool,
    /// Whether a recording has started and not ended.
    is_recording: bool,
}

/// A call of the session, created before any lock is taken. When the outermost one is dropped, pending events are
/// delivered.
#[must_use = "events are delivered when it is dropped"]
pub(super) struct NotifyScope<'s> {
    observers: Option<&'s SessionObservers>,
}

impl NamedObserver {
    pub(crate) fn new<O: SessionObserver + 'static>(observer: O) -> NamedObserver {
        let name = std::any::type_name::<O>();
        NamedObserver { observer: Box::new(observer), name, is_broken: AtomicBool::new(false) }
    }

    /// Calls the observer, unless it has panicked.
    fn notify(&self, event: &SessionEvent) {
        if self.is_broken.load(Ordering::Relaxed) {
            return;
        }
        let (method, call) = event.method();
        if let Err(why) = catch_panic(method, || call(&*self.observer)) {
            self.is_broken.store(true, Ordering::Relaxed);
            let name = self.name;
            diag!(
                Error,
                "observer",
                "the session observer {name}: {}; it is disabled now; fix its code",
                why.message()
            );
        }
    }
}

impl SessionObservers {
    pub(super) fn new(recorder: Arc<Recorder>) -> SessionObservers {
        let (of_program, pending) = Default::default();
        SessionObservers { recorder, of_program, pending }
    }

    /// Sets the program's observers, unless they are set already.
    pub(super) fn set_observers(&self, of_program: Vec<NamedObserver>) {
        let _ = self.of_program.set(of_program);
    }

    /// Begins a call that may cause events; see [`NotifyScope`].
    pub(super) fn notify_scope(&self) -> NotifyScope<'_> {
        let observers = (!self.of_program().is_empty()).then_some(self);
        observers.inspect(|observers| observers.pending.lock().inside.push(thread::id()));
        NotifyScope { observers }
    }

    fn of_program(&self) -> &[NamedObserver] {
        self.of_program.get().map_or(&[], Vec::as_slice)
    }

    /// Notifies of an event that changes no state.
    pub(super) fn notify(&self, event: SessionEvent) {
        let _scope = self.notify_scope();
        self.queue_event(event);
    }

    /// Queues an event. The caller holds the lock of the changed state, which fixes the order of events.
    pub(super) fn queue_event(&self, event: SessionEvent) {
        // Applied to the layer at once: this neither waits nor calls user code.
        if let SessionEvent::Prepared(flags) = &event {
            self.recorder.set_records_memory(flags.profile_memory);
        }
        if self.of_program().is_empty() {
            return;
        }
        let mut pending = self.pending.lock();
        match event {
            SessionEvent::Started => pending.is_recording = true,
            // The exit of the process has queued it already.
            SessionEvent::Stopped if !pending.is_recording => return,
            SessionEvent::Stopped | SessionEvent::Cancelled(_) => pending.is_recording = false,
            _ => {}
        }
        pending.events.push_back(event);
    }

    /// Delivers pending events, unless another thread, or a caller of this function, is delivering already.
    fn deliver_events(&self) {
        if std::mem::replace(&mut self.pending.lock().is_delivering, true) {
            return;
        }
        while let Some(event) = self.next_event() {
            self.of_program().iter().for_each(|observer| observer.notify(&event));
        }
    }

    fn next_event(&self) -> Option<SessionEvent> {
        let mut pending = self.pending.lock();
        let next = pending.events.pop_front();
        pending.is_delivering = next.is_some();
        next
    }
}

impl Drop for NotifyScope<'_> {
    fn drop(&mut self) {
        let Some(observers) = self.observers else { return };
        let own = thread::id();
        let mut pending = observers.pending.lock();
        // Absent in a child that was forked during the call.
        let call = pending.inside.iter().position(|thread| *thread == own);
        call.map(|call| pending.inside.swap_remove(call));
        let is_inside = pending.inside.contains(&own);
        drop(pending);
        if !is_inside {
            observers.deliver_events();
        }
    }
}

impl SessionEvent {
    /// Returns the name of the observer's method for this event, and its call.
    fn method(&self) -> (&'static str, ObserverCall<'_>) {
        match self {
            SessionEvent::Prepared(flags) => ("prepared", Box::new(|observer| observer.prepared(flags))),
            SessionEvent::Started => ("started", Box::new(|observer| observer.started())),
            SessionEvent::Stopped => ("stopped", Box::new(|observer| observer.stopped())),
            SessionEvent::Cancelled(reason) => ("cancelled", Box::new(|observer| observer.cancelled(reason))),
            SessionEvent::MemoryProfileStarted => {
                ("memory_profile_started", Box::new(|observer| observer.memory_profile_started()))
            }
            SessionEvent::MemoryProfileStopped => {
                ("memory_profile_stopped", Box::new(|observer| observer.memory_profile_stopped()))
            }
            SessionEvent::MemoryProfileExported(path) => {
                ("memory_profile_exported", Box::new(|observer| observer.memory_profile_exported(path)))
            }
            SessionEvent::DumpEnded { reason, dump } => {
                ("dump_ended", Box::new(|observer| observer.dump_ended(reason, dump.as_deref())))
            }
        }
    }
}
