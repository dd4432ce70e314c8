//! The measuring of one context's annotations: one range at a time, which covers the work of all threads.

use super::super::profiler::ffi::MetricNames;
use super::ffi::RangeApi;
use super::session::{ContextProfiler, DeviceMetrics, MissReason};
use crate::collector::cuda::Driver;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A context in which annotations are measured.
#[derive(Debug)]
pub(super) struct AnnotatedContext {
    pub(super) context: usize,
    pub(super) metrics: Arc<DeviceMetrics>,
    state: Mutex<ContextState>,
    range_ended: Condvar,
}

#[derive(Debug, Default)]
struct ContextState {
    /// Running calls that submit work, of all threads.
    calls: u32,
    /// Streams that are being captured: then the context must not be waited for.
    captures: u32,
    range: Option<ContextRange>,
    /// `None` while a thread begins or ends a range.
    profiler: Option<ContextProfiler>,
    has_failed: bool,
    is_closed: bool,
}

/// A range that is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContextRange {
    number: u64,
    /// Whether another thread has submitted work meanwhile.
    is_disturbed: bool,
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
    /// The recording paused or ended, or the context ended.
    Cut,
    /// The same, counted when the context was closed.
    Closed,
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

/// How long the end of a recording waits for a thread that begins or ends a range.
const END_LIMIT: Duration = Duration::from_millis(500);

impl AnnotatedContext {
    pub(super) fn new(context: usize, metrics: Arc<DeviceMetrics>) -> AnnotatedContext {
        AnnotatedContext { context, metrics, state: Mutex::default(), range_ended: Condvar::new() }
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
        } else if state.captures > 0 {
            RangeRefusal::Captured
        } else if state.range.is_some() || state.calls > 1 {
            RangeRefusal::Overlapped
        } else {
            let number = LAST_RANGE.fetch_add(1, Ordering::Relaxed) + 1;
            state.range = Some(ContextRange { number, is_disturbed: false });
            return CallEntry::Begins(number);
        };
        CallEntry::Refused(refusal)
    }

    /// Notes that a call returns; returns whether its work runs, as far as known, and is not captured.
    pub(super) fn leave_call(&self) -> bool {
        let mut state = self.lock_state();
        state.calls = state.calls.saturating_sub(1);
        state.captures == 0
    }

    /// Notes that the capture of a stream has begun or ended.
    pub(super) fn note_capture(&self, begins: bool) {
        let mut state = self.lock_state();
        state.captures = if begins { state.captures + 1 } else { state.captures.saturating_sub(1) };
    }

    /// Begins the reserved range once the context, which is current, is idle.
    pub(super) fn begin_range(
        &self,
        driver: &Driver,
        api: &'static RangeApi,
        names: &MetricNames,
    ) -> Result<(), RangeRefusal> {
        if let Err(code) = driver.wait_for_context() {
            self.end_state(self.lock_state());
            return Err(RangeRefusal::WaitFailed(code));
        }
        // No lock is held: other threads launch meanwhile.
        let held = self.lock_state().profiler.take();
        let opened = held.map_or_else(|| ContextProfiler::open(api, self.context, names), Ok);
        let begun = opened.and_then(|mut profiler| match profiler.begin_range(&self.metrics) {
            Ok(()) => Ok(profiler),
            Err(failed) => {
                profiler.release();
                Err(failed)
            }
        });
        let mut state = self.lock_state();
        match begun {
            Ok(profiler) if state.is_closed => {
                profiler.abandon_range();
                profiler.release();
                self.end_state(state);
                Err(RangeRefusal::Cut)
            }
            Ok(profiler) => {
                state.profiler = Some(profiler);
                Ok(())
            }
            Err(failed) => {
                state.has_failed = true;
                self.end_state(state);
                Err(RangeRefusal::Missed(MissReason::Failed(failed)))
            }
        }
    }

    /// Ends a range once its work has ended; `now` reads the clock then.
    pub(super) fn end_range(
        &self,
        number: u64,
        driver: &Driver,
        names: &MetricNames,
        now: impl FnOnce() -> u64,
    ) -> Result<MeasuredRange, RangeRefusal> {
        let (profiler, is_captured) = {
            let mut state = self.lock_state();
            if state.range.is_none_or(|range| range.number != number) {
                return Err(RangeRefusal::Closed);
            }
            (state.profiler.take().ok_or(RangeRefusal::Closed)?, state.captures > 0)
        };
        let mut profiler = Some(profiler);
        let mut outcome = Err(RangeRefusal::Cut);
        driver.with_context(self.context, || {
            if is_captured {
                profiler.iter().for_each(ContextProfiler::abandon_range);
                outcome = Err(RangeRefusal::Captured);
                return;
            }
            if let Err(code) = driver.wait_for_context() {
                profiler.iter().for_each(ContextProfiler::abandon_range);
                outcome = Err(RangeRefusal::WaitFailed(code));
                return;
            }
            let end = now();
            let values = profiler.as_ref().map_or(Ok(None), |profiler| profiler.end_range(&self.metrics, names));
            outcome = match values {
                Ok(Some(values)) => Ok(MeasuredRange { end, values }),
                Ok(None) => Err(RangeRefusal::Missed(MissReason::FailedBefore)),
                Err(failed) => Err(RangeRefusal::Missed(MissReason::Failed(failed))),
            };
            // After an error the next range begins anew.
            if outcome.is_err() || self.lock_state().is_closed {
                profiler.take().into_iter().for_each(ContextProfiler::release);
            }
        });
        let mut state = self.lock_state();
        if state.range.is_some_and(|range| range.is_disturbed) {
            outcome = Err(RangeRefusal::Overlapped);
        }
        if !state.is_closed {
            state.profiler = profiler;
        }
        self.end_state(state);
        outcome
    }

    fn end_state(&self, mut state: MutexGuard<'_, ContextState>) {
        state.range = None;
        drop(state);
        self.range_ended.notify_all();
    }

    /// Ends the measuring of the context; returns whether a range was open, which then has no values. A thread that begins or
    /// ends one releases the counters itself if that takes longer than a limit.
    pub(super) fn close(&self, driver: &Driver) -> bool {
        let mut state = self.lock_state();
        state.is_closed = true;
        let is_busy = |state: &mut ContextState| state.range.is_some() && state.profiler.is_none();
        let waited = self.range_ended.wait_timeout_while(state, END_LIMIT, is_busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_open = state.range.is_some();
        let Some(profiler) = state.profiler.take() else { return false };
        state.range = None;
        drop(state);
        driver.with_context(self.context, || {
            if is_open {
                profiler.abandon_range();
            }
            profiler.release();
        });
        is_open
    }
}
