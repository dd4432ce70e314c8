//! Memory profiles on demand: recordings of what allocators report, and nothing else, beside the session's own.

use super::Session;
use super::observer::Event;
use crate::collector::CollectorSet;
use crate::config::{Config, Mode, Output};
use crate::error::{Error, ErrorKind};
use crate::memory::Device;
use crate::os::fork;
use crate::recorder::{Recorder, Settings, ThreadFilter};
use crate::trace::Trace;
use crate::write::sink::Sinks;
use std::path::Path;
use std::sync::Arc;

/// The memory profile of a session.
#[derive(Debug, Default)]
pub(super) struct MemoryProfile {
    /// A forked child takes one of its own.
    state: fork::Own<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    Running(Arc<Session>),
    Taken(Trace),
}

impl Session {
    /// Starts a memory profile.
    pub(crate) fn start_memory_profile(&self) -> Result<(), Error> {
        let _call = self.call();
        let mut state = self.memory_profile.state.lock();
        if let State::Running(_) = &*state {
            let why = "a memory profile is being taken already; stop it first";
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
        let mut config = Config::clone(&self.config);
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
        session.start()?;
        *state = State::Running(session);
        self.observers.note(Event::MemoryProfileStarted);
        Ok(())
    }

    /// Ends the memory profile and keeps it until the next one.
    pub(crate) fn stop_memory_profile(&self) -> Result<Trace, Error> {
        let _call = self.call();
        let mut state = self.memory_profile.state.lock();
        let State::Running(session) = &*state else {
            let why = "no memory profile is being taken; start one first";
            return Err(Error::new(ErrorKind::NotActive, why));
        };
        let trace = session.stop()?;
        *state = State::Taken(trace.clone());
        self.observers.note(Event::MemoryProfileStopped);
        Ok(trace)
    }

    /// Writes the memory profile that was taken last.
    pub(crate) fn export_memory_profile(&self, path: &Path) -> Result<(), Error> {
        let _call = self.call();
        let refused = |why: &str| Err(Error::new(ErrorKind::NotActive, why));
        let trace = match &*self.memory_profile.state.lock() {
            State::Taken(trace) => trace.clone(),
            State::Running(_) => return refused("the memory profile is still being taken; stop it first"),
            State::None => return refused("no memory profile was taken; start and stop one first"),
        };
        let devices = trace.memory_devices();
        let Some(device) = devices.iter().find(|device| **device != Device::CPU).or(devices.first()) else {
            return refused(
                "no allocator has reported anything; make memory::Tracked the global allocator, or call memory::record",
            );
        };
        trace.memory_timeline(*device).save(path)?;
        self.observers.note(Event::MemoryProfileExported(path.to_owned()));
        Ok(())
    }
}
