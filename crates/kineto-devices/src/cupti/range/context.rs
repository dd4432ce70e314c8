//! Measures the annotations of one context: one range at a time, which covers the work of all threads.

use super::captures::Captures;
use super::run::END_LIMIT;
use super::session::{ContextProfiler, DeviceMetrics, MissReason};
use crate::cuda::Driver;
use kineto_base::wait::{Condvar, steady};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A context in which annotations are measured.
#[derive(Debug)]
pub(super) struct AnnotatedContext {
    pub(super) context: usize,
    pub(super) metrics: Arc<DeviceMetrics>,
    captures: Arc<Captures>,
    state: Mutex<ContextState>,
    range_ended: Condvar,
}

#[derive(Debug, Default)]
struct ContextState {
    /// Running calls that submit work, of all threads.
    calls: u32,
    range: Option<ContextRange>,
    /// `None` while a thread begins or ends a range.
    profiler: Option<ContextProfiler>,
    has_failed: bool,
    is_closed: bool,
    /// The end of the recording has counted the range, whose thread did not end it in time.
    is_given_up: bool,
}

/// A range that is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContextRange {
    number: u64,
    /// Whether another thread has submitted work meanwhile.
    is_disturbed: bool,
    /// Whether its thread has ended without leaving the annotation, or has left it while a stream was captured.
    is_abandoned: bool,
    /// Whether it was counted as one without values.
    is_counted: bool,
}

impl ContextRange {
    /// Reserves the counters for the calling thread.
    fn reserve() -> ContextRange {
        let number = LAST_RANGE.fetch_add(1, Ordering::Relaxed) + 1;
        ContextRange { number, is_disturbed: false, is_abandoned: false, is_counted: false }
    }
}

/// What a call finds that submits work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEntry {
    /// It belongs to no measured annotation, or its range is open.
    Passed,
    /// A range of that number is reserved for its thread, which begins it now.
    Begins(u64),
    Refused(RangeRefusal),
}

/// Why an annotation is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeRefusal {
    /// Another thread used the context.
    Overlapped,
    /// A stream was being captured.
    Captured,
    /// The recording, the context or the annotation around it ended.
    Cut,
    /// The recording paused, as the program wanted, or had not begun.
    Paused,
    /// As [`Cut`](Self::Cut), counted when the context was closed.
    Closed,
    /// A call that submits work had no context.
    NoContext,
    /// `cuCtxSynchronize` returned this error: which work is in the range is unknown.
    WaitFailed(u32),
    Missed(MissReason),
}

/// A range's end, and its values.
#[derive(Clone, Debug)]
pub(super) struct MeasuredRange {
    pub(super) end: u64,
    pub(super) values: Vec<f64>,
}

/// The number of the last range of the process. A thread may still hold a number of an earlier recording.
static LAST_RANGE: AtomicU64 = AtomicU64::new(0);

impl AnnotatedContext {
    pub(super) fn new(context: usize, metrics: Arc<DeviceMetrics>, captures: Arc<Captures>) -> AnnotatedContext {
        AnnotatedContext { context, metrics, captures, state: Mutex::default(), range_ended: Condvar::new() }
    }

    fn lock_state(&self) -> MutexGuard<'_, ContextState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call that submits work. `own` is the range of its thread; if `wants_range`, the call begins one.
    pub(super) fn enter_call(&self, own: Option<u64>, wants_range: bool) -> CallEntry {
        let mut state = self.lock_state();
        state.calls += 1;
        match &mut state.range {
            Some(range) if own == Some(range.number) => return CallEntry::Passed,
            Some(range) => range.is_disturbed = true,
            None => {}
        }
        if !wants_range {
            return CallEntry::Passed;
        }
        // A call that has not returned may submit its work into the range.
        let refusal = if state.is_closed {
            RangeRefusal::Cut
        } else if state.has_failed {
            RangeRefusal::Missed(MissReason::FailedBefore)
        } else if self.captures.is_any() {
            RangeRefusal::Captured
        } else if state.range.is_some() || state.calls > 1 {
            RangeRefusal::Overlapped
        } else {
            let range = ContextRange::reserve();
            state.range = Some(range);
            return CallEntry::Begins(range.number);
        };
        CallEntry::Refused(refusal)
    }

