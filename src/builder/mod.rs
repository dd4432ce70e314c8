//! The builder: settings, and the construction of the layer and its guard.

#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "no_devices.rs"]
mod devices;
mod dumps;
mod left;
#[cfg(feature = "metrics")]
mod metrics;
mod output;
mod overflow;
#[cfg(feature = "ondemand")]
mod requests;
mod spans;
#[cfg(feature = "segments")]
mod spill;
#[cfg(not(feature = "segments"))]
#[path = "no_spill.rs"]
mod spill;
mod torch;

#[cfg(feature = "devices")]
pub use devices::Devices;
pub use dumps::Dumps;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use spans::{Fields, Stacks};
#[cfg(feature = "segments")]
pub use spill::Spill;
pub use torch::TorchOptions;

use crate::callsite::{Rules, Sites};
use crate::config::{self, Activation, Config, Env, Key, Mode, Output, Overflow, Overrides, SourceSettings, Value};
use crate::diag::{self, LogSink, Severity, diag};
use crate::error::{Error, ErrorKind};
use crate::guard::KinetoGuard;
use crate::handler::{TraceHandler, numbered_layer};
use crate::layer::{KinetoLayer, thread_lanes};
#[cfg(feature = "itt")]
use crate::observer::itt::Itt;
use crate::observer::nvtx::Nvtx;
use crate::observer::{Observers, SpanObserver};
use crate::os::{backtrace, fork, platform, process, signal};
use crate::recorder::{Recorder, RecorderSettings, SliceExtras, ThreadFilter, no_stacks};
use crate::schedule::Schedule;
use crate::session::{self, NamedObserver, OutputClaim, Session, SessionObserver, SessionOptions};
use crate::write::TraceSink;
use crate::write::sink::Sinks;
use devices::OwnCollectors;
use kineto_model::activity::DeviceType;
use kineto_model::activity::RecordScope;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Configures a recording; created by [`KinetoLayer::builder`].
///
/// Its settings override the environment (`KINETO_…`), which overrides the configuration file (`KINETO_CONFIG`), which
/// overrides the defaults. [`reference`](Self::reference) returns the table of all settings. Topics that few programs need
/// have a type of their own:
///
/// | Topic | Method | Settings |
/// |---|---|---|
/// | fields of spans and events | [`fields`](Self::fields) | [`Fields`] |
/// | call stacks of spans | [`with_stack`](Self::with_stack) | [`Stacks`] |
/// | GPUs and other devices | [`devices`](Self::devices) | [`Devices`] |
/// | hardware counters of GPUs | `metrics` | `Metrics`, with the feature `metrics` |
/// | dumps of the newest records | [`dumps`](Self::dumps) | [`Dumps`] |
/// | recordings that do not fit into memory | [`spill`](Self::spill) | [`Spill`] |
/// | torch.profiler's settings | [`torch`](Self::torch) | [`TorchOptions`] |
///
/// ```
/// use std::time::Duration;
/// use tracing_kineto::{DumpTrigger, Dumps, Fields, KinetoLayer, Overflow};
///
/// # fn main() -> Result<(), tracing_kineto::Error> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let output = folder.path().join("app.pt.trace.json.gz");
/// let slow = DumpTrigger::slow_span("request", Duration::from_millis(250));
/// let (layer, _guard) = KinetoLayer::builder()
///     .output(output)
///     .overflow(Overflow::KeepNewest)
///     .dumps(Dumps::on([slow, DumpTrigger::Panic]).keep(10, 256 << 20))
///     .fields(Fields::new().deny(["password"]))
///     .build()?;
/// # drop(layer);
/// # Ok(())
/// # }
/// ```
#[must_use = "call `build` to get a layer"]
#[derive(Default)]
pub struct KinetoLayerBuilder {
    overrides: Overrides,
    metadata: Vec<(String, String)>,
    metadata_json: Vec<(String, String)>,
    /// Those that no key sets.
    rules: Rules,
    threads: ThreadFilter,
    sinks: Vec<(String, Arc<dyn TraceSink>)>,
    collectors: OwnCollectors,
    observers: Vec<Arc<dyn SpanObserver>>,
    session_observers: Vec<NamedObserver>,
    schedule: Option<Schedule>,
    handler: Option<Box<dyn TraceHandler>>,
    options: SessionOptions,
    log_sink: Option<LogSink>,
    /// Whether the output may have any extension, as in tracing-chrome.
    accepts_any_extension: bool,
    env: Option<Env>,
    /// Whether only external requests start a recording.
    waits: bool,
}

