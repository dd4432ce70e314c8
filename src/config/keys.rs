//! The table of keys, used by the parser, the environment and the docs.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};

use super::sections::async_spans::AsyncSpans;
use super::sections::dumps::DumpConfig;
use super::sections::flags::RecordingFlags;
use super::sections::gpu::{self, Gpu};
use super::sections::mode::Modes;
use super::sections::ondemand::{self, OnDemandConfig};
use super::sections::output::Output;
use super::sections::overflow::Overflow;
use super::sections::slice_extras::SliceExtrasConfig;
use super::sections::split::Split;
use super::sources::file::ConfigFile;
use super::sources::settings::MergedSettings;
use super::value::{Assign as _, I32, I64, SettingKind, Value};
use crate::diag::{LogFormat, Logger, Severity};
use crate::distributed::DistributedInfo;
use crate::text::{closest_name, joined};
use KeyDefault::{Described, Literal};
use KeyFeature::{Always, Chakra, Cuda, Devices, Metrics, OnDemand, Plugins, Rocm, Roctracer, Segments, Xpu};
use KeyScope::{Both, Environment};
use ReloadPolicy::{AtOnce, Next, Start};
use Support::{Now, Requested};
use kineto_model::activity::ActivityTypes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing_core::LevelFilter;
use tracing_subscriber::filter::Targets;

/// The specification of a key.
#[derive(Debug)]
pub(crate) struct KeySpec {
    /// The name in the configuration file; for keys of the environment alone, the variable.
    pub(crate) name: &'static str,
    /// The kind of its value.
    pub(crate) kind: SettingKind,
    /// The default.
    pub(crate) default: KeyDefault,
    /// The builder's method; empty if there is none.
    pub(crate) builder: &'static str,
    /// The effect, in a line.
    pub(crate) effect: &'static str,
    /// Where it can be set.
    pub(crate) scope: KeyScope,
    /// Which code uses the key.
    pub(crate) support: Support,
    /// When a changed value in the configuration file takes effect.
    pub(crate) reload: ReloadPolicy,
    /// The Cargo feature that contains the code for the key.
    feature: KeyFeature,
}

/// The default of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyDefault {
    /// A value in text form.
    Literal(&'static str),
    /// A description, because the default is not a value.
    Described(&'static str),
}

/// Where a key can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyScope {
    /// In the configuration file, and in the environment with the prefix `KINETO_`.
    Both,
    /// In the environment alone, under exactly this name.
    Environment,
}

/// How far this version supports a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// It takes effect.
    Now,
    /// It takes effect in an external request; elsewhere it is only read and checked.
    Requested,
}

/// When a changed value in the configuration file takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReloadPolicy {
    /// As soon as it is read.
    AtOnce,
    /// With the next recording; a running one keeps its value.
    Next,
    /// After a restart of the program, for example for decisions about callsites.
    Start,
}

/// The Cargo feature that contains the code for a key.
///
/// A key that disables a vendor's devices needs no feature: without the feature, they are disabled anyway. Neither does
/// `SLURM_JOB_ID`, which is set for other programs.
#[derive(Clone, Copy, Debug)]
enum KeyFeature {
    Always,
    Devices,
    Cuda,
    Chakra,
    Metrics,
    Rocm,
    Roctracer,
    Xpu,
    Plugins,
    OnDemand,
    Segments,
}

/// Formats a table cell; [`Start`] is the default and stays empty.
impl fmt::Display for ReloadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AtOnce => "at once",
            Next => "next recording",
            Start => "",
        })
    }
}

