//! PM sampling: hardware counters of GPUs at fixed intervals, through libcupti (CUPTI 12.6 and later).
//!
//! A thread ([`recording`]) enables each device ([`device`]), decodes its samples into a counter data image, and evaluates
//! them by an object of the profiler host ([`host`](super::profiler::host)). It makes all calls itself, so that a library that hangs holds up
//! nothing else. The samples are on the clock of CUPTI's activity records.

mod catalogue;
mod device;
mod ffi;
mod recording;
mod settings;

pub use catalogue::{GpuMetrics, MetricDescription};

use super::profiler::ProfilerLibrary;
use super::profiler::lease::{OWNER, ProfilerLease};
use super::range::{RangeSettings, release_held_counters};
use super::start::Loaded;
use crate::library::Attempt;
use crate::library::lazy::LazyLibrary;
use crate::{Capabilities, Collector, DeviceDescription, Options, RecordSink, Recording, Selection, Unavailable, Why};
use ffi::PmApi;
use kineto_model::activity::{ActivityType, ActivityTypes};
use recording::{CLOCK_BOUND_NS, PmRecording, SamplingPlan, StartOutcome};
use serde_json::json;
use settings::PmSettings;

/// Samples hardware counters of NVIDIA's GPUs while a recording runs: each metric becomes a graph of the device.
///
/// It is used if the option `CUPTI_PM_SAMPLING_METRICS` names metrics and the type
/// [`HardwareCounters`](ActivityType::HardwareCounters) is selected. Needs libcupti 12.6 or newer, a GPU of compute
/// capability 7.5 or higher, and usually privileges.
#[derive(Debug)]
pub struct PmSampling {
    loaded: LazyLibrary<PmLibrary>,
}

/// The loaded libraries.
#[derive(Debug)]
struct PmLibrary {
    cupti: Loaded,
    sampling: ProfilerLibrary<PmApi>,
}

impl PmSampling {
    /// Makes a collector that finds libcupti by these options, as [`Cupti`](super::Cupti) does. Opens nothing yet.
    pub fn new(options: &Options) -> PmSampling {
        PmSampling { loaded: LazyLibrary::new(options.clone()) }
    }

    fn load(&self) -> Result<&PmLibrary, Unavailable> {
        self.loaded.get_or_find(PmLibrary::find)
    }
}

impl PmLibrary {
    /// Finds the library that the CUPTI collector uses.
    fn find(options: &Options, attempts: &mut Vec<Attempt>) -> Result<PmLibrary, Unavailable> {
        let cupti = Loaded::find(options, attempts)?;
        let sampling = ProfilerLibrary::find(&cupti, "PM sampling", PmApi::new, attempts)?;
        Ok(PmLibrary { cupti, sampling })
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.cupti.capabilities();
        capabilities.types = ActivityType::HardwareCounters.into();
        capabilities.notes.clear();
        capabilities
    }
}

/// Checks that the process did not inherit the library by a fork.
fn check_owner() -> Result<(), Unavailable> {
    OWNER.claim();
    if OWNER.is_inherited() { Err(Unavailable::in_fork("sampled CUDA")) } else { Ok(()) }
}

/// Returns the devices to sample.
fn select_devices(all: &[DeviceDescription], wanted: &[i32]) -> Result<Vec<DeviceDescription>, Unavailable> {
    if let Some(missing) = wanted.iter().find(|number| !all.iter().any(|device| device.id == **number)) {
        let message = format!("CUPTI_PM_SAMPLING_DEVICE_ID: there is no GPU {missing}");
        let advice = "numbers count the GPUs of CUDA_VISIBLE_DEVICES from 0; `kineto doctor` lists them";
        return Err(Unavailable::new(Why::NoDevice, message, advice));
    }
    let is_wanted = |device: &&DeviceDescription| wanted.is_empty() || wanted.contains(&device.id);
    let devices: Vec<_> = all.iter().filter(is_wanted).cloned().collect();
    if devices.is_empty() {
        let advice =
            "run `nvidia-smi`, and check CUDA_VISIBLE_DEVICES; a recording that begins inside cuInit cannot sample";
        return Err(Unavailable::new(Why::NoDevice, "the CUDA driver finds no GPU to sample", advice));
    }
    Ok(devices)
}

