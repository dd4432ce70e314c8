//! Range metrics: hardware counters of each kernel, by CUPTI's range profiler (CUPTI 12.6 and later).
//!
//! A callback at the start of a launch makes CUPTI measure what the context launches, and one at its end reads the values.
//! In between CUPTI runs the kernel once for each pass that the metrics take, and restores memory before each: a launch
//! waits for its kernel. Therefore nothing else of the device is recorded meanwhile; its times would not be the program's.

mod ffi;
mod session;
mod settings;

pub(super) use settings::RangeSettings;

use super::ffi::{DRIVER, RUNTIME};
use super::profiler::ffi::{CallFailure, MetricNames, ProfilerApi};
use super::profiler::lease::{OWNER, ProfilerLease};
use super::profiler::shapes::KERNEL_RANGE;
use super::profiler::{FIRST_VERSION, Helper};
use super::start::Loaded;
use super::subscriber::Subscriber;
use crate::buffer::Loss;
use crate::collector::buffered::recording::RecordingApi;
use crate::collector::clock::realtime_now;
use crate::collector::cuda::{Driver, is_inside_init};
use crate::collector::records::demangle::demangle;
use crate::collector::{Capabilities, DeviceWork, RecordSink, Selection, Unavailable, Why};
use ffi::RangeApi;
use kineto_trace::activity::{ActivityType, ActivityTypes};
use serde_json::json;
use session::{ContextSession, DeviceMetrics, MissReason};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The functions of libcupti.
#[derive(Debug)]
pub(super) struct RangeLibrary {
    profiler: &'static ProfilerApi,
    api: &'static RangeApi,
    helper: Helper,
}

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

/// The measuring of a recording.
#[derive(Debug)]
pub(super) struct RangeMetrics {
    driver: &'static Driver,
    subscriber: Subscriber,
    sink: RecordSink,
    functions: BTreeMap<(u32, u32), WatchedFunction>,
    sessions: Mutex<BTreeMap<usize, Arc<ContextSession>>>,
    is_over: AtomicBool,
    /// Launches that were measured or are being measured, those that could not be, and those beyond the limit.
    begun: AtomicU64,
    missed: AtomicU64,
    beyond_limit: AtomicU64,
    plan: RangePlan,
}

/// A function whose callback is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchedFunction {
    Launch,
    /// Ends a context.
    ContextEnd,
}

/// A call that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunCall {
    /// Its domain and number.
    pub(super) function: (u32, u32),
    /// The thread's current context; 0 for none.
    pub(super) context: usize,
}

/// A launch that returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedLaunch<'c> {
    /// Whether it returns an error.
    pub(super) failed: bool,
    pub(super) correlation: u32,
    /// The kernel's name; empty if it is not known.
    pub(super) kernel: &'c str,
}

/// A launch that a thread is in. The runtime's functions call the driver's: the outer call is the launch.
#[derive(Debug)]
struct CurrentLaunch {
    function: (u32, u32),
    /// `None` if it is not measured.
    measured: Option<MeasuredLaunch>,
}

/// A launch that is measured, until it returns: whatever ends meanwhile.
#[derive(Debug)]
struct MeasuredLaunch {
    metrics: Arc<RangeMetrics>,
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
pub(super) fn end_launch(call: &EndedLaunch<'_>) {
    let launch = LAUNCH.try_with(|launch| launch.borrow_mut().take()).ok().flatten();
    if let Some(measured) = launch.and_then(|launch| launch.measured) {
        measured.metrics.clone().end_launch(call, &measured);
    }
}

/// The functions to watch, without the endings by which CUPTI tells their variants apart.
const LAUNCHES: [&str; 4] = ["cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernel", "cudaLaunchKernelExC"];
const CONTEXT_ENDS: [&str; 4] =
    ["cuCtxDestroy", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease", "cudaDeviceReset"];

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
        let version = loaded.interfaces.version;
        let too_old = || {
            let message = format!("libcupti {version} has no range profiler");
            Unavailable::new(Why::Incompatible, message, "use libcupti of CUDA 12.6 or newer")
        };
        if version < FIRST_VERSION {
            return Err(too_old());
        }
        let helper = Helper::preload(loaded.path.as_deref(), &mut Vec::new());
        let profiler = ProfilerApi::new(loaded.library).map_err(|_| too_old())?;
        let api = RangeApi::new(loaded.library).map_err(|_| too_old())?;
        Ok(RangeLibrary { profiler: Box::leak(Box::new(profiler)), api: Box::leak(Box::new(api)), helper })
    }
}

