//! Range metrics: hardware counters of each kernel or of each annotation, by CUPTI's range profiler (CUPTI 12.6 and later).
//!
//! Kernels are replayed for each pass ([`kernels`]); annotations have one pass and wait for their work ([`annotations`]).
//! Therefore nothing else of the device is recorded meanwhile; its times would not be the program's.

mod annotations;
mod calls;
mod captures;
mod context;
mod counts;
mod ffi;
mod functions;
mod kernels;
mod run;
mod session;
mod settings;
mod waits;

pub(super) use annotations::end_annotation;
pub(super) use settings::RangeSettings;
pub(super) use waits::OwnWaits;

use super::callbacks::{BegunCall, EndedCall};
use super::profiler::ProfilerLibrary;
use super::profiler::lease::{OWNER, ProfilerLease};
use super::start::Loaded;
use super::subscriber::Subscriber;
use crate::cuda::is_inside_init;
use crate::{Capabilities, RecordSink, Selection, Unavailable, Why};
use annotations::AnnotationMetrics;
use ffi::{RangeApi, RangeUnit};
use kernels::KernelMetrics;
use kineto_base::os::fork;
use kineto_model::activity::{ActivityType, ActivityTypes};
use run::{END_LIMIT, RangeRun};
use session::DeviceMetrics;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The functions of libcupti.
#[derive(Debug)]
pub(super) struct RangeLibrary(ProfilerLibrary<RangeApi>);

/// The metrics of a recording that is about to start.
#[derive(Debug)]
pub(super) struct RangePlan {
    api: &'static RangeApi,
    settings: RangeSettings,
    devices: Vec<Arc<DeviceMetrics>>,
    failed: Vec<(i32, Unavailable)>,
    /// Dropped after the devices, whose host objects need the profiler.
    _lease: ProfilerLease,
}

/// The metrics of a recording that runs.
#[derive(Clone, Debug)]
pub(super) enum RangeMetrics {
    Kernels(Arc<KernelMetrics>),
    Annotations(Arc<AnnotationMetrics>),
}

/// Returns whether the calling thread is in a watched call of that function.
pub(super) fn is_in_call(function: (u32, u32)) -> bool {
    kernels::LAUNCH.is_in(function) || annotations::CALL.is_in(function) || captures::CALL.is_in(function)
}

/// Ends the watched call that the calling thread is in.
pub(super) fn end_call(call: &EndedCall<'_>) {
    kernels::end_launch(call);
    annotations::end_call(call);
    captures::end_call(call.function, call.error);
}

/// Metrics of recordings that ended while a stream was captured, with the counters that they still have.
static HELD_METRICS: fork::Own<Vec<RangeMetrics>> = fork::Own::of_first(Vec::new());

/// Releases the counters that ended recordings still have, unless a capture blocks one of their contexts.
pub(super) fn release_held_counters() {
    let held = std::mem::take(&mut *HELD_METRICS.lock());
    let (captured, free): (Vec<_>, Vec<_>) = held.into_iter().partition(RangeMetrics::is_capturing);
    free.iter().for_each(RangeMetrics::release);
    HELD_METRICS.lock().extend(captured);
}

/// The types that are recorded together with metrics: those of the host.
const OF_HOST: ActivityTypes = ActivityTypes::of(&[
    ActivityType::CudaRuntime,
    ActivityType::CudaDriver,
    ActivityType::ExternalCorrelation,
    ActivityType::UserAnnotation,
    ActivityType::CpuInstantEvent,
]);

impl RangeLibrary {
    /// Resolves the functions.
    ///
    /// # Errors
    /// The library is too old.
    pub(super) fn find(loaded: &Loaded) -> Result<RangeLibrary, Unavailable> {
        ProfilerLibrary::find(loaded, "range profiler", RangeApi::new, &mut Vec::new()).map(RangeLibrary)
    }
}

