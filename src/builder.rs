//! Says how to record, and makes the layer and its guard.

use crate::activity::{ActivityType, ActivityTypes};
use crate::callsite::{Classifier, Rules, Sites};
use crate::collector::{
    Collector, CollectorSet, Contained, CudaEvents, Cupti, DeviceTimer, EventTimers, Unavailable, Why,
};
use crate::config::{self, AsyncSpans, Config, DistributedInfo, Env, Mode, Modes, Output, Overflow, Overrides, Switch};
use crate::diag::{self, LogSink, Severity, diag};
use crate::error::{Error, ErrorKind};
use crate::guard::KinetoGuard;
use crate::handler::TraceHandler;
use crate::layer::{KinetoLayer, home};
#[cfg(feature = "itt")]
use crate::observer::itt::Itt;
use crate::observer::nvtx::Nvtx;
use crate::observer::{Observers, SpanObserver};
use crate::os::{fork, signal};
use crate::recorder::{Recorder, Settings};
use crate::schedule::Schedule;
use crate::session::{self, Habits, Session};
use crate::trace::{EventEdit, PostProcess};
use crate::write::TraceSink;
use crate::write::sink::Sinks;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing_core::{LevelFilter, Metadata};
use tracing_subscriber::filter::Targets;

/// Says how to record; made by [`KinetoLayer::builder`].
///
/// What is set here goes before the environment (`KINETO_…`), which goes before the configuration file
/// (`KINETO_CONFIG`), which goes before the defaults. README's table lists every setting.
#[must_use = "call `build` to get a layer"]
#[derive(Default)]
pub struct KinetoLayerBuilder {
    overrides: Overrides,
    metadata: Vec<(String, String)>,
    metadata_json: Vec<(String, String)>,
    classifier: Option<Arc<Classifier>>,
    annotation_targets: Vec<String>,
    sinks: Vec<(String, Arc<dyn TraceSink>)>,
    post_process: Option<PostProcess>,
    collectors: Vec<Arc<dyn Collector>>,
    timer: Option<Arc<dyn Collector>>,
    observers: Vec<Arc<dyn SpanObserver>>,
    schedule: Option<Schedule>,
    handler: Option<Box<dyn TraceHandler>>,
    habits: Habits,
    log_sink: Option<LogSink>,
    env: Option<Env>,
    /// Only requests from outside start a recording.
    waits: bool,
}

impl KinetoLayer {
    /// Returns a builder with everything at its default.
    pub fn builder() -> KinetoLayerBuilder {
        KinetoLayerBuilder::default()
    }

    /// Makes a layer if the environment asks for one, so that a shipped program is switched on from outside.
    ///
    /// `KINETO_ENABLED` decides; if it is not set, `KINETO_CONFIG`, `KINETO_ACTIVITIES_LOG_FILE`,
    /// `KINETO_ACTIVITY_TYPES` or `KINETO_ACTIVITIES` switch it on. When off, the layer is `None`, which changes nothing
    /// for other layers, and the guard does nothing; no thread is started and no library looked for.
    ///
    /// # Errors
    /// Those of [`KinetoLayerBuilder::build`].
    pub fn from_env() -> Result<(Option<KinetoLayer>, KinetoGuard), Error> {
        let env = Env::process();
        let mut builder = KinetoLayer::builder();
        match env.switch()? {
            Switch::Off => return Ok((None, KinetoGuard::inert())),
            Switch::Idle => builder.waits = true,
            Switch::On => {}
        }
        builder.env = Some(env);
        builder.build().map(|(layer, guard)| (Some(layer), guard))
    }
}

impl KinetoLayerBuilder {
    /// Writes the trace to that path when the guard is dropped; `.json` or `.json.gz`. The path is taken as it is.
    ///
    /// Default: `KINETO_ACTIVITIES_LOG_FILE` with the process id spliced in, else
    /// `/tmp/libkineto_activities_<pid>.json`, as libkineto.
    pub fn output(mut self, path: impl Into<PathBuf>) -> Self {
        self.overrides.output = Some(Output::Exact(path.into()));
        self
    }

