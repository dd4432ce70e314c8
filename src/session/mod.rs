//! The life of a recording: idle, recording, paused, recording; each stop returns a trace.
//!
//! A [`Session`] is what a layer's guard and profilers share. Its parts own their states: [`SessionRecording`] the recordings,
//! [`SessionRequests`] those for external requests, [`StepControl`] the program's schedule, [`MemoryProfile`] the memory
//! profiles on demand, and [`Writes`] the files in progress. The session itself performs what the program asks for.

mod annotation;
mod claim;
mod dumps;
mod exit;
mod handle;
mod machine;
mod memory_profile;
mod observer;
mod outcome;
mod part_counts;
mod recording;
mod refusals;
mod requests;
mod retention;
mod settings;
#[cfg(feature = "segments")]
mod spill;
#[cfg(not(feature = "segments"))]
#[path = "no_spill.rs"]
mod spill;
mod step_times;
mod steps;
mod triggers;
mod window_control;
mod writes;

pub(crate) use claim::OutputClaim;
pub(crate) use dumps::can_dump;
pub use exit::flush_all;
pub(crate) use exit::newest_session;
pub(crate) use exit::{at_exit, register_session};
pub(crate) use handle::SessionHandle;
pub(crate) use observer::NamedObserver;
pub use observer::SessionObserver;
pub use outcome::{Cycle, StepOutcome, StepState};
pub use recording::ThreadRecording;
pub(crate) use recording::{SessionOptions, SessionRecording};
#[cfg(target_os = "linux")]
pub(crate) use requests::RequestHandler;
#[cfg(target_os = "linux")]
pub(crate) use retention::{KeptFiles, remove_old_file};
#[cfg(feature = "segments")]
pub(crate) use spill::part_bytes_max;
pub(crate) use steps::{EndedBy, EndedRecording, Ending, StepControl};
pub(crate) use triggers::dump_on_signal;
pub use writes::BackgroundSave;
#[cfg(target_os = "linux")]
pub(crate) use writes::{ActiveWrite, Patience, UnstartedWrite};

use crate::config::{Config, Mode, Output, PlaceholderValues};
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::recorder::Recorder;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::trace::Trace;
use crate::wait::{sleep, steady};
use crate::write::file;
use crate::write::sink::{Sinks, Writers};
use kineto_base::fallible;
use kineto_devices::{CollectorReport, CollectorSet};
use machine::{Effect, Event, SessionMachine, User};
use memory_profile::MemoryProfile;
use requests::SessionRequests;
use settings::SessionSettings;
use spill::SpillControl;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};
use triggers::DumpControl;
use writes::Writes;

/// One layer's recordings, shared by its guard and profilers.
#[derive(Debug)]
pub(crate) struct Session {
    own: Weak<Session>,
    recorder: Arc<Recorder>,
    pub(crate) settings: Arc<SessionSettings>,
    pub(crate) recording: Arc<SessionRecording>,
    pub(crate) requests: Arc<SessionRequests>,
    pub(crate) steps: StepControl,
    pub(crate) memory_profile: MemoryProfile,
    pub(crate) writes: Arc<Writes>,
    /// The number of dumps.
    dumps: AtomicU64,
    triggers: DumpControl,
    pub(crate) spill: SpillControl,
    /// How many windows were left when the last ones were dropped.
    windows_left: AtomicUsize,
    /// Whether the guard was dropped, so that no code would write what a recording holds.
    is_unguarded: AtomicBool,
    /// The claim on the output, held while the guard lives.
    claim: fork::Own<Option<OutputClaim>>,
    /// The writer that has its trace because the process ends.
    written_at_exit: fork::Own<Option<PathBuf>>,
    /// The process that created the session.
    process: u32,
}

/// Where the next recording goes.
pub(crate) struct NextOutput {
    path: PathBuf,
    claim: Option<OutputClaim>,
}

