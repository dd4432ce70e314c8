//! Memory profiles on demand: recordings of what allocators report, and nothing else, beside the session's own.

use super::Session;
use super::guest::Guest;
use super::observer::Event;
use super::requested::FOREIGN;
use crate::collector::CollectorSet;
use crate::config::{Config, Mode, Output};
use crate::error::{Error, ErrorKind};
use crate::memory::{self, Device, NO_REPORTS};
use crate::os::fork;
use crate::recorder::{Recorder, Settings, ThreadFilter};
use crate::trace::Trace;
use crate::write::file::{Destination, FileSystem};
use crate::write::sink::Sinks;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The memory profiles of a session: the program's own, or one that was asked for from outside, which makes way for it.
#[derive(Debug, Default)]
pub(super) struct MemoryProfile {
    /// A forked child takes one of its own.
    state: fork::Own<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What records the one that is being taken.
    running: Option<Arc<Session>>,
    /// The request that it is for.
    guest: Guest,
    /// The program's last one.
    taken: Option<Trace>,
}

const EVICTED: &str = "the program has started a memory profile of its own";

impl MemoryProfile {
    /// Returns why that request had a memory profile and has it no more, if so.
    pub(super) fn why_evicted(&self, ticket: u64) -> Option<&'static str> {
        self.state.lock().guest.is_over(ticket).then_some(EVICTED)
    }
}

impl Session {
    /// Starts a memory profile of the program's own; one that was asked for from outside is over.
    pub(crate) fn start_memory_profile(&self) -> Result<(), Error> {
        let _call = self.call();
        let mut state = self.memory_profile.state.lock();
        if let Some(ticket) = state.guest.ticket() {
            drop(self.end_memory_profile(&mut state, Some(ticket), EVICTED));
            self.requests.evicted();
        }
        self.run_memory_profile(&mut state, None)?;
        // Else it would keep its memory, and be exported in place of this one if that cannot be stopped.
        state.taken = None;
        Ok(())
    }

    /// Starts a memory profile for a request, of which only what lies between two times is kept if they are given.
    pub(crate) fn start_memory_profile_for(
        &self,
        ticket: u64,
        between: Option<(SystemTime, SystemTime)>,
    ) -> Result<(), Error> {
        let _call = self.call();
        let mut state = self.memory_profile.state.lock();
        if state.guest.is_over(ticket) {
            return Err(Error::new(ErrorKind::NotActive, EVICTED));
        }
        state.guest.pass_over(ticket);
        // Nobody is to wait for the end of an empty profile.
        if !memory::has_reporter() {
            return Err(Error::new(ErrorKind::NotActive, NO_REPORTS));
        }
        self.run_memory_profile(&mut state, between)?;
        state.guest.enter(ticket);
        Ok(())
    }

    fn run_memory_profile(&self, state: &mut State, between: Option<(SystemTime, SystemTime)>) -> Result<(), Error> {
        if state.running.is_some() {
            let why = "a memory profile is being taken already; stop it first";
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
        let mut config = Config::clone(&self.settings());
        (config.output, config.flags.profile_memory) = (Output::Nowhere, true);
        (config.mode, config.gpu.profiler_range) = (Mode::Kineto.into(), false);
        let settings = Settings { records: true, threads: ThreadFilter::All, ..self.recorder.settings.clone() };
        let recorder = Arc::new(Recorder::new(
            config.buffer_limit_bytes,
            Default::default(),
            Default::default(),
            Default::default(),
            settings,
        ));
        if !recorder.listen() {
            let why = "too many layers record memory already; drop one of them first";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let session = Session::new(recorder, config, Sinks::default(), CollectorSet::new(Vec::new(), Vec::new()));
        session.start_between(between)?;
        state.running = Some(session);
        self.observers.note(Event::MemoryProfileStarted);
        Ok(())
    }

    /// Ends the program's memory profile and keeps it until the next one.
    pub(crate) fn stop_memory_profile(&self) -> Result<Trace, Error> {
        let _call = self.call();
        let mut state = self.memory_profile.state.lock();
        let none = match state.guest.ticket() {
            Some(_) => FOREIGN,
            None => "no memory profile is being taken; start one first",
        };
        let trace = self.end_memory_profile(&mut state, None, none)?;
        state.taken = Some(trace.clone());
        Ok(trace)
    }

    /// Ends the memory profile of a request and hands it out.
    pub(crate) fn stop_memory_profile_for(&self, ticket: u64) -> Result<Trace, Error> {
        let _call = self.call();
        self.end_memory_profile(&mut self.memory_profile.state.lock(), Some(ticket), EVICTED)
    }

    /// Throws away the memory profile that a request has.
    pub(crate) fn drop_memory_profile_for(&self, ticket: u64) {
        let _call = self.call();
        let mut state = self.memory_profile.state.lock();
        state.guest.pass_over(ticket);
        drop(self.end_memory_profile(&mut state, Some(ticket), EVICTED));
    }

    /// Ends the memory profile that is for `guest`.
    fn end_memory_profile(&self, state: &mut State, guest: Option<u64>, none: &str) -> Result<Trace, Error> {
        let running = state.running.take_if(|_| state.guest.ticket() == guest);
        let running = running.ok_or_else(|| Error::new(ErrorKind::NotActive, none))?;
        state.guest.leave();
        let ended = running.stop();
        self.observers.note(Event::MemoryProfileStopped);
        ended
    }

    /// Writes the memory profile that the program has taken last.
    pub(crate) fn export_memory_profile(&self, path: &Path) -> Result<(), Error> {
        let _call = self.call();
        let state = self.memory_profile.state.lock();
        let refused = |why: &str| Err(Error::new(ErrorKind::NotActive, why));
        if state.running.is_some() && state.guest.ticket().is_none() {
            return refused("the memory profile is still being taken; stop it first");
        }
        let Some(trace) = state.taken.clone() else {
            return refused("no memory profile was taken; start and stop one first");
        };
        drop(state);
        self.save_memory_profile(&trace, &FileSystem, path).map(drop)
    }

    /// Writes a memory profile for `path`: the timeline of the first device that is not the host, if there is one. Returns
    /// the name that the file has.
    pub(crate) fn save_memory_profile(
        &self,
        trace: &Trace,
        to: &dyn Destination,
        path: &Path,
    ) -> Result<PathBuf, Error> {
        let _call = self.call();
        let devices = trace.memory_devices();
        let Some(device) = devices.iter().find(|device| **device != Device::CPU).or(devices.first()) else {
            return Err(Error::new(ErrorKind::NotActive, NO_REPORTS));
        };
        let timeline = trace.memory_timeline(*device);
        let saved = to.write_file(path, timeline.gzip_level(), &mut |_, out| timeline.write_for(path, out))?;
        self.observers.note(Event::MemoryProfileExported(saved.clone()));
        Ok(saved)
    }
}
