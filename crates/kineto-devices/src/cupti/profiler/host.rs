//! Metrics of a chip: names, configurations, values, and reasons for refusals.

use super::super::pm::MetricDescription;
use super::super::profiler_ffi::{CallFailure, CounterImage, HostHandle, MetricNames, ProfilerApi, ProfilerKind};
use crate::{Unavailable, Why};
use kineto_base::text::closest_name;
use std::ffi::CStr;

/// A host object, deinitialised on drop.
#[derive(Debug)]
pub(crate) struct HostObject {
    api: &'static ProfilerApi,
    kind: ProfilerKind,
    host: HostHandle,
    /// NVIDIA does not document whether the library copies it.
    _available: Option<Vec<u8>>,
}

/// The kinds of metrics, with CUPTI's numbers.
const KINDS: [(&str, u32); 3] = [("counter", 0), ("ratio", 1), ("throughput", 2)];

impl Drop for HostObject {
    fn drop(&mut self) {
        self.api.end_host(self.host);
    }
}

impl HostObject {
    /// Makes a host object for a chip; without an availability image, for all of its counters.
    pub(crate) fn new(
        api: &'static ProfilerApi,
        kind: ProfilerKind,
        chip: &CStr,
        available: Option<&[u8]>,
    ) -> Result<HostObject, CallFailure> {
        let available = available.map(<[u8]>::to_vec);
        let host = api.new_host(kind, chip, available.as_deref())?;
        Ok(HostObject { api, kind, host, _available: available })
    }

    /// Adds the metrics, and returns their configuration image. The object is unusable after a failure.
    pub(crate) fn configure(&self, metrics: &MetricNames) -> Result<Vec<u8>, CallFailure> {
        self.api.add_metrics(self.host, metrics)?;
        self.api.read_config(self.host)
    }

    /// Returns the values of a sample, one for each metric.
    pub(crate) fn evaluate(
        &self,
        image: &CounterImage,
        sample: usize,
        metrics: &MetricNames,
    ) -> Result<Vec<f64>, CallFailure> {
        self.api.evaluate_sample(self.host, image, sample, metrics)
    }

    /// Returns the metrics of the chip, without descriptions.
    fn base_names(&self) -> Vec<(String, &'static str, u32)> {
        let of_kind = |(kind, number): (&'static str, u32)| {
            let names = self.api.list_base_metrics(self.host, number).unwrap_or_default();
            names.into_iter().map(move |name| (name, kind, number))
        };
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    /// Returns the metrics of the chip.
    pub(crate) fn base_metrics(&self) -> Vec<MetricDescription> {
        let described = |(name, kind, number): (String, &'static str, u32)| {
            // Only whole names have properties.
            let ending = || self.api.list_sub_metrics(self.host, number, &name).ok()?.into_iter().next();
            let whole = ending().map(|ending| format!("{name}.{}", ending.trim_start_matches('.')));
            let about = whole.and_then(|whole| self.api.metric_properties(self.host, &whole).ok()).unwrap_or_default();
            let is_sampled = self.kind == ProfilerKind::PmSampling;
            let (description, unit) = (about.description, about.unit);
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
        let endings = self.api.list_sub_metrics(self.host, *kind, known).unwrap_or_default();
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
        host.is_none_or(|host| host.api.add_metrics(host.host, &MetricNames::new(&[(*name).clone()])).is_ok())
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