    /// Notes that a call returns.
    pub(super) fn leave_call(&self) {
        let mut state = self.lock_state();
        state.calls = state.calls.saturating_sub(1);
    }

    /// Notes that the thread of a range has ended without leaving its annotation.
    pub(super) fn abandon_range(&self, number: u64) {
        let mut state = self.lock_state();
        if let Some(range) = state.range.as_mut().filter(|range| range.number == number) {
            range.is_abandoned = true;
        }
    }

    /// Ends a range that its thread has left open, in the context, which is current; returns whether the caller counts it.
    pub(super) fn end_abandoned_range(&self) -> bool {
        let mut state = self.lock_state();
        let abandoned = state.range.filter(|range| range.is_abandoned && !self.captures.is_any());
        let Some((range, profiler)) = abandoned.and_then(|range| Some((range, state.profiler.take()?))) else {
            return false;
        };
        // Outside of the lock, which each launch takes. The range keeps others from the counters.
        drop(state);
        profiler.abandon_range();
        profiler.release();
        let is_counted = self.end_state(self.lock_state()) || range.is_counted;
        !is_counted
    }

    /// Releases the counters until the next annotation, unless one is measured or a stream is captured.
    pub(super) fn release_idle(&self, driver: &Driver) {
        let profiler = {
            let mut state = self.lock_state();
            if state.range.is_some() || self.captures.is_any() {
                return;
            }
            let Some(profiler) = state.profiler.take() else { return };
            state.range = Some(ContextRange::reserve());
            profiler
        };
        driver.with_context(self.context, || profiler.release());
        self.end_state(self.lock_state());
    }

    /// Waits for the context, which is current. A wait would invalidate a capture: the calls that begin captures are counted,
    /// and the driver knows those that began before the recording, of `stream` and of those that block the legacy stream.
    fn wait(&self, driver: &Driver, stream: Option<usize>) -> Result<(), RangeRefusal> {
        let is_captured = self.captures.is_any()
            || driver.is_capturing(None)
            || stream.is_some_and(|stream| driver.is_capturing(Some(stream)));
        if is_captured {
            return Err(RangeRefusal::Captured);
        }
        driver.wait_for_context().map_err(RangeRefusal::WaitFailed)
    }

    /// Begins the reserved range once the context, which is current, is idle. `stream` is that of the call, if known.
    pub(super) fn begin_range(&self, stream: Option<usize>, driver: &Driver) -> Result<(), RangeRefusal> {
        // Taken before the wait: a stop meanwhile finds no range that was pushed, and leaves the profiler to this thread.
        // No lock is held: other threads launch meanwhile.
        let mut profiler = self.lock_state().profiler.take();
        let begun = self.wait(driver, stream).and_then(|()| self.push_range(&mut profiler));
        let mut state = self.lock_state();
        if begun.is_ok() && !state.is_closed {
            state.profiler = profiler;
            return Ok(());
        }
        if begun == Err(RangeRefusal::Captured) && !state.is_closed {
            state.profiler = profiler.take();
        }
        if matches!(begun, Err(RangeRefusal::Missed(_))) {
            state.has_failed = true;
        }
        // Outside of the lock, which each launch takes. The reserved range keeps others from the counters.
        drop(state);
        if let Some(profiler) = profiler {
            if begun.is_ok() {
                profiler.abandon_range();
            }
            profiler.release();
        }
        let is_counted = self.end_state(self.lock_state());
        Err(if is_counted { RangeRefusal::Closed } else { begun.err().unwrap_or(RangeRefusal::Cut) })
    }

    /// Pushes the range, unless the recording has ended during the wait.
    fn push_range(&self, profiler: &mut Option<ContextProfiler>) -> Result<(), RangeRefusal> {
        if self.lock_state().is_closed {
            return Err(RangeRefusal::Cut);
        }
        let failed = |failed| RangeRefusal::Missed(MissReason::Failed(failed));
        let opened = profiler.take().map_or_else(|| ContextProfiler::open(self.context, &self.metrics), Ok);
        profiler.insert(opened.map_err(failed)?).begin_range().map_err(failed)
    }

