//! Measures the annotations of one context: one range at a time, which covers the work of all threads.

use super::super::profiler::ffi::MetricNames;
use super::ffi::RangeApi;
use super::session::{ContextProfiler, DeviceMetrics, MissReason};
use crate::collector::cuda::Driver;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A context in which annotations are measured.
#[derive(Debug)]
pub(super) struct AnnotatedContext {
    pub(super) context: usize,
    pub(super) metrics: Arc<DeviceMetrics>,
    /// Streams that are being captured, as far as known: then the context must not be waited for.
    captures: Arc<AtomicU32>,
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

/// How long the end of a recording waits for a thread that begins or ends a range.
const END_LIMIT: Duration = Duration::from_millis(500);

impl AnnotatedContext {
    pub(super) fn new(context: usize, metrics: Arc<DeviceMetrics>, captures: Arc<AtomicU32>) -> AnnotatedContext {
        AnnotatedContext { context, metrics, captures, state: Mutex::default(), range_ended: Condvar::new() }
    }

    fn has_captures(&self) -> bool {
        self.captures.load(Ordering::Acquire) > 0
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
        } else if self.has_captures() {
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
        !self.has_captures()
    }

    /// Waits for the context, which is current. A wait would invalidate a capture: the calls that begin captures are counted,
    /// and the driver knows those that began before the recording, of `stream` and of those that block the legacy stream.
    fn wait(&self, driver: &Driver, stream: Option<usize>) -> Result<(), RangeRefusal> {
        let is_captured = self.has_captures()
            || driver.is_capturing(None)
            || stream.is_some_and(|stream| driver.is_capturing(Some(stream)));
        if is_captured {
            return Err(RangeRefusal::Captured);
        }
        driver.wait_for_context().map_err(RangeRefusal::WaitFailed)
    }

    /// Begins the reserved range once the context, which is current, is idle. `stream` is that of the call, if known.
    pub(super) fn begin_range(
        &self,
        stream: Option<usize>,
        driver: &Driver,
        api: &'static RangeApi,
        names: &MetricNames,
    ) -> Result<(), RangeRefusal> {
        // Taken before the wait: a stop meanwhile finds no range that was pushed, and leaves the profiler to this thread.
        // No lock is held: other threads launch meanwhile.
        let mut profiler = self.lock_state().profiler.take();
        let begun = self.wait(driver, stream).and_then(|()| self.push_range(&mut profiler, api, names));
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
        if begun.is_ok() {
            profiler.iter().for_each(ContextProfiler::abandon_range);
        }
        profiler.into_iter().for_each(ContextProfiler::release);
        let is_counted = self.end_state(self.lock_state());
        Err(if is_counted { RangeRefusal::Closed } else { begun.err().unwrap_or(RangeRefusal::Cut) })
    }

    /// Pushes the range, unless the recording has ended during the wait.
    fn push_range(
        &self,
        profiler: &mut Option<ContextProfiler>,
        api: &'static RangeApi,
        names: &MetricNames,
    ) -> Result<(), RangeRefusal> {
        if self.lock_state().is_closed {
            return Err(RangeRefusal::Cut);
        }
        let failed = |failed| RangeRefusal::Missed(MissReason::Failed(failed));
        let opened = profiler.take().map_or_else(|| ContextProfiler::open(api, self.context, names), Ok);
        profiler.insert(opened.map_err(failed)?).begin_range(&self.metrics).map_err(failed)
    }

    /// Ends a range once its work has ended; `now` reads the clock then.
    pub(super) fn end_range(
        &self,
        number: u64,
        driver: &Driver,
        names: &MetricNames,
        now: impl FnOnce() -> u64,
    ) -> Result<MeasuredRange, RangeRefusal> {
        let profiler = {
            let mut state = self.lock_state();
            if state.range.is_none_or(|range| range.number != number) {
                return Err(RangeRefusal::Closed);
            }
            state.profiler.take().ok_or(RangeRefusal::Closed)?
        };
        let mut outcome = Err(RangeRefusal::Cut);
        driver.with_context(self.context, || outcome = self.pop_range(&profiler, driver, names, now));
        // After an error the next range begins anew.
        let is_usable = matches!(outcome, Ok(_) | Err(RangeRefusal::Captured));
        let mut state = self.lock_state();
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

    /// Waits, and pops the range.
    fn pop_range(
        &self,
        profiler: &ContextProfiler,
        driver: &Driver,
        names: &MetricNames,
        now: impl FnOnce() -> u64,
    ) -> Result<MeasuredRange, RangeRefusal> {
        // The streams of its calls may have been destroyed.
        self.wait(driver, None).inspect_err(|_| profiler.abandon_range())?;
        let end = now();
        match profiler.end_range(&self.metrics, names) {
            Ok(values) => Ok(MeasuredRange { end, values }),
            Err(missed) => Err(RangeRefusal::Missed(missed)),
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

    /// Ends the measuring of the context; returns whether a range was open, which then has no values. A thread that begins or
    /// ends one releases the counters itself if that takes longer than a limit.
    pub(super) fn close(&self, driver: &Driver) -> bool {
        let mut state = self.lock_state();
        state.is_closed = true;
        let is_busy = |state: &mut ContextState| state.range.is_some() && state.profiler.is_none();
        let waited = self.range_ended.wait_timeout_while(state, END_LIMIT, is_busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_open = state.range.is_some();
        let Some(profiler) = state.profiler.take() else {
            state.is_given_up = is_open;
            return is_open;
        };
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
