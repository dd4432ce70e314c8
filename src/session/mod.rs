//! The recording's life: idle, recording, paused, recording … and each stop hands out a trace.

mod annotation;
mod budget;
mod claim;
mod exit;
mod gate;
mod guest;
mod memory_profile;
mod observer;
mod outcome;
mod pulse;
mod ready;
mod reports;
mod requested;
mod saving;
mod settings;
mod steps;
mod threads;
mod while_open;

pub(crate) use claim::OutputClaim;
pub use exit::flush_all;
#[cfg(any(feature = "analysis", feature = "capi"))]
pub(crate) use exit::newest;
pub(crate) use exit::{at_exit, register};
pub(crate) use observer::Observer;
pub use observer::SessionObserver;
pub use outcome::{Cycle, StepOutcome, StepState};
#[cfg(target_os = "linux")]
pub(crate) use requested::Outside;
#[cfg(target_os = "linux")]
pub(crate) use saving::Patience;
pub(crate) use steps::{Ending, Habits, Steps};
pub use threads::ThreadRecording;

use crate::clock::{self, Anchor, Converter};
use crate::collector::{Collection, CollectorSet};
use crate::config::{Config, Mode, Output};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::layer::reach;
use crate::os::{fork, process};
use crate::recorder::listeners::Own;
use crate::recorder::{Recorder, ThreadFilter};
use crate::time::Timestamp;
use crate::trace::{Facts, Metadata, PostProcess, Recorded, Symbols, Trace, Violations};
use crate::write::file;
use crate::write::sink::Sinks;
use gate::Gate;
use guest::Guest;
use kineto_trace::activity::ActivityTypes;
use kineto_trace::fallible;
use memory_profile::MemoryProfile;
use observer::{Event, SessionObservers};
use pulse::Pulse;
use reports::Reports;
use requested::Requests;
use saving::Writes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};
use while_open::WhileOpen;

/// One layer's recordings, shared by its guard and profilers.
#[derive(Debug)]
pub(crate) struct Session {
    recorder: Arc<Recorder>,
    /// The settings of the start.
    config: Arc<Config>,
    /// Those of the next recording.
    next: Mutex<Arc<Config>>,
    sinks: Arc<Sinks>,
    collectors: Arc<CollectorSet>,
    state: Mutex<State>,
    gate: Arc<Gate>,
    pulse: Arc<Pulse>,
    pub(crate) steps: Steps,
    while_open: WhileOpen,
    memory_profile: MemoryProfile,
    requests: Requests,
    observers: SessionObservers,
    writes: Writes,
    /// The guard was dropped, so nothing would write what a recording holds.
    is_unguarded: AtomicBool,
    /// The claim on the output, held while the guard lives.
    claim: fork::Own<Option<OutputClaim>>,
    /// What the program changes in the events of its traces.
    post_process: OnceLock<PostProcess>,
    /// The process that made it.
    process: u32,
    born: u64,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The settings of the recording that goes on or was the last one.
    config: Arc<Config>,
    /// Where the program's own goes, that goes on or was the last one.
    output: Output,
    /// The request from outside that it is for.
    guest: Guest,
    /// Between which times the recording is to lie, if somebody has said so: it begins a little earlier.
    between: Option<(SystemTime, SystemTime)>,
    /// How often collectors were prepared.
    prepared: u64,
    /// The name of the trace being recorded, once somebody has asked for it.
    trace_id: OnceLock<String>,
    metadata: Arc<Metadata>,
    /// What the program has pushed itself.
    reports: Reports,
    /// What should have held of the recording, and did not.
    violations: Violations,
    /// The metadata belongs to a trace already; the next recording starts with a copy.
    given_away: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// By whom: each `prepare` has a number of its own.
    Prepared(u64),
    Recording,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nothing is recorded.
    Idle,
    /// Nothing is recorded yet, but collectors run: a start takes no time.
    Prepared,
    /// Spans are recorded.
    Recording,
    /// A recording goes on, but spans are not recorded for now.
    Paused,
}

/// How long to wait for another thread that holds the state at the time of a fork.
const FORKED_LOCK: Duration = Duration::from_millis(200);

