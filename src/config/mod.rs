//! The configuration: resolved from builder, environment, file and defaults, then a plain value.
//!
//! Keys, grammar and places are libkineto's (`Config.cpp`, `AbstractConfig.cpp`, `ConfigLoader.cpp`). Each key is
//! decided alone: builder over environment over file over default. libkineto, where the file goes over what the program
//! says, cannot be overruled by the program.

mod async_spans;
mod change;
mod companions;
mod distributed;
mod env;
mod file;
mod flags;
mod gpu;
mod keys;
mod mode;
mod names;
mod ondemand;
mod output;
mod overflow;
mod overrides;
mod parse;
mod request;
mod settings;
mod spelling;
mod timetable;
mod value;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing_core::LevelFilter;
use tracing_subscriber::filter::Targets;

pub use async_spans::AsyncSpans;
pub(crate) use companions::Companions;
pub use distributed::{DistributedInfo, ProcessGroup};
pub(crate) use env::{Env, Switch};
pub(crate) use file::ConfigFile;
pub use flags::RecordingFlags;
pub(crate) use gpu::Gpu;
pub use mode::{Mode, Modes, UnknownMode};
#[cfg(target_os = "linux")]
pub(crate) use names::{NameParts, has_pid};
pub(crate) use ondemand::OnDemand;
pub(crate) use output::Output;
pub use overflow::Overflow;
pub(crate) use overrides::Overrides;
pub(crate) use request::Asked;
use settings::{Fault, Merged, Origin, Settings};
pub(crate) use timetable::Timetable;

use crate::diag::{DOOR, Door, LogFormat, Severity, diag};
use crate::error::{Error, ErrorKind};
use keys::Key;
use kineto_trace::activity::{ActivityType, ActivityTypes};
use value::Value;

/// What a layer does, as builder, environment, configuration file and defaults have decided it.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) mode: Modes,
    pub(crate) itt_domain: String,
    pub(crate) activities: ActivityTypes,
    pub(crate) output: Output,
    /// What this layer sees; `None` is everything.
    pub(crate) filter: Option<Targets>,
    pub(crate) with_args: bool,
    pub(crate) with_target: bool,
    pub(crate) with_location: bool,
    pub(crate) flags: RecordingFlags,
    /// An overload's name stands behind its operation's.
    pub(crate) overload_names: bool,
    /// Arrows go from forward to backward operations.
    pub(crate) fwd_bwd: bool,
    /// Collective operations are of a type of their own.
    pub(crate) collectives: bool,
    pub(crate) deny_fields: Vec<String>,
    /// Events above this are not recorded; OFF is none.
    pub(crate) events: LevelFilter,
    pub(crate) async_spans: AsyncSpans,
    pub(crate) buffer_limit_bytes: u64,
    pub(crate) field_limit_bytes: usize,
    pub(crate) overflow: Overflow,
    pub(crate) flush_timeout: Duration,
    pub(crate) record_from_start: bool,
    pub(crate) fields_while_idle: bool,
    pub(crate) flush_on_signals: bool,
    /// 0 to 9.
    pub(crate) gzip_level: u32,
    /// An execution trace is written beside the trace.
    pub(crate) execution_trace: bool,
    pub(crate) host_name: Option<String>,
    pub(crate) trace_id: Option<String>,
    /// Empty for none.
    pub(crate) group_trace_id: String,
    /// The tool that listens to NVTX.
    pub(crate) nvtx_injection: Option<PathBuf>,
    pub(crate) companions: Companions,
    pub(crate) gpu: Gpu,
    pub(crate) ondemand: OnDemand,
    pub(crate) log_level: Severity,
    pub(crate) log_format: LogFormat,
    pub(crate) verbose_log_modules: Vec<String>,
    pub(crate) distributed: Option<DistributedInfo>,
    /// PT_PROFILER_JOB_*: names and plain texts, to be quoted as JSON.
    pub(crate) job_metadata: Vec<(String, String)>,
    /// What it was read from, as it was then.
    pub(crate) file: ConfigFile,
    merged: Merged,
}

/// The keys that [`Config::check_start`] is about: those of either check, and all of them.
const CHECKED: [&[Key]; 3] = [CHECKED_ALL.split_at(1).0, TIMES, &CHECKED_ALL];
/// The keys that say when the process records by itself, and for how long.
const TIMES: &[Key] = CHECKED_ALL.split_at(1).1;
const CHECKED_ALL: [Key; 8] = [
    Key::Overflow,
    Key::StartDelay,
    Key::StartPeriod,
    Key::StartWindows,
    Key::StartIteration,
    Key::DurationSecs,
    Key::DurationMsecs,
    Key::Iterations,
];

