//! Metrics of each kernel. A callback at the start of a launch makes CUPTI measure what the context launches, and one at its
//! end reads the values.
//!
//! In between CUPTI runs the kernel once for each pass that the metrics take, and restores memory before each: a launch
//! waits for its kernel.

use super::super::callbacks::{BegunCall, EndedCall};
use super::super::metric_shapes::KERNEL_RANGE;
use super::super::profiler::ffi::CallFailure;
use super::calls::{CallPlace, OpenCalls};
use super::ffi::stream_of_call;
use super::functions::WatchedFunction;
use super::run::{END_LIMIT, EndedContexts, RangeRun};
use super::session::{ContextSession, MissReason};
use crate::DeviceWork;
use crate::records::demangle::demangle;
use kineto_base::sorted::SortedMap;
use kineto_base::wait::steady;
use kineto_model::Loss;
use kineto_model::activity::ActivityType;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The metrics of a recording's kernels.
#[derive(Debug)]
pub(crate) struct KernelMetrics {
    pub(super) run: RangeRun,
    sessions: Mutex<SortedMap<usize, Arc<ContextSession>>>,
    /// Launches during a capture of another stream.
    captured: AtomicU64,
}

/// A launch that is measured until it returns.
#[derive(Debug)]
pub(super) struct MeasuredLaunch {
    session: Arc<ContextSession>,
    start: u64,
}

thread_local! {
    static PLACE: CallPlace<KernelMetrics, Option<MeasuredLaunch>> = const { RefCell::new(None) };
}

/// The launches that threads are in; `None` if one is not measured.
pub(super) static LAUNCH: OpenCalls<KernelMetrics, Option<MeasuredLaunch>> = OpenCalls(&PLACE);

/// Ends the launch by that function that the calling thread is in.
pub(super) fn end_launch(call: &EndedCall<'_>) {
    if let Some((metrics, Some(measured))) = LAUNCH.leave(call.function) {
        metrics.end_launch(call, &measured);
    }
}

impl KernelMetrics {
    pub(super) fn new(run: RangeRun) -> KernelMetrics {
        KernelMetrics { run, sessions: Mutex::default(), captured: AtomicU64::new(0) }
    }

    fn lock_sessions(&self) -> MutexGuard<'_, SortedMap<usize, Arc<ContextSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a call of the program that begins.
    pub(super) fn on_begun_call(self: &Arc<Self>, call: &BegunCall) {
        let Some((watched, place)) = self.run.functions.get(&call.function).copied() else { return };
        let stream = || stream_of_call(call.params, place);
        match watched {
            WatchedFunction::Launch => self.begin_launch(call, stream()),
            WatchedFunction::Capture(step) => {
                self.run.captures.enter_call(call.function, step, stream().unwrap_or_default());
            }
            WatchedFunction::ContextEnd(end) => self.end_contexts(&self.run.find_ended_contexts(call, end)),
            WatchedFunction::Transfer => {}
        }
    }

    /// Begins to measure a launch, unless the thread is in one already.
    fn begin_launch(self: &Arc<Self>, call: &BegunCall, stream: Option<usize>) {
        if !self.run.is_recording() || call.context == 0 || LAUNCH.is_of(self) {
            return;
        }
        let measured = if self.is_capturing(stream) { None } else { self.measure_launch(call.context) };
        LAUNCH.enter(self, call.function, measured);
    }

    /// Returns whether a launch must not be measured: its stream is being captured, or another one is, whose capture that
    /// would invalidate. The first runs later, in a graph; the second is counted.
    fn is_capturing(&self, stream: Option<usize>) -> bool {
        if stream.is_some_and(|stream| self.run.driver.is_capturing(Some(stream))) {
            return true;
        }
        let is_any = self.run.captures.is_any();
        if is_any {
            self.captured.fetch_add(1, Ordering::Relaxed);
            self.run.sink.lost(Loss::VendorDropped, 1);
        }
        is_any
    }

    /// Begins to measure a launch of a context; returns `None`, and counts, if that cannot be.
    fn measure_launch(&self, context: usize) -> Option<MeasuredLaunch> {
        if !self.run.is_below_limit() {
            return None;
        }
        let missed = match self.begin_in_context(context) {
            Ok(session) => return Some(MeasuredLaunch { session, start: self.run.now() }),
            Err(missed) => missed,
        };
        self.run.give_back();
        match missed {
            MissReason::Ended => return None,
            MissReason::Failed(failed) => self.run.note_context_failure(failed),
            MissReason::NotOneRange(_) | MissReason::FailedBefore | MissReason::NoTurn => {}
        }
        self.run.count_missed();
        None
    }

