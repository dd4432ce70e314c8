//! Measures the kernels of one context: a launch at a time, between the callbacks at its begin and at its end.

use super::super::profiler::ffi::{CallFailure, CounterImage, MetricNames, ProfilerApi, ProfilerKind};
use super::super::profiler::host::{HostObject, refusal_of};
use super::super::profiler::levels;
use super::ffi::{RangeApi, RangeHandle, RangeUnit, StopReport};
use crate::collector::cuda::Driver;
use crate::collector::{DeviceDescription, Unavailable};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The metrics of a device.
#[derive(Debug)]
pub(super) struct DeviceMetrics {
    pub(super) device: i32,
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
    profiler: Option<ContextProfiler>,
    /// Why the context is not measured.
    failure: Option<CallFailure>,
}

/// A context's counters, until they are released.
#[derive(Debug)]
pub(super) struct ContextProfiler {
    api: &'static RangeApi,
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

/// How long a launch waits for another one of its context, and the end of a recording for a launch.
const TURN_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_millis(500);

impl DeviceMetrics {
    /// Configures the metrics for a device.
    ///
    /// # Errors
    /// Why the device cannot measure them.
    pub(super) fn new(
        api: &'static ProfilerApi,
        device: &DeviceDescription,
        metrics: &[String],
    ) -> Result<DeviceMetrics, Unavailable> {
        const KIND: ProfilerKind = ProfilerKind::Ranges;
        levels::check_levels(api, KIND, device)?;
        let index = usize::try_from(device.id).unwrap_or(0);
        let chip = api.read_chip_name(index).map_err(CallFailure::to_unavailable)?;
        let host = HostObject::new(api, KIND, &chip, None).map_err(CallFailure::to_unavailable)?;
        let config = host
            .configure(&MetricNames::new(metrics))
            .map_err(|failed| refusal_of(api, KIND, &chip, None, metrics).unwrap_or_else(|| failed.to_unavailable()))?;
        let passes = api.count_passes(&config).map_err(CallFailure::to_unavailable)?;
        Ok(DeviceMetrics { device: device.id, host: Mutex::new(host), config, passes })
    }
}

impl ContextSession {
    pub(super) fn new(context: usize, metrics: Arc<DeviceMetrics>) -> ContextSession {
        ContextSession { context, metrics, state: Mutex::default(), turn_ended: Condvar::new() }
    }

    /// Waits until no launch is measured; returns `None` if that takes too long.
    fn wait_for_turn(&self, limit: Duration) -> Option<MutexGuard<'_, SessionState>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.turn_ended.wait_timeout_while(state, limit, |state| state.is_measuring);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.is_measuring).then_some(state)
    }

    /// Begins to measure a launch of the calling thread, whose current context this is.
    ///
    /// # Errors
    /// Why the launch is not measured.
    pub(super) fn begin_launch(&self, api: &'static RangeApi, names: &MetricNames) -> Result<(), MissReason> {
        let mut state = self.wait_for_turn(TURN_LIMIT).ok_or(MissReason::NoTurn)?;
        if state.is_closed {
            return Err(MissReason::Ended);
        }
        if state.failure.is_some() {
            return Err(MissReason::FailedBefore);
        }
        let opened = state.open_profiler(api, self.context, names);
        let begun = opened.and_then(|profiler| profiler.start(RangeUnit::Kernels, &self.metrics));
        match begun {
            Ok(()) => {
                state.is_measuring = true;
                Ok(())
            }
            Err(failed) => {
                state.release_counters();
                state.failure = Some(failed);
                drop(state);
                self.turn_ended.notify_all();
                Err(MissReason::Failed(failed))
            }
        }
    }

    /// Ends the measuring of a launch; returns its values, or `None` if other than one kernel ran.
    ///
    /// # Errors
    /// Why there are no values.
    pub(super) fn end_launch(&self, names: &MetricNames) -> Result<Option<Vec<f64>>, CallFailure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let values = state.profiler.as_ref().map_or(Ok(None), |profiler| {
            profiler.read_values(RangeUnit::Kernels, &self.metrics, names).map(Result::ok)
        });
        state.is_measuring = false;
        // After an error the next launch begins anew.
        if values.is_err() || state.is_closed {
            state.release_counters();
        }
        drop(state);
        self.turn_ended.notify_all();
        values
    }

    /// Ends the measuring of the context. A launch that is measured longer than a limit releases the counters itself.
    pub(super) fn close(&self, driver: &Driver) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.turn_ended.notify_all();
        let Some(mut state) = self.wait_for_turn(END_LIMIT) else { return };
        driver.with_context(self.context, || state.release_counters());
        // Without its context the object has ended too.
        state.profiler = None;
    }
}

impl SessionState {
    fn open_profiler(
        &mut self,
        api: &'static RangeApi,
        context: usize,
        names: &MetricNames,
    ) -> Result<&mut ContextProfiler, CallFailure> {
        let profiler = match self.profiler.take() {
            Some(profiler) => profiler,
            None => ContextProfiler::open(api, context, names)?,
        };
        Ok(self.profiler.insert(profiler))
    }

    /// Releases the counters. The context must be current.
    fn release_counters(&mut self) {
        if let Some(profiler) = self.profiler.take() {
            profiler.release();
        }
    }
}

impl ContextProfiler {
    /// Reserves the counters of a context, which must be current.
    pub(super) fn open(
        api: &'static RangeApi,
        context: usize,
        names: &MetricNames,
    ) -> Result<ContextProfiler, CallFailure> {
        let handle = api.enable(context)?;
        let image = api.new_image(handle, names).inspect_err(|_| api.disable(handle))?;
        Ok(ContextProfiler { api, handle, image })
    }

    pub(super) fn start(&mut self, unit: RangeUnit, metrics: &DeviceMetrics) -> Result<(), CallFailure> {
        self.api.start(self.handle, unit, &metrics.config, &mut self.image)
    }

    /// Starts, and begins the one range of an annotation.
    pub(super) fn begin_range(&mut self, metrics: &DeviceMetrics) -> Result<(), CallFailure> {
        self.start(RangeUnit::Annotations, metrics)?;
        self.api.push_range(self.handle)
    }

    /// Ends that range, and returns its values.
    pub(super) fn end_range(&self, metrics: &DeviceMetrics, names: &MetricNames) -> Result<Vec<f64>, MissReason> {
        self.api.pop_range(self.handle).map_err(MissReason::Failed)?;
        let values = self.read_values(RangeUnit::Annotations, metrics, names).map_err(MissReason::Failed)?;
        values.map_err(MissReason::NotOneRange)
    }

    /// Ends that range without its values.
    pub(super) fn abandon_range(&self) {
        let _ = self.api.pop_range(self.handle);
        let _ = self.api.stop(self.handle, RangeUnit::Annotations, &self.image);
    }

    /// Releases the counters. The context must be current.
    pub(super) fn release(self) {
        self.api.disable(self.handle);
    }

    /// Stops, and returns the values, or what CUPTI has instead of one range.
    fn read_values(
        &self,
        unit: RangeUnit,
        metrics: &DeviceMetrics,
        names: &MetricNames,
    ) -> Result<Result<Vec<f64>, StopReport>, CallFailure> {
        // With further ranges, another launch ran meanwhile, and which is which is unknown.
        let report = self.api.stop(self.handle, unit, &self.image)?;
        if !report.is_one_range() {
            return Ok(Err(report));
        }
        let host = metrics.host.lock().unwrap_or_else(PoisonError::into_inner);
        host.evaluate(&self.image, 0, names).map(Ok)
    }
}