    /// Writes nothing when the guard is dropped: traces are had from [`Profiler::stop`](crate::Profiler::stop).
    pub fn no_output(mut self) -> Self {
        self.overrides.output = Some(Output::Nowhere);
        self
    }

    /// Records only activities of these types. Default: [`ActivityTypes::DEFAULT`], libkineto's.
    pub fn activities(mut self, types: impl Into<ActivityTypes>) -> Self {
        self.overrides.activities = Some(types.into());
        self
    }

    /// Records the fields of spans as arguments. Default: true. Turn it off where traces are shared with others.
    pub fn with_args(mut self, on: bool) -> Self {
        self.overrides.with_args = Some(on);
        self
    }

    /// Shows the target of each span. Default: true.
    pub fn with_target(mut self, on: bool) -> Self {
        self.overrides.with_target = Some(on);
        self
    }

    /// Shows file and line of each span. Default: false.
    pub fn with_location(mut self, on: bool) -> Self {
        self.overrides.with_location = Some(on);
        self
    }

    /// Records what allocators report: every allocation and every free as an instant (see [`memory`](crate::memory)).
    /// Default: false.
    pub fn with_memory(mut self, on: bool) -> Self {
        self.overrides.with_memory = Some(on);
        self
    }

    /// Records what CUDA's calls allocate on devices and give back (`cudaMalloc`, `cuMemAllocAsync`, managed memory …), as
    /// CUPTI sees it: `[memory]` instants of the device, on the thread and in the span that made the call. Default: false.
    ///
    /// It is the memory below a caching allocator. One that reports the same devices ([`memory::record`](crate::memory::record))
    /// would have it counted twice, so what is reported of CUDA's devices is left out then, and counted. The totals are kept
    /// from the start of the recording on; with what is given back that was there before, they begin with that. The host's
    /// memory is recorded by [`with_memory`](Self::with_memory) alone.
    pub fn with_device_memory(mut self, on: bool) -> Self {
        self.overrides.device_memory = Some(on);
        self
    }

