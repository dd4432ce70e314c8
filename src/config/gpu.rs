//! What is asked of the collectors of GPUs.

use std::path::PathBuf;

use super::env::Env;
use super::keys::Key;
use super::value::Value;
use crate::collector::{Places, ScopeMetrics};
use kineto_trace::activity::{ActivityType, ActivityTypes};

/// How GPUs are recorded.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    /// The most bytes of a vendor's records that wait to be read.
    pub(crate) buffer_bytes: u64,
    pub(crate) per_thread_buffers: bool,
    /// Whether waits of one stream for another are shown.
    pub(crate) wait_events: bool,
    pub(crate) graph_trace: bool,
    /// Nothing is recorded but between cudaProfilerStart and cudaProfilerStop.
    pub(crate) profiler_range: bool,
    /// The switches that are set of those that leave a vendor's devices alone, such as "DISABLE_CUPTI".
    pub(crate) off: Vec<&'static str>,
    /// What is allocated on devices is recorded.
    pub(crate) memory: bool,
    /// The NVTX ranges of libraries are recorded too.
    pub(crate) nvtx_ranges: bool,
    pub(crate) teardown_cupti: bool,
    pub(crate) cupti_path: Option<String>,
    pub(crate) rocprofiler_path: Option<PathBuf>,
    pub(crate) roctracer_path: Option<PathBuf>,
    /// The most rows that are kept of AMD's devices.
    pub(crate) roctracer_max_events: u64,
    pub(crate) pti_path: Option<PathBuf>,
    /// What Intel's devices sample.
    pub(crate) scope: ScopeMetrics,
    /// Hardware counters are asked for.
    pub(crate) pm_sampling: bool,
    /// Where libraries may lie.
    pub(crate) places: Places,
    /// The folder of plugins, and whether they are loaded.
    pub(crate) plugin_folder: Option<PathBuf>,
    pub(crate) plugins: bool,
    /// What collectors may understand, torch's `custom_profiler_config`.
    pub(crate) custom_config: String,
}

impl Gpu {
    /// Sets what a key stands for, if it is one of these.
    pub(super) fn set(&mut self, key: Key, value: &Value) {
        match (key, value) {
            (Key::MaxGpuBufferSize, Value::Int(mebibytes)) => {
                // Less than two of the vendor's buffers would be none.
                self.buffer_bytes = u64::try_from(*mebibytes).unwrap_or(0).max(8) << 20;
            }
            (Key::CuptiPerThreadBuffer, Value::Bool(on)) => self.per_thread_buffers = *on,
            (Key::CudaSyncWaitEvents, Value::Bool(on)) => self.wait_events = *on,
            (Key::GraphTrace, Value::Bool(on)) => self.graph_trace = *on,
            (Key::ProfilerRange, Value::Bool(on)) => self.profiler_range = *on,
            (Key::DeviceMemory, Value::Bool(on)) => self.memory = *on,
            (Key::NvtxRanges, Value::Bool(on)) => self.nvtx_ranges = *on,
            (Key::DisableCupti | Key::DisableRocm | Key::DisableXpu, Value::Bool(on)) => {
                self.off.retain(|switch| *switch != key.spec().name);
                self.off.extend(on.then_some(key.spec().name));
            }
            (Key::TeardownCupti, Value::Bool(on)) => self.teardown_cupti = *on,
            (Key::CuptiPath, Value::Text(path)) => self.cupti_path = Some(path.clone()).filter(|path| !path.is_empty()),
            (Key::RocprofilerPath, Value::Text(path)) => self.rocprofiler_path = some_path(path),
            (Key::RoctracerPath, Value::Text(path)) => self.roctracer_path = some_path(path),
            (Key::RoctracerMaxEvents, Value::Int(most)) => {
                self.roctracer_max_events = u64::try_from(*most).unwrap_or(0)
            }
            (Key::PtiPath, Value::Text(path)) => self.pti_path = some_path(path),
            (Key::XpuMetrics, Value::List(metrics)) => self.scope.metrics.clone_from(metrics),
            (Key::XpuPerKernel, Value::Bool(on)) => self.scope.per_kernel = *on,
            (Key::XpuMaxScopes, Value::Int(most)) => {
                self.scope.most = u64::try_from(*most).ok().filter(|most| *most > 0).unwrap_or(ScopeMetrics::MOST);
            }
            (Key::XpuDevices, Value::List(devices)) => {
                self.scope.devices = devices.iter().filter_map(|device| device.parse().ok()).collect();
            }
            (Key::PluginFolder, Value::Text(path)) => self.plugin_folder = some_path(path),
            (Key::DisablePlugins, Value::Bool(on)) => self.plugins = !on,
            (Key::CustomConfig, Value::Text(text)) => self.custom_config.clone_from(text),
            (Key::PmSamplingMetrics, Value::List(metrics)) => self.pm_sampling |= !metrics.is_empty(),
            (Key::PmSamplingDevice, _) => self.pm_sampling = true,
            _ => {}
        }
    }