/// A session's state.
///
/// ```
/// use tracing_kineto::{KinetoLayer, Status};
///
/// let (_layer, guard) = KinetoLayer::builder().no_output().build()?;
/// let profiler = guard.profiler();
/// assert_eq!(profiler.status(), Status::Recording);
/// profiler.pause()?;
/// assert_eq!(profiler.status(), Status::Paused);
/// # drop(guard.finish()?);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
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

/// How long to wait for another thread that holds a lock at the time of a fork.
const FORKED_LOCK: Duration = Duration::from_millis(200);

impl Session {
    pub(crate) fn new(
        recorder: Arc<Recorder>,
        config: Config,
        options: SessionOptions,
        sinks: Sinks,
        collectors: CollectorSet,
    ) -> Arc<Session> {
        file::protect_files();
        let settings = Arc::new(SessionSettings::new(config));
        Arc::new_cyclic(|own: &Weak<Session>| {
            let triggers = DumpControl::new(settings.first_config().dumps.clone());
            let spill = SpillControl::new(settings.first_config().split);
            let recording =
                SessionRecording::new(recorder.clone(), settings.clone(), options, sinks, collectors, own.clone());
            let recording = Arc::new(recording);
            let requests = Arc::new(SessionRequests::new(recording.clone()));
            Session {
                own: own.clone(),
                recorder,
                writes: Arc::new(Writes::new(settings.clone())),
                settings,
                memory_profile: MemoryProfile::new(recording.clone(), requests.clone()),
                requests,
                recording,
                steps: StepControl::default(),
                dumps: AtomicU64::new(0),
                triggers,
                spill,
                windows_left: AtomicUsize::new(0),
                is_unguarded: AtomicBool::new(false),
                claim: fork::Own::default(),
                written_at_exit: fork::Own::default(),
                process: std::process::id(),
            }
        })
    }

    /// Sets the program's observers, unless the crate is disabled or they are set already.
    pub(crate) fn set_observers(&self, of_program: Vec<NamedObserver>) {
        if !self.settings.first_config().mode.contains(Mode::Disabled) {
            self.recording.observers.set_observers(of_program);
        }
    }

    /// Returns the file of a recording that ends by itself.
    ///
    /// In a forked child the name contains the process id, because the parent writes its file under the plain name.
    pub(crate) fn output_path(&self) -> Option<PathBuf> {
        self.output_path_with(&self.settings.next_config().placeholder_values())
    }

    /// Does the same with these values of placeholders.
    fn output_path_with(&self, values: &PlaceholderValues) -> Option<PathBuf> {
        let (path, output) = self.expanded_output(values)?;
        self.steps.output_file(path, &output)
    }

