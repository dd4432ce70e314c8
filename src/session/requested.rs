//! Recordings for external requests. A recording of the program evicts them.

use super::active_request::ActiveRequest;
use super::observer::SessionEvent;
use super::saving::Patience;
use super::windows::OF_HOST;
use super::{Session, SessionPhase, SessionState, Status};
use crate::config::{Config, Output, ParsedRequest};
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::schedule::PROFILER_STEP;
use crate::time::Timestamp;
use crate::trace::Trace;
use kineto_trace::activity::ActivityTypes;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// Serves the external requests of a session.
pub(crate) trait RequestHandler: fmt::Debug + Send + Sync {
    /// Reports that the program has reached the watched iteration or a later one, on the thread that counts.
    fn reached(&self, iteration: u64);

    /// Reports that the program has evicted the request. It must take no lock.
    fn evicted(&self);

    /// Ends the running recording, and waits for its file as long as `patience` allows.
    fn close(&self, patience: Patience);
}

/// Connects a session to its request handler.
#[derive(Debug, Default)]
pub(super) struct RequestLink {
    /// The handler of this process: a forked child serves no requests unless the program enables it.
    handler: fork::Own<Option<Arc<dyn RequestHandler>>>,
    /// The iteration at which the handler is called; 0 if none is watched.
    watched: AtomicU64,
}

/// The preparation number of all requests; the program's preparations count from 1.
const BY_REQUEST: u64 = 0;

const OWN: &str = "the program is recording itself; try again when its recording has ended";
const TAKEN: &str = "the program started its own recording";
pub(super) const FOREIGN: &str = "the running recording belongs to an external request; wait until it ends";

impl RequestLink {
    /// Reports to the handler that the program has evicted its request.
    pub(super) fn report_eviction(&self) {
        if let Some(handler) = self.handler() {
            handler.evicted();
        }
    }

    fn handler(&self) -> Option<Arc<dyn RequestHandler>> {
        self.handler.lock().clone()
    }
}

impl Session {
    /// Sets the request handler, unless there is one already.
    pub(crate) fn set_request_handler(&self, handler: Arc<dyn RequestHandler>) {
        self.requests.handler.lock().get_or_insert(handler);
    }

    /// Forgets the parent's requests in a forked child. Returns `false` in the process that created the session, and if this
    /// process serves requests already.
    pub(crate) fn forget_requests_of_parent(&self) -> Result<bool, Error> {
        if !self.is_of_parent() || self.requests.handler().is_some() {
            return Ok(false);
        }
        self.lock()?.active_request = ActiveRequest::default();
        Ok(true)
    }

    /// Returns whether the session was created before this process was forked.
    pub(crate) fn is_of_parent(&self) -> bool {
        fork::generation() != self.born
    }

    /// Ends the running request, and accepts no further ones.
    pub(crate) fn close_requests(&self, patience: Patience) {
        if let Some(handler) = self.requests.handler() {
            handler.close(patience);
        }
    }

    /// Returns the file of recordings that the configuration schedules: the program's output, or the default one if it has
    /// none.
    pub(crate) fn output_of_windows(&self) -> PathBuf {
        let (settings, parts) = (self.settings(), self.settings().name_placeholders());
        let own = settings.output.path(&parts).or_else(|| Output::Default.path(&parts));
        own.unwrap_or_default()
    }

