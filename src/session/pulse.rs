//! The session's thread: reads the clocks each second and keeps chunks ready.

use crate::clock::Anchor;
use crate::error::{Error, ErrorKind};
use crate::recorder::Recorder;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The anchors of a recording, and the thread that adds to them.
#[derive(Debug)]
pub(crate) struct Pulse {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    recorder: Arc<Recorder>,
    anchors: Mutex<Vec<Anchor>>,
    alive: AtomicBool,
}

/// How often the clocks are read.
const PERIOD: Duration = Duration::from_secs(1);
/// More anchors than that (two hours) are thinned out, so that a recording of weeks stays small.
const ANCHORS_MAX: usize = 8192;

impl Pulse {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Pulse {
        let shared = Shared { recorder, anchors: Mutex::default(), alive: AtomicBool::new(true) };
        Pulse { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Begins a recording's list of anchors, with a thread to go on with it.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.shared.anchors().clear();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return Ok(());
        }
        let shared = self.shared.clone();
        let builder = std::thread::Builder::new().name("kineto-session".into()).stack_size(128 * 1024);
        let spawned = builder.spawn(move || shared.run()).map_err(|e| {
            Error::new(ErrorKind::Unsupported, format!("cannot start the session's thread: {e}; free some threads"))
        })?;
        self.shared.recorder.pool().help_from(spawned.thread().clone());
        *thread = Some(spawned);
        Ok(())
    }

    /// Has the thread see that an epoch is open; it sleeps while none is.
    pub(crate) fn wake(&self) {
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.thread().unpark();
        }
    }

    /// Adds an anchor.
    pub(crate) fn add(&self, anchor: Anchor) {
        self.shared.add(anchor);
    }

    /// Returns the anchors so far.
    pub(crate) fn anchors(&self) -> Vec<Anchor> {
        self.shared.anchors().clone()
    }

    /// Ends a recording's list of anchors and returns it.
    pub(crate) fn stop(&self) -> Vec<Anchor> {
        std::mem::take(&mut *self.shared.anchors())
    }

    /// In a forked child: the thread is the parent's.
    pub(crate) fn forget(&self) {
        if let Ok(mut thread) = self.thread.try_lock() {
            // Dropping the handle lets go of the thread without waiting for it.
            drop(thread.take());
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.alive.store(false, Ordering::Relaxed);
        let thread: Option<Thread> = self.thread.try_lock().ok().and_then(|t| t.as_ref().map(|t| t.thread().clone()));
        if let Some(thread) = thread {
            thread.unpark();
        }
    }
}

impl Shared {
    fn anchors(&self) -> MutexGuard<'_, Vec<Anchor>> {
        self.anchors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, anchor: Anchor) {
        let mut anchors = self.anchors();
        if anchors.len() >= ANCHORS_MAX {
            let mut nth = 0usize;
            anchors.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
        anchors.push(anchor);
    }

    fn run(&self) {
        let mut next = Instant::now() + PERIOD;
        while self.alive.load(Ordering::Relaxed) {
            if self.recorder.epoch() == 0 {
                std::thread::park();
                next = Instant::now() + PERIOD;
                continue;
            }
            self.recorder.pool().refill();
            if Instant::now() >= next {
                let anchor = Anchor::take();
                if self.recorder.epoch() != 0 {
                    self.add(anchor);
                }
                next = Instant::now() + PERIOD;
            }
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }
}