impl KinetoLayer {
    /// Returns a builder with default settings.
    pub fn builder() -> KinetoLayerBuilder {
        KinetoLayerBuilder::default()
    }

    /// Creates a layer if the environment enables it, so that a shipped program can be profiled without a code change.
    ///
    /// - `KINETO_ENABLED` decides.
    /// - If it is not set, any of these enables the layer: `KINETO_CONFIG`, `KINETO_ACTIVITIES_LOG_FILE`,
    ///   `KINETO_ACTIVITY_TYPES`, `KINETO_ACTIVITIES`, `KINETO_DUMP_ON`, or a variable that sets when or for how long to record
    ///   (`KINETO_START_DELAY_MS`, `KINETO_ACTIVITIES_DURATION_MSECS`, …).
    /// - `KINETO_USE_DAEMON` (unless empty, `0`, `false` or `off`) creates a layer that waits for requests from the dynolog
    ///   daemon, and `KINETO_TRIGGER_DIR` one that waits for requests in a [folder](KinetoLayerBuilder::trigger_folder), as
    ///   [`build`](KinetoLayerBuilder::build) does with them. If no other variable is set, such a layer records spans of the
    ///   scopes function, user scope and backward function.
    ///
    /// If disabled, the layer is `None`, which has no effect on other layers, and the guard does nothing; no thread is
    /// started and no library is searched for.
    ///
    /// An error in the environment does not end the program: an invalid value is reported and ignored, and an unwritable path
    /// is replaced by the default. [`try_from_env`](KinetoLayer::try_from_env) returns an error instead.
    ///
    /// # Errors
    /// Those of [`KinetoLayerBuilder::build`], for example if the configuration file that `KINETO_CONFIG` names is unusable.
    pub fn from_env() -> Result<(Option<KinetoLayer>, KinetoGuard), Error> {
        let env = Env::from_process();
        let switch = env.activation_or_default();
        KinetoLayer::build_for_activation(env, switch, KinetoLayer::builder())
    }

    /// Creates a layer if the environment enables it, like [`from_env`](KinetoLayer::from_env), but returns errors.
    ///
    /// # Errors
    /// If a variable has an invalid value or names an unwritable path; those of [`KinetoLayerBuilder::build`].
    pub fn try_from_env() -> Result<(Option<KinetoLayer>, KinetoGuard), Error> {
        let (env, mut builder) = (Env::from_process(), KinetoLayer::builder());
        builder.overrides.is_env_strict = true;
        let switch = env.activation()?;
        KinetoLayer::build_for_activation(env, switch, builder)
    }

    fn build_for_activation(
        env: Env,
        switch: Activation,
        mut builder: KinetoLayerBuilder,
    ) -> Result<(Option<KinetoLayer>, KinetoGuard), Error> {
        match switch {
            Activation::Off => {
                config::report_unknown_variables(&env, env.not_enabled_warning());
                if Env::is_withheld() {
                    config::report_untrusted_caller();
                }
                if let Err(why) = env.activation() {
                    config::report_warnings(&[why.to_string()]);
                }
                return Ok((None, KinetoGuard::inert()));
            }
            Activation::Idle => {
                builder.waits = true;
                // As in torch when it waits for requests.
                builder.rules.scopes =
                    vec![RecordScope::Function, RecordScope::UserScope, RecordScope::BackwardFunction];
            }
            Activation::On => {}
        }
        builder.env = Some(env);
        builder.build().map(|(layer, guard)| (Some(layer), guard))
    }
}

/// # Recordings: when they start and end
impl KinetoLayerBuilder {
    /// Starts recording in `build`. Default: true; else [`Profiler::start`](crate::Profiler::start) does.
    pub fn record_from_start(self, on: bool) -> Self {
        self.with(Key::RecordFromStart, Value::Bool(on))
    }

