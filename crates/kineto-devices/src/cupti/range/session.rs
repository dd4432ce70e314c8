//! Measures the kernels of one context: a launch at a time, between the callbacks at its begin and at its end.

use super::super::profiler::ffi::{CallFailure, CounterImage, HostObject, MetricNames, ProfilerApi, ProfilerKind};
use super::super::profiler::host::ConfiguredMetrics;
use super::super::profiler::levels;
use super::ffi::{RangeApi, RangeHandle, RangeUnit, StopReport};
use crate::cuda::Driver;
use crate::{DeviceDescription, Unavailable};
use kineto_base::wait::{Condvar, steady};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The metrics of a device.
#[derive(Debug)]
pub(super) struct DeviceMetrics {
    pub(super) device: i32,
    api: &'static RangeApi,
    names: MetricNames,
    /// Evaluates the launches of all contexts of the device.
    host: Mutex<HostObject>,
    /// CUPTI reads it until the contexts are disabled.
    config: Vec<u8>,
    pub(super) passes: usize,
}

/// A context, whose launches are measured one after another: a second thread waits for its turn.
#[derive(Debug)]
pub(super) struct ContextSession {
    pub(super) context: usize,
    pub(super) metrics: Arc<DeviceMetrics>,
    state: Mutex<SessionState>,
    turn_ended: Condvar,
}

#[derive(Debug, Default)]
struct SessionState {
    is_measuring: bool,
    /// No further launch is measured.
    is_closed: bool,
    /// `None` also while a thread begins or ends a launch.
    profiler: Option<ContextProfiler>,
    /// The context is not measured.
    has_failed: bool,
}

/// A context's counters, until they are released.
#[derive(Debug)]
pub(super) struct ContextProfiler {
    metrics: Arc<DeviceMetrics>,
    context: usize,
    /// `None` if CUPTI does not tell it.
    context_id: Option<u32>,
    handle: RangeHandle,
    image: CounterImage,
}

/// Why a launch is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissReason {
    /// The recording, or the context, has ended.
    Ended,
    /// Reported now.
    Failed(CallFailure),
    /// Other than one range was measured.
    NotOneRange(StopReport),
    /// Reported by an earlier launch.
    FailedBefore,
    /// Another launch of the context did not end.
    NoTurn,
}

/// How long a launch waits for another one of its context.
const TURN_LIMIT: Duration = Duration::from_secs(10);

impl DeviceMetrics {
    /// Configures the metrics for a device.
    ///
    /// # Errors
    /// Why the device cannot measure them.
    pub(super) fn new(
        (api, ranges): (&'static ProfilerApi, &'static RangeApi),
        device: &DeviceDescription,
        metrics: &[String],
    ) -> Result<DeviceMetrics, Unavailable> {
        levels::check_levels(api, ProfilerKind::Ranges, device)?;
        let configured = ConfiguredMetrics::new(api, ProfilerKind::Ranges, device, &|_| Ok(None), metrics)?;
        let ConfiguredMetrics { host, names, config, passes } = configured;
        Ok(DeviceMetrics { device: device.id, api: ranges, names, host: Mutex::new(host), config, passes })
    }
}

impl ContextSession {
    pub(super) fn new(context: usize, metrics: Arc<DeviceMetrics>) -> ContextSession {
        ContextSession { context, metrics, state: Mutex::default(), turn_ended: Condvar::new() }
    }

