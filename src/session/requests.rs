//! Recordings for external requests. A recording of the program evicts them.

use super::Status;
use super::machine::{Event, SessionMachine, User};
use super::recording::SessionRecording;
use super::refusals::{EVICTED_BY_PROGRAM, PROGRAM_IS_RECORDING};
use super::writes::Patience;
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::trace::Trace;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Serves the external requests of a session.
pub(crate) trait RequestHandler: fmt::Debug + Send + Sync {
    /// Reports that the program has reached the watched iteration or a later one, on the thread that counts.
    fn handle_iteration(&self, iteration: u64);

    /// Reports that the program has evicted the request. It must take no lock.
    fn handle_eviction(&self);

    /// Takes the parts that requests get of the program's recording, which is about to end.
    fn handle_recording_end(&self);

    /// Ends the running recording, and waits for its file as long as `patience` allows.
    fn close(&self, patience: Patience);
}

/// The external requests of a session.
#[derive(Debug)]
pub(crate) struct SessionRequests {
    recording: Arc<SessionRecording>,
    /// The fork generation in which the session was created.
    born: u64,
    /// The handler of this process: a forked child serves no requests unless the program enables it.
    handler: fork::Own<Option<Arc<dyn RequestHandler>>>,
    /// The iteration at which the handler is called; 0 if none is watched.
    watched: AtomicU64,
}

impl SessionRequests {
    pub(super) fn new(recording: Arc<SessionRecording>) -> SessionRequests {
        let (handler, watched) = Default::default();
        SessionRequests { recording, born: fork::generation(), handler, watched }
    }

    /// Reports to the handler that the program has evicted its request.
    pub(super) fn report_eviction(&self) {
        if let Some(handler) = self.handler() {
            handler.handle_eviction();
        }
    }

    fn handler(&self) -> Option<Arc<dyn RequestHandler>> {
        self.handler.lock().clone()
    }

    /// Sets the request handler, unless there is one already.
    pub(crate) fn set_handler(&self, handler: Arc<dyn RequestHandler>) {
        self.handler.lock().get_or_insert(handler);
    }

    /// Returns whether this is a forked child in which no handler serves requests yet.
    ///
    /// # Errors
    /// If it cannot serve any: another thread was starting or stopping a recording at the fork.
    pub(crate) fn is_unserved_child(&self) -> Result<bool, Error> {
        let is_unserved = self.is_of_parent() && self.handler().is_none();
        if is_unserved { self.recording.lock_state().map(|_| true) } else { Ok(false) }
    }

    /// Returns whether the session was created before this process was forked.
    pub(crate) fn is_of_parent(&self) -> bool {
        fork::generation() != self.born
    }

    /// Ends the running request, and accepts no further ones.
    pub(crate) fn close(&self, patience: Patience) {
        if let Some(handler) = self.handler() {
            handler.close(patience);
        }
    }