    /// Returns why a requested recording cannot begin, if the program uses the session itself.
    pub(crate) fn used_by_program(&self) -> Option<&'static str> {
        // A recording of the parent does not count in a forked child.
        let state = self.lock().ok().filter(|_| !self.recorder.is_forked())?;
        (state.active_request.id().is_none() && !matches!(state.phase, SessionPhase::Idle)).then_some(OWN)
    }

    /// Returns the status of the program's own recording.
    pub(super) fn program_status(&self) -> Status {
        if self.active_request().is_some() { Status::Idle } else { self.status() }
    }

    /// Returns the number of the request that uses the session.
    pub(super) fn active_request(&self) -> Option<u64> {
        self.lock().ok().filter(|_| !self.recorder.is_forked())?.active_request.id()
    }

    /// Returns why that request lost the session, if it did.
    pub(crate) fn why_evicted(&self, request_id: u64) -> Option<&'static str> {
        let is_evicted = self.lock().is_ok_and(|state| state.active_request.is_done(request_id));
        is_evicted.then_some(TAKEN).or_else(|| self.memory_profile.why_evicted(request_id))
    }

    /// Returns the settings of a requested recording, and a warning if it requests options that only the layer can enable.
    pub(crate) fn settings_for(&self, asked: &ParsedRequest, output: PathBuf) -> (Config, Option<&'static str>) {
        let missing = "PROFILE_WITH_STACK has no effect: the layer records no call stacks; start the program with \
                       KINETO_PROFILE_WITH_STACK";
        let config = self.settings().of_request(asked, output);
        let lacks_stacks = config.flags.with_stack && !self.config.flags.with_stack;
        (config, lacks_stacks.then_some(missing))
    }

    /// Starts the collectors for a request.
    pub(crate) fn prepare_for(&self, request_id: u64, config: Config) -> Result<(), Error> {
        let _scope = self.notify_scope();
        let _own = InternalAllocGuard::begin();
        let mut state = self.lock()?;
        // It may have begun or been cancelled meanwhile.
        if state.active_request.is_active(request_id) || state.active_request.is_done(request_id) {
            return Ok(());
        }
        self.acquire_for(&mut state, request_id, config)
    }

    fn acquire_for(&self, state: &mut SessionState, request_id: u64, config: Config) -> Result<(), Error> {
        // Even if this fails: a preparation that arrives after its start failed is ignored.
        state.active_request.mark_done(request_id);
        if !matches!(state.phase, SessionPhase::Idle) && !self.recorder.is_forked() {
            return Err(Error::new(ErrorKind::AlreadyActive, OWN));
        }
        self.start_collectors(state, SessionPhase::Prepared(BY_REQUEST), None, Arc::new(config))?;
        state.active_request.begin(request_id);
        Ok(())
    }

    /// Starts the recording of a request; with `between`, the trace is cut to these times. Calls `config` for its settings if
    /// nothing was prepared.
    pub(crate) fn start_for(
        &self,
        request_id: u64,
        between: Option<(SystemTime, SystemTime)>,
        config: impl FnOnce() -> Config,
    ) -> Result<(), Error> {
        let _scope = self.notify_scope();
        let _own = InternalAllocGuard::begin();
        let mut state = self.lock()?;
        if state.active_request.is_done(request_id) {
            return Err(Error::new(ErrorKind::AlreadyActive, OWN));
        }
        if !state.active_request.is_active(request_id) {
            self.acquire_for(&mut state, request_id, config())?;
        }
        let config = state.config.clone();
        state.between = between;
        let begun = self
            .start_collectors(&mut state, SessionPhase::Idle, None, config)
            .and_then(|_| self.open_recording(&mut state));
        if begun.is_err() {
            state.active_request.end();
        }
        begun
    }

    /// Returns the types that are recorded from the start on. Host types are all on or all off for a request, and for a
    /// program whose configuration file changed them: each callsite is decided once for the layer.
    pub(super) fn begins_with(&self, state: &SessionState) -> ActivityTypes {
        let has_cpu = |config: &Config| !config.activities.intersection(OF_HOST).is_empty();
        let is_decided_by_callsite = state.active_request.id().is_none() && !has_cpu(&self.config);
        match has_cpu(&state.config) || is_decided_by_callsite {
            true => ActivityTypes::ALL,
            false => ActivityTypes::ALL.difference(OF_HOST),
        }
    }

    /// Stops recording for a request at once, without ending the recording.
    pub(crate) fn halt_for(&self, request_id: u64) -> Result<(), Error> {
        let state = self.lock()?;
        self.check_active_request(&state, request_id)?;
        self.recording_windows.pause(ActivityTypes::ALL);
        Ok(())
    }

    /// Ends the recording of a request and returns it.
    pub(crate) fn stop_for(&self, request_id: u64) -> Result<Trace, Error> {
        let _scope = self.notify_scope();
        let _own = InternalAllocGuard::begin();
        let mut state = self.lock()?;
        self.check_active_request(&state, request_id)?;
        let trace = self.end(&mut state);
        state.active_request.end();
        trace
    }

    /// Discards the recording of a request, for that reason.
    pub(crate) fn discard_for(&self, request_id: u64, why: &str) {
        let _scope = self.notify_scope();
        let Ok(mut state) = self.lock() else { return };
        state.active_request.mark_done(request_id);
        if state.active_request.is_active(request_id) && !self.recorder.is_forked() {
            self.discard(&mut state, why);
        }
    }

    fn check_active_request(&self, state: &SessionState, request_id: u64) -> Result<(), Error> {
        self.check_process()?;
        let evicted = || Error::new(ErrorKind::NotActive, TAKEN);
        state.active_request.is_active(request_id).then_some(()).ok_or_else(evicted)
    }

    /// Evicts the current request, because the program uses the session itself.
    pub(super) fn evict_request(&self, state: &mut SessionState) {
        if state.active_request.id().is_none() {
            return;
        }
        if self.recorder.is_forked() {
            return state.active_request.end();
        }
        self.discard(state, TAKEN);
        self.requests.report_eviction();
    }

    fn discard(&self, state: &mut SessionState, why: &str) {
        if matches!(state.phase, SessionPhase::Recording) {
            self.recording_windows.end();
            self.recorder.observers.stop();
            drop(self.clock_thread.stop());
            self.recorder.discard();
        }
        drop(self.collectors.stop(Timestamp::default(), Instant::now()));
        state.phase = SessionPhase::Idle;
        state.active_request.end();
        self.observers.push(SessionEvent::Cancelled(why.to_owned()));
    }

    /// Sets the iteration from which [`RequestHandler::reached`] is called; `None` for never.
    pub(crate) fn watch_iteration(&self, iteration: Option<u64>) {
        self.requests.watched.store(iteration.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the iteration that the program is in, if it counts them.
    pub(crate) fn iteration(&self) -> Option<u64> {
        self.steps.with_iterations(|iterations| iterations.is_counted().then(|| iterations.current()))
    }

    /// Counts a step of the profiler.
    pub(super) fn count_step(&self) {
        self.count_iteration(PROFILER_STEP);
    }

    /// Counts an iteration for `requester`, and calls the handler if it watches for this one.
    pub(crate) fn count_iteration(&self, requester: &str) -> u64 {
        let current = self.steps.with_iterations(|iterations| iterations.increment(requester));
        let watched = self.requests.watched.load(Ordering::Relaxed);
        if watched != 0
            && current >= watched
            && let Some(handler) = self.requests.handler()
        {
            handler.reached(current);
        }
        current
    }

    /// Returns the collector that stopped on its own during a request, and the cause.
    pub(crate) fn stopped_collector(&self) -> Option<String> {
        self.active_request().and_then(|_| self.collectors.stopped())
    }
}
