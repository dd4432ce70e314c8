//! Settings of the builder about hardware counters of GPUs.

use super::KinetoLayerBuilder;
use crate::config::{Key, SourceSettings, Value};
use std::time::Duration;

/// Selects hardware counters of NVIDIA's GPUs: sampled, of each kernel, or of each annotation; for
/// [`KinetoLayerBuilder::metrics`].
///
/// ```
/// use std::time::Duration;
/// use tracing_kineto::{KinetoLayer, Metrics};
///
/// let metrics = Metrics::new()
///     .pm_sampling(["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"])
///     .pm_sampling_interval(Duration::from_micros(200));
/// let builder = KinetoLayer::builder().metrics(metrics);
/// ```
#[must_use = "pass it to `KinetoLayerBuilder::metrics`"]
#[derive(Clone, Debug, Default)]
pub struct Metrics(SourceSettings);

impl Metrics {
    /// Creates settings that leave all to the environment, the configuration file and the defaults.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// Samples these hardware counters of NVIDIA's GPUs, such as `sm__cycles_active.avg.pct_of_peak_sustained_elapsed`, and
    /// selects their type, [`HardwareCounters`](crate::ActivityType::HardwareCounters). Default: none.
    ///
    /// Each metric becomes a graph of its GPU. Takes libcupti 12.6 or newer and usually privileges. All metrics must fit into
    /// one pass of the hardware; `kineto doctor --metrics` lists the metrics of a GPU. All GPUs of the process are sampled each
    /// millisecond, unless other settings change that.
    pub fn pm_sampling<S: Into<String>>(self, metrics: impl IntoIterator<Item = S>) -> Self {
        let metrics: Vec<String> = metrics.into_iter().map(Into::into).collect();
        Metrics(self.0.with(Key::PmSamplingMetrics, Value::List(metrics)))
    }

    /// Sets the GPUs that [`pm_sampling`](Self::pm_sampling) samples, by their numbers in the process. Default: all.
    pub fn pm_sampling_devices(self, devices: impl IntoIterator<Item = u32>) -> Self {
        let devices: Vec<String> = devices.into_iter().map(|device| device.to_string()).collect();
        Metrics(self.0.with(Key::PmSamplingDevice, Value::List(devices)))
    }

    /// Sets the time between two samples of [`pm_sampling`](Self::pm_sampling), from 1 us to 1 s. Default: 1 ms.
    pub fn pm_sampling_interval(self, time: Duration) -> Self {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        Metrics(self.0.with(Key::PmSamplingInterval, Value::Int(micros)))
    }

    /// Measures these metrics of each kernel of NVIDIA's GPUs, such as `smsp__inst_executed.sum`, and selects their type,
    /// [`CudaProfilerRange`](crate::ActivityType::CudaProfilerRange). Default: none.
    ///
    /// CUPTI runs each kernel once for each pass that the metrics take, so launches wait for their kernels. Kernels, copies
    /// and waits have no records of their own meanwhile, since their times would not be the program's. Takes libcupti 12.6
    /// or newer and usually privileges, and excludes [`pm_sampling`](Self::pm_sampling).
    pub fn per_kernel<S: Into<String>>(self, metrics: impl IntoIterator<Item = S>) -> Self {
        let metrics: Vec<String> = metrics.into_iter().map(Into::into).collect();
        Metrics(self.0.with(Key::ProfilerMetrics, Value::List(metrics)).with(Key::ProfilerPerKernel, Value::Bool(true)))
    }

    /// Measures these metrics of each annotation of NVIDIA's GPUs, such as `dram__bytes_read.sum`, and selects the types of its
    /// row, a [`GpuUserAnnotation`](crate::ActivityType::GpuUserAnnotation). Default: none.
    ///
    /// The outermost annotation of each thread is measured, from its first launch, copy or fill on, in one pass: name metrics that
    /// fit in one. The thread waits for the GPU at that call and at the end, without a limit: work that needs a later call of
    /// the same thread, such as a collective over two GPUs that one thread drives, hangs. An annotation during which another
    /// thread uses the same context has no values. Metrics of the whole device also count other contexts and processes.
    /// Kernels, copies and waits have no records of their own meanwhile. Replaces [`per_kernel`](Self::per_kernel), and has
    /// the same requirements and limit.
    pub fn per_annotation<S: Into<String>>(self, metrics: impl IntoIterator<Item = S>) -> Self {
        let metrics: Vec<_> = metrics.into_iter().map(Into::into).collect();
        Metrics(
            self.0.with(Key::ProfilerMetrics, Value::List(metrics)).with(Key::ProfilerPerKernel, Value::Bool(false)),
        )
    }

    /// Sets the most launches that [`per_kernel`](Self::per_kernel) measures in a recording, or the most annotations of
    /// [`per_annotation`](Self::per_annotation); 0 for all. Default: 1500.
    pub fn limit(self, launches: u32) -> Self {
        Metrics(self.0.with(Key::ProfilerMaxRanges, Value::Int(launches.into())))
    }
}

/// # Hardware counters
impl KinetoLayerBuilder {
    /// Sets which hardware counters are recorded. Adds to an earlier call; the last value of a setting counts.
    pub fn metrics(self, metrics: Metrics) -> Self {
        self.with_all(metrics.0)
    }
}
