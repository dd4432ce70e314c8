//! The configuration: resolved from builder, environment, file and defaults, then a plain value.
//!
//! Keys, grammar and the default path are libkineto's (`Config.cpp`, `AbstractConfig.cpp`, `ConfigLoader.cpp`). Each
//! key is resolved separately: builder over environment over file over default. In libkineto, the file overrides the
//! program.

mod change;
mod keys;
mod placeholders;
mod sections;
mod sources;
mod value;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use placeholders::PlaceholderValues;
#[cfg(target_os = "linux")]
pub(crate) use placeholders::has_placeholder;
pub use sections::async_spans::AsyncSpans;
pub(crate) use sections::dumps::DumpConfig;
pub use sections::dumps::DumpTrigger;
pub use sections::flags::RecordingFlags;
pub use sections::mode::{Mode, Modes};
pub(crate) use sections::ondemand::OnDemandConfig;
pub(crate) use sections::output::{Output, extension_warning};
pub use sections::overflow::Overflow;
pub(crate) use sections::retention::RetentionLimits;
pub use sections::split::Split;
pub(crate) use sections::timetable::Timetable;
pub(crate) use sources::env::{Activation, Env};
pub(crate) use sources::file::ConfigFile;
pub(crate) use sources::overrides::Overrides;
pub(crate) use sources::request::ParsedRequest;
pub(crate) use sources::settings::SourceSettings;
use sources::settings::{ConfigSource, MergedSettings};

use crate::diag::{LOGGER, Logger, diag};
use crate::error::{Error, ErrorKind};
use crate::os::process;
use crate::text::{count_with_noun, joined};
pub(crate) use keys::{Config, Key};
use kineto_model::activity::{ActivityType, ActivityTypes};
use kineto_model::write::json_object;
pub(crate) use value::Value;

/// The keys that schedule recordings: start, duration and repetition.
const TIMETABLE_KEYS: [Key; 7] = [
    Key::StartDelay,
    Key::StartPeriod,
    Key::StartWindows,
    Key::StartIteration,
    Key::DurationSecs,
    Key::DurationMsecs,
    Key::Iterations,
];

impl Config {
    /// Merges the sources. Warnings are appended to `warnings`, also if this fails; [`report_warnings`] emits them.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with all invalid values, [`ErrorKind::Io`] if a file cannot be read.
    pub(crate) fn resolve(overrides: &Overrides, env: &Env, warnings: &mut Vec<String>) -> Result<Config, Error> {
        Config::resolve_with(overrides, env, Path::new(sources::file::DEFAULT), warnings)
    }

    fn resolve_with(
        overrides: &Overrides,
        env: &Env,
        default_file: &Path,
        warnings: &mut Vec<String>,
    ) -> Result<Config, Error> {
        let (mut builder, mut environment) = (overrides.read_settings(), env.read_settings(overrides.is_env_strict));
        warnings.append(&mut builder.warnings);
        warnings.append(&mut environment.warnings);
        builder.errors.append(&mut environment.errors);
        if !builder.errors.is_empty() {
            let errors = joined(&builder.errors, "; ");
            return Err(Error::new(ErrorKind::Config, format!("cannot use {errors}; correct it")));
        }
        // The state is taken before the file is read, so that a later change is noticed.
        let config_file = ConfigFile::find(overrides.config_file.as_deref(), env, default_file);
        let file = config_file.read_settings(warnings)?;
        let merge = |environment: SourceSettings| {
            Config::from_merged(MergedSettings::new([
                (ConfigSource::Builder, builder.settings.clone()),
                (ConfigSource::Environment, environment),
                (ConfigSource::File, file.clone()),
            ]))
        };
        let mut config = merge(environment.settings.clone());
        if let Err(why) = config.check_start()
            && !overrides.is_env_strict
        {
            let reduced = merge(environment.settings.without_keys(&TIMETABLE_KEYS));
            if reduced.check_start().is_ok() {
                warnings.push(format!("{why}; the environment's values are ignored"));
                config = reduced;
            }
        }
        config.check_start()?;
        config.file = config_file;
        if let Some(warning) = config.ondemand.timetable.unused_setting_warning() {
            warnings.push(warning.to_owned());
        }
        if config.keep.is_some() && config.overflow != Overflow::KeepNewest {
            let overflow = config.overflow.as_str();
            warnings.push(format!("KEEP is ignored with OVERFLOW={overflow}; set OVERFLOW=keep_newest"));
        }
        let (metrics, of_type) = ("CUPTI_PM_SAMPLING_METRICS", ActivityType::HardwareCounters);
        if !config.gpu.options.list(metrics).is_empty() && !config.activities.contains(of_type) {
            warnings.push(format!("{metrics} has no effect without the type {of_type}; add that to ACTIVITY_TYPES"));
        }
        config.distributed =
            overrides.distributed.clone().or_else(|| sources::launchers::read_distributed_info(env, warnings));
        config.job_metadata = env.job_metadata();
        config.gpu.read_variables(env);
        Ok(config)
    }