impl Session {
    pub(crate) fn new(recorder: Arc<Recorder>, config: Config, sinks: Sinks, collectors: CollectorSet) -> Arc<Session> {
        file::protect();
        let (config, metadata) = (Arc::new(config), Metadata::default());
        let state = State {
            phase: Phase::Idle,
            config: config.clone(),
            output: config.output.clone(),
            guest: Guest::default(),
            between: None,
            prepared: 0,
            trace_id: OnceLock::new(),
            metadata: Arc::new(metadata),
            reports: Reports::default(),
            violations: Violations::default(),
            given_away: false,
        };
        let collectors = Arc::new(collectors);
        let pulse = Arc::new(Pulse::new(recorder.clone(), collectors.clone()));
        let gate = Arc::new(Gate::new(recorder.clone(), pulse.clone()));
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
            gate,
            pulse,
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

    /// Says what the program changes in the events of all traces from now on; the first one to say so counts.
    pub(crate) fn set_post_process(&self, post_process: PostProcess) {
        let _ = self.post_process.set(post_process);
    }

    /// Where a recording that ends by itself goes.
    ///
    /// A forked child has a file of its own, with its process id in the name: the parent's may be there already, or
    /// come later.
    pub(crate) fn output(&self) -> Option<PathBuf> {
        let parts = self.settings().name_parts();
        let output = self.lock().map_or_else(|_| self.config.output.clone(), |state| state.output.clone());
        let path = match &output {
            Output::Exact(path) if parts.pid != self.process => Output::PerProcess(path.clone()).path(&parts),
            output => output.path(&parts),
        };
        self.steps.place(path?, &output)
    }

    /// The guard is dropped or has handed out its trace: what is recorded from now on would be discarded.
    pub(crate) fn end_guard(&self) {
        self.is_unguarded.store(true, Ordering::Relaxed);
        self.set_claim(None);
    }

    /// Keeps other layers of this process from the output.
    pub(crate) fn set_claim(&self, claim: Option<OutputClaim>) {
        *self.claim.lock() = claim;
    }

    /// Refuses to record what nothing would write.
    pub(crate) fn check_guard(&self) -> Result<(), Error> {
        let why = "the KinetoGuard was dropped, which ends all recording; keep it as long as the program records";
        if self.is_unguarded.load(Ordering::Relaxed) { Err(Error::new(ErrorKind::NotActive, why)) } else { Ok(()) }
    }

    /// Whether a layer of this session is part of a subscriber.
    pub(crate) fn is_installed(&self) -> bool {
        self.recorder.is_installed()
    }

    /// Returns why a trace of the program's own is empty, if it is.
    pub(crate) fn why_empty(&self, trace: &Trace) -> Option<&'static str> {
        // Where there is no memory to know it, saving reports that.
        let why = fallible::attempt(|| trace.why_empty().filter(|_| trace.stats().violations.is_empty()));
        let why = why.ok().flatten()?;
        Some(match self.is_installed() || self.recorder.is_forked() {
            true => why,
            false => "the layer was not installed; add it with tracing_subscriber::registry().with(layer).init()",
        })
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        if !self.recorder.is_forked() {
            return Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // In a forked child, the thread that held the lock may not exist.
        let why = "the process was forked while its parent was starting or stopping a recording";
        lock_within(&self.state, FORKED_LOCK).ok_or_else(|| Error::new(ErrorKind::Forked, why))
    }

    /// Whether the session can be used before `deadline`: nobody who will not come back, such as this very thread, is
    /// starting or stopping a recording.
    fn is_reachable(&self, deadline: Instant) -> bool {
        lock_until(&self.state, deadline).is_some()
    }

    /// Starts a recording.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.start_between(None)
    }

    /// Starts a recording of which only what lies between two times is kept.
    fn start_between(&self, between: Option<(SystemTime, SystemTime)>) -> Result<(), Error> {
        let _call = self.call();
        let _own = Own::begin();
        let name = self.steps.new_trace_id(self.use_by_program());
        let mut state = self.lock()?;
        self.make_way(&mut state);
        self.ready_own(&mut state, Phase::Idle, name)?;
        state.between = between;
        self.run(&mut state)
    }

