//! Says how to record, and makes the layer and its guard.

mod devices;
#[cfg(feature = "ondemand")]
mod requests;
mod spans;

use crate::callsite::{Classifier, Rules, Sites};
use crate::collector::Collector;
use crate::config::{
    self, Activation, Config, DistributedInfo, Env, Key, Mode, Modes, Output, Overflow, Overrides, Value,
};
use crate::diag::{self, LogSink, Severity, diag};
use crate::error::{Error, ErrorKind};
use crate::guard::KinetoGuard;
use crate::handler::{TraceHandler, numbered_layer};
use crate::layer::{KinetoLayer, thread_lanes};
#[cfg(feature = "itt")]
use crate::observer::itt::Itt;
use crate::observer::nvtx::Nvtx;
use crate::observer::{Observers, SpanObserver};
use crate::os::{backtrace, fork, platform, signal};
use crate::recorder::{Recorder, RecorderSettings, SliceExtras, ThreadFilter, no_stacks};
use crate::schedule::Schedule;
use crate::session::{self, NamedObserver, OutputClaim, Session, SessionObserver, SessionOptions};
use crate::trace::{EventEdit, PostProcess};
use crate::write::TraceSink;
use crate::write::sink::{OneWriter, Sinks};
use kineto_trace::activity::{ActivityTypes, DeviceType, RecordScope};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Says how to record; made by [`KinetoLayer::builder`].
///
/// What is set here goes before the environment (`KINETO_…`), which goes before the configuration file
/// (`KINETO_CONFIG`), which goes before the defaults. [`reference`](Self::reference) returns the table of all settings.
#[must_use = "call `build` to get a layer"]
#[derive(Default)]
pub struct KinetoLayerBuilder {
    overrides: Overrides,
    metadata: Vec<(String, String)>,
    metadata_json: Vec<(String, String)>,
    classifier: Option<Arc<Classifier>>,
    annotation_targets: Vec<String>,
    scopes: Vec<RecordScope>,
    scope_targets: Vec<(String, RecordScope)>,
    threads: ThreadFilter,
    sinks: Vec<(String, Arc<dyn TraceSink>)>,
    post_process: Option<PostProcess>,
    collectors: Vec<Arc<dyn Collector>>,
    timer: Option<Arc<dyn Collector>>,
    observers: Vec<Arc<dyn SpanObserver>>,
    session_observers: Vec<NamedObserver>,
    schedule: Option<Schedule>,
    handler: Option<Box<dyn TraceHandler>>,
    options: SessionOptions,
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
    /// `KINETO_ACTIVITY_TYPES`, `KINETO_ACTIVITIES`, or a variable that says when or for how long to record
    /// (`KINETO_START_DELAY_MS`, `KINETO_ACTIVITIES_DURATION_MSECS`, …) switch it on. `KINETO_USE_DAEMON` (anything but
    /// nothing, `0`, `false` and `off`) makes a layer that waits for requests from the dynolog daemon, and
    /// `KINETO_TRIGGER_DIR` one that waits for those in a [folder](KinetoLayerBuilder::trigger_folder), as
    /// [`build`](KinetoLayerBuilder::build) does with them; if nothing else is set, of spans of the scopes function, user
    /// scope and backward function.
    ///
    /// When off, the layer is `None`, which changes nothing for other layers, and the guard does nothing; no thread is
    /// started and no library looked for.
    ///
    /// A fault in the environment ends no program: a value that cannot be used is reported and counts as not set, a path that
    /// cannot be written to gives way to the default one. [`try_from_env`](KinetoLayer::try_from_env) returns an error instead.
    ///
    /// # Errors
    /// Those of [`KinetoLayerBuilder::build`]: a configuration file that `KINETO_CONFIG` names cannot be used.
    pub fn from_env() -> Result<(Option<KinetoLayer>, KinetoGuard), Error> {
        let env = Env::process();
        let switch = env.activation_or_default();
        KinetoLayer::switched(env, switch, KinetoLayer::builder())
    }

    /// Makes a layer if the environment asks for one, as [`from_env`](KinetoLayer::from_env) does, but for faults.
    ///
    /// # Errors
    /// If a variable has a value that cannot be used, or names a path that cannot be written to; those of
    /// [`KinetoLayerBuilder::build`].
    pub fn try_from_env() -> Result<(Option<KinetoLayer>, KinetoGuard), Error> {
        let (env, mut builder) = (Env::process(), KinetoLayer::builder());
        builder.overrides.is_env_strict = true;
        let switch = env.activation()?;
        KinetoLayer::switched(env, switch, builder)
    }

