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
use super::value::{Assign as _, SettingKind, Value};
use crate::diag::{LogFormat, Logger, Severity};
use crate::distributed::DistributedInfo;
use crate::text::{closest_name, joined};
use KeyDefault::{Described, Literal};
use ReloadPolicy::{AtOnce, Never, Next, Start};
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
    /// When a changed value in the configuration file takes effect.
    pub(crate) reload: ReloadPolicy,
    /// The Cargo feature that contains the code for the key, if it needs one, and whether that is enabled.
    ///
    /// A key that disables a vendor's devices needs no feature: without the feature, they are disabled anyway. Neither does
    /// `SLURM_JOB_ID`, which is set for other programs.
    features: &'static [(&'static str, bool)],
}

impl KeySpec {
    /// Returns whether the configuration file may contain it, and the environment with the prefix `KINETO_`.
    pub(super) fn is_in_file(&self) -> bool {
        self.reload != Never
    }
}

/// The default of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyDefault {
    /// A value in text form.
    Literal(&'static str),
    /// A description, because the default is not a value.
    Described(&'static str),
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
    /// The key cannot be set in the file, but in the environment alone, under exactly its name.
    Never,
}

/// Formats a table cell; [`Start`] is the default and stays empty.
impl fmt::Display for ReloadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AtOnce => "at once",
            Next => "next recording",
            Start | Never => "",
        })
    }
}