    /// Reserves a file for the next recording, after a check that it can be written.
    pub(crate) fn reserve_output(&self, output: &Path) -> Result<NextOutput, Error> {
        let path = self.recording.sinks.check_target(output)?;
        if self.settings.next_config().overflow.spills() && !Sinks::is_file(&path) {
            let why = "OVERFLOW=spill writes a file for each part; name a file, or unset OVERFLOW";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let claim = Sinks::is_file(&path).then(|| OutputClaim::try_claim(&path));
        if let Some(None) = claim {
            let why = format!("another layer of the process writes {}; name another file", path.display());
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(NextOutput { path, claim: claim.flatten() })
    }

    /// Sends the next recording to a reserved output; returns the claim on the output before.
    pub(crate) fn set_output(&self, next: NextOutput) -> Option<OutputClaim> {
        self.settings.set_output(Output::Exact(next.path));
        std::mem::replace(&mut *self.claim.lock(), next.claim)
    }

    /// Notes that the end of the process writes an output. A guard that is dropped meanwhile leaves a writer alone then.
    pub(crate) fn note_write_at_exit(&self, output: &Path) {
        if Writers::is_url(output) {
            *self.written_at_exit.lock() = Some(output.to_owned());
        }
    }

    /// Returns whether an output is a writer that has its trace because the process ends.
    pub(crate) fn is_written_at_exit(&self, output: &Path) -> bool {
        self.written_at_exit.lock().as_deref() == Some(output)
    }

    /// Returns the output with its placeholders replaced by these values.
    fn expanded_output(&self, parts: &PlaceholderValues) -> Option<(PathBuf, Output)> {
        let state = self.recording.lock_state();
        let output = state.map_or_else(|_| self.settings.first_config().output.clone(), |state| state.output.clone());
        let path = match &output {
            Output::Exact(path) if parts.pid != self.process => Output::PerProcess(path.clone()).expanded_path(parts),
            output => output.expanded_path(parts),
        };
        Some((path?, output))
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
        Some(if self.is_installed() || self.recorder.is_forked() {
            why
        } else {
            "the layer was not installed; add it with tracing_subscriber::registry().with(layer).init()"
        })
    }

    /// Starts the collectors, so that a later start takes no time. Returns the preparation's number, and a report for each
    /// collector.
    pub(crate) fn prepare(&self) -> Result<(u64, Vec<CollectorReport>), Error> {
        self.begin(Event::Prepare(User::Program))
    }

    /// Starts a recording.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let _own = InternalAllocGuard::begin();
        self.begin(Event::Start(User::Program))?;
        // The parts of the recording before were not written.
        self.spill.leave_ended(self, None);
        Ok(())
    }

    /// Begins a preparation or a recording of the program; returns the preparation's number, and a report for each collector.
    fn begin(&self, event: Event) -> Result<(u64, Vec<CollectorReport>), Error> {
        let _scope = self.recording.observers.notify_scope();
        // Else the id would be that of a recording that is ending.
        self.recording.machine.wait_for(event);
        let trace_id = self.recording.provided_trace_id(self.requests.program_status());
        let (mut state, effects) = self.recording.lock_for(event)?;
        if effects.contains(&Effect::Discard) {
            self.requests.report_eviction();
        }
        let reports = self.recording.perform_for_program(&mut state, effects, trace_id, None)?;
        Ok((self.recording.machine.read(SessionMachine::last_preparation), reports))
    }

    /// Ends the recording and returns what is committed, without waiting for any thread.
    pub(crate) fn stop(&self) -> Result<Trace, Error> {
        let _scope = self.recording.observers.notify_scope();
        let _own = InternalAllocGuard::begin();
        self.finish_dump();
        self.requests.take_parts();
        self.recording.check_process()?;
        self.recording.end(User::Program, || self.spill.take_cuts(self))
    }

    /// Returns why that request lost the session, if it did.
    pub(crate) fn why_evicted(&self, request_id: u64) -> Option<&'static str> {
        self.requests.why_evicted(request_id).or_else(|| self.memory_profile.why_evicted(request_id))
    }

    /// Counts an iteration for `requester`, and calls the request handler if it watches for this one.
    pub(crate) fn count_iteration(&self, requester: &str) -> u64 {
        let current = self.steps.with_iterations(|iterations| iterations.increment(requester));
        self.requests.report_iteration(current);
        current
    }

    /// Returns whether anything is recorded now, without waiting for a start or stop in progress.
    pub(crate) fn is_recording(&self) -> bool {
        self.recorder.epoch() != 0 && !self.recorder.is_forked()
    }
}

/// Locks if that takes no longer than `wait`.
fn lock_within<T>(lock: &Mutex<T>, wait: Duration) -> Option<MutexGuard<'_, T>> {
    // A free lock needs no clock, which WebAssembly lacks.
    try_lock(lock).or_else(|| lock_until(lock, deadline_after(wait)))
}

/// Locks if that is possible before `deadline`.
fn lock_until<T>(lock: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match try_lock(lock) {
            Some(held) => return Some(held),
            None if steady() >= deadline => return None,
            None => sleep(Duration::from_micros(100)),
        }
    }
}

fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The longest wait, so that no clock overflows.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns the time that is `wait` from now, or a year if that is less.
fn deadline_after(wait: Duration) -> Instant {
    steady() + wait.min(YEAR)
}

#[cfg(test)]
mod tests;
