//! The life of a recording: idle, recording, paused, recording; each stop returns a trace.

mod active_request;
mod annotation;
mod budget;
mod claim;
mod clock_thread;
mod exit;
mod handle;
mod memory_profile;
mod observer;
mod outcome;
mod ready;
mod reports;
mod requested;
mod saving;
mod settings;
mod steps;
mod threads;
mod while_open;
mod windows;

pub(crate) use claim::OutputClaim;
pub use exit::flush_all;
#[cfg(any(feature = "analysis", feature = "capi"))]
pub(crate) use exit::newest;
pub(crate) use exit::{at_exit, register};
pub(crate) use handle::SessionHandle;
pub(crate) use observer::NamedObserver;
pub use observer::SessionObserver;
pub use outcome::{Cycle, StepOutcome, StepState};
#[cfg(target_os = "linux")]
pub(crate) use requested::RequestHandler;
#[cfg(target_os = "linux")]
pub(crate) use saving::Patience;
pub(crate) use steps::{Ending, SessionOptions, StepControl};
pub use threads::ThreadRecording;

use crate::clock::{self, Anchor, Converter};
use crate::collector::{Collection, CollectorSet};
use crate::config::{Config, Mode, Output};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::layer::thread_selection;
use crate::os::{fork, platform, process};
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::recorder::{Recorder, ThreadFilter};
use crate::time::Timestamp;
use crate::trace::{PostProcess, Recorded, StackSymbols, Trace, TraceInfo, TraceMetadata, Violations};
use crate::write::file;
use crate::write::sink::Sinks;
use active_request::ActiveRequest;
use clock_thread::ClockThread;
use kineto_trace::activity::ActivityTypes;
use kineto_trace::fallible;
use memory_profile::MemoryProfile;
use observer::{SessionEvent, SessionObservers};
use reports::Reports;
use requested::RequestLink;
use saving::Writes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};
use while_open::WhileOpen;
use windows::RecordingWindows;

/// One layer's recordings, shared by its guard and profilers.
#[derive(Debug)]
pub(crate) struct Session {
    recorder: Arc<Recorder>,
    /// The settings that the program started with.
    config: Arc<Config>,
    /// The settings of the next recording.
    next: Mutex<Arc<Config>>,
    sinks: Arc<Sinks>,
    collectors: Arc<CollectorSet>,
    state: Mutex<SessionState>,
    recording_windows: Arc<RecordingWindows>,
    clock_thread: Arc<ClockThread>,
    pub(crate) steps: StepControl,
    while_open: WhileOpen,
    memory_profile: MemoryProfile,
    requests: RequestLink,
    observers: SessionObservers,
    writes: Writes,
    /// Whether the guard was dropped, so that no code would write what a recording holds.
    is_unguarded: AtomicBool,
    /// The claim on the output, held while the guard lives.
    claim: fork::Own<Option<OutputClaim>>,
    /// The program's callback that changes events of its traces.
    post_process: OnceLock<PostProcess>,
    /// The process that created the session.
    process: u32,
    /// The fork generation of that process.
    born: u64,
}

#[derive(Debug)]
struct SessionState {
    phase: SessionPhase,
    /// The settings of the current recording, or of the last one.
    config: Arc<Config>,
    /// The output of the program's current recording, or of its last one.
    output: Output,
    /// The external request that the recording is for.
    active_request: ActiveRequest,
    /// The times that the trace is cut to, if a request gives them: the recording begins a little earlier.
    between: Option<(SystemTime, SystemTime)>,
    /// How often collectors were prepared.
    prepared: u64,
    /// The trace id of the current recording, made on first use.
    trace_id: OnceLock<String>,
    metadata: Arc<TraceMetadata>,
    /// The slices that the program pushed through its builders.
    reports: Reports,
    /// The assertions that did not hold.
    violations: Violations,
    /// Whether a trace owns the metadata; the next recording then starts with a copy.
    given_away: bool,
}

#[derive(Clone, Copy, Debug)]
enum SessionPhase {
    Idle,
    /// Holds the number of the `prepare` call.
    Prepared(u64),
    Recording,
}

