//! Who is told of what happens to a session's recordings, and in which order.

use super::Session;
use crate::collector::attempt;
use crate::config::{Mode, RecordingFlags};
use crate::diag::diag;
use crate::os::{fork, thread};
use crate::recorder::Recorder;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Is told of what happens to the recordings of a session: those of the program itself, and those that are asked for from
/// outside. What libkineto's `ClientInterface` is for torch.
///
/// Given to [`KinetoLayerBuilder::session_observer`](crate::KinetoLayerBuilder::session_observer). A framework does by it
/// what costs something, such as working out shapes, only while somebody asks for it:
///
/// ```
/// # use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// # use tracing::field::{Empty, debug};
/// # use tracing_kineto::{KinetoLayer, RecordingFlags, SessionObserver};
/// # use tracing_subscriber::prelude::*;
/// /// Whether operations say the shapes of their inputs.
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
/// // Here the program asks; `dyno gputrace --record-shapes` does so from outside.
/// let (layer, guard) = KinetoLayer::builder().no_output().record_shapes(true).session_observer(Framework).build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || matmul(&[2, 3], &[3, 4]));
/// let events = guard.finish()?.events();
/// assert_eq!(events.iter().next().and_then(|event| event.input_dims()).map(|dims| dims.len()), Some(2));
/// assert!(!SHAPES.load(Relaxed));
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
///
/// Of each recording it hears [`prepared`](Self::prepared) and [`started`](Self::started) once, then either
/// [`stopped`](Self::stopped) or [`cancelled`](Self::cancelled); one that is not started is cancelled, unless the process
/// exits first. Observers hear all in the order in which it happened, one after the other as they were given to the builder,
/// and no two of them at once.
///
/// They are called when no lock of this crate is held, and may call the [`Profiler`](crate::Profiler): on the thread that
/// makes the change, right before its call returns, which waits for them: they are to be quick. What changes while a thread
/// is telling, be it by what an observer does itself, that thread tells too, and nobody else waits for it. One that panics is
/// not called again; that is said in a message.
///
/// A forked child has no recording, and its observers hear of those that it starts itself.
pub trait SessionObserver: fmt::Debug + Send + Sync {
    /// Collectors have begun for a recording that is asked for these.
    ///
    /// Nothing of it is recorded yet after a [`Profiler::prepare`](crate::Profiler::prepare), in the warm-up of a schedule,
    /// and for a request from outside that is for a time. Where one call prepares and starts, such as
    /// [`Profiler::start`](crate::Profiler::start), it has started, and this is heard before the call returns.
    fn prepared(&self, _flags: &RecordingFlags) {}

    /// The recording has started.
    fn started(&self) {}

    /// The recording has ended, or the process exits in it. What there is of it is there to be written.
    fn stopped(&self) {}

    /// The recording is thrown away, or was never started.
    fn cancelled(&self, _reason: &str) {}

    /// What allocators report is recorded beside all that from now on
    /// ([`start_memory_profile`](crate::Profiler::start_memory_profile), or `PROFILE_MEMORY` from outside).
    fn memory_profile_started(&self) {}

    /// The memory profile has ended.
    fn memory_profile_stopped(&self) {}

    /// The memory profile was written to that file.
    fn memory_profile_exported(&self, _path: &Path) {}
}

/// Something that has happened.
#[derive(Debug)]
pub(super) enum Event {
    Prepared(RecordingFlags),
    Started,
    Stopped,
    Cancelled(String),
    MemoryProfileStarted,
    MemoryProfileStopped,
    MemoryProfileExported(PathBuf),
}

/// All observers of a session.
#[derive(Debug)]
pub(super) struct SessionObservers {
    /// The layer's own, which is told first: at once, as it waits for nobody and calls nobody.
    layer: OfLayer,
    of_program: OnceLock<Vec<Observer>>,
    /// What they have yet to be told.
    news: fork::Own<News>,
}

/// What the layer does of what a recording is asked for.
#[derive(Debug)]
struct OfLayer {
    recorder: Arc<Recorder>,
}

/// One of the program's.
#[derive(Debug)]
pub(crate) struct Observer {
    observer: Box<dyn SessionObserver>,
    name: &'static str,
    /// It has panicked.
    is_broken: AtomicBool,
}

#[derive(Debug, Default)]
struct News {
    events: VecDeque<Event>,
    /// The threads inside of calls that hold locks or may do so, once for each call.
    inside: Vec<i64>,
    /// A thread tells them.
    is_telling: bool,
    /// A recording has started and not ended.
    is_recording: bool,
}

