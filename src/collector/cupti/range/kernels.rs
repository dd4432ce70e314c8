//! Metrics of each kernel. A callback at the start of a launch makes CUPTI measure what the context launches, and one at its
//! end reads the values.
//!
//! In between CUPTI runs the kernel once for each pass that the metrics take, and restores memory before each: a launch
//! waits for its kernel.

use super::super::profiler::ffi::CallFailure;
use super::super::profiler::shapes::KERNEL_RANGE;
use super::functions::WatchedFunction;
use super::run::RangeRun;
use super::session::{ContextSession, MissReason};
use super::{BegunCall, EndedCall};
use crate::collector::DeviceWork;
use crate::collector::cuda::Driver;
use crate::collector::records::demangle::demangle;
use kineto_trace::activity::ActivityType;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The metrics of a recording's kernels.
#[derive(Debug)]
pub(in crate::collector::cupti) struct KernelMetrics {
    run: RangeRun,
    sessions: Mutex<BTreeMap<usize, Arc<ContextSession>>>,
}

/// A launch that a thread is in. The runtime's functions call the driver's: the outer call is the launch.
#[derive(Debug)]
struct CurrentLaunch {
    /// A launch that runs when its recording ends may have no callback at its return, and is left here.
    metrics: Weak<KernelMetrics>,
    function: (u32, u32),
    /// `None` if it is not measured.
    measured: Option<MeasuredLaunch>,
}

/// A launch that is measured, until it returns, also if its recording ends first.
#[derive(Debug)]
struct MeasuredLaunch {
    metrics: Arc<KernelMetrics>,
    session: Arc<ContextSession>,
    start: u64,
}

thread_local! {
    static LAUNCH: RefCell<Option<CurrentLaunch>> = const { RefCell::new(None) };
}

/// Returns whether the calling thread is in a launch by that function.
pub(super) fn is_in_launch(function: (u32, u32)) -> bool {
    let is_it =
        |launch: &RefCell<Option<CurrentLaunch>>| launch.borrow().as_ref().is_some_and(|it| it.function == function);
    LAUNCH.try_with(is_it).unwrap_or(false)
}

/// Ends the launch that the calling thread is in.
pub(super) fn end_launch(call: &EndedCall<'_>) {
    let launch = LAUNCH.try_with(|launch| launch.borrow_mut().take()).ok().flatten();
    if let Some(measured) = launch.and_then(|launch| launch.measured) {
        measured.metrics.clone().end_launch(call, &measured);
    }
}

impl CurrentLaunch {
    /// Releases the counters of a launch whose recording has ended: the next one of the context needs them.
    fn release(self, driver: &Driver) {
        let Some(measured) = self.measured else { return };
        let names = measured.metrics.run.names();
        driver.with_context(measured.session.context, || _ = measured.session.end_launch(&names));
    }
}

impl KernelMetrics {
    pub(super) fn new(run: RangeRun) -> KernelMetrics {
        KernelMetrics { run, sessions: Mutex::default() }
    }

    /// Handles a call of the program that begins.
    pub(super) fn on_begun_call(self: &Arc<Self>, call: &BegunCall) {
        match self.run.functions.get(&call.function) {
            Some((WatchedFunction::Launch, _)) => self.begin_launch(call),
            // The next launch of a context that remains begins anew.
            Some((WatchedFunction::ContextEnd, _)) => self.close_sessions(),
            _ => {}
        }
    }

    /// Begins to measure a launch, unless the thread is in one already.
    fn begin_launch(self: &Arc<Self>, call: &BegunCall) {
        let is_own = |launch: &CurrentLaunch| std::ptr::eq(launch.metrics.as_ptr(), Arc::as_ptr(self));
        let is_nested = LAUNCH.try_with(|launch| launch.borrow().as_ref().is_some_and(is_own)).unwrap_or(true);
        if !self.run.is_recording() || call.context == 0 || is_nested {
            return;
        }
        if let Some(stale) = LAUNCH.try_with(|current| current.borrow_mut().take()).ok().flatten() {
            stale.release(self.run.driver);
        }
        let measured = self.measure_launch(call.context);
        let launch = CurrentLaunch { metrics: Arc::downgrade(self), function: call.function, measured };
        let _ = LAUNCH.try_with(|current| *current.borrow_mut() = Some(launch));
    }

    /// Begins to measure a launch of a context; returns `None`, and counts, if that cannot be.
    fn measure_launch(self: &Arc<Self>, context: usize) -> Option<MeasuredLaunch> {
        if !self.run.is_below_limit() {
            return None;
        }
        let missed = match self.begin_in_context(context) {
            Ok(session) => return Some(MeasuredLaunch { metrics: self.clone(), session, start: self.run.now() }),
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
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            // Checked under the lock: the end of the recording closes the sessions that exist then.
            if self.run.is_over.load(Ordering::Acquire) {
                return Err(MissReason::Ended);
            }
            sessions.entry(context).or_insert_with(|| Arc::new(ContextSession::new(context, metrics.clone()))).clone()
        };
        session.begin_launch(self.run.api, &self.run.names()).map(|()| session)
    }

    fn end_launch(&self, call: &EndedCall<'_>, launch: &MeasuredLaunch) {
        let end = self.run.now();
        match launch.session.end_launch(&self.run.names()) {
            Ok(Some(values)) => self.add_row(call, launch, end, &values),
            // A launch that failed, or that a graph has captured.
            Ok(None) if call.error != 0 => {}
            Ok(None) => self.run.count_missed(),
            Err(failed) => self.note_failure(failed),
        }
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

    fn close_sessions(&self) {
        let sessions = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        sessions.into_values().for_each(|session| session.close(self.run.driver));
    }

    /// Ends the measuring, and releases the counters of all contexts.
    pub(super) fn finish(&self) {
        if self.run.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.close_sessions();
        self.run.note_unmeasured("launch", "launches");
    }
}