impl Collector for PmSampling {
    fn name(&self) -> &'static str {
        "cupti_pm"
    }

    fn types(&self) -> ActivityTypes {
        ActivityType::HardwareCounters.into()
    }

    fn is_selected(&self, selection: &Selection) -> bool {
        !selection.options.list("CUPTI_PM_SAMPLING_METRICS").is_empty()
    }

    fn is_optional(&self) -> bool {
        true
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.load().map(PmLibrary::capabilities)
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        let settings = PmSettings::read(&selection.options)?;
        if !selection.types.contains(ActivityType::HardwareCounters) {
            let message = "the type hardware_counters is not selected, so CUPTI_PM_SAMPLING_METRICS has no effect";
            return Err(Unavailable::new(Why::Disabled, message, "add hardware_counters to ACTIVITY_TYPES"));
        }
        if selection.options.flag("TEARDOWN_CUPTI") {
            let message = "TEARDOWN_CUPTI detaches CUPTI from the process while it samples";
            return Err(Unavailable::new(Why::Unsupported, message, "unset TEARDOWN_CUPTI, or name no metrics"));
        }
        if RangeSettings::is_requested(selection) {
            let message = "CUPTI_PROFILER_METRICS excludes PM sampling: both need the counters of the GPU";
            return Err(Unavailable::new(Why::Unsupported, message, "unset one of them"));
        }
        let loaded = self.load()?;
        check_owner()?;
        let devices = select_devices(loaded.cupti.driver.devices(), &settings.devices)?;
        release_held_counters();
        let lease = ProfilerLease::acquire().ok_or_else(|| Unavailable::library_in_use("CUPTI's PM sampling"))?;
        let (cupti, version) = (loaded.cupti.interfaces.api, loaded.cupti.interfaces.version);
        // Next to a shared subscriber, cuptiGetTimestamp fails.
        let clock_bound = cupti.timestamp().map(|_| CLOCK_BOUND_NS);
        let plan = SamplingPlan {
            cupti,
            profiler: loaded.sampling.profiler,
            api: loaded.sampling.api,
            version,
            settings: settings.clone(),
            devices,
            sink,
            clock_bound,
        };
        let (started, recording) = PmRecording::start(plan, lease).map_err(|reason| loaded.sampling.explain(reason))?;
        let mut capabilities = loaded.capabilities();
        add_findings(&mut capabilities, &settings, started, clock_bound);
        Ok((capabilities, Box::new(recording)))
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }
}

/// Adds the sampled and the failed devices to the capabilities.
fn add_findings(
    capabilities: &mut Capabilities,
    settings: &PmSettings,
    started: StartOutcome,
    clock_bound: Option<u64>,
) {
    let mut about = json!({
        "metrics": settings.metrics,
        "interval_ns": settings.interval_ns,
        "devices": started.sampled,
        "clocks": "sampling may lock the clocks of a GPU",
    });
    match (clock_bound, about.as_object_mut()) {
        (Some(bound), Some(about)) => _ = about.insert("clock_bound_ns".to_owned(), bound.into()),
        _ => capabilities.notes.push("cuptiGetTimestamp failed: the clock of the samples is not measured".to_owned()),
    }
    capabilities.metadata.push(("pm_sampling".to_owned(), about.to_string()));
    capabilities.is_incomplete = !started.failed.is_empty();
    let failed = started.failed.iter().map(|(number, reason)| format!("GPU {number} is not sampled: {reason}"));
    capabilities.notes.extend(failed.chain(started.notes));
}
