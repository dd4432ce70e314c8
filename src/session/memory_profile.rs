//! Memory profiles on demand: recordings that hold only what allocators report, independent of the session's recording.

use super::active_request::ActiveRequest;
use super::observer::SessionEvent;
use super::recording::{SessionOptions, SessionRecording};
use super::requests::{REQUEST_IS_RECORDING, SessionRequests};
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
    /// The request that the current profile belongs to.
    active_request: ActiveRequest,
    /// The last profile of the program.
    last: Option<Trace>,
}

const EVICTED: &str = "the program started its own memory profile";

impl MemoryProfile {
    pub(super) fn new(session: Arc<SessionRecording>, requests: Arc<SessionRequests>) -> MemoryProfile {
        MemoryProfile { session, requests, state: fork::Own::default() }
    }

    /// Returns why that request lost its memory profile, if it did.
    pub(super) fn why_evicted(&self, request_id: u64) -> Option<&'static str> {
        self.state.lock().active_request.is_over(request_id).then_some(EVICTED)
    }

    /// Starts a memory profile of the program, and evicts that of a request.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        if let Some(request_id) = state.active_request.active_id() {
            drop(self.end_profile(&mut state, Some(request_id), EVICTED));
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
        if state.active_request.is_over(request_id) {
            return Err(Error::new(ErrorKind::NotActive, EVICTED));
        }
        state.active_request.mark_over(request_id);
        // An empty profile would only be reported at its end.
        if !memory::has_reporter() {
            return Err(Error::new(ErrorKind::NotActive, NO_REPORTS));
        }
        self.start_recording(&mut state, between)?;
        state.active_request.begin(request_id);
        Ok(())
    }

    fn start_recording(
        &self,
        state: &mut MemoryProfileState,
        between: Option<(SystemTime, SystemTime)>,
    ) -> Result<(), Error> {
        let _own = InternalAllocGuard::begin();
        if state.running.is_some() {
            let why = "a memory profile is running already; stop it first";
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
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
        recording.start(&mut *recording.lock_state()?, None, between)?;
        state.running = Some(recording);
        self.session.observers.queue_event(SessionEvent::MemoryProfileStarted);
        Ok(())
    }

    /// Ends the program's memory profile and keeps it until the next one.
    pub(crate) fn stop(&self) -> Result<Trace, Error> {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        let none = match state.active_request.active_id() {
            Some(_) => REQUEST_IS_RECORDING,
            None => "no memory profile is running; start one first",
        };
        let trace = self.end_profile(&mut state, None, none)?;
        state.last = Some(trace.clone());
        Ok(trace)
    }

    /// Ends the memory profile of a request and returns it.
    pub(crate) fn stop_for(&self, request_id: u64) -> Result<Trace, Error> {
        let _scope = self.session.observers.notify_scope();
        self.end_profile(&mut self.state.lock(), Some(request_id), EVICTED)
    }

    /// Discards the memory profile of a request.
    pub(crate) fn discard_for(&self, request_id: u64) {
        let _scope = self.session.observers.notify_scope();
        let mut state = self.state.lock();
        state.active_request.mark_over(request_id);
        drop(self.end_profile(&mut state, Some(request_id), EVICTED));
    }

    /// Ends the memory profile of that request; `None` is the program.
    fn end_profile(&self, state: &mut MemoryProfileState, request_id: Option<u64>, none: &str) -> Result<Trace, Error> {
        let running = state.running.take_if(|_| state.active_request.active_id() == request_id);
        let running = running.ok_or_else(|| Error::new(ErrorKind::NotActive, none))?;
        state.active_request.end();
        let _own = InternalAllocGuard::begin();
        let ended = running.lock_state().and_then(|mut recording| running.end(&mut recording));
        self.session.observers.queue_event(SessionEvent::MemoryProfileStopped);
        ended
    }

    /// Writes the last memory profile of the program.
    pub(crate) fn export(&self, path: &Path) -> Result<(), Error> {
        let _scope = self.session.observers.notify_scope();
        let state = self.state.lock();
        let refused = |why: &str| Err(Error::new(ErrorKind::NotActive, why));
        if state.running.is_some() && state.active_request.active_id().is_none() {
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