impl RangePlan {
    /// Prepares the metrics of a selection.
    ///
    /// # Errors
    /// Why nothing can be measured.
    pub(super) fn new(loaded: &Loaded, selection: &Selection) -> Result<RangePlan, Unavailable> {
        let settings = RangeSettings::read(selection)?;
        if is_inside_init() {
            let message = "a recording that begins inside cuInit cannot measure metrics";
            return Err(Unavailable::new(Why::Unsupported, message, "start the recording after cuInit"));
        }
        let RangeLibrary(library) = loaded.range_library()?;
        OWNER.claim();
        release_held_counters();
        let mut lease =
            ProfilerLease::acquire().ok_or_else(|| Unavailable::library_in_use("CUPTI's profiler of counters"))?;
        let explained = |reason| library.explain(reason);
        lease.initialize(library.profiler).map_err(|failed| explained(failed.to_unavailable()))?;
        let mut plan = RangePlan { api: library.api, settings, devices: Vec::new(), failed: Vec::new(), _lease: lease };
        for device in loaded.driver.devices() {
            let metrics = DeviceMetrics::new((library.profiler, library.api), device, &plan.settings.metrics);
            match metrics.and_then(|metrics| plan.settings.check_passes(metrics.passes).map(|()| metrics)) {
                Ok(metrics) => plan.devices.push(Arc::new(metrics)),
                Err(reason) => plan.failed.push((device.id, explained(reason))),
            }
        }
        match plan.failed.first() {
            Some((device, reason)) if plan.devices.is_empty() => {
                Err(Unavailable::new(reason.why(), format!("GPU {device}: {}", reason.message()), reason.advice()))
            }
            _ => Ok(plan),
        }
    }

    /// Returns the types of a selection that are recorded together with metrics.
    pub(super) fn allowed_types(types: ActivityTypes) -> ActivityTypes {
        types.intersection(OF_HOST)
    }

    /// Measures from now on; adds a note about calls that cannot be watched.
    pub(super) fn start(
        self,
        loaded: &Loaded,
        subscriber: Subscriber,
        sink: &RecordSink,
        capabilities: &mut Capabilities,
    ) -> RangeMetrics {
        RangeMetrics::new(RangeRun::start(self, loaded, subscriber, sink, capabilities))
    }
}

impl RangeMetrics {
    /// Measures kernels or annotations from now on.
    fn new(run: RangeRun) -> RangeMetrics {
        match run.unit() {
            RangeUnit::Kernels => RangeMetrics::Kernels(Arc::new(KernelMetrics::new(run))),
            RangeUnit::Annotations => RangeMetrics::Annotations(Arc::new(AnnotationMetrics::new(run))),
        }
    }

    /// Adds what is measured to the capabilities.
    pub(super) fn describe(&self, capabilities: &mut Capabilities) {
        self.run().describe(capabilities);
    }

    /// Returns the type of the rows with metrics.
    pub(super) fn row_type(&self) -> ActivityType {
        match self {
            RangeMetrics::Kernels(_) => ActivityType::CudaProfilerRange,
            RangeMetrics::Annotations(_) => ActivityType::GpuUserAnnotation,
        }
    }

    /// Handles a call of the program that begins.
    pub(super) fn on_begun_call(&self, call: &BegunCall) {
        match self {
            RangeMetrics::Kernels(metrics) => metrics.on_begun_call(call),
            RangeMetrics::Annotations(metrics) => metrics.on_begun_call(call),
        }
    }

    /// Notes that the calling thread enters an annotation.
    pub(super) fn begin_annotation(&self, slice: u64) {
        if let RangeMetrics::Annotations(metrics) = self {
            metrics.begin_annotation(slice);
        }
    }

    fn run(&self) -> &RangeRun {
        match self {
            RangeMetrics::Kernels(metrics) => &metrics.run,
            RangeMetrics::Annotations(metrics) => &metrics.run,
        }
    }

    /// Ends the measuring, and releases the counters of all contexts. A launch that is measured has until then to return.
    pub(super) fn finish(&self, deadline: Instant) {
        if self.run().is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_captured = !self.run().captures.wait_for_ends(END_LIMIT);
        match self {
            RangeMetrics::Kernels(metrics) => metrics.finish(deadline, is_captured),
            RangeMetrics::Annotations(metrics) => metrics.finish(is_captured),
        }
        if is_captured {
            HELD_METRICS.lock().push(self.clone());
        }
    }

    /// Returns whether a stream of its contexts is captured, as far as the driver can tell.
    fn is_capturing(&self) -> bool {
        let contexts = match self {
            RangeMetrics::Kernels(metrics) => metrics.contexts(),
            RangeMetrics::Annotations(metrics) => metrics.contexts(),
        };
        let driver = self.run().driver;
        let mut is_capturing = false;
        contexts.into_iter().for_each(|it| driver.with_context(it, || is_capturing |= driver.is_capturing(None)));
        is_capturing
    }

    fn release(&self) {
        match self {
            RangeMetrics::Kernels(metrics) => metrics.release(),
            RangeMetrics::Annotations(metrics) => _ = metrics.release(),
        }
    }

    /// Waits for launches that are still measured. CUPTI releases no counters while it replays a kernel.
    pub(super) fn wait_for_launches(&self) {
        if let RangeMetrics::Kernels(metrics) = self {
            metrics.wait_for_launches();
        }
    }
}
