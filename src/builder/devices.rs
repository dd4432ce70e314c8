//! What is recorded of devices, and by whom.

use super::KinetoLayerBuilder;
use crate::collector::{self, Collector, CollectorSet, Contained, DeviceTimer, EventTimers, Unavailable, VENDORS, Why};
use crate::config::{Config, Key, Mode};
use crate::diag::diag;
use std::sync::Arc;

impl KinetoLayerBuilder {
    /// Records what allocators report: every allocation and every free as an instant (see [`memory`](crate::memory)).
    /// Default: false.
    pub fn with_memory(mut self, on: bool) -> Self {
        self.overrides.set(Key::ProfileProfileMemory, on);
        self
    }

    /// Records what CUDA's calls allocate on devices and give back (`cudaMalloc`, `cuMemAllocAsync`, managed memory …), as
    /// CUPTI sees it: `[memory]` instants of the device, on the thread and in the span that made the call. Default: false.
    ///
    /// It is the memory below a caching allocator. One that reports the same devices ([`memory::record`](crate::memory::record))
    /// would have it counted twice, so what is reported of CUDA's devices is left out then, and counted. The totals are kept
    /// from the start of the recording on; with what is given back that was there before, they begin with that. The host's
    /// memory is recorded by [`with_memory`](Self::with_memory) alone.
    #[cfg(feature = "cuda")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
    pub fn with_device_memory(mut self, on: bool) -> Self {
        self.overrides.set(Key::DeviceMemory, on);
        self
    }

    /// Records with that collector too, beside those that this crate has; may be called more than once.
    pub fn collector(mut self, collector: impl Collector + 'static) -> Self {
        self.collectors.push(Arc::new(collector));
        self
    }

    /// Times what a device does for spans by that timer, in the mode [`Mode::KinetoPrivateUse1Fallback`]; nobody asks it in
    /// others. For more than one, or beside other collectors: [`collector`](Self::collector) with [`EventTimers`].
    pub fn device_timer(mut self, timer: impl DeviceTimer + 'static) -> Self {
        self.timer = Some(Arc::new(EventTimers::new(timer)));
        self
    }

    /// Loads all plugins of that folder: libraries by which other accelerators are recorded. `KINETO_PLUGIN_LIB_DIR_PATH`;
    /// default none.
    ///
    /// A plugin is written against `include/kineto_plugin.h`, in C, or in Rust with [`export_plugin!`](crate::export_plugin).
    /// One that cannot be used is named with the reason by [`Profiler::collectors`](crate::Profiler::collectors) and
    /// in the trace. `KINETO_DISABLE_PLUGINS` loads none.
    #[cfg(feature = "plugins")]
    #[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
    pub fn plugins(mut self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.overrides.set(Key::PluginFolder, folder.into().as_path());
        self
    }

    /// Records a launch of a CUDA graph as one row, not one for each node. Default: false.
    ///
    /// A graph of a thousand kernels takes a thousand records for each launch, and what it costs CUPTI to make them; as
    /// one row it takes one, and shows nothing of its inside.
    #[cfg(feature = "cuda")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
    pub fn graph_trace(mut self, on: bool) -> Self {
        self.overrides.set(Key::GraphTrace, on);
        self
    }

    /// Records nothing but what lies between `cudaProfilerStart` and `cudaProfilerStop`, or `cuProfilerStart` and
    /// `cuProfilerStop`, any number of times. Default: false.
    ///
    /// A recording that is started is paused until the first of these calls, as with `nsys profile
    /// --capture-range=cudaProfilerApi`: spans as well as devices. The calls may be made by any library of the process, on
    /// any thread; ranges do not nest. [`Profiler::pause`](crate::Profiler::pause) and
    /// [`resume`](crate::Profiler::resume) do the same, and each range takes as much memory as a stretch between pauses.
    /// The calls are seen by CUPTI: where that cannot record, the trace is empty and says why.
    #[cfg(feature = "cuda")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
    pub fn profiler_range(mut self, on: bool) -> Self {
        self.overrides.set(Key::ProfilerRange, on);
        self
    }