    /// Returns the types without those of MTIA that the custom configuration takes out, by torch's words.
    pub(super) fn allowed(&self, types: ActivityTypes) -> ActivityTypes {
        let words = self.custom_config.split([',', ';', ' ']).map(str::trim);
        let taken_out = words.filter_map(|word| match word {
            "disable_runtime_events" => Some(ActivityType::MtiaRuntime),
            "disable_ccp_events" => Some(ActivityType::MtiaCcpEvents),
            "disable_insight_events" => Some(ActivityType::MtiaInsight),
            "disable_counter_events" => Some(ActivityType::MtiaCounters),
            _ => None,
        });
        taken_out.fold(types, ActivityTypes::without)
    }

    /// Takes from the environment where libraries may lie.
    pub(super) fn look_for_places(&mut self, env: &Env) {
        let folder = |name: &str| env.text(name).map(PathBuf::from);
        // The one that NVTX's calls go to is the one that has to record them.
        let is_cupti = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("cupti"));
        let listens = folder("NVTX_INJECTION64_PATH").filter(|path| self.nvtx_ranges && is_cupti(path));
        self.places.cupti = self.cupti_path.as_ref().map(PathBuf::from).or(listens);
        self.places.toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder).collect();
        self.places.toolkits.dedup();
        self.places.rocprofiler.clone_from(&self.rocprofiler_path);
        self.places.roctracer.clone_from(&self.roctracer_path);
        self.places.rocm = ["ROCM_PATH", "ROCM_HOME", "HIP_PATH"].into_iter().filter_map(folder).collect();
        self.places.rocm.dedup();
        self.places.pti.clone_from(&self.pti_path);
        self.places.oneapi = folder("ONEAPI_ROOT");
        self.places.conda = folder("CONDA_PREFIX");
        self.places.virtual_env = folder("VIRTUAL_ENV");
    }
}

fn some_path(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text)).filter(|_| !text.is_empty())
}

