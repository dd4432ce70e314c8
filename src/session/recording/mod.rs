//! One recording after another: starts the collectors, opens and ends the recording, and makes its trace.

mod budget;
mod clock_thread;
mod collectors;
#[cfg(feature = "segments")]
pub(in crate::session) mod live;
#[cfg(not(feature = "segments"))]
#[path = "no_live.rs"]
mod live;
#[cfg(feature = "segments")]
mod parts;
mod reports;
mod snapshots;
mod threads;
mod while_open;
mod windows;

pub(super) use snapshots::SnapshotPoint;
pub use threads::ThreadRecording;

use super::machine::{Effect, Event, EventOnDrop, MachineControl, Phase, Refusal, SessionMachine, User};
use super::observer::{SessionEvent, SessionObservers};
use super::refusals::refusal_error;
use super::settings::SessionSettings;
use super::spill::SpillControl;
use super::{FORKED_LOCK, Session, Status, deadline_after, lock_until, lock_within};
use crate::buffer::Loss;
use crate::clock::{self, Anchor, Converter};
use crate::config::{Config, Mode, Output, Overflow};
use crate::diag::diag;
use crate::encoding::Encoded;
use crate::error::{Error, ErrorKind};
use crate::layer::thread_selection;
use crate::live::JournalKind;
use crate::os::{fork, platform, process};
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::recorder::{RecordedBuffers, Recorder, ThreadFilter};
use crate::time::{Ticks, Timestamp};
use crate::trace::{DeviceRecords, PostProcess, Recorded, Trace, TraceInfo, TraceMetadata, Violations, WindowSet};
use crate::wait::steady;
use crate::write::sink::Sinks;
use clock_thread::ClockThread;
use kineto_devices::CollectorSet;
use kineto_model::activity::ActivityTypes;
use reports::Reports;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use while_open::WhileOpen;
use windows::{HOST_TYPES, RecordingWindows};

/// The recordings of one layer, or those of a memory profile.
///
/// Functions that take a [`RecordingState`] are called with the lock held. What may be done is decided by the machine.
#[derive(Debug)]
pub(crate) struct SessionRecording {
    pub(super) recorder: Arc<Recorder>,
    pub(super) settings: Arc<SessionSettings>,
    pub(super) options: SessionOptions,
    pub(super) observers: Arc<SessionObservers>,
    pub(crate) collectors: Arc<CollectorSet>,
    pub(super) sinks: Arc<Sinks>,
    /// Who uses the session, and for what. Locked after `state`.
    pub(super) machine: MachineControl,
    state: Mutex<RecordingState>,
    windows: Arc<RecordingWindows>,
    clock_thread: Arc<ClockThread>,
    while_open: WhileOpen,
    /// Reports once why there is no live file.
    live_trouble: Once,
    /// The header entries of all recordings.
    pub(crate) presets: TraceMetadata,
}

/// Options that are fixed when the layer is built.
#[derive(Default)]
pub(crate) struct SessionOptions {
    /// Provides the trace ids of recordings.
    pub(crate) trace_id: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// Whether traces of cycles are kept.
    pub(crate) accumulates: bool,
    /// Whether a trace may be saved only once.
    pub(crate) is_strict: bool,
    /// The time limit for collecting a trace's events.
    pub(crate) post_processing_timeout: Option<Duration>,
    /// The name of the PrivateUse1 backend.
    pub(crate) private_use1: Option<String>,
    /// The program's callback that changes events of its traces.
    pub(crate) post_process: Option<PostProcess>,
}

#[derive(Debug)]
pub(super) struct RecordingState {
    /// The settings of the current recording, or of the last one.
    pub(super) config: Arc<Config>,
    /// The output of the program's current recording, or of its last one.
    pub(super) output: Output,
    /// The times that the trace is cut to, if a request gives them: the recording begins a little earlier.
    between: Option<(SystemTime, SystemTime)>,
    /// The time before which the records were moved to disk.
    moved_until: Option<Ticks>,
    /// The trace id of the current recording, made on first use.
    trace_id: OnceLock<String>,
    metadata: Arc<TraceMetadata>,
    /// The slices that the program pushed through its builders.
    reports: Reports,
    /// The assertions that did not hold.
    violations: Violations,
    /// Whether a trace owns the metadata; the next recording then starts with a copy.
    is_metadata_shared: bool,
}