    /// Records the NVTX ranges that libraries of the process make (NCCL, cuDF, TensorRT), as far as CUPTI records. Default:
    /// false.
    ///
    /// They come as user annotations on the row of their thread, instants as instants, with the arguments `nvtx.domain`,
    /// `nvtx.category`, `nvtx.color` and `nvtx.payload`. A range that overlaps spans without nesting has a row beside theirs.
    ///
    /// Each library asks the variable `NVTX_INJECTION64_PATH` who listens when it makes its first range, so that has to name
    /// libcupti when the program starts; if it does not, the report of the collector says what to set. Where it does, that
    /// libcupti is the one in use unless `KINETO_CUPTI_PATH` names another. The ranges that [`Mode::Nvtx`] makes of spans do
    /// not come a second time.
    #[cfg(feature = "cuda")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
    pub fn nvtx_ranges(mut self, on: bool) -> Self {
        self.overrides.set(Key::NvtxRanges, on);
        self
    }

    /// Names the backend of the devices that are PrivateUse1's, in lower case, such as "npu"; torch's
    /// `rename_privateuse1_backend`.
    ///
    /// Kernels and copies of the trace are that backend's then. Tables and
    /// [`Events::device_name`](crate::analysis::Events::device_name) call it by its name, and the header has it as
    /// `privateuse1_backend_name`; types such as `privateuse1_runtime` stay as they are. The backend comes with a
    /// [`collector`](Self::collector), an [`observer`](Self::observer) or a [`device_timer`](Self::device_timer).
    pub fn private_use1_name(mut self, name: impl Into<String>) -> Self {
        self.options.private_use1 = Some(name.into());
        self
    }
}

/// The collectors that this crate has, but for those that are switched off, and the program's own.
pub(super) fn collectors(
    config: &Config,
    timer: Option<Arc<dyn Collector>>,
    own: Vec<Arc<dyn Collector>>,
) -> CollectorSet {
    let gpu = &config.gpu;
    let mut collectors: Vec<Arc<dyn Collector>> = Vec::new();
    let mut off = Vec::new();
    let disabled = |why: &str, advice: &str| Unavailable::new(Why::Disabled, why, advice);
    let fallback = [Mode::KinetoGpuFallback, Mode::KinetoPrivateUse1Fallback];
    let fallback = fallback.into_iter().find(|mode| config.mode.contains(*mode));
    for vendor in &VENDORS {
        if let Some(warning) = vendor.warning(&gpu.options) {
            diag!(Warning, "config", "{warning}");
        }
        let made = match fallback {
            Some(mode) => Err(disabled(&format!("the mode is {}", mode.as_str()), "use the mode kineto")),
            None if gpu.options.flag(vendor.disabled_by) => {
                Err(disabled(&format!("switched off by {}", vendor.disabled_by), ""))
            }
            None => vendor.collector(&gpu.options),
        };
        match made {
            Ok(collector) => collectors.push(collector),
            Err(reason) => off.push((vendor.name, reason)),
        }
    }
    match (fallback, timer) {
        (None, _) => {}
        (Some(Mode::KinetoGpuFallback), _) => match collector::timers() {
            Ok(timers) => collectors.push(timers),
            Err(reason) => off.push(("timers", reason)),
        },
        (Some(_), Some(timer)) => collectors.push(Arc::new(Contained::new(timer))),
        (Some(_), None) => {
            let advice = "use KinetoLayerBuilder::device_timer";
            off.push(("timers", disabled("the program has no timer for this mode", advice)));
        }
    }
    match &gpu.plugin_folder {
        Some(folder) if gpu.plugins => {
            let (plugins, others) = collector::plugins(folder);
            collectors.extend(plugins);
            off.extend(others);
        }
        Some(_) => off.push(("plugins", disabled("switched off by DISABLE_PLUGINS", ""))),
        None => {}
    }
    collectors.extend(own.into_iter().map(|own| Arc::new(Contained::new(own)) as Arc<dyn Collector>));
    CollectorSet::new(collectors, off)
}
