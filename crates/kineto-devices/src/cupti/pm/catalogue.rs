//! The metrics that GPUs offer, for `kineto doctor`.

use super::super::profiler::ffi::{CallFailure, HostObject, MetricNames, ProfilerKind};
use super::super::profiler::host::refusal_of;
use super::super::profiler::lease::ProfilerLease;
use super::super::range::release_held_counters;
use super::device::check_support;
use super::{PmLibrary, PmSampling, check_owner, select_devices};
use crate::{DeviceDescription, Unavailable};
use kineto_base::sorted::SortedMap;
use std::ffi::CString;

/// The hardware counters of a GPU.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GpuMetrics {
    /// The GPU.
    pub device: DeviceDescription,
    /// The name of its chip, such as "GH100".
    pub chip: String,
    /// Its metrics, by kind; why it has none if it cannot be sampled.
    pub metrics: Result<Vec<MetricDescription>, Unavailable>,
    /// How many passes the queried metrics take together, or why the GPU lacks one of them. `None` if none was queried.
    pub passes: Option<Result<usize, Unavailable>>,
    /// How many passes they take of the range profiler, which measures kernels and annotations.
    pub range_passes: Option<Result<usize, Unavailable>>,
    /// The queried metrics that fit in one pass together, in their order: those of annotations, which have one.
    pub one_pass: Vec<String>,
}

/// A metric without the rollup that completes its name, such as `.avg` or `.sum`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricDescription {
    /// Its name, such as `sm__cycles_active`.
    pub name: String,
    /// Its kind: "counter", "ratio" or "throughput".
    pub kind: &'static str,
    /// What it counts.
    pub description: String,
    /// The unit of its values; empty without one.
    pub unit: String,
    /// Whether PM sampling can read it.
    pub is_sampled: bool,
    /// Whether it can be measured of kernels and annotations.
    pub is_measured: bool,
}

impl PmSampling {
    /// Returns the metrics of each GPU of this process. For metrics that `names` lists with their rollups, it also returns
    /// how many passes they take, and which fit in one. PM sampling and annotations have one.
    ///
    /// # Errors
    /// Why no GPU can be queried, for example because there is no driver.
    pub fn describe_metrics(&self, names: &[String]) -> Result<Vec<GpuMetrics>, Unavailable> {
        let library = self.load()?;
        check_owner()?;
        let devices = select_devices(library.cupti.driver.devices(), &[])?;
        release_held_counters();
        let mut lease = ProfilerLease::acquire().ok_or_else(|| Unavailable::library_in_use("CUPTI's PM sampling"))?;
        lease
            .initialize(library.sampling.profiler)
            .map_err(|failed| library.sampling.explain(failed.to_unavailable()))?;
        Ok(devices.into_iter().map(|device| library.describe_device(device, names)).collect())
    }
}

/// Returns the metrics of both profilers, each once, by kind.
fn merge_metrics(sampled: Vec<MetricDescription>, measured: Vec<MetricDescription>) -> Vec<MetricDescription> {
    let mut metrics: SortedMap<_, _> = sampled.into_iter().map(|it| ((it.kind, it.name.clone()), it)).collect();
    for metric in measured {
        let known = metrics.get_or_insert_with((metric.kind, metric.name.clone()), || metric);
        known.is_measured = true;
    }
    metrics.into_iter().map(|(_, value)| value).collect()
}

impl PmLibrary {
    fn describe_device(&self, device: DeviceDescription, names: &[String]) -> GpuMetrics {
        let index = usize::try_from(device.id).unwrap_or(0);
        let queried = check_support(self.sampling.profiler, &device).and_then(|_| {
            let chip = self.sampling.profiler.read_chip_name(index).map_err(CallFailure::to_unavailable)?;
            // Without an availability image: another profiler may be using the counters.
            let host = HostObject::new(self.sampling.profiler, ProfilerKind::PmSampling, &chip, None)
                .map_err(CallFailure::to_unavailable)?;
            let ranges = HostObject::new(self.sampling.profiler, ProfilerKind::Ranges, &chip, None);
            let of_ranges = ranges.map(|host| host.base_metrics()).unwrap_or_default();
            Ok((chip, merge_metrics(host.base_metrics(), of_ranges)))
        });
        let queried = queried.map_err(|reason| self.sampling.explain(reason));
        let chip = queried.as_ref().map(|(chip, _)| chip.clone()).unwrap_or_default();
        let is_queried = !names.is_empty() && queried.is_ok();
        let count = |kind| is_queried.then(|| self.count_passes(kind, &chip, names));
        let (passes, range_passes) = (count(ProfilerKind::PmSampling), count(ProfilerKind::Ranges));
        let mut one_pass: Vec<String> = Vec::new();
        for name in names.iter().filter(|_| is_queried) {
            one_pass.push(name.clone());
            if !matches!(self.count_passes(ProfilerKind::Ranges, &chip, &one_pass), Ok(1)) {
                one_pass.pop();
            }
        }
        let metrics = queried.map(|(_, metrics)| metrics);
        let chip = chip.to_string_lossy().into_owned();
        GpuMetrics { device, chip, metrics, passes, range_passes, one_pass }
    }

    fn count_passes(&self, kind: ProfilerKind, chip: &CString, names: &[String]) -> Result<usize, Unavailable> {
        let host = HostObject::new(self.sampling.profiler, kind, chip, None).map_err(CallFailure::to_unavailable)?;
        let config = host.configure(&MetricNames::new(names));
        let passes = config.and_then(|config| self.sampling.profiler.count_passes(&config));
        passes.map_err(|failed| {
            refusal_of(self.sampling.profiler, kind, chip, None, names).unwrap_or_else(|| failed.to_unavailable())
        })
    }
}