const LOCKED_AT_FORK: &str =
    "the process was forked while its parent was starting or stopping a recording; fork at another time";

impl SessionRecording {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        settings: Arc<SessionSettings>,
        options: SessionOptions,
        sinks: Sinks,
        collectors: CollectorSet,
        session: Weak<Session>,
    ) -> SessionRecording {
        let config = settings.first_config().clone();
        let state = RecordingState {
            output: config.output.clone(),
            config,
            between: None,
            moved_until: None,
            trace_id: OnceLock::new(),
            metadata: Arc::default(),
            reports: Reports::default(),
            violations: Violations::default(),
            is_metadata_shared: false,
        };
        let collectors = Arc::new(collectors);
        let config_at_start = settings.first_config();
        let keep = config_at_start.keep.filter(|_| config_at_start.overflow == Overflow::KeepNewest);
        let clock_thread = Arc::new(ClockThread::new(recorder.clone(), collectors.clone(), keep, session));
        SessionRecording {
            observers: Arc::new(SessionObservers::new(recorder.clone())),
            windows: Arc::new(RecordingWindows::new(recorder.clone(), clock_thread.clone())),
            recorder,
            settings,
            options,
            collectors,
            sinks: Arc::new(sinks),
            machine: MachineControl::default(),
            state: Mutex::new(state),
            clock_thread,
            while_open: WhileOpen::default(),
            live_trouble: Once::new(),
            presets: TraceMetadata::default(),
        }
    }

    pub(super) fn lock_state(&self) -> Result<MutexGuard<'_, RecordingState>, Error> {
        if !self.recorder.is_forked() {
            return Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // In a forked child, the thread that held the lock may not exist.
        lock_within(&self.state, FORKED_LOCK).ok_or_else(|| Error::new(ErrorKind::Forked, LOCKED_AT_FORK))
    }

    /// Locks the state while a recording runs; `what` names what is impossible without one.
    fn lock_recording(&self, what: &str) -> Result<MutexGuard<'_, RecordingState>, Error> {
        let state = self.lock_state()?;
        self.check_process()?;
        let none = || Error::new(ErrorKind::NotActive, format!("{what}no recording is running; start one first"));
        if self.machine.read(SessionMachine::is_recording) { Ok(state) } else { Err(none()) }
    }

    /// Returns whether the session's lock is free before `deadline`. It is not if this thread itself, or one that hangs, is
    /// starting or stopping a recording.
    pub(super) fn is_reachable(&self, deadline: Instant) -> bool {
        lock_until(&self.state, deadline).is_some()
    }

    /// Locks the state, once no recording is ending, and passes an event to the machine; returns what is to be done.
    pub(super) fn lock_for(&self, event: Event) -> Result<(MutexGuard<'_, RecordingState>, &'static [Effect]), Error> {
        loop {
            self.machine.wait_for(event);
            let state = self.lock_state()?;
            match self.machine.handle(event) {
                // A recording began to end before the state was locked.
                Err(Refusal::IsChanging) => {}
                handled => return handled.map(|effects| (state, effects)).map_err(|why| refusal_error(event, why)),
            }
        }
    }

    /// Starts a recording of the program; with `between`, its trace is cut to these times.
    pub(super) fn start(&self, between: Option<(SystemTime, SystemTime)>) -> Result<(), Error> {
        let (mut state, effects) = self.lock_for(Event::Start(User::Program))?;
        self.perform_for_program(&mut state, effects, None, between).map(drop)
    }

    /// Begins the recording after its collectors have started.
    fn begin_recording(
        &self,
        state: &mut RecordingState,
        between: Option<(SystemTime, SystemTime)>,
    ) -> Result<(), Error> {
        let config = state.config.clone();
        (state.between, state.moved_until) = (between, None);
        if state.is_metadata_shared {
            state.metadata = Arc::new(state.metadata.copy());
            state.is_metadata_shared = false;
        }
        (state.reports, state.violations) = Default::default();
        state.metadata.set_all(&self.presets);
        self.recorder.discard_late_records();
        self.recorder.gather_losses();
        self.recorder.losses.take_counts();
        self.clock_thread.begin_anchor_list();
        // A request gets one trace.
        let spills = config.overflow.spills() && self.machine.read(SessionMachine::request).is_none();
        if self.recorder.records_memory() || spills {
            self.clock_thread.start_ahead();
        }
        self.begin_live(state);
        self.collectors.begin_recording(self.recorder.live().current().as_ref());
        self.recorder.begin_recording(spills);
        self.with_spill(|spill| spill.begin_recording(spills));
        if spills {
            // Without a folder yet.
            self.recorder.live().put(JournalKind::Segments, (0, 0), |out| PathBuf::new().encode(out));
        }
        if self.recorder.thread_selection.filter == ThreadFilter::Current {
            thread_selection::include_thread(&self.recorder, 0);
        }
        let slice_sink = self.collectors.slice_sink(&self.collector_selection(&config));
        if !self.windows.begin(self.collectors.create_switches(), slice_sink) {
            let _ = self.recorder.take_live();
            drop(self.collectors.stop(Timestamp::default(), steady()));
            self.with_spill(SpillControl::end_recording);
            self.observers.queue_event(SessionEvent::Cancelled(LOCKED_AT_FORK.to_owned()));
            return Err(Error::new(ErrorKind::Forked, LOCKED_AT_FORK));
        }
        if !config.mode.contains(Mode::Disabled) {
            self.recorder.observers.start();
        }
        self.observers.queue_event(SessionEvent::Started);
        let is_awaiting_span = self.while_open.is_awaiting_span.load(Ordering::SeqCst);
        if !config.gpu.profiler_range && !is_awaiting_span {
            self.windows.resume(self.initial_types(state));
            return Ok(());
        }
        self.windows.begin_paused();
        if config.gpu.profiler_range && !self.collectors.sees_ranges() {
            diag!(
                Warning,
                "range",
                "nothing is recorded: CUDA_PROFILER_RANGE needs CUPTI, which does not record here; run `kineto doctor` \
                 for the cause"
            );
        }
        Ok(())
    }

    /// Returns the types that are recorded from the start on. Host types are all on or all off for a request, and for a
    /// program whose configuration file changed them: each callsite is decided once for the layer.
    fn initial_types(&self, state: &RecordingState) -> ActivityTypes {
        let has_cpu = |config: &Config| !config.activities.intersection(HOST_TYPES).is_empty();
        let is_decided_by_callsite =
            self.machine.read(SessionMachine::request).is_none() && !has_cpu(self.settings.first_config());
        if has_cpu(&state.config) || is_decided_by_callsite {
            ActivityTypes::ALL
        } else {
            ActivityTypes::ALL.difference(HOST_TYPES)
        }
    }

    /// Calls `change` with what moves records to disk; those of memory profiles are not moved.
    fn with_spill(&self, change: impl FnOnce(&SpillControl)) {
        if let Some(session) = self.clock_thread.session.upgrade() {
            change(&session.spill);
        }
    }

    /// Ends the recording of a user and returns what is committed, without waiting for any thread. Calls `take_rest` before; from
    /// then on, nothing is marked.
    pub(super) fn end(&self, by: User, take_rest: impl FnOnce()) -> Result<Trace, Error> {
        let event = Event::End(by);
        self.machine.handle(event).map_err(|why| refusal_error(event, why))?;
        let mut ending = EventOnDrop(&self.machine, Event::EndFailed);
        take_rest();
        self.take_marked();
        let state = &mut *self.lock_state()?;
        let ended = self.end_recording(state);
        ending.1 = Event::Ended;
        ended
    }

    fn end_recording(&self, state: &mut RecordingState) -> Result<Trace, Error> {
        let (windows, since) = self.windows.end().ok_or_else(none_is_running)?;
        self.with_spill(SpillControl::end_recording);
        self.observers.queue_event(SessionEvent::Stopped);
        self.recorder.observers.stop();
        self.collectors.read_clocks();
        let end = Anchor::read_clocks().unix;
        let mut devices = DeviceRecords::new(self.collectors.stop(end, deadline_after(self.settings.flush_timeout())));
        state.is_metadata_shared = true;
        state.reports.close_builder(end);
        self.recorder.gather_losses();
        let converter = build_converter(self.clock_thread.take_anchors(), since, None);
        let taken = self.recorder.take_recorded();
        let (windows, taken) = self.cut_windows(state, None, windows, taken, &converter);
        let recorded = windows.assign_windows(&mut devices, taken, &self.recorder, true);
        Ok(self.build_trace(state, recorded, devices, converter, &self.recorder.losses.take_counts()))
    }

    /// Cuts the windows to these times, to those of the recording's request, and to what is still in memory.
    fn cut_windows(
        &self,
        state: &RecordingState,
        between: Option<(SystemTime, SystemTime)>,
        windows: WindowSet,
        mut taken: RecordedBuffers,
        converter: &Converter,
    ) -> (WindowSet, RecordedBuffers) {
        let windows_in_time = |windows: WindowSet| windows.cut_to_times(between.or(state.between), converter);
        if self.recorder.is_spilling() {
            let windows = windows_in_time(windows).cut_to_segment(state.moved_until);
            if state.moved_until != Some(windows.extent.0) {
                taken.forget_earlier_parts();
            }
            // What was evicted is in earlier parts, or counted as not spilled: it does not say where this one begins.
            taken.evicted.horizon = None;
            return (windows, taken);
        }
        if let Some(keep) = self.settings.first_config().keep.filter(|_| self.recorder.settings.evicts_oldest) {
            let end = converter.timestamp_of(windows.extent.1).as_nanos();
            let keep = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
            let since = converter.ticks_at(Timestamp::from_nanos(end.saturating_sub(keep)));
            taken.evicted.horizon = taken.evicted.horizon.max(Some(since));
        }
        (windows_in_time(windows).cut_to_horizon(&taken.evicted), taken)
    }

    /// Stops the collectors, and discards the recording if there is one, for that reason.
    pub(super) fn discard(&self, why: &str) {
        if self.windows.end().is_some() {
            self.recorder.observers.stop();
            drop(self.clock_thread.take_anchors());
            self.recorder.discard_late_records();
        }
        let _ = self.recorder.take_live();
        drop(self.collectors.stop(Timestamp::default(), steady()));
        self.with_spill(SpillControl::end_recording);
        self.observers.queue_event(SessionEvent::Cancelled(why.to_owned()));
    }

    /// Makes the trace of a recording.
    fn build_trace(
        &self,
        state: &RecordingState,
        recorded: Recorded,
        devices: DeviceRecords,
        converter: Converter,
        losses: &[u64; Loss::ALL.len()],
    ) -> Trace {
        let trace_info = self.trace_info(state, losses);
        Trace::new(recorded, devices, state.reports.parts.clone(), converter, state.metadata.clone(), trace_info)
    }

    /// Returns the facts about the recording.
    fn trace_info(&self, state: &RecordingState, losses: &[u64; Loss::ALL.len()]) -> TraceInfo {
        TraceInfo {
            losses: *losses,
            observers: self.recorder.observers.reports(),
            counters: self.recorder.slice_extras.reports.clone(),
            is_strict: self.options.is_strict,
            post_processing_timeout: self.options.post_processing_timeout,
            private_use1: self.options.private_use1.clone(),
            violations: state.violations.clone(),
            some_threads: self.recorder.thread_selection.selective_recording() != 0,
            sinks: self.sinks.clone(),
            post_process: self.options.post_process.clone(),
            ..trace_info(&state.config, self.trace_id_or_new(state))
        }
    }

    /// Returns the trace id of a new recording, if the program provides one. Calls the program, so the lock must be free.
    pub(super) fn provided_trace_id(&self, status: Status) -> Option<String> {
        let provide = self.options.trace_id.as_ref()?;
        // A prepared recording has its id already.
        (status == Status::Idle).then_some(())?;
        let provided = catch_unwind(AssertUnwindSafe(|| provide())).ok();
        if provided.is_none() {
            diag!(
                Error,
                "schedule",
                "the trace id is random: the callback that provides it panicked; fix the callback"
            );
        }
        provided.filter(|id| !id.is_empty())
    }

    /// Returns the trace id of the recording, and creates it if there is none.
    fn trace_id_or_new(&self, state: &RecordingState) -> String {
        let new = || state.config.trace_id.clone().unwrap_or_else(new_trace_id);
        state.trace_id.get_or_init(new).clone()
    }

    /// Returns the trace id of the recording that is running or prepared.
    pub(crate) fn trace_id(&self) -> Option<String> {
        let state = self.lock_state().ok().filter(|_| !self.recorder.is_forked())?;
        self.machine.read(SessionMachine::user).map(|_| self.trace_id_or_new(&state))
    }

    /// Records an assertion that did not hold.
    pub(crate) fn log_violation(&self, assertion: &str, error: &str, group: &str) -> Result<(), Error> {
        let mut state = self.lock_recording("the violation was not recorded: ")?;
        let name = self.trace_id_or_new(&state);
        let is_new = state.violations.add_violation(assertion, error, [&name, group]);
        drop(state);
        if is_new {
            diag!(Warning, "invariant", "{assertion}: {error}");
        }
        Ok(())
    }

    pub(super) fn check_process(&self) -> Result<(), Error> {
        if self.recorder.is_forked() {
            let why = "the recording belongs to the parent process; start one in this process";
            return Err(Error::new(ErrorKind::Forked, why));
        }
        Ok(())
    }

    /// Pauses the recording of these types.
    pub(crate) fn pause(&self, types: ActivityTypes) -> Result<(), Error> {
        let _own = InternalAllocGuard::begin();
        let _state = self.lock_recording("cannot pause: ")?;
        self.windows.pause(types);
        Ok(())
    }

    /// Resumes the recording of these types after a pause.
    pub(crate) fn resume(&self, types: ActivityTypes) -> Result<(), Error> {
        let _own = InternalAllocGuard::begin();
        let _state = self.lock_recording("cannot resume: ")?;
        self.windows.resume(types);
        Ok(())
    }

    /// Stops recording at once, without ending the recording.
    pub(super) fn halt(&self) {
        self.windows.pause(ActivityTypes::ALL);
    }

    pub(crate) fn status(&self) -> Status {
        // A start or stop in progress ends first.
        let Some(_state) = self.lock_state().ok().filter(|_| !self.recorder.is_forked()) else { return Status::Idle };
        match (self.machine.read(SessionMachine::phase), self.windows.is_open()) {
            (Phase::Recording(_) | Phase::Ending(_), Some(true)) => Status::Recording,
            (Phase::Recording(_), _) | (Phase::Ending(_), Some(false)) => Status::Paused,
            (Phase::Prepared(_), _) => Status::Prepared,
            (Phase::Idle, _) | (Phase::Ending(_), None) => Status::Idle,
        }
    }

    /// Returns the status without waiting for a start or stop in progress; `Prepared` counts as `Idle`.
    pub(crate) fn status_now(&self) -> Status {
        match (!self.recorder.is_forked()).then(|| self.windows.is_open()).flatten() {
            Some(true) => Status::Recording,
            Some(false) => Status::Paused,
            None => Status::Idle,
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.recorder.is_forked()
    }

    /// Calls `change` with the metadata of the running recording, or of the next one.
    pub(crate) fn with_metadata<R>(&self, change: impl FnOnce(&TraceMetadata) -> R) -> Result<R, Error> {
        let metadata = self.lock_state()?.metadata.clone();
        let changed = change(&metadata);
        if self.recorder.live().current().is_some() {
            // A thread that starts or stops a recording notes the change, or the next refresh does.
            self.state.try_lock().iter().for_each(|state| self.note_info(state));
        }
        Ok(changed)
    }
}