    /// Records by a schedule, which [`Profiler::step`](crate::Profiler::step) follows. Its step 0 begins in `build`.
    ///
    /// Each cycle gives a separate trace, which goes to the handler of [`on_trace_ready`](Self::on_trace_ready), else to the
    /// output, with the number of the cycle in its name: `app.3.pt.trace.json` (without a number if the schedule has only one
    /// cycle). A cycle that is incomplete when the guard is dropped is saved too.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Adds an observer of recordings, which also receives their flags; may be called more than once.
    ///
    /// In [`Mode::Disabled`], observers receive nothing.
    pub fn session_observer(mut self, observer: impl SessionObserver + 'static) -> Self {
        self.session_observers.push(NamedObserver::new(observer));
        self
    }
}

/// # Sources of settings, and messages
impl KinetoLayerBuilder {
    /// Sets the configuration file. Default: `KINETO_CONFIG`, else the platform's (`/etc/libkineto.conf`).
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.overrides.set_config_file(path.into());
        self
    }

    /// Sets whether a program with more rights than its callers trusts them. Default: false.
    ///
    /// A program has more rights by set-user-ID, set-group-ID or file capabilities, such as those that permit counters. By
    /// default, such a program reads no environment variable and no configuration file with a relative path, loads no
    /// library, and serves no requests. If it trusts its callers, they may read and write files and load libraries with its
    /// rights. The setting applies to the whole process.
    pub fn trust_caller(self, on: bool) -> Self {
        process::trust_caller(on);
        self
    }

    /// Sets the least severity of messages about the profiler itself. Default: `KINETO_LOG_LEVEL`, else warnings.
    pub fn log_level(self, level: Severity) -> Self {
        self.with(Key::LogLevel, Value::Severity(level))
    }

    /// Sends messages about the profiler itself to a callback instead of stderr.
    pub fn log_sink(mut self, sink: LogSink) -> Self {
        self.log_sink = Some(sink);
        self
    }

    /// Records as tracing-chrome: adds fields to every callsite, of which the layer records the texts, and writes JSON to an output
    /// of any name.
    pub(crate) fn like_chrome(mut self, added_fields: &'static [&'static str]) -> Self {
        (self.rules.added_fields, self.accepts_any_extension) = (added_fields, true);
        self
    }

    /// Returns the table of all settings in Markdown, for a program's help.
    pub fn reference() -> String {
        Config::reference_table()
    }

    /// Creates the layer and its guard, and starts to record unless configured otherwise.
    ///
    /// External requests (Linux): with `KINETO_USE_DAEMON` in the environment, the layer records requests from the dynolog
    /// daemon, with a [`trigger_folder`](Self::trigger_folder) those in files. It then records nothing else without a
    /// [`schedule`](Self::schedule) or an explicit [`record_from_start`](Self::record_from_start). A recording that the
    /// program starts itself has priority: it discards a running request. Of several layers, the first live one serves
    /// requests.
    ///
    /// Timed recordings (Linux): environment and file may set when to record instead. `START_DELAY_MS` after this call, for
    /// `ACTIVITIES_DURATION_MSECS` or to the program's end, and again every `START_PERIOD_MS`; or `ACTIVITIES_ITERATIONS`
    /// from `PROFILE_START_ITERATION` on. Each goes to the output as soon as it ends (libkineto's default file if there is
    /// none), with its number in the name if there are several. The program's own recording evicts it, like a request; the
    /// guard writes that recording to the same output, replacing an unnumbered file. A [`schedule`](Self::schedule) disables
    /// timed recordings.
    ///
    /// In WebAssembly, settings are not checked, and layer and guard do nothing; see
    /// [platforms](crate#platforms-and-compilers).
    ///
    /// # Errors
    /// If a setting has an invalid value (the message names it and a valid one), the output cannot be created, the handler
    /// cannot take traces, the named configuration file cannot be read, or the platform does not support a setting.
    pub fn build(self) -> Result<(KinetoLayer, KinetoGuard), Error> {
        if platform::CAN_RECORD {
            self.build_layer_and_guard()
        } else {
            Ok((KinetoLayer::inert(), KinetoGuard::inert()))
        }
    }

    /// Creates the layer and its guard where the platform can record.
    /// Sets a key, with precedence over environment and file.
    fn with(mut self, key: Key, value: Value) -> Self {
        self.overrides.settings.set(key, value);
        self
    }

    /// Adds the settings of an option value.
    fn with_all(mut self, settings: SourceSettings) -> Self {
        self.overrides.settings.merge(settings);
        self
    }

    fn build_layer_and_guard(mut self) -> Result<(KinetoLayer, KinetoGuard), Error> {
        if let Some(sink) = &self.log_sink {
            diag::LOGGER.set_sink(Some(sink.clone()));
        }
        let env = self.env.unwrap_or_else(Env::from_process);
        diag::LOGGER.set_plain(env.raw_value("NO_COLOR").is_some_and(|text| !text.is_empty()));
        let mut config = resolve_config(&self.overrides, &env)?;
        let (sinks, is_strict) = (register_sinks(self.sinks)?, self.overrides.is_env_strict);
        config.settle_folders();
        let claim = settle_output(&mut config, &sinks, is_strict, self.handler.is_some(), self.accepts_any_extension)?;
        let is_by_builder = |key| is_strict || self.overrides.settings.iter().any(|(set, _)| set == key);
        dumps::settle_files(&mut config, self.handler.is_some(), is_by_builder)?;
        self.options.private_use1.as_deref().map_or(Ok(()), check_name)?;
        self.handler.as_mut().map_or(Ok(()), |handler| handler.prepare())?;
        let serves = config.resolve_start(self.waits, self.schedule.is_some());
        let rules = Rules {
            selected: config.activities,
            filter: config.filter.clone(),
            with_args: config.with_args,
            denied_fields: config.deny_fields.clone(),
            events: config.events.into_level(),
            stacks: config.slice_extras.stack_filter.clone(),
            slow_spans: config.dumps.slow_spans(),
            dump_events: config.dumps.event_level(),
            ..self.rules
        };
        let extras = slice_extras(&config, self.overrides.is_on(Key::WithStack), is_strict)?;
        let settings = RecorderSettings {
            field_bytes_max: config.field_limit_bytes,
            fields_while_idle: config.fields_while_idle,
            records: config.mode.has_recording_mode(),
            threads: self.threads,
            evicts_oldest: config.overflow != Overflow::Stop,
        };
        let observers = create_observers(&config, self.observers);
        let recorder =
            Arc::new(Recorder::new(config.buffer_limit_bytes, Sites::new(rules), observers, extras, settings));
        // A request may want memory that the layer does not record otherwise; without a slot it gets none.
        let listens = (config.flags.profile_memory || serves) && recorder.claim_listener_slot();
        if config.flags.profile_memory && !listens {
            let why = "too many layers record memory already; drop one of them first";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        fork::call_in_children(thread_lanes::forget_lane);
        let record = config.record_from_start;
        let collectors = self.collectors.build_set(&config);
        let session = Session::new(recorder.clone(), config, self.options, sinks, collectors);
        session.set_claim(claim);
        session.watch_process();
        session.set_observers(self.session_observers);
        session.recording.with_metadata(|metadata| {
            self.metadata.iter().for_each(|(key, value)| metadata.add_text(key, value));
            self.metadata_json.iter().try_for_each(|(key, json)| metadata.add_json(key, json))
        })??;
        session.steps.configure(self.schedule, self.handler)?;
        if record {
            session.begin_schedule()?;
            // A signal before the first record must report why there is no trace.
            signal::expect_signal_thread();
            signal::start_signal_thread(session::at_exit, session::dump_on_signal);
        }
        session::register_session(&session);
        #[cfg(feature = "ondemand")]
        serves.then(|| requests::serve_requests(&session));
        Ok((KinetoLayer::new(recorder), KinetoGuard::new(session)))
    }
}