    fn switched(
        env: Env,
        switch: Activation,
        mut builder: KinetoLayerBuilder,
    ) -> Result<(Option<KinetoLayer>, KinetoGuard), Error> {
        match switch {
            Activation::Off => {
                config::report_unknown_variables(&env, env.unused());
                if let Err(why) = env.activation() {
                    config::report(&[why.to_string()]);
                }
                return Ok((None, KinetoGuard::inert()));
            }
            Activation::Idle => {
                builder.waits = true;
                // As torch has it where it waits for requests.
                builder.scopes = vec![RecordScope::Function, RecordScope::UserScope, RecordScope::BackwardFunction];
            }
            Activation::On => {}
        }
        builder.env = Some(env);
        builder.build().map(|(layer, guard)| (Some(layer), guard))
    }
}

impl KinetoLayerBuilder {
    /// Writes the trace to that path when the guard is dropped: Kineto's JSON, or Perfetto's own format for `.pftrace`; each
    /// also with `.gz`. Nothing is spliced into the path; a
    /// relative one is resolved by `build`, which fails if the file cannot be created, if its format is not supported, or if
    /// another layer of this process has that output and its guard lives.
    ///
    /// In the path, `{host}`, `{pid}`, `{rank}` (0 if the process has none) and `{time}` (`20261123T143000Z`, when the file is
    /// written) stand for those of the process.
    ///
    /// Default: `KINETO_ACTIVITIES_LOG_FILE` with the process id spliced in, else
    /// `/tmp/libkineto_activities_<pid>.json`, as libkineto; a second layer's file has a number in its name.
    pub fn output(mut self, path: impl Into<PathBuf>) -> Self {
        self.overrides.set(Key::LogFile, Output::Exact(path.into()));
        self
    }

    /// Writes nothing when the guard is dropped: traces are had from [`Profiler::stop`](crate::Profiler::stop).
    pub fn no_output(mut self) -> Self {
        self.overrides.set(Key::LogFile, Output::Nowhere);
        self
    }

    /// Records only activities of these types. Default: [`ActivityTypes::DEFAULT`], libkineto's.
    pub fn activities(mut self, types: impl Into<ActivityTypes>) -> Self {
        let types: ActivityTypes = types.into();
        self.overrides.set(Key::ActivityTypes, types);
        self
    }

    /// The most bytes that records may take, those in traces included. Default: 512 MiB.
    pub fn buffer_limit_bytes(mut self, bytes: u64) -> Self {
        self.overrides.set(Key::BufferLimit, Value::Bytes(bytes));
        self
    }

