//! Settings of the builder about devices and their collectors.

use super::KinetoLayerBuilder;
use crate::config::{Config, Key, Mode, SourceSettings, Value};
use crate::diag::diag;
use kineto_devices::{
    self as collector, Collector, CollectorSet, Contained, DeviceTimer, EventTimers, Unavailable, VENDORS, Why,
};
use std::fmt;
use std::sync::Arc;

/// Selects what GPUs and other devices record; for [`KinetoLayerBuilder::devices`].
///
/// ```
/// use tracing_kineto::{Devices, KinetoLayer};
///
/// // Power and clocks of each GPU ten times a second.
/// let builder = KinetoLayer::builder().devices(Devices::new().telemetry(10));
/// ```
#[must_use = "pass it to `KinetoLayerBuilder::devices`"]
#[derive(Clone, Default)]
pub struct Devices {
    settings: SourceSettings,
    timer: Option<Arc<dyn Collector>>,
    private_use1: Option<String>,
}

impl Devices {
    /// Creates settings that leave all to the environment, the configuration file and the defaults.
    pub fn new() -> Devices {
        Devices::default()
    }

    fn with(self, key: Key, value: Value) -> Self {
        Devices { settings: self.settings.with(key, value), ..self }
    }

    /// Records allocations and frees of device memory by CUDA's calls (`cudaMalloc`, `cuMemAllocAsync`, managed memory …), as
    /// seen by CUPTI. They are `[memory]` instants of the device, on the thread and in the span that made the call. Default:
    /// false.
    ///
    /// This is the memory below a caching allocator. Reports of CUDA's devices through
    /// [`memory::record`](crate::memory::record) would count it twice, so they are left out then, and counted. The totals
    /// begin at the start of the recording, with the memory that is freed later but was allocated earlier. Host memory is
    /// recorded only by [`with_memory`](crate::KinetoLayerBuilder::with_memory).
    #[cfg(feature = "cuda")]
    pub fn memory(self, on: bool) -> Self {
        self.with(Key::DeviceMemory, Value::Bool(on))
    }

    /// Samples power, temperature, clocks, utilization, used memory and the reasons for lower clocks of GPUs, that many times
    /// a second. Default: 0, which samples nothing. More than 10 counts as 10.
    ///
    /// The values are counters in a group of their own for each device, "GPU 0 Counters", under the same names for all
    /// vendors. They are read by NVML, ROCm SMI or Level Zero's Sysman, on one thread for each vendor. The devices are those
    /// that the program may use, whatever their numbers elsewhere. A value that a device lacks is left out, and named in
    /// the [report](crate::CollectorReport::notes).
    pub fn telemetry(self, hz: u32) -> Self {
        self.with(Key::DeviceTelemetry, Value::Int(hz.min(i32::MAX.unsigned_abs()).into()))
    }

    /// Records each launch of a CUDA graph as one row instead of one for each node. Default: false.
    ///
    /// A graph of a thousand kernels costs CUPTI a thousand records for each launch. As one row it costs one record, and does
    /// not show its nodes.
    #[cfg(feature = "cuda")]
    pub fn graph_trace(self, on: bool) -> Self {
        self.with(Key::GraphTrace, Value::Bool(on))
    }

    /// Records only between `cudaProfilerStart` and `cudaProfilerStop`, or `cuProfilerStart` and `cuProfilerStop`, any number
    /// of times. Default: false.
    ///
    /// A recording starts paused, for spans and devices, until the first of these calls, as with `nsys profile
    /// --capture-range=cudaProfilerApi`. Any library of the process may make the calls, on any thread; ranges do not nest.
    /// [`Profiler::pause`](crate::Profiler::pause) and [`resume`](crate::Profiler::resume) have the same effect and the same
    /// cost in memory. CUPTI reports the calls: if CUPTI cannot record, the trace is empty and says why.
    #[cfg(feature = "cuda")]
    pub fn profiler_range(self, on: bool) -> Self {
        self.with(Key::ProfilerRange, Value::Bool(on))
    }

    /// Records the NVTX ranges of libraries in the process (NCCL, cuDF, TensorRT), if CUPTI records. Default: false.
    ///
    /// Ranges become user annotations on the row of their thread, and marks become instants. Their arguments are
    /// `nvtx.domain`, `nvtx.category`, `nvtx.color` and `nvtx.payload`. A range that overlaps spans without nesting goes to a
    /// separate row next to theirs.
    ///
    /// Each library reads the variable `NVTX_INJECTION64_PATH` at its first range, so it must name libcupti when the program
    /// starts; if it does not, the collector's report says how to set it. If it does, that libcupti is used unless
    /// `KINETO_CUPTI_PATH` names another. The ranges that [`Mode::Nvtx`] makes of spans are not recorded a second time.
    #[cfg(feature = "cuda")]
    pub fn nvtx_ranges(self, on: bool) -> Self {
        self.with(Key::NvtxRanges, Value::Bool(on))
    }