impl Config {
    /// Puts the sources together, and adds to `warnings` what should be told to the user besides.
    ///
    /// The warnings are not sent: see [`report`]. There may be some beside an error, too.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with all values that cannot be used, [`ErrorKind::Io`] about a file that cannot be read,
    /// [`ErrorKind::Unsupported`] for what this version cannot do.
    pub(crate) fn resolve(overrides: &Overrides, env: &Env, warnings: &mut Vec<String>) -> Result<Config, Error> {
        Config::resolve_with(overrides, env, Path::new(file::DEFAULT), warnings)
    }

    fn resolve_with(
        overrides: &Overrides,
        env: &Env,
        default_file: &Path,
        warnings: &mut Vec<String>,
    ) -> Result<Config, Error> {
        let (by_program, mut by_env) = (overrides.read(), env.read());
        if !overrides.is_env_strict {
            by_env.warnings.extend(by_env.faults.drain(..).map(|fault| fault.ignored()));
        }
        warnings.extend(by_program.warnings.into_iter().chain(by_env.warnings));
        let faults: Vec<_> = by_program.faults.iter().chain(&by_env.faults).map(Fault::to_string).collect();
        if !faults.is_empty() {
            return Err(Error::new(ErrorKind::Config, format!("cannot use {}; correct it", faults.join("; "))));
        }
        // Looked at before it is read: what happens to it from then on is a change.
        let file = ConfigFile::find(overrides.config_file.as_deref(), env, default_file);
        let by_file = file.read(warnings)?;
        let merge = |by_env: Settings| {
            Config::of(Merged::new([
                (Origin::Builder, by_program.settings.clone()),
                (Origin::Environment, by_env),
                (Origin::File, by_file.clone()),
            ]))
        };
        let mut config = merge(by_env.settings.clone());
        if let Err(why) = config.check_start()
            && !overrides.is_env_strict
            && let Some(rest) = CHECKED
                .iter()
                .map(|keys| merge(by_env.settings.without(keys)))
                .find(|config| config.check_start().is_ok())
        {
            warnings.push(format!("{why}; what the environment says of it is ignored"));
            config = rest;
        }
        config.check_start()?;
        config.file = file;
        warnings.extend(config.ondemand.timetable.warning().map(str::to_owned));
        config.distributed = overrides.distributed.clone().or_else(|| DistributedInfo::from_env(env, warnings));
        config.job_metadata = env.job_metadata();
        config.gpu.look_for_places(env);
        config.nvtx_injection = env.text("NVTX_INJECTION64_PATH").map(PathBuf::from);
        Ok(config)
    }

    /// Refuses settings with which a program cannot start.
    fn check_start(&self) -> Result<(), Error> {
        self.ondemand.timetable.check().map_err(|why| Error::new(ErrorKind::Config, why))?;
        self.check()
    }

