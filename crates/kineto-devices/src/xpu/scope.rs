//! Kernel metrics, sampled by PTI's metrics scope: rows around the kernels, and counters.

use super::error::PtiError;
use super::level_zero::LevelZeroGpu;
use super::reader::{Place, Reader};
use super::scope_ffi::{Metric, PtiScope, ScopeApi};
use super::shapes;
use crate::{Batch, CounterSample, DeviceWork, Name, Options, RecordSink, text};
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, CorrelationId};
use std::ffi::CString;

/// An active sampling of metrics.
#[derive(Debug)]
pub(super) struct Sampling {
    api: &'static ScopeApi,
    scope: PtiScope,
    is_running: bool,
}

/// Returns the most kernels that are sampled; 1500 unless the key is above 0.
fn max_kernels(options: &Options) -> u64 {
    let most = options.number("XPUPTI_PROFILER_MAX_SCOPES").and_then(|most| u64::try_from(most).ok());
    most.filter(|most| *most > 0).unwrap_or(1500)
}

/// The names of a metric in a recording, without and with its unit.
struct MetricNames {
    kind: u32,
    name: Name,
    with_unit: Name,
}

impl Sampling {
    /// Starts to sample; the second value is a note about what differs from the selection.
    ///
    /// # Errors
    /// Why nothing is sampled, as a sentence.
    pub(super) fn start(
        api: &'static ScopeApi,
        options: &Options,
        gpus: &[LevelZeroGpu],
    ) -> Result<(Sampling, Option<String>), String> {
        let (metrics, devices) = (options.list("XPUPTI_PROFILER_METRICS"), options.list("XPUPTI_PROFILER_DEVICES"));
        if metrics.is_empty() {
            return Err("no metric is named (XPUPTI_PROFILER_METRICS)".to_owned());
        }
        if !options.flag("XPUPTI_PROFILER_ENABLE_PER_KERNEL") {
            return Err("PTI samples metrics only for each kernel (XPUPTI_PROFILER_ENABLE_PER_KERNEL=true)".to_owned());
        }
        let metrics: Result<Vec<_>, _> = metrics.iter().map(|name| CString::new(name.as_str())).collect();
        let metrics = metrics.map_err(|_| "the name of a metric contains a zero byte".to_owned())?;
        let number = devices.first().and_then(|device| device.parse().ok()).unwrap_or(0);
        let gpu = usize::try_from(number).ok().and_then(|number| gpus.get(number));
        let gpu = gpu.ok_or_else(|| format!("there is no GPU {number} (XPUPTI_PROFILER_DEVICES)"))?;
        let failed = |during: &str, error: PtiError| format!("{during}: {error}{}", error.advice_suffix());
        let devices = api.devices().map_err(|error| failed("ptiMetricsGetDevices", error))?;
        let device = devices.iter().find(|device| device.uuid() == gpu.uuid).or(devices.first());
        let device = device.ok_or_else(|| "PTI finds no device with metrics".to_owned())?;
        let scope = api.enable_scope().map_err(|error| failed("ptiMetricsScopeEnable", error))?;
        let sampling = Sampling { api, scope, is_running: true };
        api.configure_scope(scope, device, &metrics).map_err(|error| failed("ptiMetricsScopeConfigure", error))?;
        // Without a reserved buffer PTI allocates while sampling.
        let _ = api.reserve_buffer(scope, max_kernels(options));
        api.start_collection(scope).map_err(|error| failed("ptiMetricsScopeStartCollection", error))?;
        let one = "PTI samples only one device at a time: the first in XPUPTI_PROFILER_DEVICES";
        let note = (devices.len() > 1).then(|| one.to_owned());
        Ok((sampling, note))
    }

    /// Samples only while views record.
    pub(super) fn follow_views(&mut self, views_record: bool, sink: &RecordSink) {
        if views_record == self.is_running {
            return;
        }
        let done =
            if views_record { self.api.start_collection(self.scope) } else { self.api.stop_collection(self.scope) };
        self.is_running = views_record;
        if let Err(error) = done {
            sink.note(format!("could not pause or resume the sampling of kernel metrics: {error}"));
        }
    }

    /// Stops sampling, and delivers the metrics.
    pub(super) fn stop_and_deliver(self, reader: &mut Reader) {
        let sink = reader.sink().clone();
        if let Err(error) = self.read_metrics(reader, &sink) {
            sink.note(format!("kernel metrics are missing: {error}{}", error.advice_suffix()));
        }
    }

