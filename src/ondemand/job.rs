//! A request that was accepted, and what the session does for it.

use super::place::{RequestFiles, WrittenFiles};
use super::plan::Plan;
use super::request::{Request, What};
use super::source::tell;
use crate::config::Config;
use crate::error::Error;
use crate::session::Session;
use crate::trace::TraceStats;
use crate::write::file::Destination;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A request that was accepted.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Its number, which is no other one's.
    pub(super) ticket: u64,
    pub(super) request: Arc<Request>,
    pub(super) plan: Plan,
    /// How late it began.
    pub(super) late: Arc<OnceLock<Duration>>,
}

/// A file that was written for a request.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) path: PathBuf,
    /// What is in it, for people.
    pub(super) content: String,
    pub(super) stats: TraceStats,
}

impl Job {
    /// Has collectors begin, and says what the recording will lack.
    pub(super) fn prepare(&self, session: &Session) -> Result<(), Error> {
        if self.request.what == What::MemoryProfile {
            return Ok(());
        }
        let (config, missing) = self.settings(session);
        if let Some(missing) = missing {
            tell!(Warning, GoesOn, self.request.answer, "{}: {missing}", self.request.name());
        }
        session.prepare_for(self.ticket, config)
    }

    /// Begins the recording.
    pub(super) fn start(&self, session: &Session) -> Result<(), Error> {
        let (ticket, between) = (self.ticket, self.plan.between());
        match self.request.what {
            What::MemoryProfile => session.start_memory_profile_for(ticket, between),
            What::Trace => session.start_for(ticket, between, || self.settings(session).0),
        }
    }

    /// Has nothing further recorded, at once. What hinders that is told when it is saved.
    pub(super) fn halt(&self, session: &Session) {
        if self.request.what == What::Trace {
            let _ = session.halt_for(self.ticket);
        }
    }

    /// Throws away what there is, for that reason.
    pub(super) fn cancel(&self, session: &Session, why: &str) {
        match self.request.what {
            What::MemoryProfile => session.drop_memory_profile_for(self.ticket),
            What::Trace => session.drop_for(self.ticket, why),
        }
    }

    /// Ends the recording and writes its file; returns where it is and how much is in it. Devices that are not there are
    /// named where the request names types.
    pub(super) fn save(&self, session: &Session, written: &WrittenFiles) -> Result<Saved, Error> {
        let Request { what, output, .. } = &*self.request;
        let trace = match what {
            What::MemoryProfile => session.stop_memory_profile_for(self.ticket)?,
            What::Trace => session.stop_for(self.ticket)?,
        };
        let _active = session.begin_writing(&trace);
        // No caller could handle them; they are in the file.
        let _ = trace.check_violations();
        let files = match self.request.is_own {
            true => None,
            false => Some(RequestFiles::open(&self.request, &session.settings().ondemand, written)?),
        };
        let to: &dyn Destination = match &files {
            Some(files) => files,
            None => trace.destination(),
        };
        let path = match what {
            What::MemoryProfile => session.save_memory_profile(&trace, to, output)?,
            What::Trace => trace.save_all_to(to, output)?,
        };
        let content = match (what, trace.why_empty()) {
            (What::MemoryProfile, _) => "allocations".to_owned(),
            (What::Trace, Some(why)) => format!("empty: {why}"),
            (What::Trace, None) if self.request.asked.names_types() => trace.stats().to_string(),
            (What::Trace, None) => trace.stats().without_absent().to_string(),
        };
        Ok(Saved { path, content, stats: trace.stats() })
    }

    /// The recording's settings, and what it asks for that only the layer can decide.
    fn settings(&self, session: &Session) -> (Config, Option<&'static str>) {
        session.settings_for(&self.request.asked, self.request.output.clone())
    }
}