    /// Rejects settings with which a program cannot start.
    fn check_start(&self) -> Result<(), Error> {
        self.ondemand.timetable.check_consistency().map_err(|why| Error::new(ErrorKind::Config, why))
    }

    fn from_merged(mut merged: MergedSettings) -> Config {
        // Dumps hold the newest records, and no more than are written in some seconds.
        if merged.has_dump_triggers() {
            merged.set_default(Key::Overflow, Value::Overflow(Overflow::KeepNewest));
            merged.set_default(Key::BufferLimit, Value::Bytes(64 << 20));
        }
        let mut config = Config { activities: ActivityTypes::EMPTY, ..Config::default() };
        for (key, value) in merged.iter() {
            key.apply(value, &mut config);
        }
        config.activities = config.gpu.allowed_types(config.activities.or_default());
        if config.collectives {
            config.activities = config.activities.with(ActivityType::CollectiveComm);
        }
        // As in kineto, sources of text must select the type as well.
        if merged.value_source(Key::PmSamplingMetrics) == ConfigSource::Builder {
            config.activities = config.activities.with(ActivityType::HardwareCounters);
        }
        if merged.value_source(Key::ProfilerMetrics) == ConfigSource::Builder {
            let of_annotations =
                [ActivityType::UserAnnotation, ActivityType::GpuUserAnnotation, ActivityType::ExternalCorrelation];
            config.activities |= if config.gpu.options.flag("CUPTI_PROFILER_ENABLE_PER_KERNEL") {
                ActivityType::CudaProfilerRange.into()
            } else {
                ActivityTypes::of(&of_annotations)
            };
        }
        config.merged = merged;
        config
    }

    /// Decides what starts without a call of the program; returns whether requests are served.
    ///
    /// The program's schedule overrides the timetable. If requests are served, including those of the timetable, or the
    /// layer is [`Activation::Idle`] (`waits`), nothing else is recorded unless a source sets RECORD_FROM_START, or the newest
    /// records are kept.
    pub(crate) fn resolve_start(&mut self, waits: bool, has_schedule: bool) -> bool {
        if has_schedule && self.ondemand.timetable.is_wanted() {
            self.ondemand.timetable = Timetable::default();
            diag!(
                Warning,
                "config",
                "START_DELAY_MS, ACTIVITIES_DURATION_MSECS and ACTIVITIES_ITERATIONS are ignored: the program records by a \
                 schedule; unset them, or remove the schedule"
            );
        }
        let serves = self.ondemand.is_enabled();
        let is_default = self.value_source(Key::RecordFromStart) == ConfigSource::Default;
        // Requests get parts of a recording that keeps the newest records.
        if (waits || serves && !has_schedule) && is_default && self.overflow != Overflow::KeepNewest {
            self.record_from_start = false;
        }
        serves
    }