    /// Says what happens at the buffer limit. Default: [`Overflow::Stop`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overrides.set(Key::Overflow, overflow);
        self
    }

    /// The longest time without progress that dropping the guard, or the end of a cycle, waits for the file. Default: 5 s.
    ///
    /// At the end of the process, by `exit` or a signal, it is the longest time in all, for all files together: one that takes
    /// longer is closed before, with what is in it by then, and says so under `tracing_kineto_incomplete`. Files are waited for
    /// at least a second, however short the time is.
    ///
    /// Where devices are recorded, a stop waits before that, as long at most, for what was launched to end.
    pub fn flush_timeout(mut self, timeout: Duration) -> Self {
        self.overrides.set(Key::FlushTimeout, timeout);
        self
    }

    /// Starts recording in `build`. Default: true; else [`Profiler::start`](crate::Profiler::start) does.
    pub fn record_from_start(mut self, on: bool) -> Self {
        self.overrides.set(Key::RecordFromStart, on);
        self
    }

    /// Writes the trace when SIGINT, SIGTERM or SIGHUP comes, before it ends the process. Default: true.
    ///
    /// Only where the signal would end the process: one that is ignored stays ignored, and a handler of the program's own,
    /// installed before or after `build`, keeps control. A second signal ends the process at once. Unix.
    pub fn flush_on_signals(mut self, on: bool) -> Self {
        self.overrides.set(Key::FlushOnSignals, on);
        self
    }

    /// Compression of `.gz` files, 0 to 9. Default: 1.
    pub fn gzip_level(mut self, level: u32) -> Self {
        self.overrides.set(Key::GzipLevel, level);
        self
    }

    /// Writes an execution trace (Chakra) beside the trace, wherever that is written by itself: `app.et.json` for
    /// `app.pt.trace.json`. Default: false, or torch's `ENABLE_PYTORCH_EXECUTION_TRACE`.
    ///
    /// See [`Trace::save_execution_trace`](crate::Trace::save_execution_trace), which a handler of traces may call by itself.
    /// With it, the slices of the trace have a "Record function id", by which tools join the two files.
    pub fn execution_trace(mut self, on: bool) -> Self {
        self.overrides.set(Key::ExecutionTrace, on);
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
        self.overrides.set_config_file(path.into());
        self
    }

    /// Sends `save("scheme://…")` to a handler, as kineto's logger factories do.
    pub fn sink(mut self, scheme: impl Into<String>, sink: impl TraceSink + 'static) -> Self {
        self.sinks.push((scheme.into(), Arc::new(sink)));
        self
    }

    /// Writes the trace to `writer` as JSON, in place of a file.
    ///
    /// It takes one trace and is dropped then: the first that is saved by itself, as at the guard's end. A further one is an
    /// error, which is reported. For several traces, use [`sink`](Self::sink) or
    /// [`on_trace_ready`](Self::on_trace_ready).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let socket = std::net::TcpStream::connect("collector:4000")?;
    /// let (layer, _guard) = tracing_kineto::KinetoLayer::builder().writer(socket).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn writer(self, writer: impl Write + Send + 'static) -> Self {
        self.sink(OneWriter::SCHEME, OneWriter::new(writer)).output(OneWriter::URL)
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

    /// Says what becomes of spans: one [`Mode`], or several joined by `|`. Default: [`Mode::Kineto`].
    pub fn mode(mut self, mode: impl Into<Modes>) -> Self {
        let modes: Modes = mode.into();
        self.overrides.set(Key::Mode, modes);
        self
    }

    /// The domain of ITT's tasks. Default: "tracing-kineto"; torch's is "PyTorch". Without the feature `itt`, nobody asks.
    pub fn itt_domain(mut self, name: impl Into<String>) -> Self {
        let name: String = name.into();
        self.overrides.set(Key::IttDomain, name);
        self
    }

    /// Tells that observer of spans as they happen; may be called more than once.
    pub fn observer(mut self, observer: impl SpanObserver + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Tells that observer what happens to recordings, and what each is asked for; may be called more than once.
    ///
    /// None is told anything in [`Mode::Disabled`].
    pub fn session_observer(mut self, observer: impl SessionObserver + 'static) -> Self {
        self.session_observers.push(NamedObserver::new(observer));
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
        self.options.trace_id = Some(Arc::new(name));
        self
    }

    /// Keeps the trace of each cycle, for [`Profiler::traces`](crate::Profiler::traces). Default: false.
    ///
    /// They share the buffer limit with what is recorded next.
    pub fn acc_events(mut self, on: bool) -> Self {
        self.options.accumulates = on;
        self
    }

    /// The longest time that a trace may take to put its [events](crate::Trace::events) together; torch's
    /// `post_processing_timeout_s`. Default: none. When it is over, what is there is returned, with a note and a warning. Files
    /// are whole all the same.
    #[cfg(feature = "analysis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "analysis")))]
    pub fn post_processing_timeout(mut self, limit: Duration) -> Self {
        self.options.post_processing_timeout = Some(limit);
        self
    }

    /// Refuses to save a trace a second time, as torch does, and makes it an error of the stop, the step or the save if an
    /// assertion did not hold ([`TraceStats::violations`](crate::TraceStats::violations)), as torch's `softAssertRaises`.
    /// Default: false. What the guard writes when it is dropped it writes all the same.
    pub fn strict(mut self, on: bool) -> Self {
        self.options.is_strict = on;
        self
    }

    /// The least severity of messages about the profiler itself. Default: `KINETO_LOG_LEVEL`, else warnings.
    pub fn log_level(mut self, level: Severity) -> Self {
        self.overrides.set(Key::LogLevel, level);
        self
    }

    /// Sends messages about the profiler itself there instead of to stderr.
    pub fn log_sink(mut self, sink: LogSink) -> Self {
        self.log_sink = Some(sink);
        self
    }

    /// Returns the table of all settings in Markdown, for a program's help.
    pub fn reference() -> String {
        Config::reference()
    }

    /// Makes the layer and its guard, and starts to record unless told otherwise.
    ///
    /// With `KINETO_USE_DAEMON` in the environment, requests from the dynolog daemon are recorded (Linux), with a
    /// [`trigger_folder`](Self::trigger_folder) those that come as files; and nothing else unless there is a [`schedule`](Self::schedule) or somebody says to
    /// [`record_from_start`](Self::record_from_start). What the program starts itself goes before a request: one that
    /// is being recorded then is thrown away. Of several layers, the first that lives serves requests.
    ///
    /// Environment and file may say when to record instead (Linux): `START_DELAY_MS` after this call,
    /// `ACTIVITIES_DURATION_MSECS` long or to the program's end, and again every `START_PERIOD_MS`; or
    /// `ACTIVITIES_ITERATIONS` from `PROFILE_START_ITERATION` on. Each such recording goes to the output as soon as it ends
    /// (libkineto's default file if there is none), with its number in the name if there are several. It makes way for what
    /// the program starts itself, as a request does, and what of that is left to the guard goes to the same output, over one
    /// without a number. With a [`schedule`](Self::schedule) there is none.
    ///
    /// In WebAssembly, nothing that was set is checked, and neither layer nor guard does anything; see
    /// [platforms](crate#platforms-and-compilers).
    ///
    /// # Errors
    /// If a setting has a value that cannot be used (the message names it and says what would do), the output cannot be
    /// created, the handler cannot take traces, the configuration file that was named cannot be read, or the platform cannot do
    /// what was asked for.
    pub fn build(self) -> Result<(KinetoLayer, KinetoGuard), Error> {
        if platform::CAN_RECORD { self.assemble() } else { Ok((KinetoLayer::inert(), KinetoGuard::inert())) }
    }

    /// Makes the layer and its guard where the platform can record.
    fn assemble(mut self) -> Result<(KinetoLayer, KinetoGuard), Error> {
        if let Some(sink) = &self.log_sink {
            diag::LOGGER.set_sink(Some(sink.clone()));
        }
        let env = self.env.unwrap_or_else(Env::process);
        diag::LOGGER.set_plain(env.value("NO_COLOR").is_some_and(|text| !text.is_empty()));
        let mut warnings = Vec::new();
        let resolved = Config::resolve(&self.overrides, &env, &mut warnings);
        if let Ok(config) = &resolved {
            config.apply_log_settings();
        }
        config::report_unknown_variables(&env, None);
        config::report(&warnings);
        let mut config = resolved?;
        let (sinks, is_strict) = (sinks(self.sinks)?, self.overrides.is_env_strict);
        let claim = settle_output(&mut config, &sinks, is_strict, self.handler.is_some())?;
        self.options.private_use1.as_deref().map_or(Ok(()), check_name)?;
        self.handler.as_mut().map_or(Ok(()), |handler| handler.prepare())?;
        let serves = config.resolve_start(self.waits, self.schedule.is_some());
        let rules = Rules {
            selected: config.activities,
            filter: config.filter.clone(),
            classifier: self.classifier,
            annotation_targets: self.annotation_targets,
            with_args: config.with_args,
            denied_fields: config.deny_fields.clone(),
            events: config.events.into_level(),
            scopes: self.scopes,
            scope_targets: self.scope_targets,
            stacks: config.slice_extras.stack_filter.clone(),
        };
        let companions = companions(&config, self.overrides.is_on(Key::WithStack), is_strict)?;
        let settings = RecorderSettings {
            field_bytes_max: config.field_limit_bytes,
            fields_while_idle: config.fields_while_idle,
            records: config.mode.records(),
            threads: self.threads,
        };
        let observers = observers(&config, self.observers);
        let recorder =
            Arc::new(Recorder::new(config.buffer_limit_bytes, Sites::new(rules), observers, companions, settings));
        // A request may ask for what the layer does not record otherwise, and goes without if that cannot be.
        let listens = (config.flags.profile_memory || serves) && recorder.claim_listener_slot();
        if config.flags.profile_memory && !listens {
            let why = "too many layers record memory already; drop one of them first";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        fork::watch(thread_lanes::forget_lane);
        let record = config.record_from_start;
        if config.flush_on_signals {
            signal::watch();
        }
        let collectors = devices::collectors(&config, self.timer, self.collectors);
        let session = Session::new(recorder.clone(), config, sinks, collectors);
        self.post_process.into_iter().for_each(|edit| session.set_post_process(edit));
        session.set_claim(claim);
        session.set_observers(self.session_observers);
        session.with_metadata(|metadata| {
            self.metadata.iter().for_each(|(key, value)| metadata.add(key, value));
            self.metadata_json.iter().try_for_each(|(key, json)| metadata.add_json(key, json))
        })??;
        session.steps.configure(self.schedule, self.handler, self.options)?;
        if record {
            session.begin_schedule()?;
            // A signal before the first record must report why there is no trace.
            signal::expect();
            signal::serve(session::at_exit);
        }
        session::register(&session);
        #[cfg(feature = "ondemand")]
        serves.then(|| requests::serve(&session));
        Ok((KinetoLayer::new(recorder), KinetoGuard::new(session)))
    }
}

/// Settles where traces go, and claims the output if it is a file.
fn settle_output(
    config: &mut Config,
    sinks: &Sinks,
    is_strict: bool,
    has_handler: bool,
) -> Result<Option<OutputClaim>, Error> {
    let mut warnings = Vec::new();
    config.settle_output(|path| sinks.check(path), is_strict, &mut warnings)?;
    // A handler takes the place of the default output.
    let is_written = !has_handler || config.output != Output::Default;
    let claim = |path: &Path| if Sinks::is_file(path) { OutputClaim::take(path).map(Some) } else { Some(None) };
    let claim = if is_written { config.claim_output(claim, numbered_layer, &mut warnings)?.flatten() } else { None };
    config::report(&warnings);
    config.output.path(&config.name_placeholders()).iter().for_each(|output| report_abandoned(output));
    Ok(claim)
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

/// Says which files of before were left unfinished where the output goes.
fn report_abandoned(output: &Path) {
    const SHOWN: usize = 3;
    let files = Sinks::abandoned(output);
    if let Some(more) = files.len().checked_sub(1) {
        let names: Vec<_> = files.iter().take(SHOWN).map(|path| path.display().to_string()).collect();
        let more = if more < SHOWN { String::new() } else { format!(" and {} more", files.len() - SHOWN) };
        diag!(
            Warning,
            "trace",
            "unfinished traces of processes that have ended: {}{more}; delete them",
            names.join(", ")
        );
    }
}

/// Who takes what is saved to URLs, by scheme.
fn sinks(given: Vec<(String, Arc<dyn TraceSink>)>) -> Result<Sinks, Error> {
    let mut sinks = Sinks::default();
    for (scheme, sink) in given {
        if sinks.register(&scheme, sink)? {
            diag!(Warning, "config", "a second sink for {scheme}:// replaces the first; register one for each scheme");
        }
    }
    Ok(sinks)
}

/// Who is told of spans: as the mode says, and the program's own.
fn observers(config: &Config, mut own: Vec<Arc<dyn SpanObserver>>) -> Observers {
    if config.mode.contains(Mode::Nvtx) {
        own.push(Arc::new(Nvtx::new(config.gpu.options.path("NVTX_INJECTION64_PATH"))));
    }
    #[cfg(feature = "itt")]
    if config.mode.contains(Mode::Itt) {
        own.push(Arc::new(Itt::new(config.itt_domain.clone())));
    }
    Observers::new(own)
}

/// What slices are to have beside their times; `stacks_by_program` if the program itself wants stacks.
fn companions(config: &Config, stacks_by_program: bool, is_strict: bool) -> Result<SliceExtras, Error> {
    let (wanted, with_stack) = (&config.slice_extras, config.flags.with_stack);
    let frames =
        if with_stack { stack_frames(wanted.stack_frames, stacks_by_program, backtrace::IS_THERE)? } else { 0 };
    let events = if config.mode.records() { wanted.performance_events.as_slice() } else { &[] };
    let companions = SliceExtras::new(frames, events);
    match &companions {
        Err(why) if config.has_counters_from_env() && !is_strict => {
            diag!(Warning, "config", "{why}; nothing is counted");
            SliceExtras::new(frames, &[])
        }
        _ => companions,
    }
    .map_err(|why| Error::new(ErrorKind::Config, why))
}

/// Returns how many frames a call stack has: none where the feature is missing, which is an error if the program itself
/// asks for stacks.
fn stack_frames(wanted: usize, by_program: bool, has_feature: bool) -> Result<usize, Error> {
    match no_stacks(has_feature) {
        None => Ok(wanted),
        Some(why) if by_program => Err(Error::new(ErrorKind::Unsupported, why)),
        Some(why) => {
            diag!(Warning, "config", "{why}");
            Ok(0)
        }
    }
}

impl fmt::Debug for KinetoLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KinetoLayerBuilder ")?;
        f.debug_map().entries(self.overrides.values().map(|(key, value)| (key.spec().name, value))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ParsedRequest;
    use crate::trace::Trace;
    use std::time::{SystemTime, UNIX_EPOCH};
    use tracing::field::Empty;
    use tracing_subscriber::prelude::*;

    /// So many slices do not fit into a chunk.
    const FILL: u64 = 3000;

    /// Records spans and events before, between and behind two times; `None` if that took longer than there was time for.
    fn record(session: &Session, ticket: u64) -> Option<(Trace, [SystemTime; 2])> {
        let [from, until] = [80, 160].map(|ahead| SystemTime::now() + Duration::from_millis(ahead));
        let settings = || session.settings_for(&ParsedRequest::parse("").unwrap(), "/tmp/none.json".into()).0;
        session.start_for(ticket, Some((from, until)), settings).unwrap();
        let is_before = |time: SystemTime| SystemTime::now() + Duration::from_millis(2) < time;
        let wait_for = |time: SystemTime| {
            while SystemTime::now() < time + Duration::from_millis(2) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        tracing::info_span!("before").in_scope(|| tracing::info!("an event before"));
        let around = tracing::info_span!("around", field = 7).entered();
        let ends_inside = tracing::info_span!("ends inside").entered();
        let mut is_in_time = is_before(from);
        wait_for(from);
        drop(ends_inside);
        tracing::info_span!("inside").in_scope(|| tracing::info!("an event inside"));
        let polled = tracing::info_span!("polled");
        polled.in_scope(|| ());
        polled.in_scope(|| ());
        let ends_behind = tracing::info_span!("ends behind", value = Empty).entered();
        // Its end is a record of its own: the chunk in which it began is full.
        (0..FILL).for_each(|_| tracing::info_span!("fill").in_scope(|| ()));
        is_in_time &= is_before(until);
        wait_for(until);
        ends_behind.record("value", 7);
        drop(ends_behind);
        polled.in_scope(|| ());
        drop(polled);
        tracing::info_span!("behind").in_scope(|| tracing::info!("an event behind"));
        drop(around);
        let trace = session.stop_for(ticket).unwrap();
        is_in_time.then_some((trace, [from, until]))
    }

    #[test]
    #[cfg_attr(miri, ignore = "waits for the real clock")]
    fn a_recording_between_two_times_has_what_lies_between_them() {
        let builder = KinetoLayerBuilder::default().no_output().record_from_start(false);
        let (layer, guard) = builder.events(tracing::Level::INFO).build().unwrap();
        let session = guard.profiler().session().unwrap().clone();
        let (trace, times) = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (1..100).find_map(|ticket| record(&session, ticket)).unwrap()
        });
        let mut rows = Vec::new();
        trace.for_each(|row| {
            let mut args = Vec::new();
            row.args.visit(&mut |key, _| args.push(key.to_owned()));
            let is_said = ["field", "value", "clipped", "finished"].map(|key| args.iter().any(|arg| arg == key));
            rows.push((row.name.to_owned(), is_said));
        });
        rows.retain(|(name, _)| name != "fill");
        rows.sort();
        let expected = [
            ("an event inside", [false, false, false, false]),
            ("around", [true, false, true, true]),
            ("ends behind", [false, false, false, true]),
            ("ends inside", [false, false, true, false]),
            ("inside", [false, false, false, false]),
            ("polled", [false, false, false, false]),
            ("polled", [false, false, false, false]),
        ];
        assert_eq!(rows, expected.map(|(name, said)| (name.to_owned(), said)));
        let (start, end) = trace.window();
        for (found, said) in [start, end].into_iter().zip(times) {
            let said = u64::try_from(said.duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
            assert!(found.as_nanos().abs_diff(said) <= 1, "{found:?} {said}");
        }
        let stats = trace.stats();
        let losses: Vec<_> = stats.losses.iter().map(|(loss, count)| (loss.as_str(), *count)).collect();
        assert_eq!((stats.slices, stats.events), (6 + FILL, 1));
        assert_eq!(losses, [("clipped_slices", 2), ("unfinished_slices", 2)]);
        // Of times that have passed, nothing is cut.
        session.start_for(100, Some((times[0], times[1])), Config::default).unwrap();
        let (start, end) = session.stop_for(100).unwrap().window();
        assert!(start > times[1].into() && end > start, "{start:?} {end:?}");
        drop(guard);
    }

    #[test]
    fn without_the_feature_asking_for_stacks_is_an_error() {
        let error = stack_frames(32, true, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("the feature `backtrace`"), "{error}");
        assert_eq!(stack_frames(32, false, false).unwrap(), 0, "the environment asks for them");
        assert_eq!(stack_frames(32, true, true).unwrap(), 32);
    }
}
