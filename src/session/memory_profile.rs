//! Memory profiles on demand: recordings that hold only what allocators report, independent of the session's recording.

use super::machine::{Effect, Event, Refusal, SessionMachine, User};
use super::observer::SessionEvent;
use super::recording::{SessionOptions, SessionRecording};
use super::refusals::REQUEST_IS_RECORDING;
use super::requests::SessionRequests;
use super::settings::SessionSettings;
use crate::config::{Config, Mode, Output};
use crate::error::{Error, ErrorKind};
use crate::memory::{self, Device, NO_REPORTS};
use crate::os::fork;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::recorder::{Recorder, RecorderSettings, ThreadFilter};
use crate::trace::Trace;
use crate::write::file::{Destination, FileSystem};
use crate::write::sink::Sinks;
use kineto_devices::CollectorSet;
use kineto_model::memory::TimelineFormat;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

/// The memory profile of a session: the program's, or that of an external request, which the program's evicts.
#[derive(Debug)]
pub(crate) struct MemoryProfile {
    /// The session's recordings, for their settings and observers.
    session: Arc<SessionRecording>,
    requests: Arc<SessionRequests>,
    /// A forked child has its own state.
    state: fork::Own<MemoryProfileState>,
}

#[derive(Debug, Default)]
struct MemoryProfileState {
    /// The recording of the current profile.
    running: Option<SessionRecording>,
    /// Decides who uses the memory profile.
    machine: SessionMachine,
    /// The last profile of the program.
    last: Option<Trace>,
}

const EVICTED: &str = "the program started its own memory profile";
const NONE_IS_RUNNING: &str = "no memory profile is running; start one first";

impl MemoryProfile {
    pub(super) fn new(session: Arc<SessionRecording>, requests: Arc<SessionRequests>) -> MemoryProfile {
        MemoryProfile { session, requests, state: fork::Own::default() }
    }