/// A session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nothing is recorded.
    Idle,
    /// Nothing is recorded yet, but collectors run: a start takes no time.
    Prepared,
    /// Spans are recorded.
    Recording,
    /// A recording is running, but spans are not recorded for now.
    Paused,
}

/// How long to wait for another thread that holds the state at the time of a fork.
const FORKED_LOCK: Duration = Duration::from_millis(200);

impl Session {
    pub(crate) fn new(recorder: Arc<Recorder>, config: Config, sinks: Sinks, collectors: CollectorSet) -> Arc<Session> {
        file::protect();
        let (config, metadata) = (Arc::new(config), TraceMetadata::default());
        let state = SessionState {
            phase: SessionPhase::Idle,
            config: config.clone(),
            output: config.output.clone(),
            active_request: ActiveRequest::default(),
            between: None,
            prepared: 0,
            trace_id: OnceLock::new(),
            metadata: Arc::new(metadata),
            reports: Reports::default(),
            violations: Violations::default(),
            given_away: false,
        };
        let collectors = Arc::new(collectors);
        let clock_thread = Arc::new(ClockThread::new(recorder.clone(), collectors.clone()));
        let recording_windows = Arc::new(RecordingWindows::new(recorder.clone(), clock_thread.clone()));
        let (sinks, state, process) = (Arc::new(sinks), Mutex::new(state), std::process::id());
        let (steps, while_open, memory_profile, requests, post_process) = Default::default();
        let (writes, is_unguarded, claim) = Default::default();
        let (observers, born) = (SessionObservers::new(recorder.clone()), fork::generation());
        Arc::new(Session {
            recorder,
            next: Mutex::new(config.clone()),
            config,
            sinks,
            collectors,
            state,
            recording_windows,
            clock_thread,
            steps,
            while_open,
            memory_profile,
            requests,
            observers,
            writes,
            is_unguarded,
            claim,
            post_process,
            process,
            born,
        })
    }

    /// Sets the callback that changes the events of traces, unless there is one already.
    pub(crate) fn set_post_process(&self, post_process: PostProcess) {
        let _ = self.post_process.set(post_process);
    }

    /// Returns the file of a recording that ends by itself.
    ///
    /// In a forked child the name contains the process id, because the parent writes its file under the plain name.
    pub(crate) fn output(&self) -> Option<PathBuf> {
        let parts = self.settings().name_placeholders();
        let output = self.lock().map_or_else(|_| self.config.output.clone(), |state| state.output.clone());
        let path = match &output {
            Output::Exact(path) if parts.pid != self.process => Output::PerProcess(path.clone()).path(&parts),
            output => output.path(&parts),
        };
        self.steps.output_file(path?, &output)
    }

    /// Ends the session's guard: it was dropped or has returned its trace, so nothing would write a later recording.
    pub(crate) fn end_guard(&self) {
        self.is_unguarded.store(true, Ordering::Relaxed);
        self.set_claim(None);
    }

    /// Keeps other layers of this process from the output.
    pub(crate) fn set_claim(&self, claim: Option<OutputClaim>) {
        *self.claim.lock() = claim;
    }

    /// Fails if nothing would write a recording.
    pub(crate) fn check_guard(&self) -> Result<(), Error> {
        let why = "the KinetoGuard was dropped, which ends all recording; keep it as long as the program records";
        if self.is_unguarded.load(Ordering::Relaxed) { Err(Error::new(ErrorKind::NotActive, why)) } else { Ok(()) }
    }

    /// Returns whether a layer of this session is part of a subscriber.
    pub(crate) fn is_installed(&self) -> bool {
        self.recorder.is_installed()
    }