/// Resolves the settings, and reports warnings about them in the format that they select.
fn resolve_config(overrides: &Overrides, env: &Env) -> Result<Config, Error> {
    let mut warnings = Vec::new();
    let resolved = Config::resolve(overrides, env, &mut warnings);
    if let Ok(config) = &resolved {
        config.apply_log_settings(None);
    }
    config::report_untrusted_caller();
    config::report_unknown_variables(env, None);
    config::report_warnings(&warnings);
    resolved
}

/// Determines where traces go, and claims the output if it is a file.
fn settle_output(
    config: &mut Config,
    sinks: &Sinks,
    is_strict: bool,
    has_handler: bool,
    accepts_any_extension: bool,
) -> Result<Option<OutputClaim>, Error> {
    let mut warnings = Vec::new();
    config.settle_output(|path| sinks.check_target(path), is_strict, &mut warnings)?;
    if !accepts_any_extension {
        config.output.check_extension(&mut warnings)?;
    }
    // A handler replaces the default output.
    let is_written = !has_handler || config.output != Output::Default;
    let claim = |path: &Path| if Sinks::is_file(path) { OutputClaim::try_claim(path).map(Some) } else { Some(None) };
    let claim = if is_written { config.claim_output(claim, numbered_layer, &mut warnings)?.flatten() } else { None };
    config::report_warnings(&warnings);
    left::report_left_files(config);
    Ok(claim)
}