macro_rules! keys {
    (
        { $($(#[$own_meta:meta])* $vis:vis $own:ident: $own_type:ty,)+ }
        $($key:ident: $scope:ident $support:ident $reload:ident $feature:ident $name:literal, $kind:expr, $default:expr, $builder:literal,
        $effect:literal => $(($($target:tt)+))? $($field:ident: $type:ty $(= $initial:expr)?)?;)+
    ) => {
        /// The settings of a layer, resolved from builder, environment, configuration file and defaults.
        #[derive(Clone, Debug)]
        pub(crate) struct Config {
            $($(#[doc = $effect] pub(crate) $field: $type,)?)+
            $($(#[$own_meta])* $vis $own: $own_type,)+
        }

        /// Returns the defaults of the table; collectors know those of their options.
        impl Default for Config {
            fn default() -> Self {
                let mut config = Config { $($($field: initial!($($initial)?),)?)+ $($own: Default::default(),)+ };
                config.apply_defaults();
                config
            }
        }

        /// A key of the configuration.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Key {
            $($key),+
        }

        impl Key {
            /// All keys, in the order of the table.
            pub(crate) const ALL: &'static [Key] = &[$(Key::$key),+];

            /// Returns the key's specification.
            #[expect(clippy::indexing_slicing, reason = "each key has a row")]
            pub(crate) fn spec(self) -> &'static KeySpec {
                static SPECS: &[KeySpec] = &[$(KeySpec {
                    name: $name, kind: $kind, default: $default, builder: $builder, effect: $effect,
                    scope: $scope, support: $support, reload: $reload, feature: $feature,
                }),+];
                &SPECS[self as usize]
            }

            /// Applies a value to the configuration.
            pub(super) fn apply(self, value: &Value, config: &mut Config) {
                match self {
                    $(Key::$key => {
                        $(config.$field.assign(value);)?
                        $(target!(self, value, config, $($target)+);)?
                    })+
                }
            }
        }
    };
}

/// What a key without a field of its own sets.
macro_rules! target {
    ($key:expr, $value:ident, $config:ident, nothing) => {};
    ($key:expr, $value:ident, $config:ident, option) => { $config.gpu.set_option($key, $value) };
    ($key:expr, $value:ident, $config:ident, in $($part:ident).+) => { $config.$($part).+.apply_setting($key, $value) };
    ($key:expr, $value:ident, $config:ident, |$to:ident, $given:ident| $set:expr) => {{
        let ($to, $given) = ($config, $value);
        $set;
    }};
    ($key:expr, $value:ident, $config:ident, $($field:ident).+) => { $config.$($field).+.assign($value) };
}

/// The value of a field before the default's text is applied.
macro_rules! initial {
    () => {
        Default::default()
    };
    ($value:expr) => {
        $value
    };
}

// A row has the key's variant; where it can be set, whether this version uses it, when a changed file counts, and the Cargo
// feature that it needs; name, kind, default, builder method and effect, as in the docs; and after `=>` the field of `Config` that
// holds the value. Instead of a field, parentheses may hold a field of a section, a closure, `option` for an option of collectors,
// `in` and a section that sets several fields, or `nothing`. The fields in braces, which no single key sets, come first.
keys! {
    {
        pub(crate) flags: RecordingFlags,
        pub(crate) dumps: DumpConfig,
        pub(crate) slice_extras: SliceExtrasConfig,
        pub(crate) gpu: Gpu,
        pub(crate) ondemand: OnDemandConfig,
        pub(crate) distributed: Option<DistributedInfo>,
        /// PT_PROFILER_JOB_*: names and values, not yet quoted as JSON.
        pub(crate) job_metadata: Vec<(String, String)>,
        /// The file that was read, with its state at that time.
        pub(crate) file: ConfigFile,
        pub(super) merged: MergedSettings,
    }

    Enabled: Environment Now Start Always "KINETO_ENABLED", SettingKind::Bool,
        Described("yes if KINETO_CONFIG, KINETO_ACTIVITIES_LOG_FILE, KINETO_ACTIVITY_TYPES, KINETO_ACTIVITIES, KINETO_DUMP_ON, or a \
              variable that says when or for how long is set"), "",
        "whether `KinetoLayer::from_env()` returns a layer; with only KINETO_USE_DAEMON or KINETO_TRIGGER_DIR, one that waits" => (nothing);
    ConfigFile: Environment Now Start Always "KINETO_CONFIG", SettingKind::Text,
        Described("`/etc/libkineto.conf` on Linux, else `libkineto.conf`"), "config_file(path)", "the configuration file" => (nothing);
    Mode: Both Now Start Always "MODE", SettingKind::Modes, Literal("kineto"), "mode(modes)",
        "how spans are used: kineto records them, its fallbacks time devices by events; nvtx, itt and privateuse1 pass \
         them to other profilers" => mode: Modes;
    IttDomain: Both Now Start Always "ITT_DOMAIN", SettingKind::Text, Literal("tracing-kineto"), "itt_domain(name)",
        "domain of ITT tasks; torch uses PyTorch" => itt_domain: String;
    ActivityTypes: Both Now Next Always "ACTIVITY_TYPES", SettingKind::Types, Described("the 18 default types"), "activities(types)",
        "activity types to record; empty means the default" => activities: ActivityTypes;
    Activities: Both Now Next Always "ACTIVITIES", SettingKind::Groups, Described("none"), "activities(types)",
        "groups of activity types to record, added to ACTIVITY_TYPES" => (activities);
    LogFile: Both Now Next Always "ACTIVITIES_LOG_FILE", SettingKind::LogFile,
        Described("`/tmp/libkineto_activities_<pid>.json` on Linux, else in the current folder"), "output(path)",
        "file of the trace; the environment's and the file's name get `_<pid>` before the extension, unless they contain \
         `{pid}`; `{host}`, `{pid}`, `{rank}` and `{time}` are replaced" => output: Output;
    Filter: Both Now Start Always "FILTER", SettingKind::Filter, Described("everything"), "filter(targets)",
        "spans and events that this layer records, by target and level" => filter: Option<Arc<Targets>>;
    WithArgs: Both Now Start Always "WITH_ARGS", SettingKind::Bool, Literal("true"), "Fields::record(bool)",
        "records the fields of spans and events" => with_args: bool;
    WithTarget: Both Now Next Always "WITH_TARGET", SettingKind::Bool, Literal("true"), "with_target(bool)", "records targets of spans" => with_target: bool;
    WithLocation: Both Now Next Always "WITH_LOCATION", SettingKind::Bool, Literal("false"), "with_location(bool)",
        "records source lines of spans" => with_location: bool;
    WithModules: Both Now Next Always "PROFILE_WITH_MODULES", SettingKind::Bool, Literal("false"), "TorchOptions::with_modules(bool)",
        "adds `Module Hierarchy` to operations, from the field `module` of enclosing spans" => (flags.with_modules);
    OverloadNames: Both Now Next Always "CAPTURE_OVERLOAD_NAMES", SettingKind::Bool, Literal("false"), "TorchOptions::capture_overload_names(bool)",
        "writes an operation's name as `name.overload`, from its field `overload_name`" => overload_names: bool;
    FwdBwd: Both Now Next Always "FWD_BWD", SettingKind::Bool, Literal("true"), "TorchOptions::fwd_bwd(bool)",
        "draws arrows from forward to backward operations, by the fields `seq` and `fwd_thread`" => fwd_bwd: bool;
    Collectives: Environment Now Start Always "TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING", SettingKind::OneIsTrue, Literal("false"),
        "TorchOptions::collective_profiling(bool)", "adds `collective_comm` to the activities: spans of `Collective` are of that type" => collectives: bool;
    DenyFields: Both Now Start Always "DENY_FIELDS", SettingKind::List, Literal(""), "Fields::deny(names)",
        "fields of these names are never recorded" => deny_fields: Vec<String>;
    Events: Both Now Start Always "EVENTS", SettingKind::Events, Literal("off"), "events(level)",
        "events from this level up become instants (or, under the target `kineto::counter`, counters)" => events: LevelFilter = LevelFilter::OFF;
    AsyncSpans: Both Now Next Always "ASYNC_SPANS", SettingKind::AsyncSpans, Literal("auto"), "async_spans(how)",
        "how polled spans are drawn" => async_spans: AsyncSpans;
    BufferLimit: Both Now Start Always "BUFFER_LIMIT_MB", SettingKind::Mebibytes, Literal("512"), "buffer_limit_bytes(bytes)",
        "memory limit of a recording" => buffer_limit_bytes: u64;
    Overflow: Both Now Start Always "OVERFLOW", SettingKind::Overflow, Literal("stop"), "overflow(how)",
        "what happens at the memory limit: further records are only counted, they replace the oldest, or the oldest are moved to disk" => overflow: Overflow;
    SpillFolder: Both Now Start Segments "SPILL_DIR", SettingKind::Text, Described("the output's"), "Spill::folder(path)",
        "folder in which `OVERFLOW=spill` makes the folder of its segments" => spill_folder: Option<PathBuf>;
    Split: Both Now Start Segments "SPLIT", SettingKind::Split, Described("each minute"), "Spill::split(parts)",
        "when a part of `OVERFLOW=spill` ends, which becomes a file of its own; in any case when a quarter of the limit is filled" => split: Option<Split>;
    ShmFolder: Both Now Start Segments "SHM_DIR", SettingKind::Text, Described("none"), "shm_folder(path)",
        "folder in shared memory, such as /dev/shm, that holds the records, so that a killed process leaves them" => shm_folder: Option<PathBuf>;
    Keep: Both Now Start Always "KEEP", SettingKind::Duration, Described("all that fits"), "keep(time)",
        "how far back `OVERFLOW=keep_newest` reaches, if the memory suffices" => keep: Option<Duration>;
    DumpOn: Both Now Start Always "DUMP_ON", SettingKind::DumpTriggers, Described("nothing"), "Dumps::on(triggers)",
        "writes the newest records to a file of their own when something happens; with it, OVERFLOW is `keep_newest` and \
         BUFFER_LIMIT_MB is 64 unless set" => (dumps.triggers);
    DumpAfter: Both Now Start Always "DUMP_AFTER", SettingKind::Duration, Literal("1s"), "Dumps::after(time)",
        "how long a dump of DUMP_ON waits, to show what follows" => (dumps.after);
    DumpInterval: Both Now Start Always "DUMP_INTERVAL", SettingKind::Duration, Literal("60s"), "Dumps::interval(time)",
        "least time from one dump of DUMP_ON to the next" => (dumps.interval);
    DumpFiles: Both Now Start Always "DUMP_FILES", SettingKind::Int(1..=1_000_000), Literal("20"), "Dumps::keep(files, bytes)",
        "number of dumps that are kept; older ones are removed" => (dumps.kept.files_max);
    DumpBytes: Both Now Start Always "DUMP_FILES_MB", SettingKind::Mebibytes, Literal("2048"), "Dumps::keep(files, bytes)",
        "size of the dumps that are kept; the newest one stays" => (dumps.kept.bytes_max);
    DumpAge: Both Now Start Always "DUMP_FILES_AGE", SettingKind::Duration, Described("any"), "Dumps::keep_for(time)",
        "age from which dumps are removed, whenever one is written" => (dumps.kept.age_max);
    WriteAtEnd: Both Now Start Always "WRITE_AT_END", SettingKind::Bool, Described("`false` with DUMP_ON and no file named, else `true`"),
        "write_at_end(bool)", "writes the trace when the recording ends with the program" => (dumps.write_at_end);
    FileLimit: Both Now Start Always "FILE_LIMIT_MB", SettingKind::Mebibytes, Described("none"), "file_limit_bytes(bytes)",
        "size at which a file that is written without a call of the program is closed, readable and incomplete" => (dumps.file_limit);
    FieldLimit: Both Now Start Always "FIELD_LIMIT_BYTES", SettingKind::Int(1..=1 << 30), Literal("4096"), "Fields::limit_bytes(bytes)",
        "length at which values of fields are cut" => field_limit_bytes: usize;
    FlushTimeout: Both Now AtOnce Always "FLUSH_TIMEOUT_MSECS", SettingKind::Milliseconds, Literal("5000"), "flush_timeout(duration)",
        "how long writing may take without progress; at the end of the process, in all" => flush_timeout: Duration;
    RecordFromStart: Both Now Start Always "RECORD_FROM_START", SettingKind::Bool, Literal("true"), "record_from_start(bool)",
        "records from `build()` on; otherwise from `start()`" => record_from_start: bool;
    StartDelay: Both Now Start OnDemand "START_DELAY_MS", SettingKind::Milliseconds, Described("none"), "",
        "starts the recording this long after `build()`; it ends with the program or after ACTIVITIES_DURATION_MSECS (Linux)" => (in ondemand.timetable);
    DurationSecs: Both Now Start OnDemand "ACTIVITIES_DURATION_SECS", I32, Described("unset"), "",
        "duration of the recording; in a request, at most KINETO_ONDEMAND_MAX_DURATION_SECS; the later of this key and \
         ACTIVITIES_DURATION_MSECS wins" => (in ondemand.timetable);
    DurationMsecs: Both Now Start OnDemand "ACTIVITIES_DURATION_MSECS", I32, Described("to the program's end; in a request, 500"), "",
        "duration of the recording in ms" => (in ondemand.timetable);
    StartPeriod: Both Now Start OnDemand "START_PERIOD_MS", SettingKind::Milliseconds, Described("none"), "",
        "time from one start to the next, into numbered files; at least the duration of a recording" => (in ondemand.timetable);
    StartWindows: Both Now Start OnDemand "START_WINDOWS", SettingKind::Int(1..=i32::MAX as i64), Described("until the program ends"), "",
        "number of recordings, with START_PERIOD_MS" => (in ondemand.timetable);
    Iterations: Both Now Start OnDemand "ACTIVITIES_ITERATIONS", I32, Described("none"), "",
        "number of iterations to record, with a start iteration; if the program counts none, \
         the recording waits until it does, but a request falls back to a duration" => (in ondemand.timetable);
    StartIteration: Both Now Start OnDemand "PROFILE_START_ITERATION", I32, Described("unset"), "",
        "iteration at which the recording starts, with ACTIVITIES_ITERATIONS; wins over a start time" => (in ondemand.timetable);
    StartRoundup: Both Now Start OnDemand "PROFILE_START_ITERATION_ROUNDUP", I32, Described("unset"), "",
        "starts at the next multiple of this number if the start iteration has passed; 0 means unset" => (in ondemand.timetable);
    WarmupSecs: Both Now Start OnDemand "ACTIVITIES_WARMUP_PERIOD_SECS", I32, Described("5; in a request without a start time, 0"), "",
        "how long collectors run before the start time, if that much time is left; in a request, at most 60" => (in ondemand.timetable);
    WarmupIterations: Both Now Start OnDemand "ACTIVITIES_WARMUP_ITERATIONS", I32, Described("0"), "",
        "minimum number of iterations that collectors run before the start iteration" => (in ondemand.timetable);
    FieldsWhileIdle: Both Now Start Always "FIELDS_WHILE_IDLE", SettingKind::Bool, Literal("false"), "Fields::while_idle(bool)",
        "keeps fields of spans that are created while nothing is recorded" => fields_while_idle: bool;
    FlushOnSignals: Both Now Start Always "FLUSH_ON_SIGNALS", SettingKind::Bool, Literal("true"), "flush_on_signals(bool)",
        "writes the trace on SIGINT, SIGTERM or SIGHUP, before the signal ends the process" => flush_on_signals: bool;
    GzipLevel: Both Now Next Always "GZIP_LEVEL", SettingKind::Int(0..=9), Literal("1"), "gzip_level(level)",
        "gzip level of `.gz` files; with debug assertions, 1 stores without compression" => gzip_level: u32;
    ExecutionTrace: Environment Now Start Chakra "ENABLE_PYTORCH_EXECUTION_TRACE", SettingKind::Bool, Literal("false"),
        "TorchOptions::execution_trace(bool)",
        "also writes the operations as a graph (Chakra): `app.et.json` for `app.pt.trace.json`" => execution_trace: bool;
    HostName: Both Now Next Always "HOST_NAME", SettingKind::Text, Described("the machine's"), "", "the `host_name` in the trace's header" => host_name: Option<String>;
    TraceId: Both Now Next Always "REQUEST_TRACE_ID", SettingKind::Text, Described("random"), "", "the `trace_id` in the trace's header" => trace_id: Option<String>;
    GroupTraceId: Both Now Next Always "REQUEST_GROUP_TRACE_ID", SettingKind::Text, Literal(""), "",
        "the `group_trace_id` in the trace's header, common to all traces of one request" => group_trace_id: String;
    LogLevel: Both Now AtOnce Always "LOG_LEVEL", SettingKind::Severity, Literal("warning"), "log_level(severity)",
        "lowest severity of messages that are shown; a bad value only warns" => log_level: Severity = Logger::DEFAULT_THRESHOLD;
    LogFormat: Both Now AtOnce Always "LOG_FORMAT", SettingKind::LogFormat, Literal("text"), "",
        "format of messages" => log_format: LogFormat;
    VerboseLogLevel: Both Now AtOnce Always "VERBOSE_LOG_LEVEL", I32, Described("unset"), "",
        "any value means LOG_LEVEL=verbose" => (|config, _value| config.log_level = Severity::Verbose);
    VerboseLogModules: Both Now AtOnce Always "VERBOSE_LOG_MODULES", SettingKind::List, Literal(""), "",
        "modules whose verbose messages are shown; empty means all" => verbose_log_modules: Vec<String>;
    MaxGpuBufferSize: Both Now Next Devices "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB", I32, Literal("128"), "",
        "memory for a GPU library's unread records, in MiB; at least 8" => (|config, value| config.gpu.buffer_bytes = gpu::buffer_bytes(value.as_number()));
    CudaSyncWaitEvents: Both Now Next Devices "ACTIVITIES_DISPLAY_CUDA_SYNC_WAIT_EVENTS", SettingKind::Bool, Literal("true"), "",
        "records waits of streams for events" => (gpu.wait_events);
    CuptiPerThreadBuffer: Both Now Next Cuda "CUPTI_PER_THREAD_BUFFER_ENABLED", SettingKind::Bool, Literal("false"), "",
        "gives each thread its own CUPTI buffers (CUDA 12.3 or later)" => (option);
    CuptiExclusive: Both Now Next Cuda "CUPTI_EXCLUSIVE", SettingKind::Bool, Literal("false"), "",
        "does not share CUPTI with other profilers, though libcupti 13.4 and later could (TEARDOWN_CUPTI and CUDA_GRAPH_TRACE imply it)" => (option);
    CuptiAllFields: Both Now Next Cuda "CUPTI_ALL_FIELDS", SettingKind::Bool, Literal("false"), "",
        "takes CUPTI's records whole instead of the fields that are read, which libcupti 13.4 and later can select" => (option);
    CuptiHardwareTimes: Both Now Next Cuda "CUPTI_HARDWARE_TIMES", SettingKind::Bool, Literal("false"), "",
        "takes the times of device work from the hardware (HES), cheaper and more exact: Blackwell or later, libcupti 12.8 or later" => (option);
    GraphTrace: Both Now Next Cuda "CUDA_GRAPH_TRACE", SettingKind::Bool, Literal("false"), "Devices::graph_trace(bool)",
        "records a launch of a CUDA graph as one row instead of one for each node" => (option);
    ProfilerRange: Both Now Next Cuda "CUDA_PROFILER_RANGE", SettingKind::Bool, Literal("false"), "Devices::profiler_range(bool)",
        "records only between cudaProfilerStart and cudaProfilerStop" => (gpu.profiler_range);
    NvtxRanges: Both Now Start Cuda "NVTX_RANGES", SettingKind::Bool, Literal("false"), "Devices::nvtx_ranges(bool)",
        "records NVTX ranges of libraries as annotations; NVTX_INJECTION64_PATH must name libcupti" => (option);
    DisableCupti: Both Now Start Always "DISABLE_CUPTI", SettingKind::Bool, Literal("false"), "",
        "disables NVIDIA GPUs: no library is searched for" => (option);
    TeardownCupti: Both Now Next Cuda "TEARDOWN_CUPTI", SettingKind::Bool, Literal("false"), "",
        "detaches CUPTI from the process after each recording, which removes its remaining overhead" => (option);
    CuptiPath: Environment Now Start Cuda "KINETO_CUPTI_PATH", SettingKind::Text, Described("searched for"), "",
        "the libcupti to use, or its folder" => (option);
    DisableRocm: Both Now Start Always "DISABLE_ROCM", SettingKind::Bool, Literal("false"), "", "disables AMD GPUs" => (option);
    RoctracerMaxEvents: Both Now Next Rocm "ROCTRACER_MAX_EVENTS", I32, Literal("5000000"), "",
        "maximum number of rows of AMD GPUs, calls and work; further rows are counted" => (option);
    RocprofilerPath: Environment Now Start Rocm "KINETO_ROCPROFILER_PATH", SettingKind::Text, Described("searched for"), "",
        "the librocprofiler-sdk to use (ROCm 7), or its folder" => (option);
    RoctracerPath: Environment Now Start Roctracer "KINETO_ROCTRACER_PATH", SettingKind::Text, Described("searched for"), "",
        "the libroctracer64 to use (ROCm 4.5 to 6), or its folder" => (option);
    DisableXpu: Both Now Start Always "DISABLE_XPU", SettingKind::Bool, Literal("false"), "", "disables Intel GPUs" => (option);
    PtiPath: Environment Now Start Xpu "KINETO_PTI_PATH", SettingKind::Text, Described("searched for"), "",
        "the libpti_view to use, or its folder" => (option);
    XpuMetrics: Both Now Next Xpu "XPUPTI_PROFILER_METRICS", SettingKind::List, Literal(""), "",
        "metrics that Intel GPUs sample, by PTI's names; rows of type `xpu_scope_profiler`, if selected" => (option);
    XpuPerKernel: Both Now Next Xpu "XPUPTI_PROFILER_ENABLE_PER_KERNEL", SettingKind::Bool, Literal("false"), "",
        "samples metrics for each kernel, the only mode" => (option);
    XpuMaxScopes: Both Now Next Xpu "XPUPTI_PROFILER_MAX_SCOPES", I64, Literal("0"), "",
        "maximum number of sampled kernels; 0 means 1500" => (option);
    XpuDevices: Both Now Next Xpu "XPUPTI_PROFILER_DEVICES", SettingKind::IntList, Described("the first"), "",
        "Intel GPU to sample" => (option);
    PluginFolder: Environment Now Start Plugins "KINETO_PLUGIN_LIB_DIR_PATH", SettingKind::Text, Described("none"), "Devices::plugins(folder)",
        "folder of plugins for other accelerators; all are loaded" => (gpu.plugin_folder);
    DisablePlugins: Both Now Start Always "DISABLE_PLUGINS", SettingKind::Bool, Literal("false"), "", "loads no plugins" => (gpu.disables_plugins);
    InputShapes: Both Now Next Always "PROFILE_REPORT_INPUT_SHAPES", SettingKind::Bool, Literal("false"), "TorchOptions::record_shapes(bool)",
        "asks the program for input shapes, through its session observers" => (flags.record_shapes);
    OpInputs: Both Now Next Always "CLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION", SettingKind::Bool, Literal("false"), "",
        "the same as PROFILE_REPORT_INPUT_SHAPES" => (flags.record_shapes);
    WithFlops: Both Now Next Always "PROFILE_WITH_FLOPS", SettingKind::Bool, Literal("false"), "TorchOptions::with_flops(bool)",
        "asks the program for the data to compute FLOPs, through its session observers" => (flags.with_flops);
    ProfileProfileMemory: Both Now Next Always "PROFILE_PROFILE_MEMORY", SettingKind::Bool, Literal("false"), "with_memory(bool)",
        "records allocators' reports" => (flags.profile_memory);
    WithStack: Both Now Start Always "PROFILE_WITH_STACK", SettingKind::Bool, Literal("false"), "with_stack(stacks)",
        "records the call stack of each enter of a span (feature `backtrace`)" => (flags.with_stack);
    PythonStackTrace: Both Now Start Always "PYTHON_STACK_TRACE", SettingKind::Bool, Literal("false"), "",
        "the same as PROFILE_WITH_STACK" => (flags.with_stack);
    StackFrames: Both Now Start Always "STACK_FRAMES", SettingKind::Int(1..=128), Literal("32"), "Stacks::frames(count)",
        "maximum number of frames of a call stack" => (slice_extras.stack_frames);
    StackFilter: Both Now Start Always "STACK_FILTER", SettingKind::Filter, Described("everything"), "Stacks::filter(targets)",
        "spans whose call stacks are recorded" => (slice_extras.stack_filter);
    PerformanceEvents: Both Now Start Always "PERFORMANCE_EVENTS", SettingKind::List, Literal(""), "performance_events(names)",
        "counters of the CPU for each slice: cycles, instructions, page-faults … (Linux)" => (slice_extras.performance_events);
    DeviceMemory: Both Now Next Cuda "PROFILE_DEVICE_MEMORY", SettingKind::Bool, Literal("false"), "Devices::memory(bool)",
        "records device memory allocated by CUDA's calls, instead of allocators' reports" => (gpu.device_memory);
    DeviceTelemetry: Both Now Next Devices "DEVICE_TELEMETRY_HZ", I32, Literal("0"), "Devices::telemetry(hz)",
        "samples power, temperature, clocks, utilization and used memory of GPUs that many times a second, at most 10" => (option);
    PmSamplingMetrics: Both Now Next Metrics "CUPTI_PM_SAMPLING_METRICS", SettingKind::List, Literal(""), "Metrics::pm_sampling(metrics)",
        "metrics that NVIDIA's GPUs sample, by CUPTI's names; rows of type `hardware_counters`, if selected" => (option);
    PmSamplingDevice: Both Now Next Metrics "CUPTI_PM_SAMPLING_DEVICE_ID", SettingKind::IntList, Described("all"), "Metrics::pm_sampling_devices(devices)",
        "NVIDIA GPUs to sample" => (option);
    PmSamplingInterval: Both Now Next Metrics "CUPTI_PM_SAMPLING_INTERVAL_US", SettingKind::Int(1..=1_000_000), Literal("1000"),
        "Metrics::pm_sampling_interval(time)", "microseconds between samples of metrics" => (option);
    ProfilerMetrics: Both Now Next Metrics "CUPTI_PROFILER_METRICS", SettingKind::List, Literal(""), "Metrics::per_annotation(metrics)",
        "metrics of each annotation, or kernel, by CUPTI's names, in rows `gpu_user_annotation` or `cuda_profiler_range`" => (option);
    ProfilerPerKernel: Both Now Next Metrics "CUPTI_PROFILER_ENABLE_PER_KERNEL", SettingKind::Bool, Literal("false"),
        "Metrics::per_kernel(metrics)", "measures each kernel, by replay, instead of each annotation" => (option);
    ProfilerMaxRanges: Both Now Next Metrics "CUPTI_PROFILER_MAX_RANGES", SettingKind::Int(0..=1_000_000_000), Literal("1500"),
        "Metrics::limit(launches)", "the most launches or annotations to measure; 0 for all" => (option);
    ActivitiesEnabled: Both Requested Start OnDemand "ACTIVITIES_ENABLED", SettingKind::Bool, Literal("true"), "",
        "false declines the request" => (nothing);
    Cancel: Both Requested Start OnDemand "CANCEL", SettingKind::Bool, Literal("false"), "",
        "cancels all requests that have not ended, and discards their records" => (nothing);
    ProfileMemory: Both Requested Start OnDemand "PROFILE_MEMORY", SettingKind::Bool, Literal("false"), "",
        "records a memory profile instead of a trace" => (nothing);
    ProfileMemoryDuration: Both Requested Start OnDemand "PROFILE_MEMORY_DURATION_MSECS", I32, Literal("1000"), "",
        "duration of the memory profile" => (nothing);
    StartTime: Both Requested Start OnDemand "PROFILE_START_TIME", SettingKind::StartTime, Literal("0"), "",
        "start of the recording, at most KINETO_ONDEMAND_MAX_AHEAD_SECS from now; 0 means as soon as possible" => (nothing);
    Last: Both Requested Start OnDemand "PROFILE_LAST_MSECS", I32, Described("unset"), "",
        "writes what the program has recorded in these last milliseconds, instead of a new recording; needs a recording, such \
         as that of OVERFLOW=keep_newest" => (nothing);
    IpcFabric: Both Now AtOnce OnDemand "ENABLE_IPC_FABRIC", SettingKind::Bool, Described("as KINETO_USE_DAEMON"), "",
        "polls the dynolog daemon for requests" => (ondemand.polling_override);
    UpdateInterval: Both Now AtOnce OnDemand "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS", I32, Described("1 to 5, by its response time"),
        "",
        "interval at which the daemon is polled, in seconds; 0 means 100 times a second" => (|config, value| config.ondemand.poll_interval = Some(ondemand::poll_interval(value.as_seconds())));
    CustomConfig: Both Now Next Always "CUSTOM_CONFIG", SettingKind::Text, Literal(""), "",
        "text for collectors; disable_runtime_events, disable_ccp_events, disable_insight_events and disable_counter_events \
         deselect MTIA's types" => (gpu.custom_config);
    UseDaemon: Environment Now Start OnDemand "KINETO_USE_DAEMON", SettingKind::AnyText, Literal("false"), "",
        "polls the dynolog daemon for requests; records nothing else unless KINETO_RECORD_FROM_START is set or the newest \
         records are kept (Linux)" => (ondemand.use_daemon);
    OnDemandFolder: Environment Now Start OnDemand "KINETO_ONDEMAND_TRACE_DIR", SettingKind::Text, Literal("/tmp/"), "",
        "folder in or below which requests may write files" => (ondemand.trace_folder);
    LongestRequest: Environment Now Start OnDemand "KINETO_ONDEMAND_MAX_DURATION_SECS", SettingKind::Int(1..=86_400), Literal("3600"), "",
        "maximum time that a request records, and waits for an iteration" => (|config, value| config.ondemand.max_duration = value.as_seconds());
    LatestStart: Environment Now Start OnDemand "KINETO_ONDEMAND_MAX_AHEAD_SECS", SettingKind::Int(0..=86_400), Literal("3600"), "",
        "how far ahead a request's start time may be" => (|config, value| config.ondemand.max_start_delay = value.as_seconds());
    FileMode: Environment Now Start OnDemand "KINETO_TRACE_FILE_MODE", SettingKind::Mode, Literal("600"), "",
        "permissions of files of requests, in octal" => (ondemand.file_mode);
    RequestFiles: Environment Now Start OnDemand "KINETO_ONDEMAND_FILES", SettingKind::Int(1..=1_000_000), Described("all"), "",
        "number of requests and timed recordings whose files are kept; files of older ones of this process are removed" => (ondemand.kept.files_max);
    RequestBytes: Environment Now Start OnDemand "KINETO_ONDEMAND_FILES_MB", SettingKind::Mebibytes, Described("all"), "",
        "size of those files that are kept; the newest one stays" => (ondemand.kept.bytes_max);
    RequestAge: Environment Now Start OnDemand "KINETO_ONDEMAND_FILES_AGE", SettingKind::Duration, Described("any"), "",
        "age from which those files of this process are removed, after each request" => (ondemand.kept.age_max);
    SocketFolder: Environment Now Start OnDemand "KINETO_IPC_SOCKET_DIR", SettingKind::Text, Described("abstract sockets"), "",
        "folder of the daemon's sockets, an absolute path" => (ondemand.socket_folder);
    TriggerFolder: Environment Now Start OnDemand "KINETO_TRIGGER_DIR", SettingKind::Text, Described("none"), "trigger_folder(path)",
        "serves files `<pid>.request` in that folder as requests; records nothing else unless KINETO_RECORD_FROM_START \
         is set or the newest records are kept (Linux)" => (ondemand.trigger_folder);
    DaemonUser: Environment Now Start OnDemand "KINETO_DAEMON_UID", SettingKind::Int(0..=u32::MAX as i64), Described("none"), "",
        "user whose daemon and files are trusted, in addition to root's and the program's own" => (ondemand.trusted_uid);
    SlurmJob: Environment Now Start Always "SLURM_JOB_ID", SettingKind::Text, Literal("0"), "",
        "job under which the program registers with the daemon" => (|config, value| config.ondemand.slurm_job_id = ondemand::leading_number(value.as_text()));
}

impl Config {
    fn apply_defaults(&mut self) {
        for key in Key::ALL {
            if let Some(Ok(value)) = key.default_text().map(|text| key.spec().kind.parse(text)) {
                key.apply(&value, self);
            }
        }
        self.gpu.options = Default::default();
    }
}

impl Key {
    /// Returns the key with that name in the configuration file.
    pub(super) fn in_file(name: &str) -> Option<Key> {
        Key::ALL.iter().copied().find(|key| key.spec().scope == Both && key.spec().name == name)
    }

    /// Returns the default as text, if it is a value.
    pub(super) fn default_text(self) -> Option<&'static str> {
        if let Literal(text) = self.spec().default { Some(text) } else { None }
    }

    /// Returns whether it is read from the environment variable of that name.
    pub(super) fn is_variable(self, name: &str) -> bool {
        let KeySpec { name: own, scope, .. } = self.spec();
        match scope {
            Both => name.strip_prefix("KINETO_") == Some(*own),
            Environment => name == *own,
        }
    }

    /// Returns the environment variable.
    pub(crate) fn env_variable(self) -> String {
        match self.spec().scope {
            Both => format!("KINETO_{}", self.spec().name),
            Environment => self.spec().name.to_owned(),
        }
    }

    /// Returns the Cargo feature that it needs if this build lacks it.
    pub(super) fn missing_feature(self) -> Option<&'static str> {
        let (feature, is_on) = self.required_feature()?;
        (!is_on).then_some(feature)
    }

    /// Returns a warning that it is ignored, if this build lacks the Cargo feature that it needs.
    pub(super) fn missing_feature_warning(self) -> Option<String> {
        Some(ignored_without(self.spec().name, self.missing_feature()?))
    }

    /// Returns a warning that a value is ignored, if this build lacks the Cargo feature that it needs.
    pub(super) fn missing_value_warning(self, text: &str) -> Option<String> {
        let feature = if self == Key::Overflow { Overflow::missing_feature(text)? } else { return None };
        Some(ignored_without(&format!("{}={text}", self.spec().name), feature))
    }

    /// Returns the Cargo feature that contains the code for the key, and whether it is enabled.
    fn required_feature(self) -> Option<(&'static str, bool)> {
        match self.spec().feature {
            Always => None,
            Devices => Some(("devices", cfg!(feature = "devices"))),
            Cuda => Some(("cuda", cfg!(feature = "cuda"))),
            Chakra => Some(("chakra", cfg!(feature = "chakra"))),
            Metrics => Some(("metrics", cfg!(feature = "metrics"))),
            Rocm => Some(("rocm", cfg!(feature = "rocm"))),
            Roctracer => Some(("roctracer", cfg!(feature = "roctracer"))),
            Xpu => Some(("xpu", cfg!(feature = "xpu"))),
            Plugins => Some(("plugins", cfg!(feature = "plugins"))),
            OnDemand => Some(("ondemand", cfg!(feature = "ondemand"))),
            Segments => Some(("segments", cfg!(feature = "segments"))),
        }
    }

    /// Returns the first key of its family, whose keys are resolved together.
    ///
    /// The keys of one source win over those of lower sources: a type list in the file does not widen the groups that the
    /// environment names.
    pub(super) fn family(self) -> Key {
        match self {
            Key::Activities => Key::ActivityTypes,
            Key::VerboseLogLevel => Key::LogLevel,
            Key::DurationMsecs => Key::DurationSecs,
            Key::OpInputs => Key::InputShapes,
            Key::PythonStackTrace => Key::WithStack,
            other => other,
        }
    }

    /// Returns whether a later line about another key of the family replaces this one, instead of adding to it.
    pub(super) fn replaces_family(self) -> bool {
        matches!(self.family(), Key::DurationSecs | Key::InputShapes | Key::WithStack)
    }
}

/// Returns the warning about a setting without its Cargo feature.
fn ignored_without(setting: &str, feature: &str) -> String {
    format!("{setting} needs tracing-kineto's feature `{feature}`, which is off; it is ignored")
}

/// Returns whether the key was removed from libkineto, which warns about it; it is accepted here and has no effect.
pub(super) fn is_removed(name: &str) -> bool {
    const NAMES: &str = "ENABLE_SIGUSR2 REQUEST_TIMESTAMP METRICS SAMPLE_PERIOD_MSECS MULTIPLEX_PERIOD_MSECS \
        REPORT_PERIOD_SECS SAMPLES_PER_REPORT EVENTS_LOG_FILE EVENTS_ENABLED_DEVICES EVENTS_DURATION_SECS \
        EVENTS_HEARTBEAT_MONITOR_PERIOD_SECS MAX_EVENT_PROFILERS_PER_GPU";
    NAMES.split(' ').any(|removed| removed == name) || name.starts_with("SIGUSR2_")
}

/// Environment variables that are not keys, with their effect, and whether they are options of collectors.
pub(super) const OTHER_VARIABLES: [(&[&str], &str, bool); 8] = [
    (&["NO_COLOR"], "any value removes colors from messages on a terminal", false),
    (&["NVTX_INJECTION64_PATH"], "tool that receives NVTX ranges, as NVTX's own client reads it", true),
    (
        &["CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME", "HIP_PATH", "ONEAPI_ROOT", "CONDA_PREFIX", "VIRTUAL_ENV"],
        "folders in which vendors' libraries are searched, in addition to the loader's",
        true,
    ),
    (
        &["PT_PROFILER_JOB_NAME", "PT_PROFILER_JOB_VERSION", "PT_PROFILER_JOB_ATTEMPT_INDEX"],
        "copied into the trace's header under these names",
        false,
    ),
    (&["RANK", "WORLD_SIZE", "LOCAL_RANK"], "`distributedInfo` in the header, as set by torchrun", false),
    (
        &["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
        "`distributedInfo` under Slurm, if torchrun's are unset",
        false,
    ),
    (
        &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
        "`distributedInfo` under Open MPI, if both are unset",
        false,
    ),
    (
        &["CUDA_VISIBLE_DEVICES", "CUDA_INJECTION64_PATH"],
        "the driver's own: visible GPUs, injected tool; `kineto doctor` prints them",
        true,
    ),
];

/// Returns a hint about a misspelt or misplaced key, from the names of other keys.
pub(super) fn unknown_key_hint(name: &str) -> String {
    let bare = name.strip_prefix("KINETO_").unwrap_or(name).to_ascii_uppercase();
    match Key::ALL.iter().find(|key| key.spec().name == bare || key.spec().name == name) {
        Some(key) if key.spec().scope == Environment => "; it is read from the environment alone".to_owned(),
        Some(key) => format!("; did you mean {}?", key.spec().name),
        None => {
            let names: Vec<_> =
                Key::ALL.iter().map(|key| key.spec()).filter(|spec| spec.scope == Both).map(|spec| spec.name).collect();
            closest_name(&bare, &names).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
        }
    }
}

const INTRODUCTION: &str = "\
Each setting is a key of the configuration file and, with `KINETO_` before it, a variable of the environment; names
that begin with `KINETO_` already, and those of launchers and job systems, are variables only. The builder wins over the
environment, the environment over the file, the file over the default. Keys marked *in a request* count in requests only
(dynolog daemon, trigger folder). *File* states when a change of the file counts while a program serves requests: where it is
empty, when the program is started again.

| Key | Builder | Value | Default | File | Effect |
|---|---|---|---|---|---|
";

/// Returns the table of all settings in Markdown.
pub(super) fn markdown_table() -> String {
    let mut table = String::from(INTRODUCTION);
    let mut row = |switch: &str, builder: &str, value: &str, default: &str, reload: ReloadPolicy, effect: &str| {
        let builder = if builder.is_empty() { String::new() } else { format!("`{builder}`") };
        // Writing to a string does not fail.
        let _ = writeln!(table, "| {switch} | {builder} | {value} | {default} | {reload} | {effect} |");
    };
    for stage in [Now, Requested] {
        for spec in Key::ALL.iter().map(|key| key.spec()).filter(|spec| spec.support == stage) {
            let default = match spec.default {
                Literal("") => "empty".to_owned(),
                Literal(text) => format!("`{text}`"),
                Described(text) => text.to_owned(),
            };
            let effect = match stage {
                Now => spec.effect.to_owned(),
                Requested => format!("*in a request:* {}", spec.effect),
            };
            row(&format!("`{}`", spec.name), spec.builder, &spec.kind.in_short(), &default, spec.reload, &effect);
        }
        if stage == Now {
            for (names, effect, _) in OTHER_VARIABLES {
                row(&format!("`{}`", joined(names, "`, `")), "", "", "unset", Start, effect);
            }
        }
    }
    table
}
