//! Settings of the collectors of GPUs.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::super::keys::{Key, OTHER_VARIABLES};
use super::super::sources::env::Env;
use super::super::value::Value;
use kineto_devices::Options;
use kineto_model::activity::{ActivityType, ActivityTypes};

/// The settings for recording GPUs.
#[derive(Clone, Debug, Default)]
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
    /// The folder of plugins, which are loaded unless that is disabled.
    pub(crate) plugin_folder: Option<PathBuf>,
    pub(crate) disables_plugins: bool,
    /// Options for collectors, torch's `custom_profiler_config`.
    pub(crate) custom_config: String,
}

impl Gpu {
    /// Passes the value of a key to collectors, under its name.
    pub(in crate::config) fn set_option(&mut self, key: Key, value: &Value) {
        let name = key.spec().name;
        match value {
            Value::Bool(on) => self.options.set(name, *on),
            Value::Int(number) => self.options.set(name, *number),
            Value::Text(text) => self.options.set(name, text.as_str()),
            Value::List(list) => self.options.set(name, list.clone()),
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

/// Returns the bytes of that many MiB: fewer than two of the vendor's buffers do not work.
pub(in crate::config) fn buffer_bytes(mebibytes: u64) -> u64 {
    mebibytes.max(8) << 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use kineto_model::activity::ActivityGroup;

    #[test]
    fn each_device_key_has_an_effect() {
        let words = ["CUPTI", "CUDA", "GPU", "NVTX", "DEVICE_MEMORY", "ROC", "XPU", "_PTI_"];
        let keys = Key::ALL.iter().filter(|key| words.iter().any(|word| key.spec().name.contains(word)));
        for key in keys {
            let (one, other) = crate::config::sources::settings::tests::sample(*key);
            let is_seen = |text: &&str| {
                let mut config = Config::default();
                key.apply(&key.spec().kind.parse(text).unwrap(), &mut config);
                format!("{:?}", config.gpu) != format!("{:?}", Config::default().gpu)
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
        let mut config = Config::default();
        Key::PluginFolder.apply(&Value::Text("/opt/plugins".to_owned()), &mut config);
        assert_eq!(config.gpu.plugin_folder.as_deref(), Some("/opt/plugins".as_ref()));
        assert!(!config.gpu.disables_plugins);
        Key::DisablePlugins.apply(&Value::Bool(true), &mut config);
        Key::PluginFolder.apply(&Value::Text(String::new()), &mut config);
        assert_eq!((config.gpu.plugin_folder, config.gpu.disables_plugins), (None, true));
    }

    #[test]
    fn custom_config_excludes_mtia_types() {
        let mut gpu = Gpu::default();
        let mtia = ActivityGroup::Mtia.types();
        assert_eq!(gpu.allowed_types(mtia), mtia);
        gpu.custom_config = "disable_ccp_events, x=1;disable_counter_events".to_owned();
        let left = mtia.without(ActivityType::MtiaCcpEvents).without(ActivityType::MtiaCounters);
        assert_eq!(gpu.allowed_types(mtia), left);
        gpu.custom_config = "disable_runtime_events,disable_insight_events".to_owned();
        let left = mtia.without(ActivityType::MtiaRuntime).without(ActivityType::MtiaInsight);
        assert_eq!((gpu.allowed_types(mtia), gpu.allowed_types(ActivityTypes::EMPTY)), (left, ActivityTypes::EMPTY));
    }

    #[test]
    fn buffer_memory_is_at_least_two_buffers() {
        let mut config = Config::default();
        for (mebibytes, expected) in [(-1, 8), (0, 8), (9, 9)] {
            Key::MaxGpuBufferSize.apply(&Value::Int(mebibytes), &mut config);
            assert_eq!(config.gpu.buffer_bytes, expected << 20);
        }
    }
}
