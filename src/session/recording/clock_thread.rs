//! The session's thread: reads the clocks each second, keeps chunks ready, answers triggers of dumps, and starts moving
//! records to disk.

use crate::clock::Anchor;
use crate::diag::diag;
use crate::encoding::Encoded;
use crate::live::JournalKind;
use crate::os::{fork, signal, thread};
use crate::recorder::Recorder;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::session::Session;
use crate::time::Ticks;
use crate::wait::{park_until, since, sleep, steady};
use kineto_devices::CollectorSet;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

/// The anchors of a recording, and the thread that adds to them.
///
/// The first request for a chunk starts the thread. If an allocator may make that request, the recording starts it instead.
/// So creating a layer waits for no thread, and a recording without records has none. If it cannot be started, threads
/// allocate their chunks themselves, and read the clocks with each.
#[derive(Debug)]
pub(super) struct ClockThread {
    pub(super) recorder: Arc<Recorder>,
    pub(super) collectors: Arc<CollectorSet>,
    /// The session whose triggers, parts and windows the thread cares for; memory profiles have none.
    pub(super) session: Weak<Session>,
    /// The greatest age of records; `None` for no limit.
    keep: Option<Duration>,
    anchors: fork::Own<Vec<Anchor>>,
    alive: AtomicBool,
    /// Whether the thread runs.
    begun: AtomicBool,
    /// Whether full buffers were reported for this recording.
    is_full: AtomicBool,
    /// Whether it was reported that the live file lacks something.
    #[cfg_attr(not(feature = "segments"), expect(dead_code, reason = "there is no live file"))]
    pub(super) is_live_gap_reported: AtomicBool,
}

/// How often the clocks are read.
const PERIOD: Duration = Duration::from_secs(1);
/// Above this number (two hours), every second anchor is dropped, so that a recording of weeks stays small.
const ANCHORS_MAX: usize = 8192;

impl ClockThread {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        collectors: Arc<CollectorSet>,
        keep: Option<Duration>,
        session: Weak<Session>,
    ) -> ClockThread {
        ClockThread {
            recorder,
            collectors,
            session,
            keep,
            anchors: fork::Own::default(),
            alive: AtomicBool::new(true),
            begun: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_live_gap_reported: AtomicBool::new(false),
        }
    }

    /// Begins a recording's list of anchors.
    pub(super) fn begin_anchor_list(self: &Arc<Self>) {
        self.anchors.lock().clear();
        self.is_full.store(false, Ordering::Relaxed);
        let own = Arc::downgrade(self);
        self.recorder.pool().set_starter(Box::new(move || own.upgrade()?.spawn_helper()));
    }

    /// Starts the thread now and waits until it runs, so that its allocations are not attributed to the program.
    pub(super) fn start_ahead(&self) {
        const PATIENCE: Duration = Duration::from_millis(100);
        self.recorder.pool().start_ahead();
        let asked = steady();
        while !self.begun.load(Ordering::Relaxed) && since(asked) < PATIENCE {
            sleep(Duration::from_micros(50));
        }
    }

    /// Returns the anchors so far.
    pub(super) fn anchors(&self) -> Vec<Anchor> {
        self.anchors.lock().clone()
    }

    /// Returns a time so long before another one, to a second; 0 if the recording began later.
    pub(super) fn time_before(&self, until: Ticks, wait: Duration) -> Ticks {
        let anchors = self.anchors.lock();
        let end = anchors.iter().filter(|anchor| anchor.ticks() <= until).map(|anchor| anchor.monotonic.0).max();
        let is_older = |anchor: &&Anchor| {
            let passed = end.unwrap_or(0).saturating_sub(anchor.monotonic.0);
            u128::from(passed) >= wait.as_nanos()
        };
        anchors.iter().filter(is_older).map(Anchor::ticks).max().unwrap_or_default()
    }

    /// Ends a recording's list of anchors and returns it.
    pub(super) fn take_anchors(&self) -> Vec<Anchor> {
        std::mem::take(&mut *self.anchors.lock())
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.recorder.pool().wake_helper();
    }

    fn spawn_helper(self: Arc<Self>) -> Option<Thread> {
        signal::expect_signal_thread();
        // The conversion is exact from the first record on, even if a clock was set since the recording began.
        self.add_anchor(Anchor::read_clocks());
        let spawned = thread::spawn_with_stack("kineto-session", 128 * 1024, Box::new(move || self.run())).ok()?;
        Some(spawned.thread().clone())
    }

    /// Adds an anchor, also to the live file.
    pub(super) fn add_anchor(&self, anchor: Anchor) {
        self.recorder.live().put(JournalKind::Anchor, (anchor.monotonic.0, 0), |out| anchor.encode(out));
        let mut anchors = self.anchors.lock();
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

    /// Returns the time before which records are too old, to a second.
    fn oldest_kept(&self) -> Ticks {
        let Some(keep) = self.keep else { return Ticks(0) };
        let now = Anchor::read_clocks().monotonic.0;
        let is_older = |anchor: &&Anchor| u128::from(now.saturating_sub(anchor.monotonic.0)) >= keep.as_nanos();
        self.anchors.lock().iter().rev().find(is_older).map_or(Ticks(0), Anchor::ticks)
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
            let mut next_due = None;
            if let Some(session) = self.session.upgrade() {
                let next_dump = session.triggers.handle_triggers(&session, self.recorder.triggers());
                let next_spill = session.spill_if_due(&self.collectors);
                next_due = next_dump.into_iter().chain(next_spill).min();
                session.drop_windows_if_due();
            }
            if self.recorder.epoch() == 0 {
                // Devices may record; dumps and segments are due by time.
                park_until(next_due);
                next = steady() + PERIOD;
                continue;
            }
            self.recorder.evict_until(self.oldest_kept(), &self.collectors);
            self.recorder.pool().refill();
            self.maintain_live();
            self.report_limit();
            if steady() >= next {
                let anchor = Anchor::read_clocks();
                if self.recorder.epoch() != 0 {
                    self.add_anchor(anchor);
                    self.collectors.read_clocks();
                    self.refresh_live();
                }
                next = steady() + PERIOD;
            }
            park_until(Some(next.min(next_due.unwrap_or(next))));
        }
    }
}