impl RangePlan {
    /// Prepares the metrics of a selection.
    ///
    /// # Errors
    /// Why no kernel can be measured.
    pub(super) fn new(loaded: &Loaded, selection: &Selection) -> Result<RangePlan, Unavailable> {
        let settings = RangeSettings::read(selection)?;
        if is_inside_init() {
            let message = "a recording that begins inside cuInit cannot measure kernels";
            return Err(Unavailable::new(Why::Unsupported, message, "start the recording after cuInit"));
        }
        let library = loaded.range_library()?;
        OWNER.claim();
        let mut lease =
            ProfilerLease::acquire().ok_or_else(|| Unavailable::library_in_use("CUPTI's profiler of counters"))?;
        let explained = |reason| library.helper.explain(reason);
        lease.initialize(library.profiler).map_err(|failed| explained(failed.to_unavailable()))?;
        let mut plan = RangePlan { api: library.api, settings, devices: Vec::new(), failed: Vec::new(), _lease: lease };
        for device in loaded.driver.devices() {
            match DeviceMetrics::new(library.profiler, device, &plan.settings.metrics) {
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

    fn device(&self, number: i32) -> Option<&Arc<DeviceMetrics>> {
        self.devices.iter().find(|metrics| metrics.device == number)
    }
}

impl RangeMetrics {
    /// Subscribes to launches, and adds what is measured to the capabilities.
    pub(super) fn start(
        plan: RangePlan,
        loaded: &Loaded,
        subscriber: Subscriber,
        sink: &RecordSink,
        capabilities: &mut Capabilities,
    ) -> Arc<RangeMetrics> {
        let functions = find_functions(subscriber);
        for (domain, function) in functions.keys() {
            if let Err(error) = subscriber.enable_call(*domain, *function) {
                capabilities
                    .notes
                    .push(format!("could not subscribe to some launches, which are not measured: {error}"));
            }
        }
        let passes: BTreeMap<_, _> =
            plan.devices.iter().map(|metrics| (metrics.device.to_string(), metrics.passes)).collect();
        let about = json!({
            "metrics": plan.settings.metrics,
            "ranges": "kernels",
            "replay": "kernel",
            "passes": passes,
            "max_ranges": plan.settings.max_ranges,
            "times": "a row lasts as long as its launch, which waits for all passes",
            "left_out": "kernels, copies, fills, waits and events of devices",
        });
        capabilities.metadata.push(("range_metrics".to_owned(), about.to_string()));
        capabilities.types = capabilities.types.with(ActivityType::CudaProfilerRange);
        capabilities.is_incomplete |= !plan.failed.is_empty();
        let failed = plan.failed.iter().map(|(device, why)| format!("kernels of GPU {device} are not measured: {why}"));
        capabilities.notes.extend(failed);
        let left_out = "kernels are replayed for CUPTI_PROFILER_METRICS, so other records of devices are left out";
        capabilities.notes.push(left_out.to_owned());
        Arc::new(RangeMetrics {
            driver: loaded.driver,
            subscriber,
            sink: sink.clone(),
            functions,
            sessions: Mutex::default(),
            is_over: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            beyond_limit: AtomicU64::new(0),
            plan,
        })
    }

    /// Handles a call of the program that begins.
    pub(super) fn on_begun_call(self: &Arc<Self>, call: &BegunCall) {
        match self.functions.get(&call.function) {
            Some(WatchedFunction::Launch) => self.begin_launch(call),
            // The next launch of a context that remains begins anew.
            Some(WatchedFunction::ContextEnd) => self.close_sessions(),
            None => {}
        }
    }

    fn now(&self) -> u64 {
        self.subscriber.timestamp().unwrap_or_else(realtime_now)
    }

    /// Begins to measure a launch, unless the thread is in one already.
    fn begin_launch(self: &Arc<Self>, call: &BegunCall) {
        let now = self.now();
        let is_unwanted = self.is_over.load(Ordering::Acquire) || self.sink.is_waiting();
        let is_nested = LAUNCH.try_with(|launch| launch.borrow().is_some()).unwrap_or(true);
        if is_unwanted || call.context == 0 || is_nested || self.sink.pauses().covers(now, now) {
            return;
        }
        let measured = self.measure_launch(call.context);
        let launch = CurrentLaunch { function: call.function, measured };
        let _ = LAUNCH.try_with(|current| *current.borrow_mut() = Some(launch));
    }

    /// Begins to measure a launch of a context; returns `None`, and counts, if that cannot be.
    fn measure_launch(self: &Arc<Self>, context: usize) -> Option<MeasuredLaunch> {
        let most = self.plan.settings.max_ranges;
        if self.begun.fetch_add(1, Ordering::Relaxed) >= most && most != 0 {
            self.beyond_limit.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let missed = match self.begin_in_context(context) {
            Ok(session) => return Some(MeasuredLaunch { metrics: self.clone(), session, start: self.now() }),
            Err(missed) => missed,
        };
        self.begun.fetch_sub(1, Ordering::Relaxed);
        match missed {
            MissReason::Ended => return None,
            MissReason::Failed(failed) => {
                self.sink.note(format!("kernels of a context are not measured: {}", failed.to_unavailable()));
            }
            MissReason::FailedBefore | MissReason::NoTurn => {}
        }
        self.count_missed();
        None
    }

    /// Begins to measure a context.
    fn begin_in_context(&self, context: usize) -> Result<Arc<ContextSession>, MissReason> {
        let RangePlan { api, settings, .. } = &self.plan;
        let number = api.find_device(context).map_err(MissReason::Failed)?.cast_signed();
        let metrics = self.plan.device(number).ok_or(MissReason::FailedBefore)?;
        let session = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            // Checked under the lock: the end of the recording closes the sessions that exist then.
            if self.is_over.load(Ordering::Acquire) {
                return Err(MissReason::Ended);
            }
            sessions.entry(context).or_insert_with(|| Arc::new(ContextSession::new(context, metrics.clone()))).clone()
        };
        session.begin_launch(api, &MetricNames::new(&settings.metrics)).map(|()| session)
    }

    fn end_launch(&self, call: &EndedLaunch<'_>, launch: &MeasuredLaunch) {
        let end = self.now();
        match launch.session.end_launch(&MetricNames::new(&self.plan.settings.metrics)) {
            Ok(Some(values)) => self.add_row(call, launch, end, &values),
            // A launch that failed, or that a graph has captured.
            Ok(None) if call.failed => {}
            Ok(None) => self.count_missed(),
            Err(failed) => self.note_failure(failed),
        }
    }

    fn note_failure(&self, failed: CallFailure) {
        self.sink.note(format!("a kernel was not measured: {failed}"));
        self.count_missed();
    }

    fn count_missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        self.sink.lost(Loss::VendorDropped, 1);
    }

    fn add_row(&self, call: &EndedLaunch<'_>, launch: &MeasuredLaunch, end: u64, values: &[f64]) {
        self.sink.record(|batch| {
            let mut words = vec![0];
            for (metric, value) in self.plan.settings.metrics.iter().zip(values) {
                if value.is_finite() {
                    words.extend([u64::from(batch.name(metric).0), value.to_bits()]);
                } else {
                    batch.count_lost(Loss::CounterValues, 1);
                }
            }
            let count = (words.len() / 2) as u64;
            words.iter_mut().take(1).for_each(|word| *word = count);
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
        sessions.into_values().for_each(|session| session.close(self.driver));
    }

    /// Ends the measuring, and releases the counters of all contexts.
    pub(super) fn finish(&self) {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.close_sessions();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if count(&self.missed) > 0 {
            self.sink.note(format!("{} launches could not be measured", count(&self.missed)));
        }
        if count(&self.beyond_limit) > 0 {
            let (beyond, most) = (count(&self.beyond_limit), self.plan.settings.max_ranges);
            self.sink.note(format!("{beyond} launches were not measured: CUPTI_PROFILER_MAX_RANGES is {most}"));
        }
    }
}

/// Finds the numbers of the functions to watch, which newer versions have more of.
fn find_functions(subscriber: Subscriber) -> BTreeMap<(u32, u32), WatchedFunction> {
    let all = [DRIVER, RUNTIME].into_iter().flat_map(|domain| (1..2048).map(move |function| (domain, function)));
    let watched = |(domain, function): (u32, u32)| {
        let name = subscriber.api.callback_name(domain, function)?;
        let name = name.split("_v").next()?.trim_end_matches("_ptsz");
        let is_in = |names: &[&str]| names.contains(&name);
        let kind = if is_in(&LAUNCHES) {
            WatchedFunction::Launch
        } else {
            is_in(&CONTEXT_ENDS).then_some(WatchedFunction::ContextEnd)?
        };
        Some(((domain, function), kind))
    };
    all.filter_map(watched).collect()
}