    /// Returns why that request lost its memory profile, if it did.
    pub(super) fn why_evicted(&self, request_id: u64) -> Option<&'static str> {
        self.state.lock().machine.is_over(request_id).then_some(EVICTED)
    }

    /// Starts a memory profile of the program, and evicts that of a request.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        let effects = state.machine.handle(Event::Start(User::Program)).map_err(|_| already_running())?;
        if effects.contains(&Effect::Discard) {
            drop(self.end_running(&mut state));
            self.requests.report_eviction();
        }
        self.start_recording(&mut state, None)?;
        // The old profile would keep its memory, and would be exported in place of the new one if that one could not be
        // stopped.
        state.last = None;
        Ok(())
    }

    /// Starts a memory profile for a request; with `between`, it is cut to these times.
    pub(crate) fn start_for(&self, request_id: u64, between: Option<(SystemTime, SystemTime)>) -> Result<(), Error> {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        let begun = state.machine.handle(Event::Start(User::Request(request_id)));
        begun.map_err(|why| match why {
            Refusal::IsOver => Error::new(ErrorKind::NotActive, EVICTED),
            _ => already_running(),
        })?;
        // An empty profile would only be reported at its end.
        if !memory::has_reporter() {
            let _ = state.machine.handle(Event::Fail);
            return Err(Error::new(ErrorKind::NotActive, NO_REPORTS));
        }
        self.start_recording(&mut state, between)
    }

    /// Starts the recording of a profile that has begun.
    fn start_recording(
        &self,
        state: &mut MemoryProfileState,
        between: Option<(SystemTime, SystemTime)>,
    ) -> Result<(), Error> {
        let begun = self.create_recording(between);
        state.running = Some(begun.inspect_err(|_| _ = state.machine.handle(Event::Fail))?);
        self.session.observers.queue_event(SessionEvent::MemoryProfileStarted);
        Ok(())
    }

    fn create_recording(&self, between: Option<(SystemTime, SystemTime)>) -> Result<SessionRecording, Error> {
        let _own = InternalAllocGuard::begin();
        let mut config = Config::clone(&self.session.settings.next_config());
        (config.output, config.flags.profile_memory) = (Output::Nowhere, true);
        (config.mode, config.gpu.profiler_range) = (Mode::Kineto.into(), false);
        let settings = RecorderSettings {
            records: true,
            threads: ThreadFilter::All,
            evicts_oldest: false,
            ..self.session.recorder.settings.clone()
        };
        let recorder = Arc::new(Recorder::new(
            config.buffer_limit_bytes,
            Default::default(),
            Default::default(),
            Default::default(),
            settings,
        ));
        if !recorder.claim_listener_slot() {
            let why = "too many layers record memory; drop one of them first";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let (settings, none) = (SessionSettings::new(config), CollectorSet::default());
        let (options, sinks) = (SessionOptions::default(), Sinks::default());
        let recording = SessionRecording::new(recorder, Arc::new(settings), options, sinks, none, Weak::new());
        recording.start(between)?;
        Ok(recording)
    }

    /// Ends the program's memory profile and keeps it until the next one.
    pub(crate) fn stop(&self) -> Result<Trace, Error> {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        state.machine.handle(Event::End(User::Program)).map_err(|why| {
            let text = match why {
                Refusal::UsedBy(_) => REQUEST_IS_RECORDING,
                _ => NONE_IS_RUNNING,
            };
            Error::new(ErrorKind::NotActive, text)
        })?;
        let _ = state.machine.handle(Event::Ended);
        let trace = self.end_running(&mut state)?;
        state.last = Some(trace.clone());
        Ok(trace)
    }

    /// Ends the memory profile of a request and returns it.
    pub(crate) fn stop_for(&self, request_id: u64) -> Result<Trace, Error> {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        let ended = state.machine.handle(Event::End(User::Request(request_id)));
        ended.map_err(|_| Error::new(ErrorKind::NotActive, EVICTED))?;
        let _ = state.machine.handle(Event::Ended);
        self.end_running(&mut state)
    }

    /// Discards the memory profile of a request.
    pub(crate) fn discard_for(&self, request_id: u64) {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        let effects = state.machine.handle(Event::GiveUp(request_id));
        if effects.is_ok_and(|effects| effects.contains(&Effect::Discard)) {
            drop(self.end_running(&mut state));
        }
    }

    /// Ends the current recording.
    fn end_running(&self, state: &mut MemoryProfileState) -> Result<Trace, Error> {
        let none = || Error::new(ErrorKind::NotActive, NONE_IS_RUNNING);
        let running = state.running.take().ok_or_else(none)?;
        let _own = InternalAllocGuard::begin();
        let ended = running.end(User::Program, || ());
        self.session.observers.queue_event(SessionEvent::MemoryProfileStopped);
        ended
    }

    /// Writes the last memory profile of the program.
    pub(crate) fn export(&self, path: &Path) -> Result<(), Error> {
        let _scope = self.session.observers.notify_scope();
        let state = self.state.lock();
        let refused = |why: &str| Err(Error::new(ErrorKind::NotActive, why));
        if state.machine.user() == Some(User::Program) {
            return refused("the memory profile is still running; stop it first");
        }
        let Some(trace) = state.last.clone() else {
            return refused("there is no memory profile; start and stop one first");
        };
        drop(state);
        self.write_timeline(&trace, &FileSystem, path).map(drop)
    }

    /// Writes the timeline of the first device, or of the host if there is none. Returns the name of the file.
    pub(crate) fn write_timeline(&self, trace: &Trace, to: &dyn Destination, path: &Path) -> Result<PathBuf, Error> {
        let _scope = self.session.observers.notify_scope();
        let devices = trace.memory_devices();
        let Some(device) = devices.iter().find(|device| **device != Device::CPU).or(devices.first()) else {
            return Err(Error::new(ErrorKind::NotActive, NO_REPORTS));
        };
        let timeline = trace.memory_timeline(*device);
        let format = TimelineFormat::from_path(path);
        let saved = to.write_file(path, timeline.gzip_level(), &mut |_, out| timeline.write(out, format))?;
        self.session.observers.queue_event(SessionEvent::MemoryProfileExported(saved.clone()));
        Ok(saved)
    }
}

fn already_running() -> Error {
    Error::new(ErrorKind::AlreadyActive, "a memory profile is running already; stop it first")
}