    /// Loads all plugins of that folder: libraries that record other accelerators. `KINETO_PLUGIN_LIB_DIR_PATH`; default
    /// none.
    ///
    /// A plugin implements `include/kineto_plugin.h`, in C, or in Rust with [`export_plugin!`](crate::export_plugin).
    /// [`Profiler::collectors`](crate::Profiler::collectors) and the trace name each unusable plugin with the reason.
    /// `KINETO_DISABLE_PLUGINS` disables all plugins.
    #[cfg(feature = "plugins")]
    pub fn plugins(self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.with(Key::PluginFolder, Value::of_path(&folder.into()))
    }

    /// Sets the timer that measures device work of spans in the mode [`Mode::KinetoPrivateUse1Fallback`]; other modes ignore
    /// it. For several timers, or together with other collectors, use [`collector`](crate::KinetoLayerBuilder::collector) with [`EventTimers`].
    pub fn timer(mut self, timer: impl DeviceTimer + 'static) -> Self {
        self.timer = Some(Arc::new(EventTimers::new(timer)));
        self
    }

    /// Sets the name of the PrivateUse1 backend, in lower case, such as "npu"; torch's `rename_privateuse1_backend`.
    ///
    /// Kernels and copies of the trace then belong to that backend. Tables and
    /// [`Events::device_name`](crate::analysis::Events::device_name) use its name, and the header contains it as
    /// `privateuse1_backend_name`; types such as `privateuse1_runtime` keep their names. Register the backend itself as a
    /// [`collector`](crate::KinetoLayerBuilder::collector), an [`observer`](crate::KinetoLayerBuilder::observer) or a [`timer`](Self::timer).
    pub fn private_use1_name(mut self, name: impl Into<String>) -> Self {
        self.private_use1 = Some(name.into());
        self
    }
}

/// The program's own collectors.
#[derive(Default)]
pub(super) struct OwnCollectors {
    own: Vec<Arc<dyn Collector>>,
    timer: Option<Arc<dyn Collector>>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices")
            .field("settings", &self.settings)
            .field("private_use1", &self.private_use1)
            .finish_non_exhaustive()
    }
}

/// # Devices
impl KinetoLayerBuilder {
    /// Applies settings of devices. Adds to an earlier call; the last value of a setting counts.
    pub fn devices(mut self, devices: Devices) -> Self {
        self.overrides.settings.merge(devices.settings);
        self.collectors.timer = devices.timer.or(self.collectors.timer);
        self.options.private_use1 = devices.private_use1.or(self.options.private_use1);
        self
    }

    /// Adds a collector to this crate's own; may be called more than once.
    pub fn collector(mut self, collector: impl Collector + 'static) -> Self {
        self.collectors.own.push(Arc::new(collector));
        self
    }
}

impl OwnCollectors {
    /// Returns this crate's collectors, without the disabled ones, and these.
    pub(super) fn build_set(self, config: &Config) -> CollectorSet {
        let OwnCollectors { own, timer } = self;
        let gpu = &config.gpu;
        let mut collectors: Vec<Arc<dyn Collector>> = Vec::new();
        let mut off = Vec::new();
        let disabled = |why: &str, advice: &str| Unavailable::new(Why::Disabled, why, advice);
        let fallback = [Mode::KinetoGpuFallback, Mode::KinetoPrivateUse1Fallback];
        let fallback = fallback.into_iter().find(|mode| config.mode.contains(*mode));
        for vendor in &VENDORS {
            if let Some(warning) = vendor.options_warning(&gpu.options) {
                diag!(Warning, "config", "{warning}");
            }
            let made = match fallback {
                Some(mode) => Err(disabled(&format!("the mode is {}", mode.as_str()), "use the mode kineto")),
                None if gpu.options.flag(vendor.disabled_by) => {
                    Err(disabled(&format!("switched off by {}", vendor.disabled_by), ""))
                }
                None => vendor.make_collectors(&gpu.options),
            };
            match made {
                Ok(of_vendor) => collectors.extend(of_vendor),
                Err(reason) => off.push((vendor.name, reason)),
            }
        }
        match (fallback, timer) {
            (None, _) => {}
            (Some(Mode::KinetoGpuFallback), _) => match collector::make_fallback_timers() {
                Ok(timers) => collectors.push(timers),
                Err(reason) => off.push(("timers", reason)),
            },
            (Some(_), Some(timer)) => collectors.push(Arc::new(Contained::new(timer))),
            (Some(_), None) => {
                let advice = "use Devices::timer";
                off.push(("timers", disabled("the program has no timer for this mode", advice)));
            }
        }
        match &gpu.plugin_folder {
            Some(folder) if !gpu.disables_plugins => {
                let (plugins, others) = collector::load_plugins(folder);
                collectors.extend(plugins);
                off.extend(others);
            }
            Some(_) => off.push(("plugins", disabled("switched off by DISABLE_PLUGINS", ""))),
            None => {}
        }
        collectors.extend(own.into_iter().map(|own| Arc::new(Contained::new(own)) as Arc<dyn Collector>));
        CollectorSet::new(collectors, off)
    }
}