    fn read_metrics(&self, reader: &mut Reader, sink: &RecordSink) -> Result<(), PtiError> {
        if self.is_running {
            self.api.stop_collection(self.scope)?;
        }
        let metrics = self.api.metrics(self.scope)?;
        let mut last = Place { device: 0, stream: 0, start: 0, end: 0 };
        for nth in 0..self.api.count_buffers(self.scope)? {
            let calculated = self.api.calculate_metrics(self.scope, nth)?;
            sink.record(|batch| {
                let named: Vec<_> = metrics.iter().map(|metric| MetricNames::new(metric, batch)).collect();
                for ([kernel, queue, name], values) in calculated.records(metrics.len()) {
                    match values {
                        Some(values) => {
                            KernelMetrics { kernel, queue, name, values }.add_rows(&named, reader, &mut last, batch)
                        }
                        None => batch.count_lost(Loss::DeviceRecordsUnread, 1),
                    }
                }
            });
        }
        Ok(())
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.api.disable_scope(self.scope);
    }
}

impl MetricNames {
    fn new(metric: &Metric, batch: &mut Batch<'_>) -> MetricNames {
        let with_unit = match &metric.unit {
            Some(unit) => batch.name(&format!("{}::{unit}", metric.name)),
            None => batch.name(&metric.name),
        };
        MetricNames { kind: metric.kind, name: batch.name(&metric.name), with_unit }
    }

    fn metric_words(
        named: &[MetricNames],
        name: impl Fn(&MetricNames) -> Name,
        value: impl Fn(usize) -> u64,
    ) -> Vec<u64> {
        let words = named.iter().enumerate();
        let words = words.flat_map(|(nth, it)| [u64::from(it.kind) << 32 | u64::from(name(it).0), value(nth)]);
        words.chain([u64::MAX]).collect()
    }
}

/// The metrics of a kernel.
struct KernelMetrics<'v> {
    kernel: u64,
    queue: u64,
    /// The address of its name.
    name: u64,
    values: &'v [u64],
}

impl KernelMetrics<'_> {
    /// Adds a row that is a nanosecond wider than the kernel at both ends, and counters with the values while it ran.
    fn add_rows(&self, named: &[MetricNames], reader: &mut Reader, last: &mut Place, batch: &mut Batch<'_>) {
        let at = match reader.take_kernel_place(self.kernel) {
            Some(Some(ran)) => ran,
            // It was launched in a pause.
            Some(None) => return,
            // As in libkineto: after the previous kernel, on the first device.
            None => Place { device: 0, stream: 0, start: last.end.saturating_add(3), end: last.end.saturating_add(4) },
        };
        *last = at;
        let mut name = Vec::new();
        let name = if text::copy_c_string(self.name, &mut name) {
            format!("metrics: {}", String::from_utf8_lossy(&name))
        } else {
            format!("metrics: kernel_{}", self.kernel)
        };
        let value = |nth| self.values.get(nth).copied().unwrap_or(0);
        let mut words = vec![self.kernel, self.queue];
        words.extend(MetricNames::metric_words(named, |it| it.with_unit, value));
        let Place { device, stream, start, end } = at;
        let (kind, times) = (ActivityType::ConcurrentKernel, (start.saturating_sub(1), end.saturating_add(1)));
        let work = DeviceWork::new(kind, batch.name(&name), (device, stream), times, &shapes::METRICS);
        let work = DeviceWork { words: &words, ..work };
        // No call launched it.
        batch.work_of(CorrelationId(0), &work);
        let name = batch.name("xpu");
        let mut sample = |at, words: &[u64]| {
            let kind = ActivityType::XpuScopeProfiler;
            batch.counters(&CounterSample::new(kind, name, (device, stream), at, &shapes::SAMPLE, words));
        };
        sample(start, &MetricNames::metric_words(named, |it| it.name, value));
        sample(end, &MetricNames::metric_words(named, |it| it.name, |_| 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_kernels_has_a_default() {
        let mut options = Options::default();
        assert_eq!(max_kernels(&options), 1500);
        for (number, most) in [(0, 1500), (-1, 1500), (3, 3)] {
            options.set("XPUPTI_PROFILER_MAX_SCOPES", number);
            assert_eq!(max_kernels(&options), most);
        }
    }
}