    /// Returns why a trace of the program's own is empty, if it is.
    pub(crate) fn why_empty(&self, trace: &Trace) -> Option<&'static str> {
        // If memory is short here, saving reports it.
        let why = fallible::attempt(|| trace.why_empty().filter(|_| trace.stats().violations.is_empty()));
        let why = why.ok().flatten()?;
        Some(match self.is_installed() || self.recorder.is_forked() {
            true => why,
            false => "the layer was not installed; add it with tracing_subscriber::registry().with(layer).init()",
        })
    }

    fn lock(&self) -> Result<MutexGuard<'_, SessionState>, Error> {
        if !self.recorder.is_forked() {
            return Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // In a forked child, the thread that held the lock may not exist.
        let why = "the process was forked while its parent was starting or stopping a recording; fork at another time";
        lock_within(&self.state, FORKED_LOCK).ok_or_else(|| Error::new(ErrorKind::Forked, why))
    }

    /// Returns whether the session's lock is free before `deadline`. It is not if this thread itself, or one that hangs, is
    /// starting or stopping a recording.
    fn is_reachable(&self, deadline: Instant) -> bool {
        lock_until(&self.state, deadline).is_some()
    }

    /// Starts a recording.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.start_between(None)
    }

    /// Starts a recording whose trace is cut to two times.
    fn start_between(&self, between: Option<(SystemTime, SystemTime)>) -> Result<(), Error> {
        let _scope = self.notify_scope();
        let _own = InternalAllocGuard::begin();
        let name = self.steps.new_trace_id(self.program_status());
        let mut state = self.lock()?;
        self.evict_request(&mut state);
        self.start_own_collectors(&mut state, SessionPhase::Idle, name)?;
        state.between = between;
        self.open_recording(&mut state)
    }

    /// Begins the recording after its collectors have started.
    fn open_recording(&self, state: &mut SessionState) -> Result<(), Error> {
        let config = state.config.clone();
        if state.given_away {
            state.metadata = Arc::new(state.metadata.copy());
            state.given_away = false;
        }
        (state.reports, state.violations) = Default::default();
        state.metadata.set_all(self.steps.presets());
        self.recorder.discard();
        self.recorder.gather_losses();
        self.recorder.losses.take();
        self.clock_thread.start();
        if self.recorder.records_memory() {
            self.clock_thread.start_ahead();
        }
        self.collectors.begin();
        self.recorder.begin_recording();
        if self.recorder.thread_selection.filter == ThreadFilter::Current {
            thread_selection::begin(&self.recorder);
        }
        if !self
            .recording_windows
            .begin(self.collectors.switches(), self.collectors.slice_sink(&self.selection(&config)))
        {
            drop(self.collectors.stop(Timestamp::default(), Instant::now()));
            let why =
                "the process was forked while its parent was starting or stopping a recording; fork at another time";
            self.observers.push(SessionEvent::Cancelled(why.to_owned()));
            return Err(Error::new(ErrorKind::Forked, why));
        }
        if !config.mode.contains(Mode::Disabled) {
            self.recorder.observers.start();
        }
        state.phase = SessionPhase::Recording;
        self.observers.push(SessionEvent::Started);
        if !config.gpu.profiler_range && !self.while_open.is_awaiting_span() {
            self.recording_windows.resume(self.begins_with(state));
            return Ok(());
        }
        self.recording_windows.begin_paused();
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

    /// Ends the recording and returns what is committed, without waiting for any thread.
    pub(crate) fn stop(&self) -> Result<Trace, Error> {
        let _scope = self.notify_scope();
        let _own = InternalAllocGuard::begin();
        let mut state = self.lock()?;
        self.check_process()?;
        if state.active_request.id().is_some() {
            return Err(Error::new(ErrorKind::NotActive, requested::FOREIGN));
        }
        self.end(&mut state)
    }

    fn end(&self, state: &mut SessionState) -> Result<Trace, Error> {
        let none = || Error::new(ErrorKind::NotActive, "no recording is running; start one first");
        let windows = matches!(state.phase, SessionPhase::Recording)
            .then(|| self.recording_windows.end())
            .flatten()
            .ok_or_else(none)?;
        state.phase = SessionPhase::Idle;
        self.observers.push(SessionEvent::Stopped);
        self.recorder.observers.stop();
        self.collectors.read_clocks();
        let end = Anchor::take().unix;
        let mut collections = self.collectors.stop(end, later(self.flush_timeout()));
        state.given_away = true;
        state.reports.close(end);
        self.recorder.gather_losses();
        let converter = converter(self.clock_thread.stop(), windows.since, None);
        let windows = windows.between(state.between, &converter);
        let recorded = windows.assign(&mut collections, self.recorder.take_recorded(), &self.recorder, true);
        Ok(self.trace(state, recorded, collections, converter, &self.recorder.losses.take()))
    }

    /// Returns what was recorded so far, while the recording continues.
    pub(crate) fn snapshot(&self) -> Result<Trace, Error> {
        let _own = InternalAllocGuard::begin();
        self.recorder.gather_losses();
        let mut state = self.lock()?;
        self.check_process()?;
        let end = Anchor::take();
        let none = || Error::new(ErrorKind::NotActive, "no recording is running; start one first");
        let windows = matches!(state.phase, SessionPhase::Recording)
            .then(|| self.recording_windows.snapshot(end.ticks()))
            .flatten()
            .ok_or_else(none)?;
        let taken = self.recorder.snapshot();
        state.reports.close(end.unix);
        let mut collections = self.collectors.snapshot();
        let converter = converter(self.clock_thread.anchors(), windows.since, Some(end));
        let windows = windows.between(state.between, &converter);
        let recorded = windows.assign(&mut collections, taken, &self.recorder, false);
        Ok(self.trace(&state, recorded, collections, converter, &self.recorder.losses.counts()))
    }

    fn trace(
        &self,
        state: &SessionState,
        recorded: Recorded,
        collections: Vec<Collection>,
        converter: Converter,
        losses: &[u64; crate::buffer::Loss::ALL.len()],
    ) -> Trace {
        let options = self.steps.options();
        let trace_info = TraceInfo {
            losses: *losses,
            observers: self.recorder.observers.reports(),
            counters: self.recorder.slice_extras.reports(),
            is_strict: options.is_some_and(|options| options.is_strict),
            post_processing_timeout: options.and_then(|options| options.post_processing_timeout),
            private_use1: options.and_then(|options| options.private_use1.clone()),
            violations: state.violations.clone(),
            some_threads: self.recorder.thread_selection.selective() != 0,
            sinks: self.sinks.clone(),
            post_process: self.post_process.get().cloned(),
            ..trace_info(&state.config, self.name(state))
        };
        Trace::new(recorded, collections, state.reports.parts(), converter, state.metadata.clone(), trace_info)
    }

    /// Returns the trace id of the recording, and creates it if there is none.
    fn name(&self, state: &SessionState) -> String {
        let new = || state.config.trace_id.clone().unwrap_or_else(new_trace_id);
        state.trace_id.get_or_init(new).clone()
    }

    /// Returns the trace id of the recording that is running or prepared.
    pub(crate) fn trace_id(&self) -> Option<String> {
        let state = self.lock().ok().filter(|_| !self.recorder.is_forked())?;
        (!matches!(state.phase, SessionPhase::Idle)).then(|| self.name(&state))
    }

    /// Records an assertion that did not hold.
    pub(crate) fn log_violation(&self, assertion: &str, error: &str, group: &str) -> Result<(), Error> {
        let mut state = self.lock()?;
        self.check_process()?;
        if !matches!(state.phase, SessionPhase::Recording) {
            let why = "the violation was not recorded: no recording is running; start one first";
            return Err(Error::new(ErrorKind::NotActive, why));
        }
        let name = self.name(&state);
        let is_new = state.violations.add(assertion, error, [&name, group]);
        drop(state);
        if is_new {
            diag!(Warning, "invariant", "{assertion}: {error}");
        }
        Ok(())
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.recorder.is_forked() {
            let why = "the recording belongs to the parent process; start one in this process";
            return Err(Error::new(ErrorKind::Forked, why));
        }
        Ok(())
    }

    /// Pauses the recording of these types.
    pub(crate) fn pause(&self, types: ActivityTypes) -> Result<(), Error> {
        let _own = InternalAllocGuard::begin();
        let _state = self.lock()?;
        self.check_process()?;
        let none = || Error::new(ErrorKind::NotActive, "cannot pause: no recording is running; start one first");
        self.recording_windows.pause(types).then_some(()).ok_or_else(none)
    }

    /// Resumes the recording of these types after a pause.
    pub(crate) fn resume(&self, types: ActivityTypes) -> Result<(), Error> {
        let _own = InternalAllocGuard::begin();
        let _state = self.lock()?;
        self.check_process()?;
        let none = || Error::new(ErrorKind::NotActive, "cannot resume: no recording is running; start one first");
        self.recording_windows.resume(types).then_some(()).ok_or_else(none)
    }

    pub(crate) fn status(&self) -> Status {
        let phase = self.lock().map(|state| state.phase).ok().filter(|_| !self.recorder.is_forked());
        match phase {
            Some(SessionPhase::Recording) if self.recording_windows.is_open() == Some(true) => Status::Recording,
            Some(SessionPhase::Recording) => Status::Paused,
            Some(SessionPhase::Prepared(_)) => Status::Prepared,
            Some(SessionPhase::Idle) | None => Status::Idle,
        }
    }

    /// Returns the status without waiting for a start or stop in progress; `Prepared` counts as `Idle`.
    pub(crate) fn status_now(&self) -> Status {
        match (!self.recorder.is_forked()).then(|| self.recording_windows.is_open()).flatten() {
            Some(true) => Status::Recording,
            Some(false) => Status::Paused,
            None => Status::Idle,
        }
    }

    /// Returns whether anything is recorded now, without waiting for a start or stop in progress.
    pub(crate) fn is_recording(&self) -> bool {
        self.recorder.epoch() != 0 && !self.recorder.is_forked()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.recorder.is_forked()
    }

    /// Calls `change` with the metadata of the running recording, or of the next one.
    pub(crate) fn with_metadata<R>(&self, change: impl FnOnce(&TraceMetadata) -> R) -> Result<R, Error> {
        let metadata = self.lock()?.metadata.clone();
        Ok(change(&metadata))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.recorder.close();
        self.recorder.release_listener_slot();
    }
}

