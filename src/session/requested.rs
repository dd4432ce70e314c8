//! Recordings that somebody outside of the program has asked for: they make way for the program's own.

use super::gate::OF_HOST;
use super::guest::Guest;
use super::observer::Event;
use super::saving::Patience;
use super::{Phase, Session, State, Status};
use crate::config::{Asked, Config, Output};
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::recorder::listeners::Own;
use crate::schedule::PROFILER_STEP;
use crate::time::Timestamp;
use crate::trace::Trace;
use kineto_trace::activity::ActivityTypes;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// Who does what is asked for from outside.
pub(crate) trait Outside: fmt::Debug + Send + Sync {
    /// The program has come to the iteration that was watched for, or beyond; called on the thread that counts.
    fn reached(&self, iteration: u64);

    /// The program has taken the session for itself. No lock may be taken here.
    fn evicted(&self);

    /// Ends the running recording, and waits until it is written, as long as `patience` allows.
    fn close(&self, patience: Patience);
}

/// What a session knows of those outside.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Of this process: a forked child serves no requests unless the program asks for it.
    outside: fork::Own<Option<Arc<dyn Outside>>>,
    /// From which iteration on somebody wants to know; 0 if nobody does.
    watched: AtomicU64,
}

/// The number that stands for a preparation by request, beside those of the program.
const BY_REQUEST: u64 = 0;

const OWN: &str = "a recording of the program's own is going on";
const TAKEN: &str = "the program has started a recording of its own";
pub(super) const FOREIGN: &str = "the recording that is going on was asked for from outside; it ends by itself";

impl Requests {
    /// Tells whoever does requests that the program has taken the session for itself.
    pub(super) fn evicted(&self) {
        if let Some(outside) = self.outside() {
            outside.evicted();
        }
    }

    fn outside(&self) -> Option<Arc<dyn Outside>> {
        self.outside.lock().clone()
    }
}

impl Session {
    /// Says who does what is asked for from outside; the first one to say so counts.
    pub(crate) fn serve(&self, outside: Arc<dyn Outside>) {
        self.requests.outside.lock().get_or_insert(outside);
    }

    /// Forgets the parent's requests in a forked child; `false` in the process that made the session, and where this process
    /// serves requests already.
    pub(crate) fn forget_requests_of_parent(&self) -> Result<bool, Error> {
        if !self.is_of_parent() || self.requests.outside().is_some() {
            return Ok(false);
        }
        self.lock()?.guest = Guest::default();
        Ok(true)
    }

    /// Whether the session was made by a process of which this one is a fork.
    pub(crate) fn is_of_parent(&self) -> bool {
        fork::generation() != self.born
    }

    /// Ends what was asked for from outside, and takes no more of it.
    pub(crate) fn close_requests(&self, patience: Patience) {
        if let Some(outside) = self.requests.outside() {
            outside.close(patience);
        }
    }

    /// Returns where recordings go that the configuration says: where the program's own do, even if it has those nowhere.
    pub(crate) fn output_of_windows(&self) -> PathBuf {
        let (settings, parts) = (self.settings(), self.settings().name_parts());
        let own = settings.output.path(&parts).or_else(|| Output::Default.path(&parts));
        own.unwrap_or_default()
    }