impl Default for Gpu {
    fn default() -> Self {
        Gpu {
            buffer_bytes: 128 << 20,
            per_thread_buffers: false,
            wait_events: true,
            graph_trace: false,
            profiler_range: false,
            off: Vec::new(),
            memory: false,
            nvtx_ranges: false,
            teardown_cupti: false,
            cupti_path: None,
            rocprofiler_path: None,
            roctracer_path: None,
            roctracer_max_events: 5_000_000,
            pti_path: None,
            scope: ScopeMetrics::default(),
            pm_sampling: false,
            places: Places::default(),
            plugin_folder: None,
            plugins: true,
            custom_config: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kineto_trace::activity::ActivityGroup;

    /// libkineto's keys that concern CUDA, its variables, and this crate's own.
    #[test]
    fn each_key_that_concerns_cuda_is_acted_upon() {
        let keys = [
            (Key::MaxGpuBufferSize, "64"),
            (Key::CudaSyncWaitEvents, "false"),
            (Key::CuptiPerThreadBuffer, "true"),
            (Key::PmSamplingMetrics, "sm__cycles_active.avg"),
            (Key::PmSamplingDevice, "0"),
            (Key::GraphTrace, "true"),
            (Key::ProfilerRange, "true"),
            (Key::DeviceMemory, "true"),
            (Key::NvtxRanges, "true"),
            (Key::DisableCupti, "true"),
            (Key::TeardownCupti, "true"),
            (Key::CuptiPath, "/opt/libcupti.so.13"),
        ];
        let of_cuda = |key: &&Key| {
            ["CUPTI", "CUDA", "GPU", "NVTX", "DEVICE_MEMORY"].iter().any(|word| key.spec().name.contains(word))
        };
        assert_eq!(Key::ALL.iter().filter(of_cuda).count(), keys.len(), "a key without an owner");
        for (key, text) in keys {
            let mut gpu = Gpu::default();
            gpu.set(key, &key.spec().kind.parse(text).unwrap());
            assert_ne!(format!("{gpu:?}"), format!("{:?}", Gpu::default()), "{key:?}");
        }
    }

    #[test]
    fn each_key_that_concerns_amd_and_intel_is_acted_upon() {
        let keys = [
            (Key::DisableRocm, "true"),
            (Key::RoctracerMaxEvents, "7"),
            (Key::RocprofilerPath, "/opt/librocprofiler-sdk.so.1"),
            (Key::RoctracerPath, "/opt/libroctracer64.so.4"),
            (Key::DisableXpu, "true"),
            (Key::PtiPath, "/opt/libpti_view.so.1"),
            (Key::XpuMetrics, "GpuTime,GpuCoreClocks"),
            (Key::XpuPerKernel, "true"),
            (Key::XpuMaxScopes, "3"),
            (Key::XpuDevices, "1"),
        ];
        let words = ["ROC", "XPU", "_PTI_"];
        let theirs = |key: &&Key| words.iter().any(|word| key.spec().name.contains(word));
        let found: Vec<_> = Key::ALL.iter().filter(theirs).map(|key| key.spec().name).collect();
        assert_eq!(found.len(), keys.len(), "a key without an owner: {found:?}");
        for (key, text) in keys {
            let mut gpu = Gpu::default();
            gpu.set(key, &key.spec().kind.parse(text).unwrap());
            assert_ne!(format!("{gpu:?}"), format!("{:?}", Gpu::default()), "{key:?}");
        }
        let mut gpu = Gpu::default();
        gpu.set(Key::XpuMaxScopes, &Value::Int(0));
        assert_eq!(gpu.scope.most, 1500);
    }

    #[test]
    fn plugins_are_looked_for_where_it_is_said_unless_switched_off() {
        let mut gpu = Gpu::default();
        gpu.set(Key::PluginFolder, &Value::Text("/opt/plugins".to_owned()));
        assert_eq!((gpu.plugin_folder.as_deref(), gpu.plugins), (Some("/opt/plugins".as_ref()), true));
        gpu.set(Key::DisablePlugins, &Value::Bool(true));
        gpu.set(Key::PluginFolder, &Value::Text(String::new()));
        assert_eq!((gpu.plugin_folder, gpu.plugins), (None, false));
    }

    #[test]
    fn words_for_mtia_take_types_out() {
        let mut gpu = Gpu::default();
        let mtia = ActivityGroup::Mtia.types();
        assert_eq!(gpu.allowed(mtia), mtia);
        gpu.set(Key::CustomConfig, &Value::Text("disable_ccp_events, x=1;disable_counter_events".to_owned()));
        let left = mtia.without(ActivityType::MtiaCcpEvents).without(ActivityType::MtiaCounters);
        assert_eq!(gpu.allowed(mtia), left);
        gpu.set(Key::CustomConfig, &Value::Text("disable_runtime_events,disable_insight_events".to_owned()));
        let left = mtia.without(ActivityType::MtiaRuntime).without(ActivityType::MtiaInsight);
        assert_eq!((gpu.allowed(mtia), gpu.allowed(ActivityTypes::EMPTY)), (left, ActivityTypes::EMPTY));
    }

    #[test]
    fn the_libcupti_that_listens_to_nvtx_is_the_one_in_use() {
        let cupti = |ranges: bool, path: &str, injection: &str| {
            let mut gpu = Gpu { nvtx_ranges: ranges, cupti_path: Some(path.to_owned()), ..Gpu::default() };
            gpu.cupti_path = gpu.cupti_path.filter(|path| !path.is_empty());
            gpu.look_for_places(&Env::from_pairs([("NVTX_INJECTION64_PATH", injection)]));
            gpu.places.cupti
        };
        assert_eq!(cupti(true, "", "/x/libcupti.so.13"), Some("/x/libcupti.so.13".into()));
        assert_eq!(cupti(true, "/y.so", "/x/libcupti.so.13"), Some("/y.so".into()));
        assert_eq!((cupti(false, "", "/x/libcupti.so.13"), cupti(true, "", "/cupti/nsys.so")), (None, None));
    }

    #[test]
    fn buffers_are_never_smaller_than_two() {
        let mut gpu = Gpu::default();
        for (mebibytes, expected) in [(-1, 8), (0, 8), (9, 9)] {
            gpu.set(Key::MaxGpuBufferSize, &Value::Int(mebibytes));
            assert_eq!(gpu.buffer_bytes, expected << 20);
        }
    }
}