    /// Begins to measure a context.
    fn begin_in_context(&self, context: usize) -> Result<Arc<ContextSession>, MissReason> {
        let metrics = self.run.find_device(context)?.ok_or(MissReason::FailedBefore)?;
        let session = {
            let mut sessions = self.lock_sessions();
            // Checked under the lock: the end of the recording closes the sessions that exist then.
            if self.run.is_over.load(Ordering::Acquire) {
                return Err(MissReason::Ended);
            }
            sessions.get_or_insert_with(context, || Arc::new(ContextSession::new(context, metrics.clone()))).clone()
        };
        session.begin_launch().map(|()| session)
    }

    fn end_launch(&self, call: &EndedCall<'_>, launch: &MeasuredLaunch) {
        let end = self.run.now();
        launch.session.end_launch(|values| {
            match values {
                Ok(Some(values)) => return self.add_row(call, launch, end, &values),
                // CUDA refused the launch.
                Ok(None) if call.error != 0 => {}
                Ok(None) => self.run.count_missed(),
                Err(failed) => self.note_failure(failed),
            }
            self.run.give_back();
        });
    }

    fn note_failure(&self, failed: CallFailure) {
        self.run.sink.note(format!("a kernel was not measured: {failed}"));
        self.run.count_missed();
    }

    fn add_row(&self, call: &EndedCall<'_>, launch: &MeasuredLaunch, end: u64, values: &[f64]) {
        self.run.sink.record(|batch| {
            let words = self.run.metric_words(batch, None, values);
            let name = batch.name(&demangle(call.kernel));
            batch.work(&DeviceWork {
                kind: ActivityType::CudaProfilerRange,
                name,
                device: launch.session.metrics.device,
                stream: 0,
                start: launch.start,
                end,
                correlation: call.correlation.into(),
                shape: &KERNEL_RANGE,
                words: &words,
            });
        });
    }

    /// Releases the counters of contexts that end. The next launch of a context that remains begins anew.
    fn end_contexts(&self, ended: &EndedContexts) {
        // Without the lock, which each launch takes.
        let sessions: Vec<_> = self.lock_sessions().values().cloned().collect();
        for session in sessions.iter().filter(|session| ended.has(session.context, Some(session.metrics.device))) {
            if !ended.is_certain {
                if !self.run.captures.is_any() {
                    session.release_idle(self.run.driver);
                }
            } else if !session.close(self.run.driver, steady() + END_LIMIT) {
                self.lock_sessions().remove(&session.context);
            }
        }
    }

    /// Ends the measuring; releases the counters of all contexts unless a stream `is_captured`. A launch that is measured has
    /// until `deadline` to return.
    pub(super) fn finish(&self, deadline: Instant, is_captured: bool) {
        let deadline = deadline.max(steady() + END_LIMIT / 2);
        let close = |session: &&Arc<ContextSession>| match is_captured {
            true => session.close_without_release(deadline),
            false => session.close(self.run.driver, deadline),
        };
        let sessions: Vec<_> = self.lock_sessions().values().cloned().collect();
        for _ in sessions.iter().filter(close) {
            let note = "a launch was still being measured at the end: its row is lost, and libcupti is in use until it returns";
            self.run.sink.note(note);
            self.run.sink.lost(Loss::VendorDropped, 1);
        }
        self.run.note_unmeasured("launch", "launches");
        match self.captured.load(Ordering::Relaxed) {
            0 => {}
            1 => self.run.sink.note("1 launch was not measured: a stream was being captured"),
            count => self.run.sink.note(format!("{count} launches were not measured: a stream was being captured")),
        }
    }

    /// Returns the contexts that may have counters.
    pub(super) fn contexts(&self) -> Vec<usize> {
        self.lock_sessions().keys().copied().collect()
    }

    /// Releases the counters of all contexts.
    pub(super) fn release(&self) {
        let sessions: Vec<_> = self.lock_sessions().values().cloned().collect();
        sessions.iter().for_each(|session| _ = session.close(self.run.driver, steady() + END_LIMIT));
    }

    /// Waits for the launches that are still measured, each of which then releases its counters.
    pub(super) fn wait_for_launches(&self) {
        let sessions: Vec<_> = self.lock_sessions().values().cloned().collect();
        sessions.iter().for_each(|session| session.wait_for_launch());
    }
}
