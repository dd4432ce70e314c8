//! Says how to record, and makes the layer and its guard.

use crate::activity::{ActivityType, ActivityTypes, DeviceType, RecordScope};
use crate::callsite::{Classifier, Rules, Sites};
use crate::collector::{
    self, Collector, CollectorSet, Contained, CudaEvents, Cupti, DeviceTimer, EventTimers, Unavailable, Why,
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
use crate::recorder::{Companions, Recorder, Settings, ThreadFilter, no_stacks};
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
    scopes: Vec<RecordScope>,
    threads: ThreadFilter,
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

    /// Says of each operation which modules it is in, as torch's `with_modules`: `Module Hierarchy`, made of the fields
    /// `module` of the spans around it, the outermost first, with a dot between. Default: false.
    ///
    /// The spans around are its parents, whichever threads they run on. A span that has a `module_hierarchy` keeps that;
    /// backward operations (by `fwd_thread` or `record_scope`) have none.
    ///
    /// ```
    /// # use tracing_kineto::KinetoLayer;
    /// # use tracing_subscriber::prelude::*;
    /// let (layer, guard) = KinetoLayer::builder().no_output().with_modules(true).build()?;
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    ///     let _model = tracing::info_span!("forward", module = "Mlp").entered();
    ///     let _layer = tracing::info_span!("forward", module = "Linear_0").entered();
    ///     tracing::info_span!("matmul").in_scope(|| ());
    /// });
    /// let events = guard.finish()?.events();
    /// let matmul = events.iter().find(|event| event.name() == "matmul").expect("it was recorded");
    /// assert!(matmul.module_hierarchy().eq(["Mlp", "Linear_0"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_modules(mut self, on: bool) -> Self {
        self.overrides.with_modules = Some(on);
        self
    }

    /// Shows an operation as `name.overload`, as torch's `capture_overload_names`, where its span has a field
    /// `overload_name`. Default: false; then it is an argument alone. It is one either way.
    pub fn capture_overload_names(mut self, on: bool) -> Self {
        self.overrides.overload_names = Some(on);
        self
    }

    /// Draws arrows (`fwdbwd`) from forward operations to their backward operations, as torch unless
    /// `_set_fwd_bwd_enabled(False)`. Default: true.
    ///
    /// Both have the same field `seq`, from 0 up, such as the number of the node that automatic differentiation makes of the
    /// forward operation. The backward one also has `fwd_thread`, the thread that the forward one ran on: what
    /// [`thread_id`](crate::thread_id) returned there. Of several forward operations with a number the one that began last
    /// counts, and it has one arrow, to the backward operation that ends first. What a program
    /// [pushes itself](crate::CpuTraceBuilder) is among them unless it has arrows already. Two more rules of torch hold:
    /// without `fwd_thread`, or with 0, it is a forward operation; and a span `autograd::engine::evaluate_function: …` right
    /// around a backward operation (`record_scope` 1) shares its `seq` and `fwd_thread`.
    ///
    /// ```
    /// # use tracing_kineto::{KinetoLayer, thread_id};
    /// # use tracing_subscriber::prelude::*;
    /// # let (layer, guard) = KinetoLayer::builder().no_output().build()?;
    /// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    /// let node = 7;
    /// tracing::info_span!("mm", seq = node).in_scope(|| ());
    /// let forward = thread_id();
    /// // Later, on this thread or another:
    /// tracing::info_span!("MmBackward", seq = node, fwd_thread = forward).in_scope(|| ());
    /// # });
    /// # assert_eq!(guard.finish()?.events().iter().map(|event| event.flows().count()).sum::<usize>(), 2);
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    pub fn fwd_bwd(mut self, on: bool) -> Self {
        self.overrides.fwd_bwd = Some(on);
        self
    }

    /// Adds [`CollectiveComm`](ActivityType::CollectiveComm) to the activities, of which the spans of
    /// [`Collective`](crate::Collective) then are. Default: false, or torch's `TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING`
    /// if that is exactly `1`; then they are operations (`cpu_op`).
    pub fn collective_profiling(mut self, on: bool) -> Self {
        self.overrides.collectives = Some(on);
        self
    }

    /// Records from where each span is entered, as its argument `Call stack`. Default: false.
    ///
    /// Frames are `file(line): function`, the innermost first, joined by `;`; inlined functions are frames too, and what
    /// this crate and `tracing` add is left out. While the program runs, only return addresses are recorded, which
    /// takes about a quarter of a microsecond for each frame of each enter, and 8 bytes. What they are called is found when rows are asked for,
    /// once for each address; that takes the program's debug information (`debug = "line-tables-only"` is enough). A
    /// backward operation has none, as in torch, and a span with a field `call_stack` has what that says.
    ///
    /// Takes the feature `backtrace`; without it, `build` fails.
    pub fn with_stack(mut self, on: bool) -> Self {
        self.overrides.with_stack = Some(on);
        self
    }

    /// The most frames of the stacks of [`with_stack`](Self::with_stack), 1 to 128. Default: 32.
    pub fn stack_frames(mut self, count: usize) -> Self {
        self.overrides.stack_frames = Some(count);
        self
    }

    /// Whose spans have the stacks of [`with_stack`](Self::with_stack), by target and level. Default: all.
    pub fn stack_filter(mut self, filter: Targets) -> Self {
        self.overrides.stack_filter = Some(filter);
        self
    }

    /// Counts these for each thread, and shows how many each slice took, those within included; torch's
    /// `performance_events`. Linux only. Default: none.
    ///
    /// At most 12 of "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses",
    /// "bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles", "cpu-clock", "task-clock",
    /// "page-faults", "context-switches", "cpu-migrations", "minor-faults", "major-faults", "alignment-faults" and
    /// "emulation-faults". What happens in the kernel is not counted, but for switches and migrations. The counters
    /// are read right before the clock at an enter and right after it at an exit: what that takes lies outside of the slice's
    /// time, and what of it is no system call is counted. Each thread takes a file descriptor for each event, up to a
    /// quarter of the process's limit, until it ends.
    ///
    /// What cannot be counted here is left out, with a warning that says why; so do
    /// [`TraceStats::counters`](crate::TraceStats::counters). Where the processor has fewer counters than are asked for, by
    /// whomever, they take turns; counts are scaled then, and the slice's argument `counted` is the share of the time.
    pub fn performance_events(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.overrides.performance_events = Some(names.into_iter().map(Into::into).collect());
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

    /// Records spans of these scopes only; none stands for all, the default, as in torch.
    ///
    /// A span is of the scope that its field `record_scope` names, by torch's number or name, when it is made; else one with a
    /// `fwd_thread` other than 0 is [`BackwardFunction`](RecordScope::BackwardFunction), an annotation, such as
    /// `ProfilerStep#n`, [`UserScope`](RecordScope::UserScope), and everything else [`Function`](RecordScope::Function). What
    /// lies in a span that is left out lies in the one around it. Where no such field is, the callsite is judged, once.
    pub fn record_scopes(mut self, scopes: impl IntoIterator<Item = RecordScope>) -> Self {
        self.scopes = scopes.into_iter().collect();
        self
    }

    /// Records these threads only. Default: [`ThreadFilter::All`].
    ///
    /// Of other threads there are no spans, events or allocations, and observers are told nothing; what they launch on
    /// devices stays in the trace, and belongs to no span. A span that such a thread makes and a recorded one enters is as one
    /// that was made while nothing was recorded ([`fields_while_idle`](Self::fields_while_idle)). What a left-out thread
    /// frees stays alive in a memory timeline.
    pub fn threads(mut self, threads: ThreadFilter) -> Self {
        self.threads = threads;
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

    /// Loads all plugins of that folder: libraries by which other accelerators are recorded. `KINETO_PLUGIN_LIB_DIR_PATH`;
    /// default none.
    ///
    /// A plugin is written against `include/kineto_plugin.h`, in C, or in Rust with [`export_plugin!`](crate::export_plugin).
    /// One that cannot be used is named with the reason by [`Profiler::collectors`](crate::Profiler::collectors) and
    /// in the trace. `KINETO_DISABLE_PLUGINS` loads none.
    pub fn plugins(mut self, folder: impl Into<PathBuf>) -> Self {
        self.overrides.plugins = Some(folder.into());
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

    /// The longest time that a trace may take to put its [events](crate::Trace::events) together; torch's
    /// `post_processing_timeout_s`. Default: none. When it is over, what is there is returned, with a note and a warning. Files
    /// are whole all the same.
    pub fn post_processing_timeout(mut self, limit: Duration) -> Self {
        self.habits.post_processing_timeout = Some(limit);
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
        self.habits.private_use1 = Some(name.into());
        self
    }

    /// Refuses to save a trace a second time, as torch does, and makes it an error of the stop, the step or the save if an
    /// assertion did not hold ([`TraceStats::violations`](crate::TraceStats::violations)), as torch's `softAssertRaises`.
    /// Default: false. What the guard writes when it is dropped it writes all the same.
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
        self.habits.private_use1.as_deref().map_or(Ok(()), check_name)?;
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
            scopes: self.scopes,
            stacks: config.companions.stack_filter.clone(),
        };
        let companions = companions(&config, self.overrides.with_stack == Some(true))?;
        let settings = Settings {
            field_bytes_max: config.field_limit_bytes,
            fields_while_idle: config.fields_while_idle,
            records: config.mode.records(),
            threads: self.threads,
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
        let recorder =
            Arc::new(Recorder::new(config.buffer_limit_bytes, Sites::new(rules), observers, companions, settings));
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

/// Whether a backend may call itself that.
fn check_name(name: &str) -> Result<(), Error> {
    let is_word = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|each| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '_');
    let is_taken = DeviceType::ALL.iter().any(|device| device.as_str().eq_ignore_ascii_case(name));
    if is_word && (!is_taken || name == "privateuse1") {
        return Ok(());
    }
    let why = format!(
        "`private_use1_name({name:?})`: expected a word in lower case that is no other device's name, such as \"npu\""
    );
    Err(Error::new(ErrorKind::Config, why))
}

/// What slices are to have beside their times; `stacks_by_program` if the program itself wants stacks.
fn companions(config: &Config, stacks_by_program: bool) -> Result<Companions, Error> {
    let wanted = &config.companions;
    let mut frames = if wanted.stacks { wanted.stack_frames } else { 0 };
    if let Some(why) = no_stacks().filter(|_| wanted.stacks) {
        if stacks_by_program {
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        diag!(Warning, "config", "{why}");
        frames = 0;
    }
    let events = if config.mode.records() { wanted.performance_events.as_slice() } else { &[] };
    Companions::new(frames, events).map_err(|why| Error::new(ErrorKind::Config, why))
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
    match &gpu.plugin_folder {
        Some(folder) if gpu.plugins => {
            let (plugins, others) = collector::plugins(folder);
            collectors.extend(plugins.into_iter().map(|plugin| Arc::new(plugin) as Arc<dyn Collector>));
            off.extend(others);
        }
        Some(_) => not("plugins", "switched off by DISABLE_PLUGINS", ""),
        None => {}
    }
    collectors.extend(own.into_iter().map(|own| Arc::new(Contained::new(own)) as Arc<dyn Collector>));
    CollectorSet::new(collectors, off)
}

impl fmt::Debug for KinetoLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinetoLayerBuilder").field("overrides", &self.overrides).finish_non_exhaustive()
    }
}