/// Checks that a backend may have that name.
fn check_name(name: &str) -> Result<(), Error> {
    let is_word = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|each| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '_');
    let is_taken = DeviceType::ALL.iter().any(|device| device.as_str().eq_ignore_ascii_case(name));
    if is_word && (!is_taken || name == "privateuse1") {
        return Ok(());
    }
    let why = format!(
        "`Devices::private_use1_name({name:?})`: expected a word in lower case that is no other device's name, such as \"npu\""
    );
    Err(Error::new(ErrorKind::Config, why))
}

/// Returns the sinks of URLs, by scheme.
fn register_sinks(given: Vec<(String, Arc<dyn TraceSink>)>) -> Result<Sinks, Error> {
    let mut sinks = Sinks::default();
    for (scheme, sink) in given {
        if sinks.register(&scheme, sink)? {
            diag!(Warning, "config", "a second sink for {scheme}:// replaces the first; register one for each scheme");
        }
    }
    Ok(sinks)
}

/// Returns the observers of spans: those of the mode, and the program's own.
fn create_observers(config: &Config, mut own: Vec<Arc<dyn SpanObserver>>) -> Observers {
    if config.mode.contains(Mode::Nvtx) {
        own.push(Arc::new(Nvtx::new(config.gpu.options.path("NVTX_INJECTION64_PATH"))));
    }
    #[cfg(feature = "itt")]
    // ITT loads the library that a variable names.
    if config.mode.contains(Mode::Itt) && !process::has_untrusted_caller() {
        own.push(Arc::new(Itt::new(config.itt_domain.clone())));
    }
    Observers::new(own)
}

/// Returns the stacks and counters of slices; `stacks_by_program` if the program itself requests stacks.
fn slice_extras(config: &Config, stacks_by_program: bool, is_strict: bool) -> Result<SliceExtras, Error> {
    let (wanted, with_stack) = (&config.slice_extras, config.flags.with_stack);
    let frames =
        if with_stack { stack_frames(wanted.stack_frames, stacks_by_program, backtrace::CAN_CAPTURE)? } else { 0 };
    let events = if config.mode.has_recording_mode() { wanted.performance_events.as_slice() } else { &[] };
    let extras = SliceExtras::new(frames, events);
    match &extras {
        Err(why) if config.has_counters_from_env() && !is_strict => {
            diag!(Warning, "config", "{why}; nothing is counted");
            SliceExtras::new(frames, &[])
        }
        _ => extras,
    }
    .map_err(|why| Error::new(ErrorKind::Config, why))
}