    /// Begins the recording for which everything is ready.
    fn run(&self, state: &mut State) -> Result<(), Error> {
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
        self.pulse.start();
        if self.recorder.listens() {
            self.pulse.start_ahead();
        }
        self.collectors.begin();
        self.recorder.begin();
        if self.recorder.reach.filter == ThreadFilter::Current {
            reach::begin(&self.recorder);
        }
        if !self.gate.begin(self.collectors.switches(), self.collectors.street(&self.selection(&config))) {
            drop(self.collectors.stop(Timestamp::default(), Instant::now()));
            let why = "the process was forked while its parent was starting or stopping a recording";
            self.observers.note(Event::Cancelled(why.to_owned()));
            return Err(Error::new(ErrorKind::Forked, why));
        }
        if !config.mode.contains(Mode::Disabled) {
            self.recorder.observers.start();
        }
        state.phase = Phase::Recording;
        self.observers.note(Event::Started);
        if !config.gpu.profiler_range && !self.while_open.is_shut() {
            self.gate.resume(self.begins_with(state));
            return Ok(());
        }
        self.gate.begin_paused();
        if config.gpu.profiler_range && !self.collectors.sees_ranges() {
            diag!(
                Warning,
                "range",
                "nothing is recorded: cudaProfilerStart (CUDA_PROFILER_RANGE) is seen by CUPTI alone, which does not \
                 record here; `kineto doctor` says why"
            );
        }
        Ok(())
    }

    /// Ends the recording and hands out what is committed, without waiting for any thread.
    pub(crate) fn stop(&self) -> Result<Trace, Error> {
        let _call = self.call();
        let _own = Own::begin();
        let mut state = self.lock()?;
        self.check_process()?;
        if state.guest.ticket().is_some() {
            return Err(Error::new(ErrorKind::NotActive, requested::FOREIGN));
        }
        self.end(&mut state)
    }

    fn end(&self, state: &mut State) -> Result<Trace, Error> {
        let none = || Error::new(ErrorKind::NotActive, "no recording is going on; start one first");
        let windows = matches!(state.phase, Phase::Recording).then(|| self.gate.end()).flatten().ok_or_else(none)?;
        state.phase = Phase::Idle;
        self.observers.note(Event::Stopped);
        self.recorder.observers.stop();
        self.collectors.read_clocks();
        let end = Anchor::take().unix;
        let mut collections = self.collectors.stop(end, later(self.flush_timeout()));
        state.given_away = true;
        state.reports.close(end);
        self.recorder.gather_losses();
        let converter = converter(self.pulse.stop(), windows.since, None);
        let windows = windows.between(state.between, &converter);
        let recorded = windows.share(&mut collections, self.recorder.take(), &self.recorder, true);
        Ok(self.trace(state, recorded, collections, converter, &self.recorder.losses.take()))
    }

    /// Looks at what was recorded so far, while the recording goes on.
    pub(crate) fn look(&self) -> Result<Trace, Error> {
        let _own = Own::begin();
        self.recorder.gather_losses();
        let mut state = self.lock()?;
        self.check_process()?;
        let end = Anchor::take();
        let none = || Error::new(ErrorKind::NotActive, "no recording is going on; start one first");
        let windows =
            matches!(state.phase, Phase::Recording).then(|| self.gate.look(end.ticks())).flatten().ok_or_else(none)?;
        let taken = self.recorder.look();
        state.reports.close(end.unix);
        let mut collections = self.collectors.look();
        let converter = converter(self.pulse.anchors(), windows.since, Some(end));
        let windows = windows.between(state.between, &converter);
        let recorded = windows.share(&mut collections, taken, &self.recorder, false);
        Ok(self.trace(&state, recorded, collections, converter, &self.recorder.losses.counts()))
    }

    fn trace(
        &self,
        state: &State,
        recorded: Recorded,
        collections: Vec<Collection>,
        converter: Converter,
        losses: &[u64; crate::buffer::Loss::ALL.len()],
    ) -> Trace {
        let habits = self.steps.habits();
        let facts = Facts {
            losses: *losses,
            observers: self.recorder.observers.reports(),
            counters: self.recorder.companions.reports(),
            is_strict: habits.is_some_and(|habits| habits.is_strict),
            post_processing_timeout: habits.and_then(|habits| habits.post_processing_timeout),
            private_use1: habits.and_then(|habits| habits.private_use1.clone()),
            violations: state.violations.clone(),
            some_threads: self.recorder.reach.selective() != 0,
            sinks: self.sinks.clone(),
            post_process: self.post_process.get().cloned(),
            ..facts(&state.config, self.name(state))
        };
        Trace::new(recorded, collections, state.reports.parts(), converter, state.metadata.clone(), facts)
    }

    /// Returns the name of the recording, and makes it if it has none.
    fn name(&self, state: &State) -> String {
        let new = || state.config.trace_id.clone().unwrap_or_else(new_trace_id);
        state.trace_id.get_or_init(new).clone()
    }