    /// Leaves out the fields of these names.
    pub fn deny_fields(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.overrides.deny_fields = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Records events up to that level as instants (`cpu_instant_event`). Default: none, but ERROR events mark the slice
    /// they happen in, and counters are always recorded.
    pub fn events(mut self, level: impl Into<LevelFilter>) -> Self {
        self.overrides.events = Some(level.into());
        self
    }

    /// Says what becomes of spans that are entered more than once. Default: [`AsyncSpans::Auto`].
    pub fn async_spans(mut self, how: AsyncSpans) -> Self {
        self.overrides.async_spans = Some(how);
        self
    }

    /// Decides what the spans of a callsite are; `None` leaves it to the other rules. Asked once for each callsite.
    ///
    /// Types that a host span cannot be ([`ActivityType::is_host`]) count as `None`.
    pub fn classify(
        mut self,
        classify: impl Fn(&Metadata<'_>) -> Option<ActivityType> + Send + Sync + 'static,
    ) -> Self {
        self.classifier = Some(Arc::new(classify));
        self
    }

    /// Makes spans of targets with that prefix user annotations; may be called more than once.
    pub fn annotate_target(mut self, prefix: impl Into<String>) -> Self {
        self.annotation_targets.push(prefix.into());
        self
    }

    /// Records only what that filter lets through; other layers do not notice.
    pub fn filter(mut self, filter: Targets) -> Self {
        self.overrides.filter = Some(filter);
        self
    }

    /// The most bytes that records may take, those in traces included. Default: 512 MiB.
    pub fn buffer_limit_bytes(mut self, bytes: u64) -> Self {
        self.overrides.buffer_limit_bytes = Some(bytes);
        self
    }

    /// The most bytes of one text value; longer ones are cut at a character. Default: 4096.
    pub fn field_limit_bytes(mut self, bytes: usize) -> Self {
        self.overrides.field_limit_bytes = Some(bytes);
        self
    }

    /// Says what happens at the buffer limit. Default: [`Overflow::Stop`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overrides.overflow = Some(overflow);
        self
    }

    /// The longest time that dropping the guard, or the end of the process, waits for the file. Default: 5 s.
    ///
    /// Where devices are recorded, a stop waits before that, as long at most, for what was launched to end.
    pub fn flush_timeout(mut self, timeout: Duration) -> Self {
        self.overrides.flush_timeout = Some(timeout);
        self
    }

    /// Starts recording in `build`. Default: true; else [`Profiler::start`](crate::Profiler::start) does.
    pub fn record_from_start(mut self, on: bool) -> Self {
        self.overrides.record_from_start = Some(on);
        self
    }

    /// Keeps the fields of spans that are made while nothing is recorded, at the cost of an allocation each.
    /// Default: false; such spans appear without fields, and are counted.
    pub fn fields_while_idle(mut self, on: bool) -> Self {
        self.overrides.fields_while_idle = Some(on);
        self
    }

    /// Writes the trace when SIGTERM comes, before it ends the process. Default: false.
    ///
    /// A handler that the program has installed before `build` is called after that. Not in a forked child.
    pub fn flush_on_sigterm(mut self, on: bool) -> Self {
        self.overrides.flush_on_sigterm = Some(on);
        self
    }

    /// Compression of `.gz` files, 0 to 9. Default: 1.
    pub fn gzip_level(mut self, level: u32) -> Self {
        self.overrides.gzip_level = Some(level);
        self
    }

    /// Writes an execution trace (Chakra) beside the trace, wherever that is written by itself: `app.et.json` for
    /// `app.pt.trace.json`. Default: false, or torch's `ENABLE_PYTORCH_EXECUTION_TRACE`.
    ///
    /// See [`Trace::save_execution_trace`](crate::Trace::save_execution_trace), which a handler of traces may call by itself.
    /// With it, the slices of the trace have a "Record function id", by which tools join the two files.
    pub fn execution_trace(mut self, on: bool) -> Self {
        self.overrides.execution_trace = Some(on);
        self
    }

    /// Adds a text to the trace's header.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a JSON value to the trace's header; `build` fails if it is none.
    pub fn metadata_json(mut self, key: impl Into<String>, json: impl Into<String>) -> Self {
        self.metadata_json.push((key.into(), json.into()));
        self
    }

    /// Says which process of how many this is. Default: from `RANK`/`WORLD_SIZE`, Slurm's or Open MPI's variables.
    pub fn distributed(mut self, info: DistributedInfo) -> Self {
        self.overrides.distributed = Some(info);
        self
    }

    /// Reads that configuration file. Default: `KINETO_CONFIG`, else the platform's (`/etc/libkineto.conf`).
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.overrides.config_file = Some(path.into());
        self
    }

    /// Sends `save("scheme://…")` to a handler, as kineto's logger factories do.
    pub fn sink(mut self, scheme: impl Into<String>, sink: impl TraceSink + 'static) -> Self {
        self.sinks.push((scheme.into(), Arc::new(sink)));
        self
    }