    /// Returns why a recording that is asked for from outside cannot begin, if the program uses the session itself.
    pub(crate) fn used_by_program(&self) -> Option<&'static str> {
        // In a forked child, what its parent records is none of its own.
        let state = self.lock().ok().filter(|_| !self.recorder.is_forked())?;
        (state.guest.ticket().is_none() && !matches!(state.phase, Phase::Idle)).then_some(OWN)
    }

    /// What the session does for the program itself, for which a request makes way.
    pub(super) fn use_by_program(&self) -> Status {
        if self.guest().is_some() { Status::Idle } else { self.status() }
    }

    /// Returns the number of the request that uses the session.
    pub(super) fn guest(&self) -> Option<u64> {
        self.lock().ok().filter(|_| !self.recorder.is_forked())?.guest.ticket()
    }

    /// Returns why that request had the session and has it no more, if so.
    pub(crate) fn why_evicted(&self, ticket: u64) -> Option<&'static str> {
        let is_evicted = self.lock().is_ok_and(|state| state.guest.is_over(ticket));
        is_evicted.then_some(TAKEN).or_else(|| self.memory_profile.why_evicted(ticket))
    }

    /// Returns the settings of a recording for a request, and what it asks for that only the layer can decide.
    pub(crate) fn settings_for(&self, asked: &Asked, output: PathBuf) -> (Config, Option<&'static str>) {
        let missing = "PROFILE_WITH_STACK changes nothing: call stacks are there if the program is started with them \
                       (KINETO_PROFILE_WITH_STACK)";
        let config = self.settings().of_request(asked, output);
        let lacks_stacks = config.flags.with_stack && !self.config.flags.with_stack;
        (config, lacks_stacks.then_some(missing))
    }

    /// Has the collectors begin for a request.
    pub(crate) fn prepare_for(&self, ticket: u64, config: Config) -> Result<(), Error> {
        let _call = self.call();
        let _own = Own::begin();
        let mut state = self.lock()?;
        // It may have begun meanwhile, or been thrown away.
        if state.guest.is(ticket) || state.guest.is_over(ticket) {
            return Ok(());
        }
        self.take_for(&mut state, ticket, config)
    }

    fn take_for(&self, state: &mut State, ticket: u64, config: Config) -> Result<(), Error> {
        // Whatever comes of it: a preparation that comes later than a start which has failed is none.
        state.guest.pass_over(ticket);
        if !matches!(state.phase, Phase::Idle) && !self.recorder.is_forked() {
            return Err(Error::new(ErrorKind::AlreadyActive, OWN));
        }
        self.ready(state, Phase::Prepared(BY_REQUEST), None, Arc::new(config))?;
        state.guest.enter(ticket);
        Ok(())
    }

    /// Starts the recording of a request, of which only what lies between two times is kept if they are given; its settings
    /// are asked for if nothing was prepared.
    pub(crate) fn start_for(
        &self,
        ticket: u64,
        between: Option<(SystemTime, SystemTime)>,
        config: impl FnOnce() -> Config,
    ) -> Result<(), Error> {
        let _call = self.call();
        let _own = Own::begin();
        let mut state = self.lock()?;
        if state.guest.is_over(ticket) {
            return Err(Error::new(ErrorKind::AlreadyActive, OWN));
        }
        if !state.guest.is(ticket) {
            self.take_for(&mut state, ticket, config())?;
        }
        let config = state.config.clone();
        state.between = between;
        let begun = self.ready(&mut state, Phase::Idle, None, config).and_then(|_| self.run(&mut state));
        if begun.is_err() {
            state.guest.leave();
        }
        begun
    }

    /// What is recorded from the start on. Of the host, a request has all or nothing, and so has the program when its
    /// file says something else: callsites are judged for the layer, once.
    pub(super) fn begins_with(&self, state: &State) -> ActivityTypes {
        let has_cpu = |config: &Config| !config.activities.intersection(OF_HOST).is_empty();
        let is_as_judged = state.guest.ticket().is_none() && !has_cpu(&self.config);
        match has_cpu(&state.config) || is_as_judged {
            true => ActivityTypes::ALL,
            false => ActivityTypes::ALL.difference(OF_HOST),
        }
    }

    /// Has nothing further recorded for a request, at once.
    pub(crate) fn halt_for(&self, ticket: u64) -> Result<(), Error> {
        let state = self.lock()?;
        self.check_guest(&state, ticket)?;
        self.gate.pause(ActivityTypes::ALL);
        Ok(())
    }

    /// Ends the recording of a request and hands it out.
    pub(crate) fn stop_for(&self, ticket: u64) -> Result<Trace, Error> {
        let _call = self.call();
        let _own = Own::begin();
        let mut state = self.lock()?;
        self.check_guest(&state, ticket)?;
        let trace = self.end(&mut state);
        state.guest.leave();
        trace
    }

    /// Throws away what a request has, for that reason.
    pub(crate) fn drop_for(&self, ticket: u64, why: &str) {
        let _call = self.call();
        let Ok(mut state) = self.lock() else { return };
        state.guest.pass_over(ticket);
        if state.guest.is(ticket) && !self.recorder.is_forked() {
            self.throw_away(&mut state, why);
        }
    }

    fn check_guest(&self, state: &State, ticket: u64) -> Result<(), Error> {
        self.check_process()?;
        let taken = || Error::new(ErrorKind::NotActive, TAKEN);
        state.guest.is(ticket).then_some(()).ok_or_else(taken)
    }

    /// The program wants the session: what was asked for from outside is over.
    pub(super) fn make_way(&self, state: &mut State) {
        if state.guest.ticket().is_none() {
            return;
        }
        if self.recorder.is_forked() {
            return state.guest.leave();
        }
        self.throw_away(state, TAKEN);
        self.requests.evicted();
    }

    fn throw_away(&self, state: &mut State, why: &str) {
        if matches!(state.phase, Phase::Recording) {
            self.gate.end();
            self.recorder.observers.stop();
            drop(self.pulse.stop());
            self.recorder.discard();
        }
        drop(self.collectors.stop(Timestamp::default(), Instant::now()));
        state.phase = Phase::Idle;
        state.guest.leave();
        self.observers.note(Event::Cancelled(why.to_owned()));
    }

    /// Has [`Outside::reached`] called from that iteration on, until something else is said.
    pub(crate) fn watch_iteration(&self, iteration: Option<u64>) {
        self.requests.watched.store(iteration.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the iteration that the program is in, if it counts them.
    pub(crate) fn iteration(&self) -> Option<u64> {
        self.steps.iterations(|iterations| iterations.is_counted().then(|| iterations.current()))
    }

    /// Counts a step of the profiler.
    pub(super) fn count_step(&self) {
        self.count_iteration(PROFILER_STEP);
    }

    /// Counts an iteration in the name of `requester`, and tells who wants to know.
    pub(crate) fn count_iteration(&self, requester: &str) -> u64 {
        let current = self.steps.iterations(|iterations| iterations.increment(requester));
        let watched = self.requests.watched.load(Ordering::Relaxed);
        if watched != 0
            && current >= watched
            && let Some(outside) = self.requests.outside()
        {
            outside.reached(current);
        }
        current
    }

    /// Which collector of those that run for a request has stopped by itself, and why.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.guest().and_then(|_| self.collectors.stopped())
    }
}