macro_rules! keys {
    (
        { $($(#[$own_meta:meta])* $vis:vis $own:ident: $own_type:ty,)+ }
        $($key:ident: $reload:ident $name:literal $(if $feature:literal)?,
        $kind:ident $(($($range:tt)+))? $(= $literal:literal)? $(or $described:literal)?, $builder:literal, $effect:literal
        => $(($($target:tt)+))? $($field:ident: $type:ty $(= $initial:expr)?)?;)+
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
                    name: $name, kind: SettingKind::$kind $(($($range)+))?, builder: $builder, effect: $effect, reload: $reload,
                    default: $(Literal($literal))? $(Described($described))?,
                    features: &[$(($feature, cfg!(feature = $feature)))?],
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

// A row has the key's variant; when a changed file counts; name, Cargo feature if it needs one, kind, default after `=`, or after
// `or` if it is no value, builder method and effect, as in the docs; and after `=>` the field of `Config` that holds the value.
// Instead of a field, parentheses may hold a field of a section, a closure, `option` for an option of collectors, `in` and a
// section that sets several fields, or `nothing`. The fields in braces, which no single key sets, come first.
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

    Enabled: Never "KINETO_ENABLED",
        Bool or "yes if KINETO_CONFIG, KINETO_ACTIVITIES_LOG_FILE, KINETO_ACTIVITY_TYPES, KINETO_ACTIVITIES, KINETO_DUMP_ON, or a variable \
         that says when or for how long is set", "",
        "whether `KinetoLayer::from_env()` returns a layer; with only KINETO_USE_DAEMON or KINETO_TRIGGER_DIR, one that waits" => (nothing);
    ConfigFile: Never "KINETO_CONFIG", Text or "`/etc/libkineto.conf` on Linux, else `libkineto.conf`", "config_file(path)",
        "the configuration file" => (nothing);
    Mode: Start "MODE", Modes = "kineto", "mode(modes)",
        "how spans are used: kineto records them, its fallbacks time devices by events; nvtx, itt and privateuse1 pass them to other \
         profilers" => mode: Modes;
    IttDomain: Start "ITT_DOMAIN", Text = "tracing-kineto", "itt_domain(name)", "domain of ITT tasks; torch uses PyTorch"
        => itt_domain: String;
    ActivityTypes: Next "ACTIVITY_TYPES", Types or "the 18 default types", "activities(types)",
        "activity types to record; empty means the default" => activities: ActivityTypes;
    Activities: Next "ACTIVITIES", Groups or "none", "activities(types)", "groups of activity types to record, added to ACTIVITY_TYPES"
        => (activities);
    LogFile: Next "ACTIVITIES_LOG_FILE", LogFile or "`/tmp/libkineto_activities_<pid>.json` on Linux, else in the current folder",
        "output(path)",
        "file of the trace; the environment's and the file's name get `_<pid>` before the extension, unless they contain `{pid}`; \
         `{host}`, `{pid}`, `{rank}` and `{time}` are replaced" => output: Output;
    Filter: Start "FILTER", Filter or "everything", "filter(targets)", "spans and events that this layer records, by target and level"
        => filter: Option<Arc<Targets>>;
    WithArgs: Start "WITH_ARGS", Bool = "true", "Fields::record(bool)", "records the fields of spans and events" => with_args: bool;
    WithTarget: Next "WITH_TARGET", Bool = "true", "with_target(bool)", "records targets of spans" => with_target: bool;
    WithLocation: Next "WITH_LOCATION", Bool = "false", "with_location(bool)", "records source lines of spans" => with_location: bool;
    WithModules: Next "PROFILE_WITH_MODULES", Bool = "false", "TorchOptions::with_modules(bool)",
        "adds `Module Hierarchy` to operations, from the field `module` of enclosing spans" => (flags.with_modules);
    OverloadNames: Next "CAPTURE_OVERLOAD_NAMES", Bool = "false", "TorchOptions::capture_overload_names(bool)",
        "writes an operation's name as `name.overload`, from its field `overload_name`" => overload_names: bool;
    FwdBwd: Next "FWD_BWD", Bool = "true", "TorchOptions::fwd_bwd(bool)",
        "draws arrows from forward to backward operations, by the fields `seq` and `fwd_thread`" => fwd_bwd: bool;
    Collectives: Never "TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING", OneIsTrue = "false", "TorchOptions::collective_profiling(bool)",
        "adds `collective_comm` to the activities: spans of `Collective` are of that type" => collectives: bool;
    DenyFields: Start "DENY_FIELDS", List = "", "Fields::deny(names)", "fields of these names are never recorded"
        => deny_fields: Vec<String>;
    Events: Start "EVENTS", Events = "off", "events(level)",
        "events from this level up become instants (or, under the target `kineto::counter`, counters)"
        => events: LevelFilter = LevelFilter::OFF;
    AsyncSpans: Next "ASYNC_SPANS", AsyncSpans = "auto", "async_spans(how)", "how polled spans are drawn" => async_spans: AsyncSpans;
    BufferLimit: Start "BUFFER_LIMIT_MB", Mebibytes = "512", "buffer_limit_bytes(bytes)", "memory limit of a recording"
        => buffer_limit_bytes: u64;
    Overflow: Start "OVERFLOW", Overflow = "stop", "overflow(how)",
        "what happens at the memory limit: further records are only counted, they replace the oldest, or the oldest are moved to disk"
        => overflow: Overflow;
    SpillFolder: Start "SPILL_DIR" if "segments", Text or "the output's", "Spill::folder(path)",
        "folder in which `OVERFLOW=spill` makes the folder of its segments" => spill_folder: Option<PathBuf>;
    Split: Start "SPLIT" if "segments", Split or "each minute", "Spill::split(parts)",
        "when a part of `OVERFLOW=spill` ends, which becomes a file of its own; in any case when a quarter of the limit is filled"
        => split: Option<Split>;
    ShmFolder: Start "SHM_DIR" if "segments", Text or "none", "shm_folder(path)",
        "folder in shared memory, such as /dev/shm, that holds the records, so that a killed process leaves them"
        => shm_folder: Option<PathBuf>;
    Keep: Start "KEEP", Duration or "all that fits", "keep(time)", "how far back `OVERFLOW=keep_newest` reaches, if the memory suffices"
        => keep: Option<Duration>;
    DumpOn: Start "DUMP_ON", DumpTriggers or "nothing", "Dumps::on(triggers)",
        "writes the newest records to a file of their own when something happens; with it, OVERFLOW is `keep_newest` and BUFFER_LIMIT_MB \
         is 64 unless set" => (dumps.triggers);
    DumpAfter: Start "DUMP_AFTER", Duration = "1s", "Dumps::after(time)", "how long a dump of DUMP_ON waits, to show what follows"
        => (dumps.after);
    DumpInterval: Start "DUMP_INTERVAL", Duration = "60s", "Dumps::interval(time)", "least time from one dump of DUMP_ON to the next"
        => (dumps.interval);
    DumpFiles: Start "DUMP_FILES", Int(1..=1_000_000) = "20", "Dumps::keep(files, bytes)",
        "number of dumps that are kept; older ones are removed" => (dumps.kept.files_max);
    DumpBytes: Start "DUMP_FILES_MB", Mebibytes = "2048", "Dumps::keep(files, bytes)",
        "size of the dumps that are kept; the newest one stays" => (dumps.kept.bytes_max);
    DumpAge: Start "DUMP_FILES_AGE", Duration or "any", "Dumps::keep_for(time)", "age from which dumps are removed, whenever one is written"
        => (dumps.kept.age_max);
    WriteAtEnd: Start "WRITE_AT_END", Bool or "`false` with DUMP_ON and no file named, else `true`", "write_at_end(bool)",
        "writes the trace when the recording ends with the program" => (dumps.write_at_end);
    FileLimit: Start "FILE_LIMIT_MB", Mebibytes or "none", "file_limit_bytes(bytes)",
        "size at which a file that is written without a call of the program is closed, readable and incomplete" => (dumps.file_limit);
    FieldLimit: Start "FIELD_LIMIT_BYTES", Int(1..=1 << 30) = "4096", "Fields::limit_bytes(bytes)",
        "length at which values of fields are cut" => field_limit_bytes: usize;
    FlushTimeout: AtOnce "FLUSH_TIMEOUT_MSECS", Milliseconds = "5000", "flush_timeout(duration)",
        "how long writing may take without progress; at the end of the process, in all" => flush_timeout: Duration;
    RecordFromStart: Start "RECORD_FROM_START", Bool = "true", "record_from_start(bool)",
        "records from `build()` on; otherwise from `start()`" => record_from_start: bool;
    StartDelay: Start "START_DELAY_MS" if "ondemand", Milliseconds or "none", "",
        "starts the recording this long after `build()`; it ends with the program or after ACTIVITIES_DURATION_MSECS (Linux)"
        => (in ondemand.timetable);
    DurationSecs: Start "ACTIVITIES_DURATION_SECS" if "ondemand", I32 or "unset", "",
        "duration of the recording; in a request, at most KINETO_ONDEMAND_MAX_DURATION_SECS; the later of this key and \
         ACTIVITIES_DURATION_MSECS wins" => (in ondemand.timetable);
    DurationMsecs: Start "ACTIVITIES_DURATION_MSECS" if "ondemand", I32 or "to the program's end; in a request, 500", "",
        "duration of the recording in ms" => (in ondemand.timetable);
    StartPeriod: Start "START_PERIOD_MS" if "ondemand", Milliseconds or "none", "",
        "time from one start to the next, into numbered files; at least the duration of a recording" => (in ondemand.timetable);
    StartWindows: Start "START_WINDOWS" if "ondemand", Int(1..=i32::MAX as i64) or "until the program ends", "",
        "number of recordings, with START_PERIOD_MS" => (in ondemand.timetable);
    Iterations: Start "ACTIVITIES_ITERATIONS" if "ondemand", I32 or "none", "",
        "number of iterations to record, with a start iteration; if the program counts none, the recording waits until it does, but a \
         request falls back to a duration" => (in ondemand.timetable);
    StartIteration: Start "PROFILE_START_ITERATION" if "ondemand", I32 or "unset", "",
        "iteration at which the recording starts, with ACTIVITIES_ITERATIONS; wins over a start time" => (in ondemand.timetable);
    StartRoundup: Start "PROFILE_START_ITERATION_ROUNDUP" if "ondemand", I32 or "unset", "",
        "starts at the next multiple of this number if the start iteration has passed; 0 means unset" => (in ondemand.timetable);
    WarmupSecs: Start "ACTIVITIES_WARMUP_PERIOD_SECS" if "ondemand", I32 or "5; in a request without a start time, 0", "",
        "how long collectors run before the start time, if that much time is left; in a request, at most 60" => (in ondemand.timetable);
    WarmupIterations: Start "ACTIVITIES_WARMUP_ITERATIONS" if "ondemand", I32 or "0", "",
        "minimum number of iterations that collectors run before the start iteration" => (in ondemand.timetable);
    FieldsWhileIdle: Start "FIELDS_WHILE_IDLE", Bool = "false", "Fields::while_idle(bool)",
        "keeps fields of spans that are created while nothing is recorded" => fields_while_idle: bool;
    FlushOnSignals: Start "FLUSH_ON_SIGNALS", Bool = "true", "flush_on_signals(bool)",
        "writes the trace on SIGINT, SIGTERM or SIGHUP, before the signal ends the process" => flush_on_signals: bool;
    GzipLevel: Next "GZIP_LEVEL", Int(0..=9) = "1", "gzip_level(level)",
        "gzip level of `.gz` files; with debug assertions, 1 stores without compression" => gzip_level: u32;
    ExecutionTrace: Never "ENABLE_PYTORCH_EXECUTION_TRACE" if "chakra", Bool = "false", "TorchOptions::execution_trace(bool)",
        "also writes the operations as a graph (Chakra): `app.et.json` for `app.pt.trace.json`" => execution_trace: bool;
    HostName: Next "HOST_NAME", Text or "the machine's", "", "the `host_name` in the trace's header" => host_name: Option<String>;
    TraceId: Next "REQUEST_TRACE_ID", Text or "random", "", "the `trace_id` in the trace's header" => trace_id: Option<String>;
    GroupTraceId: Next "REQUEST_GROUP_TRACE_ID", Text = "", "",
        "the `group_trace_id` in the trace's header, common to all traces of one request" => group_trace_id: String;
    LogLevel: AtOnce "LOG_LEVEL", Severity = "warning", "log_level(severity)",
        "lowest severity of messages that are shown; a bad value only warns" => log_level: Severity = Logger::DEFAULT_THRESHOLD;
    LogFormat: AtOnce "LOG_FORMAT", LogFormat = "text", "", "format of messages" => log_format: LogFormat;
    VerboseLogLevel: AtOnce "VERBOSE_LOG_LEVEL", I32 or "unset", "", "any value means LOG_LEVEL=verbose"
        => (|config, _value| config.log_level = Severity::Verbose);
    VerboseLogModules: AtOnce "VERBOSE_LOG_MODULES", List = "", "", "modules whose verbose messages are shown; empty means all"
        => verbose_log_modules: Vec<String>;
    MaxGpuBufferSize: Next "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB" if "devices", I32 = "128", "",
        "memory for a GPU library's unread records, in MiB; at least 8"
        => (|config, value| config.gpu.buffer_bytes = gpu::buffer_bytes(value.as_number()));
    CudaSyncWaitEvents: Next "ACTIVITIES_DISPLAY_CUDA_SYNC_WAIT_EVENTS" if "devices", Bool = "true", "",
        "records waits of streams for events" => (gpu.wait_events);
    CuptiPerThreadBuffer: Next "CUPTI_PER_THREAD_BUFFER_ENABLED" if "cuda", Bool = "false", "",
        "gives each thread its own CUPTI buffers (CUDA 12.3 or later)" => (option);
    CuptiExclusive: Next "CUPTI_EXCLUSIVE" if "cuda", Bool = "false", "",
        "does not share CUPTI with other profilers, though libcupti 13.4 and later could (TEARDOWN_CUPTI and CUDA_GRAPH_TRACE imply it)"
        => (option);
    CuptiAllFields: Next "CUPTI_ALL_FIELDS" if "cuda", Bool = "false", "",
        "takes CUPTI's records whole instead of the fields that are read, which libcupti 13.4 and later can select" => (option);
    CuptiHardwareTimes: Next "CUPTI_HARDWARE_TIMES" if "cuda", Bool = "false", "",
        "takes the times of device work from the hardware (HES), cheaper and more exact: Blackwell or later, libcupti 12.8 or later"
        => (option);
    GraphTrace: Next "CUDA_GRAPH_TRACE" if "cuda", Bool = "false", "Devices::graph_trace(bool)",
        "records a launch of a CUDA graph as one row instead of one for each node" => (option);
    ProfilerRange: Next "CUDA_PROFILER_RANGE" if "cuda", Bool = "false", "Devices::profiler_range(bool)",
        "records only between cudaProfilerStart and cudaProfilerStop" => (gpu.profiler_range);
    NvtxRanges: Start "NVTX_RANGES" if "cuda", Bool = "false", "Devices::nvtx_ranges(bool)",
        "records NVTX ranges of libraries as annotations; NVTX_INJECTION64_PATH must name libcupti" => (option);
    DisableCupti: Start "DISABLE_CUPTI", Bool = "false", "", "disables NVIDIA GPUs: no library is searched for" => (option);
    TeardownCupti: Next "TEARDOWN_CUPTI" if "cuda", Bool = "false", "",
        "detaches CUPTI from the process after each recording, which removes its remaining overhead" => (option);
    CuptiPath: Never "KINETO_CUPTI_PATH" if "cuda", Text or "searched for", "", "the libcupti to use, or its folder" => (option);
    DisableRocm: Start "DISABLE_ROCM", Bool = "false", "", "disables AMD GPUs" => (option);
    RoctracerMaxEvents: Next "ROCTRACER_MAX_EVENTS" if "rocm", I32 = "5000000", "",
        "maximum number of rows of AMD GPUs, calls and work; further rows are counted" => (option);
    RocprofilerPath: Never "KINETO_ROCPROFILER_PATH" if "rocm", Text or "searched for", "",
        "the librocprofiler-sdk to use (ROCm 7), or its folder" => (option);
    RoctracerPath: Never "KINETO_ROCTRACER_PATH" if "roctracer", Text or "searched for", "",
        "the libroctracer64 to use (ROCm 4.5 to 6), or its folder" => (option);
    DisableXpu: Start "DISABLE_XPU", Bool = "false", "", "disables Intel GPUs" => (option);
    PtiPath: Never "KINETO_PTI_PATH" if "xpu", Text or "searched for", "", "the libpti_view to use, or its folder" => (option);
    XpuMetrics: Next "XPUPTI_PROFILER_METRICS" if "xpu", List = "", "",
        "metrics that Intel GPUs sample, by PTI's names; rows of type `xpu_scope_profiler`, if selected" => (option);
    XpuPerKernel: Next "XPUPTI_PROFILER_ENABLE_PER_KERNEL" if "xpu", Bool = "false", "", "samples metrics for each kernel, the only mode"
        => (option);
    XpuMaxScopes: Next "XPUPTI_PROFILER_MAX_SCOPES" if "xpu", I64 = "0", "", "maximum number of sampled kernels; 0 means 1500" => (option);
    XpuDevices: Next "XPUPTI_PROFILER_DEVICES" if "xpu", IntList or "the first", "", "Intel GPU to sample" => (option);
    PluginFolder: Never "KINETO_PLUGIN_LIB_DIR_PATH" if "plugins", Text or "none", "Devices::plugins(folder)",
        "folder of plugins for other accelerators; all are loaded" => (gpu.plugin_folder);
    DisablePlugins: Start "DISABLE_PLUGINS", Bool = "false", "", "loads no plugins" => (gpu.disables_plugins);
    InputShapes: Next "PROFILE_REPORT_INPUT_SHAPES", Bool = "false", "TorchOptions::record_shapes(bool)",
        "asks the program for input shapes, through its session observers" => (flags.record_shapes);
    OpInputs: Next "CLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION", Bool = "false", "", "the same as PROFILE_REPORT_INPUT_SHAPES"
        => (flags.record_shapes);
    WithFlops: Next "PROFILE_WITH_FLOPS", Bool = "false", "TorchOptions::with_flops(bool)",
        "asks the program for the data to compute FLOPs, through its session observers" => (flags.with_flops);
    ProfileProfileMemory: Next "PROFILE_PROFILE_MEMORY", Bool = "false", "with_memory(bool)", "records allocators' reports"
        => (flags.profile_memory);
    WithStack: Start "PROFILE_WITH_STACK", Bool = "false", "with_stack(stacks)",
        "records the call stack of each enter of a span (feature `backtrace`)" => (flags.with_stack);
    PythonStackTrace: Start "PYTHON_STACK_TRACE", Bool = "false", "", "the same as PROFILE_WITH_STACK" => (flags.with_stack);
    StackFrames: Start "STACK_FRAMES", Int(1..=128) = "32", "Stacks::frames(count)", "maximum number of frames of a call stack"
        => (slice_extras.stack_frames);
    StackFilter: Start "STACK_FILTER", Filter or "everything", "Stacks::filter(targets)", "spans whose call stacks are recorded"
        => (slice_extras.stack_filter);
    PerformanceEvents: Start "PERFORMANCE_EVENTS", List = "", "performance_events(names)",
        "counters of the CPU for each slice: cycles, instructions, page-faults … (Linux)" => (slice_extras.performance_events);
    DeviceMemory: Next "PROFILE_DEVICE_MEMORY" if "cuda", Bool = "false", "Devices::memory(bool)",
        "records device memory allocated by CUDA's calls, instead of allocators' reports" => (gpu.device_memory);
    DeviceTelemetry: Next "DEVICE_TELEMETRY_HZ" if "devices", I32 = "0", "Devices::telemetry(hz)",
        "samples power, temperature, clocks, utilization and used memory of GPUs that many times a second, at most 10" => (option);
    PmSamplingMetrics: Next "CUPTI_PM_SAMPLING_METRICS" if "metrics", List = "", "Metrics::pm_sampling(metrics)",
        "metrics that NVIDIA's GPUs sample, by CUPTI's names; rows of type `hardware_counters`, if selected" => (option);
    PmSamplingDevice: Next "CUPTI_PM_SAMPLING_DEVICE_ID" if "metrics", IntList or "all", "Metrics::pm_sampling_devices(devices)",
        "NVIDIA GPUs to sample" => (option);
    PmSamplingInterval: Next "CUPTI_PM_SAMPLING_INTERVAL_US" if "metrics", Int(1..=1_000_000) = "1000",
        "Metrics::pm_sampling_interval(time)", "microseconds between samples of metrics" => (option);
    ProfilerMetrics: Next "CUPTI_PROFILER_METRICS" if "metrics", List = "", "Metrics::per_annotation(metrics)",
        "metrics of each annotation, or kernel, by CUPTI's names, in rows `gpu_user_annotation` or `cuda_profiler_range`" => (option);
    ProfilerPerKernel: Next "CUPTI_PROFILER_ENABLE_PER_KERNEL" if "metrics", Bool = "false", "Metrics::per_kernel(metrics)",
        "measures each kernel, by replay, instead of each annotation" => (option);
    ProfilerMaxRanges: Next "CUPTI_PROFILER_MAX_RANGES" if "metrics", Int(0..=1_000_000_000) = "1500", "Metrics::limit(launches)",
        "the most launches or annotations to measure; 0 for all" => (option);
    ActivitiesEnabled: Start "ACTIVITIES_ENABLED" if "ondemand", Bool = "true", "", "false declines the request" => (nothing);
    Cancel: Start "CANCEL" if "ondemand", Bool = "false", "", "cancels all requests that have not ended, and discards their records"
        => (nothing);
    ProfileMemory: Start "PROFILE_MEMORY" if "ondemand", Bool = "false", "", "records a memory profile instead of a trace" => (nothing);
    ProfileMemoryDuration: Start "PROFILE_MEMORY_DURATION_MSECS" if "ondemand", I32 = "1000", "", "duration of the memory profile"
        => (nothing);
    StartTime: Start "PROFILE_START_TIME" if "ondemand", StartTime = "0", "",
        "start of the recording, at most KINETO_ONDEMAND_MAX_AHEAD_SECS from now; 0 means as soon as possible" => (nothing);
    Last: Start "PROFILE_LAST_MSECS" if "ondemand", I32 or "unset", "",
        "writes what the program has recorded in these last milliseconds, instead of a new recording; needs a recording, such as that of \
         OVERFLOW=keep_newest" => (nothing);
    IpcFabric: AtOnce "ENABLE_IPC_FABRIC" if "ondemand", Bool or "as KINETO_USE_DAEMON", "", "polls the dynolog daemon for requests"
        => (ondemand.polling_override);
    UpdateInterval: AtOnce "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS" if "ondemand", I32 or "1 to 5, by its response time", "",
        "interval at which the daemon is polled, in seconds; 0 means 100 times a second"
        => (|config, value| config.ondemand.poll_interval = Some(ondemand::poll_interval(value.as_seconds())));
    CustomConfig: Next "CUSTOM_CONFIG", Text = "", "",
        "text for collectors; disable_runtime_events, disable_ccp_events, disable_insight_events and disable_counter_events deselect \
         MTIA's types" => (gpu.custom_config);
    UseDaemon: Never "KINETO_USE_DAEMON" if "ondemand", AnyText = "false", "",
        "polls the dynolog daemon for requests; records nothing else unless KINETO_RECORD_FROM_START is set or the newest records are kept \
         (Linux)" => (ondemand.use_daemon);
    OnDemandFolder: Never "KINETO_ONDEMAND_TRACE_DIR" if "ondemand", Text = "/tmp/", "", "folder in or below which requests may write files"
        => (ondemand.trace_folder);
    LongestRequest: Never "KINETO_ONDEMAND_MAX_DURATION_SECS" if "ondemand", Int(1..=86_400) = "3600", "",
        "maximum time that a request records, and waits for an iteration"
        => (|config, value| config.ondemand.max_duration = value.as_seconds());
    LatestStart: Never "KINETO_ONDEMAND_MAX_AHEAD_SECS" if "ondemand", Int(0..=86_400) = "3600", "",
        "how far ahead a request's start time may be" => (|config, value| config.ondemand.max_start_delay = value.as_seconds());
    FileMode: Never "KINETO_TRACE_FILE_MODE" if "ondemand", Mode = "600", "", "permissions of files of requests, in octal"
        => (ondemand.file_mode);
    RequestFiles: Never "KINETO_ONDEMAND_FILES" if "ondemand", Int(1..=1_000_000) or "all", "",
        "number of requests and timed recordings whose files are kept; files of older ones of this process are removed"
        => (ondemand.kept.files_max);
    RequestBytes: Never "KINETO_ONDEMAND_FILES_MB" if "ondemand", Mebibytes or "all", "",
        "size of those files that are kept; the newest one stays" => (ondemand.kept.bytes_max);
    RequestAge: Never "KINETO_ONDEMAND_FILES_AGE" if "ondemand", Duration or "any", "",
        "age from which those files of this process are removed, after each request" => (ondemand.kept.age_max);
    SocketFolder: Never "KINETO_IPC_SOCKET_DIR" if "ondemand", Text or "abstract sockets", "",
        "folder of the daemon's sockets, an absolute path" => (ondemand.socket_folder);
    TriggerFolder: Never "KINETO_TRIGGER_DIR" if "ondemand", Text or "none", "trigger_folder(path)",
        "serves files `<pid>.request` in that folder as requests; records nothing else unless KINETO_RECORD_FROM_START is set or the \
         newest records are kept (Linux)" => (ondemand.trigger_folder);
    DaemonUser: Never "KINETO_DAEMON_UID" if "ondemand", Int(0..=u32::MAX as i64) or "none", "",
        "user whose daemon and files are trusted, in addition to root's and the program's own" => (ondemand.trusted_uid);
    SlurmJob: Never "SLURM_JOB_ID", Text = "0", "", "job under which the program registers with the daemon"
        => (|config, value| config.ondemand.slurm_job_id = ondemand::leading_number(value.as_text()));
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
        Key::ALL.iter().copied().find(|key| key.spec().is_in_file() && key.spec().name == name)
    }

    /// Returns the default as text, if it is a value.
    pub(super) fn default_text(self) -> Option<&'static str> {
        if let Literal(text) = self.spec().default { Some(text) } else { None }
    }

    /// Returns whether it is read from the environment variable of that name.
    pub(super) fn is_variable(self, name: &str) -> bool {
        let bare = if self.spec().is_in_file() { name.strip_prefix("KINETO_") } else { Some(name) };
        bare == Some(self.spec().name)
    }

    /// Returns the environment variable.
    pub(crate) fn env_variable(self) -> String {
        let prefix = if self.spec().is_in_file() { "KINETO_" } else { "" };
        format!("{prefix}{}", self.spec().name)
    }

    /// Returns the Cargo feature that it needs if this build lacks it.
    pub(super) fn missing_feature(self) -> Option<&'static str> {
        self.spec().features.iter().find(|(_, is_on)| !is_on).map(|(feature, _)| *feature)
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

    /// Returns whether it takes effect in an external request alone; elsewhere it is only read and checked.
    pub(super) fn is_for_requests(self) -> bool {
        use Key::{ActivitiesEnabled, Cancel, Last, ProfileMemory, ProfileMemoryDuration, StartTime};
        matches!(self, ActivitiesEnabled | Cancel | ProfileMemory | ProfileMemoryDuration | StartTime | Last)
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
        Some(key) if !key.spec().is_in_file() => "; it is read from the environment alone".to_owned(),
        Some(key) => format!("; did you mean {}?", key.spec().name),
        None => {
            let in_file = Key::ALL.iter().map(|key| key.spec()).filter(|spec| spec.is_in_file());
            let names: Vec<_> = in_file.map(|spec| spec.name).collect();
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

impl Config {
    /// Returns the table of all settings in Markdown.
    pub(crate) fn reference_table() -> String {
        let mut table = String::from(INTRODUCTION);
        let mut row = |switch: &str, builder: &str, value: &str, default: &str, reload: ReloadPolicy, effect: &str| {
            let builder = if builder.is_empty() { String::new() } else { format!("`{builder}`") };
            // Writing to a string does not fail.
            let _ = writeln!(table, "| {switch} | {builder} | {value} | {default} | {reload} | {effect} |");
        };
        for of_requests in [false, true] {
            for spec in Key::ALL.iter().filter(|key| key.is_for_requests() == of_requests).map(|key| key.spec()) {
                let default = match spec.default {
                    Literal("") => "empty".to_owned(),
                    Literal(text) => format!("`{text}`"),
                    Described(text) => text.to_owned(),
                };
                let effect = if of_requests { "*in a request:* " } else { "" }.to_owned() + spec.effect;
                row(&format!("`{}`", spec.name), spec.builder, &spec.kind.in_short(), &default, spec.reload, &effect);
            }
            if !of_requests {
                for (names, effect, _) in OTHER_VARIABLES {
                    row(&format!("`{}`", joined(names, "`, `")), "", "", "unset", Start, effect);
                }
            }
        }
        table
    }
}
