//! The session's thread: reads the clocks each second, keeps chunks ready, answers triggers of dumps, and starts moving
//! records to disk.

use super::super::live::LiveControl;
use super::super::spill::SpillControl;
use super::super::triggers::DumpControl;
use super::super::window_control::WindowControl;
use crate::buffer::Starter;
use crate::clock::Anchor;
use crate::diag::diag;
use crate::encoding::Encoded;
use crate::live::JournalKind;
use crate::os::{fork, signal, thread};
use crate::recorder::Recorder;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::time::Ticks;
use crate::wait::{park_until, since, sleep, steady};
use kineto_devices::CollectorSet;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::Thread;
use std::time::Duration;

/// The anchors of a recording, and the thread that adds to them.
///
/// The first request for a chunk starts the thread. If an allocator may make that request, the recording starts it instead.
/// So creating a layer waits for no thread, and a recording without records has none. If it cannot be started, threads
/// allocate their chunks themselves, and read the clocks with each.
#[derive(Debug)]
pub(crate) struct ClockThread {
    shared: Arc<ClockState>,
}

#[derive(Debug)]
struct ClockState {
    recorder: Arc<Recorder>,
    collectors: Arc<CollectorSet>,
    /// The greatest age of records; `None` for no limit.
    keep: Option<Duration>,
    duties: Duties,
    anchors: fork::Own<Vec<Anchor>>,
    alive: AtomicBool,
    /// Whether the thread runs.
    begun: AtomicBool,
    /// Whether full buffers were reported for this recording.
    is_full: AtomicBool,
}

/// Further tasks of the thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Duties {
    pub(in crate::session) triggers: Arc<DumpControl>,
    pub(in crate::session) spill: Arc<SpillControl>,
    pub(in crate::session) live: Arc<LiveControl>,
    pub(in crate::session) windows: Arc<WindowControl>,
}

/// How often the clocks are read.
const PERIOD: Duration = Duration::from_secs(1);
/// Above this number (two hours), every second anchor is dropped, so that a recording of weeks stays small.
const ANCHORS_MAX: usize = 8192;

impl ClockThread {
    pub(crate) fn new(
        recorder: Arc<Recorder>,
        collectors: Arc<CollectorSet>,
        keep: Option<Duration>,
        duties: Duties,
    ) -> ClockThread {
        let shared = ClockState {
            recorder,
            collectors,
            keep,
            duties,
            anchors: fork::Own::default(),
            alive: AtomicBool::new(true),
            begun: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        };
        ClockThread { shared: Arc::new(shared) }
    }

    /// Begins a recording's list of anchors.
    pub(crate) fn begin_anchor_list(&self) {
        self.shared.lock_anchors().clear();
        self.shared.is_full.store(false, Ordering::Relaxed);
        let starter: Arc<dyn Starter> = self.shared.clone();
        self.shared.recorder.pool().set_starter(Arc::downgrade(&starter));
    }

    /// Starts the thread now and waits until it runs, so that its allocations are not attributed to the program.
    pub(crate) fn start_ahead(&self) {
        const PATIENCE: Duration = Duration::from_millis(100);
        self.shared.recorder.pool().start_ahead();
        let asked = steady();
        while !self.shared.begun.load(Ordering::Relaxed) && since(asked) < PATIENCE {
            sleep(Duration::from_micros(50));
        }
    }

    /// Begins a recording, whose records are moved to disk if `spills`.
    pub(super) fn begin_spilling(&self, spills: bool) {
        self.shared.duties.spill.begin_recording(spills);
    }

    /// Ends moving records to disk.
    pub(super) fn end_spilling(&self) {
        self.shared.duties.spill.end_recording();
    }

    /// Wakes the thread because an epoch is open; it sleeps while none is.
    pub(crate) fn wake(&self) {
        self.shared.recorder.pool().wake_helper();
    }

    /// Adds an anchor.
    pub(crate) fn add_anchor(&self, anchor: Anchor) {
        self.shared.add_anchor(anchor);
    }

    /// Returns the anchors so far.
    pub(crate) fn anchors(&self) -> Vec<Anchor> {
        self.shared.lock_anchors().clone()
    }

    /// Returns a time so long before another one, to a second; 0 if the recording began later.
    pub(super) fn time_before(&self, until: Ticks, wait: Duration) -> Ticks {
        let anchors = self.shared.lock_anchors();
        let end = anchors.iter().filter(|anchor| anchor.ticks() <= until).map(|anchor| anchor.monotonic.0).max();
        let is_older = |anchor: &&Anchor| {
            let passed = end.unwrap_or(0).saturating_sub(anchor.monotonic.0);
            u128::from(passed) >= wait.as_nanos()
        };
        anchors.iter().filter(is_older).map(Anchor::ticks).max().unwrap_or_default()
    }