    /// Returns the name of the recording that goes on or is prepared.
    pub(crate) fn trace_id(&self) -> Option<String> {
        let state = self.lock().ok().filter(|_| !self.recorder.is_forked())?;
        (!matches!(state.phase, Phase::Idle)).then(|| self.name(&state))
    }

    /// Takes note of an assertion that did not hold.
    pub(crate) fn log_violation(&self, assertion: &str, error: &str, group: &str) -> Result<(), Error> {
        let mut state = self.lock()?;
        self.check_process()?;
        if !matches!(state.phase, Phase::Recording) {
            let why = "no recording is going on, so there is nothing to log a violation in";
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
            let why = "the recording belongs to the parent process; start one of this process's own";
            return Err(Error::new(ErrorKind::Forked, why));
        }
        Ok(())
    }

    /// Stops recording what is among these types for now.
    pub(crate) fn pause(&self, types: ActivityTypes) -> Result<(), Error> {
        let _own = Own::begin();
        let _state = self.lock()?;
        self.check_process()?;
        let none = || Error::new(ErrorKind::NotActive, "no recording is going on, so there is nothing to pause");
        self.gate.pause(types).then_some(()).ok_or_else(none)
    }

    /// Goes on recording what is among these types after a pause.
    pub(crate) fn resume(&self, types: ActivityTypes) -> Result<(), Error> {
        let _own = Own::begin();
        let _state = self.lock()?;
        self.check_process()?;
        let none = || Error::new(ErrorKind::NotActive, "no recording is going on, so there is nothing to resume");
        self.gate.resume(types).then_some(()).ok_or_else(none)
    }

    pub(crate) fn status(&self) -> Status {
        let phase = self.lock().map(|state| state.phase).ok().filter(|_| !self.recorder.is_forked());
        match phase {
            Some(Phase::Recording) if self.gate.is_open() == Some(true) => Status::Recording,
            Some(Phase::Recording) => Status::Paused,
            Some(Phase::Prepared(_)) => Status::Prepared,
            Some(Phase::Idle) | None => Status::Idle,
        }
    }

    /// The same without a wait for whoever starts or stops, and so without knowing what is prepared.
    pub(crate) fn status_now(&self) -> Status {
        match (!self.recorder.is_forked()).then(|| self.gate.is_open()).flatten() {
            Some(true) => Status::Recording,
            Some(false) => Status::Paused,
            None => Status::Idle,
        }
    }

    /// Whether anything is recorded now, without a wait for whoever starts or stops.
    pub(crate) fn is_recording(&self) -> bool {
        self.recorder.epoch() != 0 && !self.recorder.is_forked()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.recorder.is_forked()
    }

    /// Calls `change` with the metadata of the recording that goes on, or of the next one.
    pub(crate) fn with_metadata<R>(&self, change: impl FnOnce(&Metadata) -> R) -> Result<R, Error> {
        let metadata = self.lock()?.metadata.clone();
        Ok(change(&metadata))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.recorder.close();
        self.recorder.stop_listening();
    }
}

/// What a trace of this process knows beside its records, as far as the settings say it.
fn facts(config: &Config, trace_id: String) -> Facts {
    Facts {
        is_recording: true,
        mode: config.mode,
        losses: [0; crate::buffer::Loss::ALL.len()],
        observers: Vec::new(),
        counters: Vec::new(),
        process: i64::from(std::process::id()),
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
        symbols: Arc::new(Symbols::new(config.companions.stack_frames)),
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

/// Makes the converter of a recording that began at `since`, of which it has no anchor if nothing was ever open.
fn converter(mut anchors: Vec<Anchor>, since: Anchor, end: Option<Anchor>) -> Converter {
    if anchors.is_empty() {
        anchors.push(since);
    }
    anchors.extend(end);
    Converter::new(&anchors)
}

/// Nobody sees the difference to a longer wait, and no clock overflows.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns the time so much from now.
fn later(wait: Duration) -> Instant {
    Instant::now() + wait.min(YEAR)
}

/// 32 upper-case hexadecimal digits, as torch makes them: no two processes and no two recordings share one.
fn new_trace_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one((std::process::id(), fork::generation(), SystemTime::now()));
    format!("{:016X}{:016X}", half(), half())
}

#[cfg(test)]
mod tests;