    /// Applies the log settings that differ from those of `before`; without it, those that a source sets.
    ///
    /// Defaults are not applied, so that a second layer does not reset the settings of the first.
    pub(crate) fn apply_log_settings(&self, before: Option<&Config>) {
        let applies = |differs: fn(&Config, &Config) -> bool, keys: &[Key]| match before {
            Some(before) => differs(self, before),
            None => keys.iter().any(|key| self.value_source(*key) != ConfigSource::Default),
        };
        if applies(|now, before| now.log_level != before.log_level, &[Key::LogLevel, Key::VerboseLogLevel]) {
            LOGGER.set_threshold(self.log_level);
        }
        if applies(|now, before| now.log_format != before.log_format, &[Key::LogFormat]) {
            LOGGER.set_format(self.log_format);
        }
        if applies(|now, before| now.verbose_log_modules != before.verbose_log_modules, &[Key::VerboseLogModules]) {
            LOGGER.set_verbose_modules(&self.verbose_log_modules);
        }
    }

    /// Returns whether the environment selected the CPU counters.
    pub(crate) fn has_counters_from_env(&self) -> bool {
        self.value_source(Key::PerformanceEvents) == ConfigSource::Environment
    }

    /// Returns the source of a key's value.
    fn value_source(&self, key: Key) -> ConfigSource {
        self.merged.value_source(key)
    }

    /// Returns the keys that a source sets, each with its value and its source.
    #[cfg(feature = "doctor")]
    pub(crate) fn set_keys(&self) -> Vec<(&'static str, String, String)> {
        let keys = Key::ALL.iter().filter_map(|key| Some((key.spec().name, self.merged.value_and_source(*key)?)));
        let set = keys.filter(|(_, (_, source))| *source != ConfigSource::Default);
        set.map(|(key, (value, source))| (key, value, source.to_string())).collect()
    }

    /// Returns the supported keys and those that a source sets as a JSON object for the header of a trace. Values are
    /// strings; `"from"` maps each key that is not a default to its source.
    pub(crate) fn effective_json(&self) -> String {
        let (mut values, mut sources) = (Vec::new(), Vec::new());
        for key in Key::ALL.iter().copied() {
            let Some((value, source)) = self.merged.value_and_source(key) else { continue };
            let name = key.spec().name;
            if source != ConfigSource::Default {
                sources.push((name, source.to_string().into()));
            }
            if source != ConfigSource::Default || !key.is_for_requests() {
                values.push((name, value.into()));
            }
        }
        values.push(("from", json_object(sources)));
        json_object(values).to_string()
    }
}

/// Reports the environment's unknown variables and the warning `unused`, once for the process.
pub(crate) fn report_unknown_variables(env: &Env, unused: Option<String>) {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::Relaxed) {
        let mut warnings = env.unknown_warnings();
        warnings.extend(unused);
        report_warnings(&warnings);
    }
}

/// Reports, once for the process, that its caller is not trusted.
pub(crate) fn report_untrusted_caller() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if process::has_untrusted_caller() && !IS_DONE.swap(true, Ordering::Relaxed) {
        diag!(
            Warning,
            "config",
            "the environment is not read and no library is loaded: the program has more rights than its caller \
             (set-user-ID or file capabilities); call `KinetoLayerBuilder::trust_caller` if callers may use these rights"
        );
    }
}

/// Emits the warnings of [`Config::resolve`].
pub(crate) fn report_warnings(warnings: &[String]) {
    report_to(&LOGGER, warnings);
}

fn report_to(logger: &Logger, warnings: &[String]) {
    /// Below the rate limit of `diag`.
    const SHOWN: usize = 8;
    for warning in warnings.iter().take(SHOWN) {
        diag!(logger = logger, Warning, "config", "{warning}");
    }
    if let Some(more @ 1..) = warnings.len().checked_sub(SHOWN) {
        diag!(
            logger = logger,
            Warning,
            "config",
            "not shown: {}; correct those above",
            count_with_noun(more as u64, "more configuration warning")
        );
    }
}