    /// Ends a recording's list of anchors and returns it.
    pub(crate) fn take_anchors(&self) -> Vec<Anchor> {
        std::mem::take(&mut *self.shared.lock_anchors())
    }
}

impl Drop for ClockThread {
    fn drop(&mut self) {
        self.shared.alive.store(false, Ordering::Relaxed);
        self.wake();
    }
}

impl Starter for ClockState {
    fn spawn_helper(self: Arc<Self>) -> Option<Thread> {
        signal::expect_signal_thread();
        // The conversion is exact from the first record on, even if a clock was set since the recording began.
        self.add_anchor(Anchor::read_clocks());
        let spawned = thread::spawn_with_stack("kineto-session", 128 * 1024, Box::new(move || self.run())).ok()?;
        Some(spawned.thread().clone())
    }
}

impl ClockState {
    fn lock_anchors(&self) -> MutexGuard<'_, Vec<Anchor>> {
        self.anchors.lock()
    }

    fn add_anchor(&self, anchor: Anchor) {
        self.note_anchor(&anchor);
        let mut anchors = self.lock_anchors();
        if anchors.len() >= ANCHORS_MAX {
            let (mut nth, live) = (0usize, self.recorder.live().current());
            anchors.retain(|anchor| {
                nth += 1;
                let is_kept = nth % 2 == 1;
                if !is_kept && let Some(live) = &live {
                    live.remove(JournalKind::Anchor, (anchor.monotonic.0, 0));
                }
                is_kept
            });
        }
        anchors.push(anchor);
    }

    /// Notes an anchor in the live file.
    fn note_anchor(&self, anchor: &Anchor) {
        self.recorder.live().put(JournalKind::Anchor, (anchor.monotonic.0, 0), |out| anchor.encode(out));
    }

    /// Returns the time before which records are too old, to a second.
    fn oldest_kept(&self) -> Ticks {
        let Some(keep) = self.keep else { return Ticks(0) };
        let now = Anchor::read_clocks().monotonic.0;
        let is_older = |anchor: &&Anchor| u128::from(now.saturating_sub(anchor.monotonic.0)) >= keep.as_nanos();
        self.lock_anchors().iter().rev().find(is_older).map_or(Ticks(0), Anchor::ticks)
    }

    /// Reports once for each recording that the buffers are full.
    fn report_limit(&self) {
        if self.recorder.losses.is_over_limit() && !self.is_full.swap(true, Ordering::Relaxed) {
            let limit = self.recorder.pool().bytes_max() >> 20;
            if self.recorder.pool().is_starved() {
                diag!(
                    Warning,
                    "buffer",
                    "further records are dropped: the system has no more memory for this process; raise its limits (ulimit -v, -d), \
                     or lower buffer_limit_bytes (KINETO_BUFFER_LIMIT_MB)"
                );
                return;
            }
            diag!(
                Warning,
                "buffer",
                "further records are dropped: the buffer limit of {limit} MiB is reached; raise buffer_limit_bytes \
                 (KINETO_BUFFER_LIMIT_MB), or record less with a filter"
            );
        }
    }

    fn run(&self) {
        // Also while the thread is torn down.
        let _own = ManuallyDrop::new(InternalAllocGuard::begin());
        self.begun.store(true, Ordering::Relaxed);
        // From now on there are records to flush.
        signal::start_signal_thread(crate::session::at_exit, crate::session::dump_on_signal);
        let mut next = steady() + PERIOD;
        // The thread that started this one is inside a hook, perhaps on the only processor.
        sleep(Duration::from_millis(1));
        while self.alive.load(Ordering::Relaxed) {
            self.duties.triggers.handle_triggers(self.recorder.triggers());
            let spills = self.duties.spill.current().is_some();
            if spills {
                self.duties.spill.spill_if_due(&self.recorder, &self.collectors);
            }
            self.duties.windows.drop_windows_if_due(&self.recorder);
            if self.recorder.epoch() == 0 {
                // Devices may record, and segments are due by time.
                park_until(spills.then(|| steady() + self.duties.spill.time_to_next()));
                next = steady() + PERIOD;
                continue;
            }
            self.recorder.evict_until(self.oldest_kept(), &self.collectors);
            self.recorder.pool().refill();
            self.duties.live.maintain(&self.recorder);
            self.report_limit();
            if steady() >= next {
                let anchor = Anchor::read_clocks();
                if self.recorder.epoch() != 0 {
                    self.add_anchor(anchor);
                    self.collectors.read_clocks();
                    self.duties.live.refresh(&self.recorder);
                }
                next = steady() + PERIOD;
            }
            let wait = if spills { self.duties.spill.time_to_next() } else { PERIOD };
            park_until(Some(next.min(steady() + wait)));
        }
    }
}