    /// Returns why a requested recording cannot begin, if the program uses the session itself.
    pub(crate) fn used_by_program(&self) -> Option<&'static str> {
        // A recording that is ending uses it no more.
        self.recording.machine.wait_for(Event::Evict);
        (self.recording.machine.read(SessionMachine::user) == Some(User::Program)).then_some(PROGRAM_IS_RECORDING)
    }

    /// Returns why a requested recording cannot begin now.
    pub(crate) fn why_busy(&self) -> Option<&'static str> {
        self.used_by_program().filter(|_| !self.shares_recording())
    }

    /// Returns whether requests get a part of the program's own recording: it keeps the newest records all the time.
    pub(crate) fn shares_recording(&self) -> bool {
        self.recording.recorder.settings.evicts_oldest
            && !self.recording.recorder.is_spilling()
            && self.recording.status_now() != Status::Idle
            && self.used_by_program().is_some()
    }

    /// Takes the parts of the program's own recording that requests get, because it is about to end.
    pub(super) fn take_parts(&self) {
        if let Some(handler) = self.handler().filter(|_| self.shares_recording()) {
            handler.handle_recording_end();
        }
    }

    /// Returns the part of the program's own recording between two times, for a request with these ids.
    pub(crate) fn part_of_recording(
        &self,
        between: (SystemTime, SystemTime),
        (trace_id, group_trace_id): (&str, &str),
    ) -> Result<Trace, Error> {
        if self.used_by_program().is_none() {
            let why = "the program records nothing now; record all the time with KINETO_OVERFLOW=keep_newest";
            return Err(Error::new(ErrorKind::NotActive, why));
        }
        let mut trace = self.recording.snapshot_between(Some(between))?;
        trace.set_ids(trace_id, group_trace_id);
        Ok(trace)
    }

    /// Returns the status of the program's own recording.
    pub(super) fn program_status(&self) -> Status {
        if self.active_request().is_some() { Status::Idle } else { self.recording.status() }
    }

    /// Returns the number of the request that uses the session.
    pub(super) fn active_request(&self) -> Option<u64> {
        self.recording.machine.read(SessionMachine::request)
    }

    /// Returns why that request lost the recording, if it did.
    pub(super) fn why_evicted(&self, request_id: u64) -> Option<&'static str> {
        let is_evicted = self.recording.machine.read(|machine| machine.is_over(request_id));
        is_evicted.then_some(EVICTED_BY_PROGRAM)
    }

    /// Starts the collectors for a request.
    pub(crate) fn prepare(&self, request_id: u64, config: Config) -> Result<(), Error> {
        let _scope = self.recording.observers.notify_scope();
        let _own = InternalAllocGuard::begin();
        let prepare = Event::Prepare(User::Request(request_id));
        if self.recording.machine.read(|machine| machine.is_over(request_id)) {
            // It was cancelled meanwhile.
            return Ok(());
        }
        let (mut state, effects) = self.recording.lock_for(prepare)?;
        self.recording.perform(&mut state, effects, None, Arc::new(config), None).map(drop)
    }

    /// Starts the recording of a request; with `between`, the trace is cut to these times. If nothing was prepared, it has
    /// these settings.
    pub(crate) fn start(
        &self,
        request_id: u64,
        between: Option<(SystemTime, SystemTime)>,
        config: Config,
    ) -> Result<(), Error> {
        let _scope = self.recording.observers.notify_scope();
        let _own = InternalAllocGuard::begin();
        let (mut state, effects) = self.recording.lock_for(Event::Start(User::Request(request_id)))?;
        self.recording.perform(&mut state, effects, None, Arc::new(config), between).map(drop)
    }

    /// Stops recording for a request at once, without ending the recording.
    pub(crate) fn halt(&self, request_id: u64) -> Result<(), Error> {
        let _state = self.recording.lock_state()?;
        self.recording.check_process()?;
        if self.active_request() != Some(request_id) {
            return Err(Error::new(ErrorKind::NotActive, EVICTED_BY_PROGRAM));
        }
        self.recording.halt();
        Ok(())
    }

    /// Ends the recording of a request and returns it.
    pub(crate) fn stop(&self, request_id: u64) -> Result<Trace, Error> {
        let _scope = self.recording.observers.notify_scope();
        let _own = InternalAllocGuard::begin();
        self.recording.check_process()?;
        self.recording.end(User::Request(request_id), || ())
    }

    /// Discards the recording of a request, for that reason.
    pub(crate) fn discard(&self, request_id: u64, why: &str) {
        let _scope = self.recording.observers.notify_scope();
        self.recording.discard_on(Event::GiveUp(request_id), why);
    }

    /// Evicts the current request, because the program uses the session itself.
    pub(super) fn evict_request(&self) {
        if self.recording.discard_on(Event::Evict, EVICTED_BY_PROGRAM) {
            self.report_eviction();
        }
    }

    /// Sets the iteration from which [`RequestHandler::handle_iteration`] is called; `None` for never.
    pub(crate) fn watch_iteration(&self, iteration: Option<u64>) {
        self.watched.store(iteration.unwrap_or(0), Ordering::Relaxed);
    }

    /// Calls the handler if it watches for the iteration that has begun.
    pub(super) fn report_iteration(&self, current: u64) {
        let watched = self.watched.load(Ordering::Relaxed);
        if watched != 0
            && current >= watched
            && let Some(handler) = self.handler()
        {
            handler.handle_iteration(current);
        }
    }

    /// Returns the collector that stopped on its own during a request, and the cause.
    pub(crate) fn stopped_collector(&self) -> Option<String> {
        self.active_request().and_then(|_| self.recording.collectors.early_stop_reason())
    }
}
