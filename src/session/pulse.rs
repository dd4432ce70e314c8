//! The session's thread: reads the clocks each second and keeps chunks ready.

use crate::buffer::Starter;
use crate::clock::Anchor;
use crate::collector::CollectorSet;
use crate::diag::diag;
use crate::os::{fork, signal};
use crate::recorder::Recorder;
use crate::recorder::listeners::Own;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The anchors of a recording, and the thread that adds to them.
///
/// The first chunk that a thread asks for starts it (the recording itself, if it may be an allocator that asks): making a
/// layer does not wait for a thread, and a recording without records has none. Where it cannot be started, threads make
/// their chunks themselves and read the clocks with each.
#[derive(Debug)]
pub(crate) struct Pulse {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    recorder: Arc<Recorder>,
    collectors: Arc<CollectorSet>,
    anchors: fork::Own<Vec<Anchor>>,
    alive: AtomicBool,
    /// The thread runs.
    begun: AtomicBool,
    /// The recording's full buffers were reported.
    is_full: AtomicBool,
}

/// How often the clocks are read.
const PERIOD: Duration = Duration::from_secs(1);
/// More anchors than that (two hours) are thinned out, so that a recording of weeks stays small.
const ANCHORS_MAX: usize = 8192;

impl Pulse {
    pub(crate) fn new(recorder: Arc<Recorder>, collectors: Arc<CollectorSet>) -> Pulse {
        let shared = Shared {
            recorder,
            collectors,
            anchors: fork::Own::default(),
            alive: AtomicBool::new(true),
            begun: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        };
        Pulse { shared: Arc::new(shared) }
    }

    /// Begins a recording's list of anchors.
    pub(crate) fn start(&self) {
        self.shared.anchors().clear();
        self.shared.is_full.store(false, Ordering::Relaxed);
        let starter: Arc<dyn Starter> = self.shared.clone();
        self.shared.recorder.pool().help_from(Arc::downgrade(&starter));
    }

    /// Starts the thread now, and waits until it has begun: so no allocator starts it, and what the standard library
    /// allocates for it is not taken for the program's.
    pub(crate) fn start_ahead(&self) {
        const PATIENCE: Duration = Duration::from_millis(100);
        self.shared.recorder.pool().start_ahead();
        let asked = Instant::now();
        while !self.shared.begun.load(Ordering::Relaxed) && asked.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Has the thread see that an epoch is open; it sleeps while none is.
    pub(crate) fn wake(&self) {
        self.shared.recorder.pool().wake_helper();
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
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.alive.store(false, Ordering::Relaxed);
        self.wake();
    }
}

impl Starter for Shared {
    fn start(self: Arc<Self>) -> Option<Thread> {
        signal::expect();
        // Whatever the clocks did since the recording began, from its first record on they are known.
        self.add(Anchor::take());
        let builder = std::thread::Builder::new().name("kineto-session".into()).stack_size(128 * 1024);
        let spawned = builder.spawn(move || self.run()).ok()?;
        Some(spawned.thread().clone())
    }
}

impl Shared {
    fn anchors(&self) -> MutexGuard<'_, Vec<Anchor>> {
        self.anchors.lock()
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

    /// Reports once for each recording that the buffers are full.
    fn report_limit(&self) {
        if self.recorder.losses.is_over_limit() && !self.is_full.swap(true, Ordering::Relaxed) {
            let limit = self.recorder.pool().bytes_max() >> 20;
            diag!(
                Warning,
                "buffer",
                "the buffer limit of {limit} MiB is reached, and further records are dropped; raise buffer_limit_bytes \
                 (KINETO_BUFFER_LIMIT_MB), or record less with a filter"
            );
        }
    }

    fn run(&self) {
        // Also while the thread is torn down.
        let _own = ManuallyDrop::new(Own::begin());
        self.begun.store(true, Ordering::Relaxed);
        // From now on there is something to flush.
        signal::serve(super::at_exit);
        let mut next = Instant::now() + PERIOD;
        // Who has started this thread is inside a hook, perhaps with no processor but this one.
        std::thread::sleep(Duration::from_millis(1));
        while self.alive.load(Ordering::Relaxed) {
            if self.recorder.epoch() == 0 {
                std::thread::park();
                next = Instant::now() + PERIOD;
                continue;
            }
            self.recorder.pool().refill();
            self.report_limit();
            if Instant::now() >= next {
                let anchor = Anchor::take();
                if self.recorder.epoch() != 0 {
                    self.add(anchor);
                    self.collectors.read_clocks();
                }
                next = Instant::now() + PERIOD;
            }
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }
}