/// Reads a configuration file's text.
#[cfg(fuzzing)]
pub fn read_configuration(text: &str) {
    let parsed = sources::parse::parse_settings(text);
    let lines = text.lines().count();
    assert!(parsed.errors.len() <= lines && parsed.warnings.len() <= lines + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Severity;
    use crate::distributed::DistributedInfo;
    use kineto_model::activity::{ActivityGroup, ActivityType};
    use std::fs;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tracing_core::LevelFilter;

    /// Resolves with a configuration file of that text.
    fn resolve(overrides: &Overrides, env: &[(&str, &str)], file: &str) -> Result<(Config, Vec<String>), Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libkineto.conf");
        fs::write(&path, file).unwrap();
        let mut warnings = Vec::new();
        let env = Env::from_pairs(env.iter().copied());
        Config::resolve_with(overrides, &env, &path, &mut warnings).map(|config| (config, warnings))
    }

    fn config(overrides: &Overrides, env: &[(&str, &str)], file: &str) -> Config {
        let (config, warnings) = resolve(overrides, env, file).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        config
    }

    #[test]
    fn defaults_match_the_docs() {
        let config = config(&Overrides::default(), &[], "");
        assert_eq!(config.activities, ActivityTypes::DEFAULT);
        assert_eq!(config.output, Output::Default);
        assert!(config.filter.is_none() && config.deny_fields.is_empty());
        assert!(config.with_args && config.with_target && !config.with_location);
        assert_eq!(config.flags, RecordingFlags::default());
        assert_eq!((config.events, config.async_spans), (LevelFilter::OFF, AsyncSpans::Auto));
        assert_eq!((config.buffer_limit_bytes, config.field_limit_bytes), (512 << 20, 4096));
        assert_eq!((config.overflow, config.flush_timeout), (Overflow::Stop, Duration::from_secs(5)));
        assert!(config.record_from_start && !config.fields_while_idle && config.flush_on_signals);
        assert_eq!((config.gzip_level, config.log_level), (1, Severity::Warning));
        assert_eq!((config.host_name.clone(), config.trace_id.clone(), config.distributed.clone()), (None, None, None));
        assert_eq!(config.effective_json(), Config::default().effective_json());
        assert!(
            config.effective_json().ends_with(r#""from":{}}"#) || config.effective_json().contains(r#""from":{},"#)
        );
    }

    #[test]
    fn torch_variable_selects_collectives_if_it_is_1() {
        let comms = ActivityTypes::from(ActivityType::CollectiveComm);
        let is_selected = |overrides: &Overrides, text| {
            let config = config(overrides, &[("TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING", text)], "");
            config.activities.intersection(comms) == comms
        };
        let selected = ["1", "", "0", "2", "true"].map(|text| is_selected(&Overrides::default(), text));
        assert_eq!(selected, [true, false, false, false, false]);
        assert!(!is_selected(&Overrides::default().with(Key::Collectives, Value::Bool(false)), "1"));
        let only_cpu = Overrides::default()
            .with(Key::Collectives, Value::Bool(true))
            .with(Key::ActivityTypes, Value::Activities(ActivityType::CpuOp.into()));
        assert!(is_selected(&only_cpu, "") && config(&only_cpu, &[], "").activities == comms.with(ActivityType::CpuOp));
    }

    #[cfg(feature = "metrics")]
    #[test]
    #[cfg(feature = "cuda")]
    fn metrics_without_their_type_are_warned_about() {
        let metrics = ("KINETO_CUPTI_PM_SAMPLING_METRICS", "sm__cycles_active.avg");
        let (_, warnings) = resolve(&Overrides::default(), &[metrics], "").unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains("add that to ACTIVITY_TYPES"), "{warnings:?}");
        config(&Overrides::default(), &[metrics, ("KINETO_ACTIVITY_TYPES", "kernel,hardware_counters")], "");
    }

    #[test]
    fn builder_overrides_environment_overrides_file() {
        let file = "GZIP_LEVEL=2\nFLUSH_TIMEOUT_MSECS=20\nBUFFER_LIMIT_MB=2\nWITH_ARGS=no";
        let env = [("KINETO_GZIP_LEVEL", "3"), ("KINETO_FLUSH_TIMEOUT_MSECS", "30")];
        let overrides = Overrides::default().with(Key::GzipLevel, Value::Int(4));
        let config = config(&overrides, &env, file);
        assert_eq!(config.gzip_level, 4);
        assert_eq!(config.flush_timeout, Duration::from_millis(30));
        assert_eq!(config.buffer_limit_bytes, 2 << 20);
        assert!(!config.with_args && config.with_target);
        let sources =
            [Key::GzipLevel, Key::FlushTimeout, Key::BufferLimit, Key::WithTarget].map(|key| config.value_source(key));
        assert_eq!(
            sources,
            [ConfigSource::Builder, ConfigSource::Environment, ConfigSource::File, ConfigSource::Default]
        );
    }

    #[test]
    fn types_and_groups_of_one_source_are_united() {
        let none = Overrides::default();
        let both = [("KINETO_ACTIVITIES", "cpu"), ("KINETO_ACTIVITY_TYPES", "kernel")];
        let cpu = ActivityGroup::Cpu.types();
        assert_eq!(config(&none, &both, "").activities, cpu.with(ActivityType::ConcurrentKernel));
        // The file adds nothing to the environment's selection, nor does either to the builder's.
        assert_eq!(config(&none, &both[..1], "ACTIVITY_TYPES=kernel").activities, cpu);
        let builder = Overrides::default().with(Key::ActivityTypes, Value::Activities(ActivityType::CpuOp.into()));
        assert_eq!(config(&builder, &both, "").activities, ActivityType::CpuOp.into());
        // An empty list means the default, as in libkineto; together with a group it adds nothing.
        assert_eq!(config(&none, &[], "ACTIVITY_TYPES=").activities, ActivityTypes::DEFAULT);
        assert_eq!(config(&none, &[], "ACTIVITY_TYPES=\nACTIVITIES=cpu").activities, cpu);
    }

    #[test]
    fn output_key_gets_pid_and_builder_path_is_exact() {
        let env = [("KINETO_ACTIVITIES_LOG_FILE", "/tmp/x.json")];
        let from_env = config(&Overrides::default(), &env, "");
        assert_eq!(
            from_env.output.expanded_path(&PlaceholderValues { pid: 9, ..from_env.placeholder_values() }),
            Some("/tmp/x_9.json".into())
        );
        let overrides = Overrides::default().with(Key::LogFile, Value::Output(Output::Exact("/tmp/y.json".into())));
        assert_eq!(
            config(&overrides, &env, "").output.expanded_path(&from_env.placeholder_values()),
            Some("/tmp/y.json".into())
        );
    }

    #[test]
    fn verbose_log_level_means_verbose_unless_overridden() {
        let level = |env: &[(&str, &str)], file: &str| config(&Overrides::default(), env, file).log_level;
        assert_eq!(level(&[], "VERBOSE_LOG_LEVEL=0\nVERBOSE_LOG_MODULES=env.rs,clock"), Severity::Verbose);
        assert_eq!(level(&[], "VERBOSE_LOG_LEVEL=2\nLOG_LEVEL=error"), Severity::Verbose);
        assert_eq!(level(&[("KINETO_LOG_LEVEL", "ERROR")], "VERBOSE_LOG_LEVEL=2"), Severity::Error);
        assert_eq!(level(&[("KINETO_LOG_LEVEL", "5")], ""), Severity::Usdt);
        assert_eq!(level(&[("KINETO_VERBOSE_LOG_LEVEL", "1")], "LOG_LEVEL=5"), Severity::Verbose);
    }

    #[test]
    fn bad_log_level_warns_and_keeps_the_default() {
        let (config, warnings) = resolve(&Overrides::default(), &[("KINETO_LOG_LEVEL", "loud")], "").unwrap();
        assert_eq!((config.log_level, warnings.len()), (Severity::Warning, 1));
    }

    #[test]
    fn bad_values_of_builder_and_environment_are_one_error() {
        let overrides = Overrides::default().with(Key::GzipLevel, Value::Int(10));
        let overrides = Overrides { is_env_strict: true, ..overrides };
        let error = resolve(&overrides, &[("KINETO_ASYNC_SPANS", "never")], "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(
            error.to_string(),
            "cannot use `gzip_level(10)`: expected a whole number from 0 to 9; `KINETO_ASYNC_SPANS=never`: expected \
             auto, per_poll, track or both; correct it"
        );
    }

    #[test]
    fn filter_is_parsed_for_the_layer() {
        let config = config(&Overrides::default(), &[("KINETO_FILTER", "app=debug,hyper=off")], "");
        let filter = config.filter.unwrap();
        assert!(filter.would_enable("app::x", &tracing_core::Level::DEBUG));
        assert!(!filter.would_enable("hyper", &tracing_core::Level::ERROR));
    }

    #[test]
    fn waiting_layer_records_only_if_set() {
        for (env, expected) in [(&[][..], false), (&[("KINETO_RECORD_FROM_START", "1")], true)] {
            let mut config = config(&Overrides::default(), env, "");
            config.resolve_start(true, false);
            assert_eq!(config.record_from_start, expected);
        }
    }

    #[test]
    fn builder_overrides_distributed_info() {
        let env = [("RANK", "1"), ("WORLD_SIZE", "4")];
        let from_env = config(&Overrides::default(), &env, "").distributed;
        assert_eq!(from_env, Some(DistributedInfo::new(1, 4)));
        let overrides = Overrides { distributed: Some(DistributedInfo::new(0, 1)), ..Overrides::default() };
        assert_eq!(config(&overrides, &env, "").distributed, Some(DistributedInfo::new(0, 1)));
    }

    #[test]
    #[cfg(feature = "ondemand")]
    fn effective_json_names_sources_and_unused_keys() {
        let env = [("KINETO_USE_DAEMON", "yes"), ("KINETO_GZIP_LEVEL", "3")];
        let config = config(&Overrides::default(), &env, "CUSTOM_CONFIG=a=\"b\"\nACTIVITIES_WARMUP_PERIOD_SECS=9");
        let json: serde_json::Value = serde_json::from_str(&config.effective_json()).unwrap();
        assert_eq!(json["KINETO_USE_DAEMON"], "true");
        assert_eq!(json["CUSTOM_CONFIG"], "a=\"b\"");
        assert_eq!(json["BUFFER_LIMIT_MB"], "512");
        assert_eq!(json["ACTIVITIES_WARMUP_PERIOD_SECS"], "9");
        assert_eq!(json["ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS"], serde_json::Value::Null);
        assert_eq!(json["from"]["GZIP_LEVEL"], "environment");
        assert_eq!(json["from"]["CUSTOM_CONFIG"], "file");
        assert_eq!(json["from"]["BUFFER_LIMIT_MB"], serde_json::Value::Null);
    }

    #[test]
    fn only_eight_warnings_are_shown() {
        let logger = Logger::new();
        let texts = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&texts);
        logger.set_sink(Some(Arc::new(move |message| kept.lock().unwrap().push(message.text.to_string()))));
        let warnings: Vec<_> = (0..20).map(|n| format!("warning {n}")).collect();
        report_to(&logger, &warnings);
        let texts = texts.lock().unwrap();
        assert_eq!(texts[..8], warnings[..8]);
        assert_eq!(texts[8..], ["not shown: 12 more configuration warnings; correct those above"]);
    }

    #[test]
    fn all_sources_add_warnings() {
        let env = [("KINETO_TYPO", "1"), ("RANK", "x"), ("WORLD_SIZE", "2")];
        let (_, warnings) = resolve(&Overrides::default(), &env, "FUTURE=1\nGZIP_LEVEL=99").unwrap();
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }

    #[test]
    #[cfg(feature = "ondemand")]
    fn bad_variables_warn_and_fall_back_unless_strict() {
        for (name, text, message) in [
            ("KINETO_FILTER", "app=loud", "KINETO_FILTER=app=loud"),
            ("KINETO_START_PERIOD_MS", "5", "START_PERIOD_MS needs"),
        ] {
            let env = [(name, text), ("KINETO_HOST_NAME", "h")];
            let (config, warnings) = resolve(&Overrides::default(), &env, "").unwrap();
            assert!(warnings.len() == 1 && warnings[0].contains(message), "{warnings:?}");
            assert!(warnings[0].contains("ignored"), "{warnings:?}");
            assert_eq!((config.filter.is_none(), config.host_name.as_deref()), (true, Some("h")));
            let strict = Overrides { is_env_strict: true, ..Overrides::default() };
            assert!(resolve(&strict, &env, "").unwrap_err().to_string().contains(message));
        }
    }
}