/// Returns the number of frames of a call stack: 0 without the feature, which is an error if the program itself requests
/// stacks.
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
        self.overrides.settings.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ParsedRequest;
    use crate::trace::Trace;
    use kineto_base::wait::{sleep, wall};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    use test_base::virtual_time;
    use tracing::field::Empty;
    use tracing_subscriber::prelude::*;

    /// More slices than fit into a chunk.
    const FILL: u64 = 3000;

    /// Records spans and events before, between and after two times.
    fn record(session: &Session) -> (Trace, [SystemTime; 2]) {
        let [from, until] = [80, 160].map(|ahead| wall() + Duration::from_millis(ahead));
        let settings = session.settings.of_request(&ParsedRequest::parse("").unwrap(), "/tmp/none.json".into()).0;
        session.requests.start(1, Some((from, until)), settings).unwrap();
        let wait_for = |time: SystemTime| sleep(time.duration_since(wall()).unwrap() + Duration::from_millis(2));
        tracing::info_span!("before").in_scope(|| tracing::info!("an event before"));
        let around = tracing::info_span!("around", field = 7).entered();
        let ends_inside = tracing::info_span!("ends inside").entered();
        wait_for(from);
        drop(ends_inside);
        tracing::info_span!("inside").in_scope(|| tracing::info!("an event inside"));
        let polled = tracing::info_span!("polled");
        polled.in_scope(|| ());
        polled.in_scope(|| ());
        let ends_behind = tracing::info_span!("ends behind", value = Empty).entered();
        // Its end is a separate record: the chunk in which it began is full.
        (0..FILL).for_each(|_| tracing::info_span!("fill").in_scope(|| ()));
        wait_for(until);
        ends_behind.record("value", 7);
        drop(ends_behind);
        polled.in_scope(|| ());
        drop(polled);
        tracing::info_span!("behind").in_scope(|| tracing::info!("an event behind"));
        drop(around);
        (session.requests.stop(1).unwrap(), [from, until])
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn recording_between_two_times_is_cut_to_them() {
        virtual_time(|clock| clock.run(check_recording_between_two_times));
    }

    fn check_recording_between_two_times() {
        let builder = KinetoLayerBuilder::default().no_output().record_from_start(false);
        let (layer, guard) = builder.events(tracing::Level::INFO).build().unwrap();
        let session = guard.profiler().session().unwrap().clone();
        let (trace, times) =
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || record(&session));
        let mut rows = Vec::new();
        trace.for_each(|row| {
            let mut args = Vec::new();
            row.args.visit(&mut |key, _| args.push(key.to_owned()));
            let flags = ["field", "value", "clipped", "finished"].map(|key| args.iter().any(|arg| arg == key));
            rows.push((row.name.to_owned(), flags));
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
        assert_eq!(rows, expected.map(|(name, flags)| (name.to_owned(), flags)));
        let (start, end) = trace.window();
        for (found, expected) in [start, end].into_iter().zip(times) {
            let expected = u64::try_from(expected.duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
            assert!(found.as_nanos().abs_diff(expected) <= 1, "{found:?} {expected}");
        }
        let stats = trace.stats();
        let losses: Vec<_> = stats.losses.iter().map(|(loss, count)| (loss.as_str(), *count)).collect();
        assert_eq!((stats.slices, stats.events), (6 + FILL, 1));
        assert_eq!(losses, [("clipped_slices", 2), ("unfinished_slices", 2)]);
        // Times in the past cut nothing.
        session.requests.start(2, Some((times[0], times[1])), Config::default()).unwrap();
        let (start, end) = session.requests.stop(2).unwrap().window();
        assert!(start > times[1].into() && end > start, "{start:?} {end:?}");
        drop(guard);
    }

    #[test]
    fn option_values_add_up_and_the_last_one_wins() {
        let torch = TorchOptions::new().strict(true).acc_events(true).record_scopes([RecordScope::UserScope]);
        let builder = KinetoLayerBuilder::default()
            .dumps(Dumps::new().after(Duration::from_secs(1)).interval(Duration::from_secs(2)))
            .dumps(Dumps::new().after(Duration::from_secs(3)))
            .with_stack(Stacks::if_requested().frames(5))
            .with_stack(false)
            .devices(Devices::new().private_use1_name("npu"))
            .devices(Devices::new().telemetry(7))
            .torch(torch)
            .torch(TorchOptions::new().strict(false).scope_target("ops", RecordScope::Function));
        let set = builder.overrides.settings.iter().map(|(key, value)| format!("{}={value}", key.spec().name));
        assert_eq!(
            set.collect::<Vec<_>>(),
            [
                "DUMP_INTERVAL=2s",
                "DUMP_AFTER=3s",
                "STACK_FRAMES=5",
                "PROFILE_WITH_STACK=false",
                "DEVICE_TELEMETRY_HZ=7"
            ]
        );
        let options = &builder.options;
        assert_eq!(
            (options.private_use1.as_deref(), options.is_strict, options.accumulates),
            (Some("npu"), false, true)
        );
        assert_eq!((builder.rules.scopes, builder.rules.scope_targets.len()), (vec![RecordScope::UserScope], 1));
    }

    #[test]
    fn stacks_without_the_feature_are_an_error() {
        let error = stack_frames(32, true, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("the feature `backtrace`"), "{error}");
        assert_eq!(stack_frames(32, false, false).unwrap(), 0, "the environment requests them");
        assert_eq!(stack_frames(32, true, true).unwrap(), 32);
    }
}