/// A call of the session. When it is over, and no other is around it, observers are told what has happened: it is begun
/// before all locks are taken.
#[must_use = "observers are told when it is dropped"]
pub(crate) struct Call<'s> {
    observers: Option<&'s SessionObservers>,
}

impl Session {
    /// Says who is told of what happens to recordings, unless all is switched off; the first one to say so counts.
    pub(crate) fn set_observers(&self, of_program: Vec<Observer>) {
        if !self.config.mode.contains(Mode::Disabled) {
            let _ = self.observers.of_program.set(of_program);
        }
    }

    /// Begins a call in which something may happen; see [`Call`].
    pub(crate) fn call(&self) -> Call<'_> {
        let observers = (!self.observers.of_program().is_empty()).then_some(&self.observers);
        observers.inspect(|observers| observers.news.lock().inside.push(thread::id()));
        Call { observers }
    }
}

impl SessionObserver for OfLayer {
    fn prepared(&self, flags: &RecordingFlags) {
        self.recorder.hear(flags.profile_memory);
    }
}

impl Observer {
    pub(crate) fn new<O: SessionObserver + 'static>(observer: O) -> Observer {
        let name = std::any::type_name::<O>();
        Observer { observer: Box::new(observer), name, is_broken: AtomicBool::new(false) }
    }

    /// Tells it, unless it has panicked.
    fn tell(&self, event: &Event) {
        if self.is_broken.load(Ordering::Relaxed) {
            return;
        }
        if let Err(why) = attempt(event.method(), || event.tell(&*self.observer)) {
            self.is_broken.store(true, Ordering::Relaxed);
            let name = self.name;
            diag!(Error, "observer", "the session observer {name}: {}; it is told of nothing more", why.message());
        }
    }
}

impl SessionObservers {
    pub(super) fn new(recorder: Arc<Recorder>) -> SessionObservers {
        let (of_program, news) = Default::default();
        SessionObservers { layer: OfLayer { recorder }, of_program, news }
    }

    fn of_program(&self) -> &[Observer] {
        self.of_program.get().map_or(&[], Vec::as_slice)
    }

    /// Takes note of what has happened, while what it has happened to is locked: that makes the order.
    pub(super) fn note(&self, event: Event) {
        event.tell(&self.layer);
        if self.of_program().is_empty() {
            return;
        }
        let mut news = self.news.lock();
        match event {
            Event::Started => news.is_recording = true,
            // At the exit of the process, and of what goes on all the same.
            Event::Stopped if !news.is_recording => return,
            Event::Stopped | Event::Cancelled(_) => news.is_recording = false,
            _ => {}
        }
        news.events.push_back(event);
    }

    /// Tells what there is to tell, unless another thread does already, or this one further up.
    fn tell(&self) {
        if std::mem::replace(&mut self.news.lock().is_telling, true) {
            return;
        }
        while let Some(event) = self.next() {
            self.of_program().iter().for_each(|observer| observer.tell(&event));
        }
    }

    fn next(&self) -> Option<Event> {
        let mut news = self.news.lock();
        let next = news.events.pop_front();
        news.is_telling = next.is_some();
        next
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Some(observers) = self.observers else { return };
        let own = thread::id();
        let mut news = observers.news.lock();
        // None in a child that was forked in the middle.
        let call = news.inside.iter().position(|thread| *thread == own);
        call.map(|call| news.inside.swap_remove(call));
        let is_inside = news.inside.contains(&own);
        drop(news);
        if !is_inside {
            observers.tell();
        }
    }
}

impl Event {
    fn tell(&self, observer: &dyn SessionObserver) {
        match self {
            Event::Prepared(flags) => observer.prepared(flags),
            Event::Started => observer.started(),
            Event::Stopped => observer.stopped(),
            Event::Cancelled(reason) => observer.cancelled(reason),
            Event::MemoryProfileStarted => observer.memory_profile_started(),
            Event::MemoryProfileStopped => observer.memory_profile_stopped(),
            Event::MemoryProfileExported(path) => observer.memory_profile_exported(path),
        }
    }

    /// Returns the name of the method by which it is told.
    fn method(&self) -> &'static str {
        match self {
            Event::Prepared(_) => "prepared",
            Event::Started => "started",
            Event::Stopped => "stopped",
            Event::Cancelled(_) => "cancelled",
            Event::MemoryProfileStarted => "memory_profile_started",
            Event::MemoryProfileStopped => "memory_profile_stopped",
            Event::MemoryProfileExported(_) => "memory_profile_exported",
        }
    }
}
