//! Settings of the collectors of GPUs.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::super::keys::{Key, OTHER_VARIABLES};
use super::super::sources::env::Env;
use super::super::value::Value;
use kineto_devices::Options;
use kineto_model::activity::{ActivityType, ActivityTypes};

/// The settings for recording GPUs.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    /// The most bytes of a vendor's unread records.
    pub(crate) buffer_bytes: u64,
    /// Whether waits of one stream for another are shown.
    pub(crate) wait_events: bool,
    /// Whether only ranges that the program opens are recorded.
    pub(crate) profiler_range: bool,
    /// Whether allocations on devices are recorded.
    pub(crate) device_memory: bool,
    /// All other keys and variables; each collector reads its own.
    pub(crate) options: Options,
    /// The folder of plugins, and whether they are loaded.
    pub(crate) plugin_folder: Option<PathBuf>,
    pub(crate) plugins: bool,
    /// Options for collectors, torch's `custom_profiler_config`.
    pub(crate) custom_config: String,
}

impl Gpu {
    /// Sets the value of a key. Keys that nothing else reads are options of collectors.
    pub(in crate::config) fn apply_setting(&mut self, key: Key, value: &Value) {
        match (key, value) {
            (Key::MaxGpuBufferSize, Value::Int(mebibytes)) => {
                // Fewer than two of the vendor's buffers do not work.
                self.buffer_bytes = u64::try_from(*mebibytes).unwrap_or(0).max(8) << 20;
            }
            (Key::CudaSyncWaitEvents, Value::Bool(on)) => self.wait_events = *on,
            (Key::ProfilerRange, Value::Bool(on)) => self.profiler_range = *on,
            (Key::DeviceMemory, Value::Bool(on)) => self.device_memory = *on,
            (Key::PluginFolder, Value::Text(path)) => self.plugin_folder = some_path(path),
            (Key::DisablePlugins, Value::Bool(on)) => self.plugins = !on,
            (Key::CustomConfig, Value::Text(text)) => self.custom_config.clone_from(text),
            (_, Value::Bool(on)) => self.options.set(key.spec().name, *on),
            (_, Value::Int(number)) => self.options.set(key.spec().name, *number),
            (_, Value::Text(text)) => self.options.set(key.spec().name, text.as_str()),
            (_, Value::List(list)) => self.options.set(key.spec().name, list.clone()),
            _ => {}
        }
    }

    /// Returns the types without those that the custom configuration excludes for MTIA, by torch's words.
    pub(in crate::config) fn allowed_types(&self, types: ActivityTypes) -> ActivityTypes {
        let words = self.custom_config.split([',', ';', ' ']).map(str::trim);
        let disabled_types = words.filter_map(|word| match word {
            "disable_runtime_events" => Some(ActivityType::MtiaRuntime),
            "disable_ccp_events" => Some(ActivityType::MtiaCcpEvents),
            "disable_insight_events" => Some(ActivityType::MtiaInsight),
            "disable_counter_events" => Some(ActivityType::MtiaCounters),
            _ => None,
        });
        disabled_types.fold(types, ActivityTypes::without)
    }

    /// Passes the environment variables of collectors to them.
    pub(crate) fn read_variables(&mut self, env: &Env) {
        for name in collector_variables() {
            if let Some(text) = env.raw_value(name).and_then(OsStr::to_str) {
                self.options.set(name, text);
            }
        }
    }

    /// Copies what [`read_variables`](Gpu::read_variables) found, for settings that are read again.
    pub(in crate::config) fn keep_variables(&mut self, earlier: &Gpu) {
        for name in collector_variables() {
            if let Some(value) = earlier.options.get(name) {
                self.options.set(name, value.clone());
            }
        }
    }
}

fn collector_variables() -> impl Iterator<Item = &'static str> {
    let variables = OTHER_VARIABLES.iter().filter(|(_, _, is_for_collectors)| *is_for_collectors);
    variables.flat_map(|(names, ..)| names.iter().copied())
}

fn some_path(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text)).filter(|_| !text.is_empty())
}

impl Default for Gpu {
    fn default() -> Self {
        Gpu {
            buffer_bytes: 128 << 20,
            wait_events: true,
            profiler_range: false,
            device_memory: false,
            options: Options::default(),
            plugin_folder: None,
            plugins: true,
            custom_config: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kineto_model::activity::ActivityGroup;

    #[test]
    fn each_device_key_has_an_effect() {
        let words = ["CUPTI", "CUDA", "GPU", "NVTX", "DEVICE_MEMORY", "ROC", "XPU", "_PTI_"];
        let keys = Key::ALL.iter().filter(|key| words.iter().any(|word| key.spec().name.contains(word)));
        for key in keys {
            let (one, other) = crate::config::sources::settings::tests::sample(*key);
            let is_seen = |text: &&str| {
                let mut gpu = Gpu::default();
                gpu.apply_setting(*key, &key.spec().kind.parse(text).unwrap());
                format!("{gpu:?}") != format!("{:?}", Gpu::default())
            };
            assert!([one, other].iter().any(is_seen), "{key:?}");
        }
    }

    #[test]
    fn variables_of_collectors_survive_reloads() {
        let mut gpu = Gpu::default();
        gpu.read_variables(&Env::from_pairs([("CUDA_HOME", "/cuda"), ("RANK", "3")]));
        gpu.options.set("CUDA_GRAPH_TRACE", true);
        let mut reloaded = Gpu::default();
        reloaded.keep_variables(&gpu);
        let options = reloaded.options;
        assert_eq!((options.text("CUDA_HOME"), options.text("RANK")), (Some("/cuda"), None));
        assert!(!options.flag("CUDA_GRAPH_TRACE"), "a key");
    }

    #[test]
    fn plugin_folder_is_used_unless_disabled() {
        let mut gpu = Gpu::default();
        gpu.apply_setting(Key::PluginFolder, &Value::Text("/opt/plugins".to_owned()));
        assert_eq!((gpu.plugin_folder.as_deref(), gpu.plugins), (Some("/opt/plugins".as_ref()), true));
        gpu.apply_setting(Key::DisablePlugins, &Value::Bool(true));
        gpu.apply_setting(Key::PluginFolder, &Value::Text(String::new()));
        assert_eq!((gpu.plugin_folder, gpu.plugins), (None, false));
    }

    #[test]
    fn custom_config_excludes_mtia_types() {
        let mut gpu = Gpu::default();
        let mtia = ActivityGroup::Mtia.types();
        assert_eq!(gpu.allowed_types(mtia), mtia);
        gpu.apply_setting(Key::CustomConfig, &Value::Text("disable_ccp_events, x=1;disable_counter_events".to_owned()));
        let left = mtia.without(ActivityType::MtiaCcpEvents).without(ActivityType::MtiaCounters);
        assert_eq!(gpu.allowed_types(mtia), left);
        gpu.apply_setting(Key::CustomConfig, &Value::Text("disable_runtime_events,disable_insight_events".to_owned()));
        let left = mtia.without(ActivityType::MtiaRuntime).without(ActivityType::MtiaInsight);
        assert_eq!((gpu.allowed_types(mtia), gpu.allowed_types(ActivityTypes::EMPTY)), (left, ActivityTypes::EMPTY));
    }

    #[test]
    fn buffer_memory_is_at_least_two_buffers() {
        let mut gpu = Gpu::default();
        for (mebibytes, expected) in [(-1, 8), (0, 8), (9, 9)] {
            gpu.apply_setting(Key::MaxGpuBufferSize, &Value::Int(mebibytes));
            assert_eq!(gpu.buffer_bytes, expected << 20);
        }
    }
}