    /// Refuses what this version cannot do.
    fn check(&self) -> Result<(), Error> {
        if self.overflow == Overflow::Stop {
            return Ok(());
        }
        let what = self.overflow.as_str();
        let message = format!("overflow {what} is not available in this version; use stop and raise the buffer limit");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn of(merged: Merged) -> Config {
        let mut config = Config { activities: ActivityTypes::EMPTY, ..Config::default() };
        merged.iter().for_each(|(key, value)| config.set(key, value));
        config.activities = config.gpu.allowed(config.activities.or_default());
        if config.collectives {
            config.activities = config.activities.with(ActivityType::CollectiveComm);
        }
        config.merged = merged;
        config
    }

    /// Sets what a key stands for; those that are kept for later stand for nothing.
    fn set(&mut self, key: Key, value: &Value) {
        match (key, value) {
            (Key::IttDomain, Value::Text(name)) => self.itt_domain.clone_from(name),
            (Key::Mode, Value::Modes(modes)) => self.mode = *modes,
            (Key::ActivityTypes | Key::Activities, Value::Activities(types)) => {
                self.activities = self.activities.union(*types);
            }
            (Key::LogFile, Value::Output(output)) => self.output = output.clone(),
            (Key::Filter, Value::Filter(targets)) => self.filter = Some((**targets).clone()),
            (Key::WithArgs, Value::Bool(on)) => self.with_args = *on,
            (Key::WithTarget, Value::Bool(on)) => self.with_target = *on,
            (Key::WithLocation, Value::Bool(on)) => self.with_location = *on,
            (Key::OverloadNames, Value::Bool(on)) => self.overload_names = *on,
            (Key::FwdBwd, Value::Bool(on)) => self.fwd_bwd = *on,
            (Key::Collectives, Value::Bool(on)) => self.collectives = *on,
            (Key::DenyFields, Value::List(names)) => self.deny_fields.clone_from(names),
            (Key::Events, Value::Events(level)) => self.events = *level,
            (Key::AsyncSpans, Value::AsyncSpans(spans)) => self.async_spans = *spans,
            (Key::BufferLimit, Value::Bytes(bytes)) => self.buffer_limit_bytes = *bytes,
            (Key::FieldLimit, Value::Int(bytes)) => self.field_limit_bytes = usize::try_from(*bytes).unwrap_or(0),
            (Key::Overflow, Value::Overflow(overflow)) => self.overflow = *overflow,
            (Key::FlushTimeout, Value::Time(time)) => self.flush_timeout = *time,
            (Key::RecordFromStart, Value::Bool(on)) => self.record_from_start = *on,
            (Key::FieldsWhileIdle, Value::Bool(on)) => self.fields_while_idle = *on,
            (Key::FlushOnSignals, Value::Bool(on)) => self.flush_on_signals = *on,
            (Key::GzipLevel, Value::Int(level)) => self.gzip_level = u32::try_from(*level).unwrap_or(0),
            (Key::ExecutionTrace, Value::Bool(on)) => self.execution_trace = *on,
            (Key::HostName, Value::Text(name)) => self.host_name = Some(name.clone()).filter(|name| !name.is_empty()),
            (Key::TraceId, Value::Text(id)) => self.trace_id = Some(id.clone()).filter(|id| !id.is_empty()),
            (Key::GroupTraceId, Value::Text(id)) => self.group_trace_id.clone_from(id),
            (Key::LogLevel, Value::Severity(severity)) => self.log_level = *severity,
            (Key::LogFormat, Value::LogFormat(format)) => self.log_format = *format,
            // Comes behind the one above, and above it.
            (Key::VerboseLogLevel, _) => self.log_level = Severity::Verbose,
            (Key::VerboseLogModules, Value::List(modules)) => self.verbose_log_modules.clone_from(modules),
            _ if self.flags.set(key, value) => {}
            _ if self.companions.set(key, value) || self.ondemand.set(key, value) => {}
            _ => self.gpu.set(key, value),
        }
    }

    /// Settles what begins by itself; returns whether requests are served.
    ///
    /// A schedule of the program goes before the timetable. Where requests are served, those of the timetable among
    /// them, or the layer only `waits` ([`Switch::Idle`]), nothing else begins unless a source says so.
    pub(crate) fn settle_start(&mut self, waits: bool, has_schedule: bool) -> bool {
        if has_schedule && self.ondemand.timetable.is_wanted() {
            self.ondemand.timetable = Timetable::default();
            let what = "START_DELAY_MS, ACTIVITIES_DURATION_MSECS and ACTIVITIES_ITERATIONS";
            diag!(Warning, "config", "{what} change nothing: the program has a schedule, which says when to record");
        }
        let serves = self.ondemand.is_wanted();
        if waits || serves && !has_schedule {
            self.wait_for_requests();
        }
        serves
    }

    /// Lets nothing be recorded before somebody asks for it, unless a source has decided that.
    fn wait_for_requests(&mut self) {
        if self.origin(Key::RecordFromStart) == Origin::Default {
            self.record_from_start = false;
        }
    }

    /// Sets the threshold and the format of this crate's messages, if a source sets them.
    ///
    /// By default it is left alone, so that a second layer does not take back what the first was told.
    pub(crate) fn apply_log_settings(&self) {
        if self.origin(Key::LogLevel) != Origin::Default || self.origin(Key::VerboseLogLevel) != Origin::Default {
            DOOR.set_threshold(self.log_level);
        }
        if self.origin(Key::LogFormat) != Origin::Default {
            DOOR.set_format(self.log_format);
        }
        if self.origin(Key::VerboseLogModules) != Origin::Default {
            DOOR.set_verbose_modules(&self.verbose_log_modules);
        }
    }

    /// Whether the counters of the CPU were chosen by the environment.
    pub(crate) fn has_counters_of_env(&self) -> bool {
        self.origin(Key::PerformanceEvents) == Origin::Environment
    }

    /// Returns who has set a key.
    fn origin(&self, key: Key) -> Origin {
        self.merged.origin(key)
    }

    /// Returns the table of all settings in Markdown.
    pub(crate) fn reference() -> String {
        keys::markdown_table()
    }

    /// Returns the keys that somebody has set, each with its value and who has set it.
    pub(crate) fn set_keys(&self) -> Vec<(&'static str, String, String)> {
        let keys = Key::ALL.iter().filter_map(|key| Some((key.spec().name, self.merged.shown(*key)?)));
        let set = keys.filter(|(_, (_, origin))| *origin != Origin::Default);
        set.map(|(key, (value, origin))| (key, value, origin.to_string())).collect()
    }

    /// Returns the keys that are acted upon or that somebody has set as a JSON object, for the header of a trace: the
    /// values as texts, and under `"from"` the source of each that is not a default.
    pub(crate) fn effective_json(&self) -> String {
        let mut values = serde_json::Map::new();
        let mut sources = serde_json::Map::new();
        for key in Key::ALL.iter().copied() {
            let Some((value, origin)) = self.merged.shown(key) else { continue };
            let name = key.spec().name.to_owned();
            if origin != Origin::Default {
                sources.insert(name.clone(), origin.to_string().into());
            }
            if origin != Origin::Default || key.spec().stage == keys::Stage::Now {
                values.insert(name, value.into());
            }
        }
        values.insert("from".to_owned(), sources.into());
        serde_json::Value::Object(values).to_string()
    }
}

impl Default for Config {
    /// What holds when no source says anything: the defaults of the table.
    fn default() -> Self {
        Config {
            mode: Modes::default(),
            itt_domain: "tracing-kineto".to_owned(),
            activities: ActivityTypes::DEFAULT,
            output: Output::Default,
            filter: None,
            with_args: true,
            with_target: true,
            with_location: false,
            flags: RecordingFlags::default(),
            overload_names: false,
            fwd_bwd: true,
            collectives: false,
            deny_fields: Vec::new(),
            events: LevelFilter::OFF,
            async_spans: AsyncSpans::Auto,
            buffer_limit_bytes: 512 << 20,
            field_limit_bytes: 4096,
            overflow: Overflow::Stop,
            flush_timeout: Duration::from_secs(5),
            record_from_start: true,
            fields_while_idle: false,
            flush_on_signals: true,
            gzip_level: 1,
            execution_trace: false,
            host_name: None,
            trace_id: None,
            group_trace_id: String::new(),
            nvtx_injection: None,
            companions: Companions::default(),
            gpu: Gpu::default(),
            ondemand: OnDemand::default(),
            log_level: Door::DEFAULT_THRESHOLD,
            log_format: LogFormat::default(),
            verbose_log_modules: Vec::new(),
            distributed: None,
            job_metadata: Vec::new(),
            file: ConfigFile::default(),
            merged: Merged::default(),
        }
    }
}

/// Reports the unknown variables of the environment and the warning `unused`, once for the process.
pub(crate) fn report_unknown(env: &Env, unused: Option<String>) {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::Relaxed) {
        report(&env.unknown().chain(unused).collect::<Vec<_>>());
    }
}