impl Drop for SessionRecording {
    fn drop(&mut self) {
        self.recorder.close_epoch();
        self.recorder.release_listener_slot();
        self.clock_thread.end();
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions").field("accumulates", &self.accumulates).finish_non_exhaustive()
    }
}

/// Returns the part of a trace's header that follows from the process and the settings.
fn trace_info(config: &Arc<Config>, trace_id: String) -> TraceInfo {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    TraceInfo {
        taken_as: TAKEN.fetch_add(1, Ordering::Relaxed),
        process: i64::from(platform::process_id()),
        process_name: process::program_name(),
        host_name: config.host_name.clone().unwrap_or_else(process::host_name),
        trace_id,
        effective: config.effective_json(),
        clock: clock::source_name().into(),
        ..TraceInfo::new(config.clone())
    }
}

fn none_is_running() -> Error {
    Error::new(ErrorKind::NotActive, "no recording is running; start one first")
}

/// Creates the converter of a recording. It has only the anchor `since` if no window was ever open.
fn build_converter(mut anchors: Vec<Anchor>, since: Anchor, end: Option<Anchor>) -> Converter {
    if anchors.is_empty() {
        anchors.push(since);
    }
    anchors.extend(end);
    Converter::new(anchors)
}

/// Returns 32 random upper-case hexadecimal digits, as torch does; each recording gets different ones.
fn new_trace_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one((platform::process_id(), fork::generation(), platform::unix_time()));
    format!("{:016X}{:016X}", half(), half())
}

#[cfg(test)]
mod tests;
