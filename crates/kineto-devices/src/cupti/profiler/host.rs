//! Metrics of a chip: names, configurations, values, and reasons for refusals.

use super::super::error::INVALID_PARAMETER;
use super::super::pm::MetricDescription;
use super::ffi::{CallFailure, HostObject, MetricNames, ProfilerApi, ProfilerKind};
use crate::{DeviceDescription, Unavailable, Why};
use kineto_base::text::closest_name;
use std::ffi::CStr;

/// Metrics that are configured for a device.
#[derive(Debug)]
pub(crate) struct ConfiguredMetrics {
    pub(crate) host: HostObject,
    pub(crate) names: MetricNames,
    pub(crate) config: Vec<u8>,
    pub(crate) passes: usize,
}

/// Reads the availability image of the device with this number, if the profiler has them.
type ReadAvailability<'a> = &'a dyn Fn(usize) -> Result<Option<Vec<u8>>, CallFailure>;

impl ConfiguredMetrics {
    /// Configures metrics for a device.
    ///
    /// # Errors
    /// Why the device lacks them.
    pub(crate) fn new(
        api: &'static ProfilerApi,
        kind: ProfilerKind,
        device: &DeviceDescription,
        available: ReadAvailability<'_>,
        metrics: &[String],
    ) -> Result<ConfiguredMetrics, Unavailable> {
        let index = usize::try_from(device.id).unwrap_or(0);
        let chip = api.read_chip_name(index).map_err(CallFailure::to_unavailable)?;
        let available = available(index).map_err(CallFailure::to_unavailable)?;
        let host = HostObject::new(api, kind, &chip, available.as_deref()).map_err(CallFailure::to_unavailable)?;
        let names = MetricNames::new(metrics);
        let config = host.configure(&names).map_err(|failed| {
            let is_refusal = kind == ProfilerKind::Ranges || failed.error == INVALID_PARAMETER;
            let refused = || refusal_of(api, kind, &chip, available.as_deref(), metrics);
            is_refusal.then(refused).flatten().unwrap_or_else(|| failed.to_unavailable())
        })?;
        let passes = api.count_passes(&config).map_err(CallFailure::to_unavailable)?;
        Ok(ConfiguredMetrics { host, names, config, passes })
    }
}

/// The kinds of metrics, with CUPTI's numbers.
const KINDS: [(&str, u32); 3] = [("counter", 0), ("ratio", 1), ("throughput", 2)];

impl HostObject {
    /// Returns the metrics of the chip, without descriptions.
    fn base_names(&self) -> Vec<(String, &'static str, u32)> {
        let of_kind = |(kind, number): (&'static str, u32)| {
            let names = self.list_base_metrics(number).unwrap_or_default();
            names.into_iter().map(move |name| (name, kind, number))
        };
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    /// Returns the metrics of the chip.
    pub(crate) fn base_metrics(&self) -> Vec<MetricDescription> {
        let described = |(name, kind, number): (String, &'static str, u32)| {
            // Only whole names have properties.
            let ending = || self.list_sub_metrics(number, &name).ok()?.into_iter().next();
            let whole = ending().map(|ending| format!("{name}.{}", ending.trim_start_matches('.')));
            let about = whole.and_then(|whole| self.describe_metric(&whole).ok());
            let [description, unit] = about.unwrap_or_default();
            let is_sampled = self.kind == ProfilerKind::PmSampling;
            MetricDescription { name, kind, description, unit, is_sampled, is_measured: !is_sampled }
        };
        self.base_names().into_iter().map(described).collect()
    }

    /// Returns the name that the chip has instead of an unknown one, if one is close.
    fn suggest_name(&self, unknown: &str) -> Option<String> {
        let names = self.base_names();
        // Some names contain a dot themselves.
        let rest_after =
            |base: &str| Some(unknown.strip_prefix(base)?).filter(|rest| rest.is_empty() || rest.starts_with('.'));
        let known = names.iter().find_map(|(name, _, kind)| Some((name, kind, rest_after(name)?)));
        let Some((known, kind, rest)) = known else {
            let (base, rest) = unknown.split_once('.').unwrap_or((unknown, "avg"));
            let known: Vec<_> = names.iter().map(|(name, ..)| name.as_str()).collect();
            let close = closest_name(base, &known)?;
            return Some(format!("{close}.{rest}"));
        };
        let endings = self.list_sub_metrics(*kind, known).unwrap_or_default();
        let endings: Vec<_> = endings.iter().map(|ending| ending.trim_start_matches('.')).collect();
        let close = closest_name(rest.trim_start_matches('.'), &endings).or_else(|| endings.first().copied())?;
        Some(format!("{known}.{close}"))
    }
}

/// Returns why a chip refuses metrics: it lacks some of them.
pub(crate) fn refusal_of(
    api: &'static ProfilerApi,
    kind: ProfilerKind,
    chip: &CStr,
    available: Option<&[u8]>,
    metrics: &[String],
) -> Option<Unavailable> {
    // A host object is unusable after a failure.
    let is_known = |name: &&String| {
        let host = HostObject::new(api, kind, chip, available).ok();
        host.is_none_or(|host| host.add_metrics(&MetricNames::new(&[(*name).clone()])).is_ok())
    };
    let unknown: Vec<_> = metrics.iter().filter(|name| !is_known(name)).collect();
    let chip_name = chip.to_string_lossy();
    let first = unknown.first()?;
    let host = HostObject::new(api, kind, chip, available).ok()?;
    let meant = host.suggest_name(first).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    let names = unknown.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let message = format!("{chip_name} has no metric {names}{meant}");
    let advice =
        "a name is a metric and a rollup, such as sm__cycles_active.avg; `kineto doctor --metrics` lists the metrics";
    Some(Unavailable::new(Why::Unsupported, message, advice))
}