/// Tells the user the warnings of [`Config::resolve`].
pub(crate) fn report(warnings: &[String]) {
    report_to(&DOOR, warnings);
}

fn report_to(door: &Door, warnings: &[String]) {
    /// Fewer than the rate limit lets through.
    const SHOWN: usize = 8;
    for warning in warnings.iter().take(SHOWN) {
        diag!(door = door, Warning, "config", "{warning}");
    }
    if let Some(more @ 1..) = warnings.len().checked_sub(SHOWN) {
        diag!(door = door, Warning, "config", "and {more} more warnings about the configuration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kineto_trace::activity::{ActivityGroup, ActivityType};
    use std::fs;
    use std::sync::{Arc, Mutex};

    /// Resolves with a file of that text.
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
    fn the_defaults_are_those_of_the_docs() {
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
    fn collectives_are_asked_for_by_torchs_variable_and_word() {
        let comms = ActivityTypes::from(ActivityType::CollectiveComm);
        let asked = |overrides: &Overrides, text| {
            let config = config(overrides, &[("TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING", text)], "");
            config.activities.intersection(comms) == comms
        };
        let answers = ["1", "", "0", "2", "true"].map(|text| asked(&Overrides::default(), text));
        assert_eq!(answers, [true, false, false, false, false]);
        assert!(!asked(&Overrides { collectives: Some(false), ..Overrides::default() }, "1"));
        let only_cpu =
            Overrides { collectives: Some(true), activities: Some(ActivityType::CpuOp.into()), ..Overrides::default() };
        assert!(asked(&only_cpu, "") && config(&only_cpu, &[], "").activities == comms.with(ActivityType::CpuOp));
    }

    #[test]
    fn the_defaults_are_those_of_the_table() {
        for key in Key::ALL.iter().copied() {
            let mut config = Config::default();
            if let Some(text) = key.default_text() {
                config.set(key, &key.spec().kind.parse(text).unwrap());
            }
            assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()), "{key:?}");
        }
    }

    #[test]
    fn builder_over_environment_over_file() {
        let file = "GZIP_LEVEL=2\nFLUSH_TIMEOUT_MSECS=20\nBUFFER_LIMIT_MB=2\nWITH_ARGS=no";
        let env = [("KINETO_GZIP_LEVEL", "3"), ("KINETO_FLUSH_TIMEOUT_MSECS", "30")];
        let overrides = Overrides { gzip_level: Some(4), ..Overrides::default() };
        let config = config(&overrides, &env, file);
        assert_eq!(config.gzip_level, 4);
        assert_eq!(config.flush_timeout, Duration::from_millis(30));
        assert_eq!(config.buffer_limit_bytes, 2 << 20);
        assert!(!config.with_args && config.with_target);
        let origins =
            [Key::GzipLevel, Key::FlushTimeout, Key::BufferLimit, Key::WithTarget].map(|key| config.origin(key));
        assert_eq!(origins, [Origin::Builder, Origin::Environment, Origin::File, Origin::Default]);
    }

    #[test]
    fn types_and_groups_of_one_source_are_united() {
        let none = Overrides::default();
        let both = [("KINETO_ACTIVITIES", "cpu"), ("KINETO_ACTIVITY_TYPES", "kernel")];
        let cpu = ActivityGroup::Cpu.types();
        assert_eq!(config(&none, &both, "").activities, cpu.with(ActivityType::ConcurrentKernel));
        // The file does not widen what the environment says, nor both what the builder says.
        assert_eq!(config(&none, &both[..1], "ACTIVITY_TYPES=kernel").activities, cpu);
        let builder = Overrides { activities: Some(ActivityType::CpuOp.into()), ..Overrides::default() };
        assert_eq!(config(&builder, &both, "").activities, ActivityType::CpuOp.into());
        // Nothing means the default, as in libkineto; beside a group it means nothing.
        assert_eq!(config(&none, &[], "ACTIVITY_TYPES=").activities, ActivityTypes::DEFAULT);
        assert_eq!(config(&none, &[], "ACTIVITY_TYPES=\nACTIVITIES=cpu").activities, cpu);
    }

    #[test]
    fn the_output_is_spliced_for_the_key_and_exact_for_the_builder() {
        let env = [("KINETO_ACTIVITIES_LOG_FILE", "/tmp/x.json")];
        let by_env = config(&Overrides::default(), &env, "");
        assert_eq!(by_env.output.path(&NameParts { pid: 9, ..by_env.name_parts() }), Some("/tmp/x_9.json".into()));
        let overrides = Overrides { output: Some(Output::Exact("/tmp/y.json".into())), ..Overrides::default() };
        assert_eq!(config(&overrides, &env, "").output.path(&by_env.name_parts()), Some("/tmp/y.json".into()));
    }

    #[test]
    fn verbose_log_level_means_verbose_where_nothing_higher_says_otherwise() {
        let level = |env: &[(&str, &str)], file: &str| config(&Overrides::default(), env, file).log_level;
        assert_eq!(level(&[], "VERBOSE_LOG_LEVEL=0\nVERBOSE_LOG_MODULES=env.rs,clock"), Severity::Verbose);
        assert_eq!(level(&[], "VERBOSE_LOG_LEVEL=2\nLOG_LEVEL=error"), Severity::Verbose);
        assert_eq!(level(&[("KINETO_LOG_LEVEL", "ERROR")], "VERBOSE_LOG_LEVEL=2"), Severity::Error);
        assert_eq!(level(&[("KINETO_LOG_LEVEL", "5")], ""), Severity::Usdt);
        assert_eq!(level(&[("KINETO_VERBOSE_LOG_LEVEL", "1")], "LOG_LEVEL=5"), Severity::Verbose);
    }

    #[test]
    fn a_bad_log_level_warns_and_leaves_the_default() {
        let (config, warnings) = resolve(&Overrides::default(), &[("KINETO_LOG_LEVEL", "loud")], "").unwrap();
        assert_eq!((config.log_level, warnings.len()), (Severity::Warning, 1));
    }

    #[test]
    fn all_bad_values_of_builder_and_environment_are_one_error() {
        let overrides = Overrides { gzip_level: Some(10), ..Overrides::default() };
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
    fn what_is_not_available_yet_is_refused() {
        for text in ["keep_newest", "spill"] {
            let error = resolve(&Overrides::default(), &[], &format!("OVERFLOW={text}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_filter_is_for_this_layer() {
        let config = config(&Overrides::default(), &[("KINETO_FILTER", "app=debug,hyper=off")], "");
        let filter = config.filter.unwrap();
        assert!(filter.would_enable("app::x", &tracing_core::Level::DEBUG));
        assert!(!filter.would_enable("hyper", &tracing_core::Level::ERROR));
    }

    #[test]
    fn a_layer_that_waits_records_only_if_told_so() {
        for (env, expected) in [(&[][..], false), (&[("KINETO_RECORD_FROM_START", "1")], true)] {
            let mut config = config(&Overrides::default(), env, "");
            config.wait_for_requests();
            assert_eq!(config.record_from_start, expected);
        }
    }

    #[test]
    fn distributed_info_of_the_builder_goes_first() {
        let env = [("RANK", "1"), ("WORLD_SIZE", "4")];
        let by_env = config(&Overrides::default(), &env, "").distributed;
        assert_eq!(by_env, Some(DistributedInfo::new(1, 4)));
        let overrides = Overrides { distributed: Some(DistributedInfo::new(0, 1)), ..Overrides::default() };
        assert_eq!(config(&overrides, &env, "").distributed, Some(DistributedInfo::new(0, 1)));
    }

    #[test]
    #[cfg(feature = "ondemand")]
    fn the_effective_configuration_names_sources_and_what_is_kept_for_later() {
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
    fn many_warnings_are_cut_short() {
        let door = Door::new();
        let texts = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&texts);
        door.set_sink(Some(Arc::new(move |message| kept.lock().unwrap().push(message.text.to_string()))));
        let warnings: Vec<_> = (0..20).map(|n| format!("warning {n}")).collect();
        report_to(&door, &warnings);
        let texts = texts.lock().unwrap();
        assert_eq!(texts[..8], warnings[..8]);
        assert_eq!(texts[8..], ["and 12 more warnings about the configuration"]);
    }

    #[test]
    fn warnings_come_from_all_sources() {
        let env = [("KINETO_TYPO", "1"), ("RANK", "x"), ("WORLD_SIZE", "2")];
        let (_, warnings) = resolve(&Overrides::default(), &env, "FUTURE=1\nGZIP_LEVEL=99").unwrap();
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }

    #[test]
    #[cfg(feature = "ondemand")]
    fn env_faults_warn_and_fall_back_unless_strict() {
        for (name, text, keeps) in [
            ("KINETO_FILTER", "app=loud", "KINETO_FILTER=app=loud"),
            ("KINETO_OVERFLOW", "spill", "overflow spill"),
            ("KINETO_START_PERIOD_MS", "5", "START_PERIOD_MS needs"),
        ] {
            let env = [(name, text), ("KINETO_HOST_NAME", "h")];
            let (config, warnings) = resolve(&Overrides::default(), &env, "").unwrap();
            assert!(warnings.len() == 1 && warnings[0].contains(keeps), "{warnings:?}");
            assert!(warnings[0].contains("ignored"), "{warnings:?}");
            assert_eq!((config.filter.is_none(), config.host_name.as_deref()), (true, Some("h")));
            let strict = Overrides { is_env_strict: true, ..Overrides::default() };
            assert!(resolve(&strict, &env, "").unwrap_err().to_string().contains(keeps));
        }
    }
}