    /// Changes the events of all traces: `edit` is called with each slice, instant and set of counter values whenever a
    /// trace is saved or looked into, and may rename it, change its arguments, or leave it out.
    ///
    /// As torch's `enableProfilerWithEventPostProcess`. It must do the same each time. Statistics count what was recorded;
    /// async tracks stay as they are. An event at which `edit` panics stays as it was recorded.
    pub fn post_process(mut self, edit: impl Fn(&mut EventEdit<'_>) + Send + Sync + 'static) -> Self {
        self.post_process = Some(PostProcess(Arc::new(edit)));
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

    /// Says what becomes of spans: one [`Mode`], or several joined by `|`. Default: [`Mode::Kineto`].
    pub fn mode(mut self, mode: impl Into<Modes>) -> Self {
        self.overrides.mode = Some(mode.into());
        self
    }

    /// The domain of ITT's tasks. Default: "tracing-kineto"; torch's is "PyTorch". Without the feature `itt`, nobody asks.
    pub fn itt_domain(mut self, name: impl Into<String>) -> Self {
        self.overrides.itt_domain = Some(name.into());
        self
    }

    /// Tells that observer of spans as they happen; may be called more than once.
    pub fn observer(mut self, observer: impl SpanObserver + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Records a launch of a CUDA graph as one row, not one for each node. Default: false.
    ///
    /// A graph of a thousand kernels takes a thousand records for each launch, and what it costs CUPTI to make them; as
    /// one row it takes one, and shows nothing of its inside.
    pub fn graph_trace(mut self, on: bool) -> Self {
        self.overrides.graph_trace = Some(on);
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
    pub fn profiler_range(mut self, on: bool) -> Self {
        self.overrides.profiler_range = Some(on);
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
    pub fn nvtx_ranges(mut self, on: bool) -> Self {
        self.overrides.nvtx_ranges = Some(on);
        self
    }

    /// Records by that schedule, which [`Profiler::step`](crate::Profiler::step) follows. Its step 0 begins in `build`.
    ///
    /// Each cycle has a trace of its own, which goes to the handler of [`on_trace_ready`](Self::on_trace_ready), else to the
    /// output, with the number of the cycle in its name: `app.3.pt.trace.json` (not if the schedule has one cycle only). What
    /// is recorded of a cycle when the guard is dropped is saved too.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Hands each trace that is ready to a handler instead of saving it as the output: a closure `FnMut(Trace)`, or
    /// [`tensorboard_trace_handler`](crate::tensorboard_trace_handler).
    ///
    /// It runs on the thread that steps, stops or drops the guard, which wait for it as long as it takes. Without a schedule,
    /// it gets what each stop ends. When the process exits without dropping the guard, it gets what is recorded by then, on
    /// the thread that exits.
    pub fn on_trace_ready(mut self, handler: impl TraceHandler + 'static) -> Self {
        self.handler = Some(Box::new(handler));
        self
    }

    /// Names each recording, as it stands in the header under `trace_id`; called when collectors begin for it.
    /// Default: 32 random upper-case hexadecimal digits, as torch; an empty text stands for that.
    pub fn trace_id_callback(mut self, name: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.habits.trace_id = Some(Arc::new(name));
        self
    }

    /// Keeps the trace of each cycle, for [`Profiler::traces`](crate::Profiler::traces). Default: false.
    ///
    /// They share the buffer limit with what is recorded next.
    pub fn acc_events(mut self, on: bool) -> Self {
        self.habits.accumulates = on;
        self
    }

    /// Refuses to save a trace a second time, as torch does. Default: false.
    pub fn strict(mut self, on: bool) -> Self {
        self.habits.is_strict = on;
        self
    }

    /// The least severity of messages about the profiler itself. Default: `KINETO_LOG_LEVEL`, else warnings.
    pub fn log_level(mut self, level: Severity) -> Self {
        self.overrides.log_level = Some(level);
        self
    }

    /// Sends messages about the profiler itself there instead of to stderr.
    pub fn log_sink(mut self, sink: LogSink) -> Self {
        self.log_sink = Some(sink);
        self
    }

    /// Returns the table of all switches in Markdown, as README has it; a program may show it in its help.
    pub fn reference() -> String {
        Config::reference()
    }

    /// Makes the layer and its guard, and starts to record unless told otherwise.
    ///
    /// # Errors
    /// If a setting has a value that cannot be used (the message names it and says what would do), the configuration
    /// file that was named cannot be read, or the platform cannot do what was asked for.
    pub fn build(self) -> Result<(KinetoLayer, KinetoGuard), Error> {
        if let Some(sink) = &self.log_sink {
            diag::DOOR.set_sink(Some(sink.clone()));
        }
        let env = self.env.unwrap_or_else(Env::process);
        let mut warnings = Vec::new();
        let resolved = Config::resolve(&self.overrides, &env, &mut warnings);
        if let Ok(config) = &resolved {
            config.apply_log_level();
        }
        config::report(&warnings);
        let mut config = resolved?;
        if self.waits {
            config.wait_for_requests();
        }
        let rules = Rules {
            selected: config.activities,
            filter: config.filter.clone(),
            classifier: self.classifier,
            annotation_targets: self.annotation_targets,
            with_args: config.with_args,
            denied_fields: config.deny_fields.clone(),
            events: config.events.into_level(),
        };
        let settings = Settings {
            field_bytes_max: config.field_limit_bytes,
            fields_while_idle: config.fields_while_idle,
            records: config.mode.records(),
        };
        let mut observers = self.observers;
        if config.mode.contains(Mode::Nvtx) {
            observers.push(Arc::new(Nvtx::new(config.nvtx_injection.clone())));
        }
        #[cfg(feature = "itt")]
        if config.mode.contains(Mode::Itt) {
            observers.push(Arc::new(Itt::new(config.itt_domain.clone())));
        }
        let observers = Observers::new(observers);
        let recorder = Arc::new(Recorder::new(config.buffer_limit_bytes, Sites::new(rules), observers, settings));
        if config.with_memory && !recorder.listen() {
            let why = "too many layers record memory already; drop one of them first";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let mut sinks = Sinks::default();
        for (scheme, sink) in self.sinks {
            if sinks.register(&scheme, sink)? {
                diag!(Warning, "config", "a second sink for {scheme}:// takes the place of the first");
            }
        }
        fork::watch(home::forget_lane);
        let record = config.record_from_start;
        if config.flush_on_sigterm {
            signal::flush_on_sigterm(session::at_exit)?;
        }
        let collectors = collectors(&config, self.timer, self.collectors);
        let session = Session::new(recorder.clone(), config, sinks, collectors);
        self.post_process.into_iter().for_each(|edit| session.set_post_process(edit));
        session.with_metadata(|metadata| {
            self.metadata.iter().for_each(|(key, value)| metadata.add(key, value));
            self.metadata_json.iter().try_for_each(|(key, json)| metadata.add_json(key, json))
        })??;
        session.steps.configure(self.schedule, self.handler, self.habits)?;
        if record {
            session.begin()?;
        }
        session::register(&session);
        Ok((KinetoLayer::new(recorder), KinetoGuard::new(session)))
    }
}

/// The collectors that this crate has, but for those that are switched off, and the program's own.
fn collectors(config: &Config, timer: Option<Arc<dyn Collector>>, own: Vec<Arc<dyn Collector>>) -> CollectorSet {
    let gpu = &config.gpu;
    if gpu.pm_sampling {
        diag!(
            Warning,
            "config",
            "CUPTI_PM_SAMPLING_METRICS and CUPTI_PM_SAMPLING_DEVICE_ID change nothing: hardware counters are not \
             sampled, so the trace has no rows of `hardware_counters`; sample them beside it with DCGM (`dcgmi dmon -e \
             1002,1003,1005`) or in a run of its own with `nsys profile --gpu-metrics-devices=all`"
        );
    }
    let mut collectors: Vec<Arc<dyn Collector>> = Vec::new();
    let mut off = Vec::new();
    let mut not = |name, why: &str, advice: &str| off.push((name, Unavailable::new(Why::Disabled, why, advice)));
    if config.mode.contains(Mode::KinetoGpuFallback) {
        not("cupti", "the mode is kineto_gpu_fallback", "use the mode kineto");
        collectors.push(Arc::new(EventTimers::new(CudaEvents::new())));
    } else if config.mode.contains(Mode::KinetoPrivateUse1Fallback) {
        not("cupti", "the mode is kineto_privateuse1_fallback", "use the mode kineto");
        match timer {
            Some(timer) => collectors.push(Arc::new(Contained::new(timer))),
            None => not("timers", "the program has no timer for this mode", "use KinetoLayerBuilder::device_timer"),
        }
    } else if gpu.cupti {
        collectors.push(Arc::new(Cupti::new(gpu.places.clone())));
    } else {
        not("cupti", "switched off by DISABLE_CUPTI", "");
    }
    collectors.extend(own.into_iter().map(|own| Arc::new(Contained::new(own)) as Arc<dyn Collector>));
    CollectorSet::new(collectors, off)
}

impl fmt::Debug for KinetoLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinetoLayerBuilder").field("overrides", &self.overrides).finish_non_exhaustive()
    }
}