    /// Ends a range once its work has ended; `now` reads the clock then.
    pub(super) fn end_range(
        &self,
        number: u64,
        driver: &Driver,
        now: impl FnOnce() -> u64,
    ) -> Result<MeasuredRange, RangeRefusal> {
        let profiler = {
            let mut state = self.lock_state();
            if state.range.is_none_or(|range| range.number != number) {
                return Err(RangeRefusal::Closed);
            }
            state.profiler.take().ok_or(RangeRefusal::Closed)?
        };
        // After an error the next range begins anew.
        let (mut outcome, mut is_usable) = (Err(RangeRefusal::Cut), false);
        driver.with_context(self.context, || (outcome, is_usable) = self.pop_range(&profiler, driver, now));
        let mut state = self.lock_state();
        if let (Err(RangeRefusal::Captured), Some(range)) = (&outcome, &mut state.range) {
            // A later call ends it.
            (range.is_abandoned, range.is_counted) = (true, true);
            state.profiler = Some(profiler);
            let is_counted = state.is_given_up;
            drop(state);
            self.range_ended.notify_all();
            return if is_counted { Err(RangeRefusal::Closed) } else { outcome };
        }
        if state.range.is_some_and(|range| range.is_disturbed) {
            outcome = Err(RangeRefusal::Overlapped);
        }
        if is_usable && !state.is_closed {
            state.profiler = Some(profiler);
        } else {
            // Outside of the lock, as above.
            drop(state);
            driver.with_context(self.context, || profiler.release());
            state = self.lock_state();
        }
        if self.end_state(state) { Err(RangeRefusal::Closed) } else { outcome }
    }

    /// Waits, and pops the range; returns whether the next one may use the same object. While a stream is captured the range
    /// stays open: on an H200, `cuptiRangeProfilerPopRange` fails then, and invalidates the capture.
    fn pop_range(
        &self,
        profiler: &ContextProfiler,
        driver: &Driver,
        now: impl FnOnce() -> u64,
    ) -> (Result<MeasuredRange, RangeRefusal>, bool) {
        // The streams of its calls may have been destroyed.
        if let Err(refusal) = self.wait(driver, None) {
            if refusal != RangeRefusal::Captured {
                profiler.abandon_range();
            }
            return (Err(refusal), false);
        }
        let end = now();
        match profiler.end_range() {
            Ok(values) => (Ok(MeasuredRange { end, values }), true),
            Err(missed) => (Err(RangeRefusal::Missed(missed)), false),
        }
    }

    /// Ends the range; returns whether the end of the recording has counted it already.
    fn end_state(&self, mut state: MutexGuard<'_, ContextState>) -> bool {
        state.range = None;
        let is_counted = state.is_given_up;
        drop(state);
        self.range_ended.notify_all();
        is_counted
    }

    /// Ends the measuring of the context without a call of CUPTI; returns whether a range was open that is not counted. A later
    /// [`close`](Self::close) releases the counters.
    pub(super) fn close_without_release(&self) -> bool {
        let mut state = self.lock_state();
        state.is_closed = true;
        let is_uncounted = state.range.is_some_and(|range| !range.is_counted);
        state.is_given_up |= state.range.is_some();
        is_uncounted
    }

    /// Ends the measuring of the context; returns whether a range was open that is not counted. A thread that begins or
    /// ends one releases the counters itself if that takes longer than a limit.
    pub(super) fn close(&self, driver: &Driver) -> bool {
        let mut state = self.lock_state();
        state.is_closed = true;
        let is_busy = |state: &mut ContextState| state.range.is_some() && state.profiler.is_none();
        let mut state = self.range_ended.wait_while_until(&self.state, state, steady() + END_LIMIT, is_busy);
        let is_open = state.range.is_some();
        let is_uncounted = state.range.is_some_and(|range| !range.is_counted);
        let Some(profiler) = state.profiler.take() else {
            state.is_given_up = is_open;
            return is_uncounted;
        };
        state.range = None;
        drop(state);
        driver.with_context(self.context, || profiler.end(is_open));
        is_uncounted
    }
}