    fn lock_state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no launch is measured; returns `None` if that takes too long.
    fn wait_for_turn(&self, until: Instant) -> Option<MutexGuard<'_, SessionState>> {
        let state = self.turn_ended.wait_while_until(&self.state, self.lock_state(), until, |state| state.is_measuring);
        (!state.is_measuring).then_some(state)
    }

    /// Waits until no launch is measured.
    pub(super) fn wait_for_launch(&self) {
        drop(self.turn_ended.wait_while(&self.state, self.lock_state(), |state| state.is_measuring));
    }

    /// Ends the turn that `is_measuring` reserves.
    fn end_turn(&self) {
        self.lock_state().is_measuring = false;
        self.turn_ended.notify_all();
    }

    /// Begins to measure a launch of the calling thread, whose current context this is.
    ///
    /// # Errors
    /// Why the launch is not measured.
    pub(super) fn begin_launch(&self) -> Result<(), MissReason> {
        let profiler = {
            let mut state = self.wait_for_turn(steady() + TURN_LIMIT).ok_or(MissReason::NoTurn)?;
            if state.is_closed {
                return Err(MissReason::Ended);
            }
            if state.has_failed {
                return Err(MissReason::FailedBefore);
            }
            state.is_measuring = true;
            state.profiler.take()
        };
        // Outside of the lock, which each launch takes. The turn keeps others from the counters.
        let opened = profiler.map_or_else(|| ContextProfiler::open(self.context, &self.metrics), Ok);
        let begun = opened.and_then(|mut profiler| match profiler.start(RangeUnit::Kernels) {
            Ok(()) => Ok(profiler),
            Err(failed) => {
                profiler.release();
                Err(failed)
            }
        });
        match begun {
            Ok(profiler) => {
                self.lock_state().profiler = Some(profiler);
                Ok(())
            }
            Err(failed) => {
                self.lock_state().has_failed = true;
                self.end_turn();
                Err(MissReason::Failed(failed))
            }
        }
    }

    /// Ends the measuring of a launch; passes its values to `report`, or `None` if other than one kernel ran, or why there
    /// are no values. The end of the recording waits for the report.
    pub(super) fn end_launch(&self, report: impl FnOnce(Result<Option<Vec<f64>>, CallFailure>)) {
        let profiler = self.lock_state().profiler.take();
        let read = |profiler: &ContextProfiler| profiler.read_values(RangeUnit::Kernels).map(Result::ok);
        let values = profiler.as_ref().map_or(Ok(None), read);
        // After an error the next launch begins anew.
        let is_usable = values.is_ok();
        report(values);
        let mut state = self.lock_state();
        let (kept, ended) = if is_usable && !state.is_closed { (profiler, None) } else { (None, profiler) };
        state.profiler = kept;
        drop(state);
        if let Some(profiler) = ended {
            profiler.release();
        }
        self.end_turn();
    }

    /// Ends the measuring of the context; returns whether a launch is still measured at the deadline, which then releases the
    /// counters when it returns.
    pub(super) fn close(&self, driver: &Driver, deadline: Instant) -> bool {
        self.lock_state().is_closed = true;
        let Some(state) = self.wait_for_turn(deadline) else { return true };
        self.release_counters(driver, state);
        false
    }

    /// Ends the measuring of the context without a call of CUPTI; returns whether a launch is still measured at the deadline.
    pub(super) fn close_without_release(&self, deadline: Instant) -> bool {
        self.lock_state().is_closed = true;
        self.wait_for_turn(deadline).is_none()
    }

    /// Releases the counters until the next launch, unless one is measured.
    pub(super) fn release_idle(&self, driver: &Driver) {
        let state = self.lock_state();
        if !state.is_measuring {
            self.release_counters(driver, state);
        }
    }

    fn release_counters(&self, driver: &Driver, mut state: MutexGuard<'_, SessionState>) {
        let Some(profiler) = state.profiler.take() else { return };
        state.is_measuring = true;
        drop(state);
        // Without its context the object has ended too.
        driver.with_context(self.context, || profiler.end(false));
        self.end_turn();
    }
}

impl ContextProfiler {
    /// Reserves the counters of a context, which must be current.
    pub(super) fn open(context: usize, metrics: &Arc<DeviceMetrics>) -> Result<ContextProfiler, CallFailure> {
        let DeviceMetrics { api, names, .. } = &**metrics;
        let handle = api.enable(context)?;
        let image = api.new_image(handle, names).inspect_err(|_| api.disable(handle))?;
        let context_id = api.find_context_id(context);
        Ok(ContextProfiler { metrics: metrics.clone(), context, context_id, handle, image })
    }

    fn start(&mut self, unit: RangeUnit) -> Result<(), CallFailure> {
        self.metrics.api.start(self.handle, unit, &self.metrics.config, &mut self.image)
    }

    /// Starts, and begins the one range of an annotation.
    pub(super) fn begin_range(&mut self) -> Result<(), CallFailure> {
        self.start(RangeUnit::Annotations)?;
        self.metrics.api.push_range(self.handle)
    }

    /// Ends that range, and returns its values.
    pub(super) fn end_range(&self) -> Result<Vec<f64>, MissReason> {
        self.metrics.api.pop_range(self.handle).map_err(MissReason::Failed)?;
        let values = self.read_values(RangeUnit::Annotations).map_err(MissReason::Failed)?;
        values.map_err(MissReason::NotOneRange)
    }

    /// Ends that range without its values; returns whether it left none undecoded, which the next decode would return.
    pub(super) fn abandon_range(&self) -> bool {
        let is_popped = self.metrics.api.pop_range(self.handle).is_ok();
        let stopped = self.metrics.api.stop(self.handle, RangeUnit::Annotations, &self.image);
        is_popped && stopped.is_ok_and(|report| report.is_complete)
    }

    /// Releases the counters, after a range that `has_range` open. The context must be current.
    pub(super) fn end(self, has_range: bool) {
        // The object has ended with its context, whose handle another one may have.
        if self.metrics.api.find_context_id(self.context) != self.context_id {
            return;
        }
        if has_range {
            self.abandon_range();
        }
        self.release();
    }

    /// Releases the counters. The context must be current.
    pub(super) fn release(self) {
        self.metrics.api.disable(self.handle);
    }

    /// Stops, and returns the values, or what CUPTI has instead of one range.
    fn read_values(&self, unit: RangeUnit) -> Result<Result<Vec<f64>, StopReport>, CallFailure> {
        // With further ranges, another launch ran meanwhile, and which is which is unknown.
        let report = self.metrics.api.stop(self.handle, unit, &self.image)?;
        if !report.is_one_range() {
            return Ok(Err(report));
        }
        let host = self.metrics.host.lock().unwrap_or_else(PoisonError::into_inner);
        host.evaluate(&self.image, 0, &self.metrics.names).map(Ok)
    }
}