/// Returns the part of a trace's header that follows from the process and the settings.
fn trace_info(config: &Config, trace_id: String) -> TraceInfo {
    TraceInfo {
        is_recording: true,
        mode: config.mode,
        losses: [0; crate::buffer::Loss::ALL.len()],
        observers: Vec::new(),
        counters: Vec::new(),
        process: i64::from(platform::process_id()),
        process_name: process::name(),
        host_name: config.host_name.clone().unwrap_or_else(process::host_name),
        trace_id,
        group_trace_id: config.group_trace_id.clone(),
        job: config.job_metadata.clone(),
        distributed: config.distributed.clone(),
        effective: config.effective_json(),
        clock: clock::source(),
        async_spans: config.async_spans,
        with_target: config.with_target,
        with_location: config.with_location,
        flags: config.flags,
        overload_names: config.overload_names,
        fwd_bwd: config.fwd_bwd,
        selected: config.activities,
        wait_events: config.gpu.wait_events,
        profiler_range: config.gpu.profiler_range,
        gzip_level: config.gzip_level,
        execution_trace: config.execution_trace,
        is_strict: false,
        some_threads: false,
        post_processing_timeout: None,
        private_use1: None,
        violations: Violations::default(),
        sinks: Arc::default(),
        post_process: None,
        symbols: Arc::new(StackSymbols::new(config.slice_extras.stack_frames)),
    }
}

/// Locks if that takes no longer than `wait`.
fn lock_within<T>(lock: &Mutex<T>, wait: Duration) -> Option<MutexGuard<'_, T>> {
    lock_until(lock, later(wait))
}

/// Locks if that is possible before `deadline`.
fn lock_until<T>(lock: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match lock.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// Creates the converter of a recording. It has only the anchor `since` if no window was ever open.
fn converter(mut anchors: Vec<Anchor>, since: Anchor, end: Option<Anchor>) -> Converter {
    if anchors.is_empty() {
        anchors.push(since);
    }
    anchors.extend(end);
    Converter::new(&anchors)
}

/// The longest wait, so that no clock overflows.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns the time that is `wait` from now, or a year if that is less.
fn later(wait: Duration) -> Instant {
    Instant::now() + wait.min(YEAR)
}

/// Returns 32 random upper-case hexadecimal digits, as torch does; each recording gets different ones.
fn new_trace_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one((platform::process_id(), fork::generation(), platform::unix_time()));
    format!("{:016X}{:016X}", half(), half())
}

#[cfg(test)]
mod tests;
