//! The handle with which a program controls its recording.

use crate::activity::{ActivityGroup, ActivityTypes};
use crate::collector::CollectorReport;
use crate::error::Error;
use crate::session::{Session, Status};
use crate::trace::Trace;
use std::sync::Arc;

/// Starts, stops and describes recordings; a cheap clone, for any thread.
///
/// Handed out by [`KinetoGuard::profiler`](crate::KinetoGuard::profiler). One recording goes on at a time.
#[derive(Clone, Debug)]
pub struct Profiler {
    session: Option<Arc<Session>>,
}

impl Profiler {
    pub(crate) fn new(session: Option<Arc<Session>>) -> Profiler {
        Profiler { session }
    }

    fn session(&self) -> Result<&Arc<Session>, Error> {
        let why = "the profiler is switched off (KINETO_ENABLED)";
        self.session.as_ref().ok_or_else(|| Error::new(crate::ErrorKind::NotActive, why))
    }

    /// Loads what the collectors need and has them begin, and says how each fared; [`Prepared::start`] then takes no time.
    ///
    /// For programs that want to know before they measure, and for a first recording whose first kernels count: loading
    /// a vendor's library takes from a tenth of a second to a second. What happens until the start is recorded by
    /// nobody. Dropping the value lets go of the libraries.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if a recording is going on. A collector that cannot record is
    /// no error: its [report](Prepared::reports) says why.
    pub fn prepare(&self) -> Result<Prepared, Error> {
        let session = self.session()?;
        let (ticket, reports) = session.prepare()?;
        Ok(Prepared { session: session.clone(), ticket, reports })
    }

    /// Returns what can be recorded on this machine: the host's types, and what the collectors that find their libraries
    /// can record.
    pub fn supported_activities(&self) -> ActivityTypes {
        let reports = self.collectors();
        let can = reports.iter().filter_map(|report| report.state.as_ref().ok()).map(|can| can.types);
        can.fold(ActivityGroup::Cpu.types(), ActivityTypes::union)
    }

    /// Asks each collector what it can do here, without starting it.
    pub fn collectors(&self) -> Vec<CollectorReport> {
        self.session.as_ref().map(|session| session.probe()).unwrap_or_default()
    }

    /// Starts a recording.
    ///
    /// Spans that are open now appear when they are exited, from here on and marked `"clipped": true`.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if one is going on.
    pub fn start(&self) -> Result<(), Error> {
        self.session()?.start()
    }

    /// Ends the recording and returns it: no thread of the program is waited for, nothing is converted yet.
    ///
    /// Where collectors run, what was launched is waited for until it has ended, no longer than the builder's
    /// [`flush_timeout`](crate::KinetoLayerBuilder::flush_timeout). Until then, other calls of profilers wait too.
    ///
    /// Spans that are open now end here, marked `"finished": false`.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if none is going on.
    pub fn stop(&self) -> Result<Trace, Error> {
        self.session()?.stop()
    }

    /// Stops recording until [`resume`](Profiler::resume): spans, and the work of devices that is launched from now on.
    /// Nothing if paused already.
    ///
    /// What was launched before is in the trace with its end, whenever that is; no device is waited for. The trace's
    /// [statistics](crate::TraceStats::recorded) and its header say when it was recorded. Each stretch between pauses takes
    /// at least 64 KiB of the [buffer limit](crate::KinetoLayerBuilder::buffer_limit_bytes) for each thread with spans in it.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn pause(&self) -> Result<(), Error> {
        self.session()?.pause(ActivityTypes::ALL)
    }

    /// Goes on recording; nothing if not paused.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn resume(&self) -> Result<(), Error> {
        self.session()?.resume(ActivityTypes::ALL)
    }

    /// Stops recording a group until [`resume_activities`](Profiler::resume_activities), as PyTorch's
    /// `toggle_collection_dynamic(False, …)` does: [`ActivityGroup::Cpu`] stands for spans and events, every other group
    /// for the collectors that record something of it, calls of runtime and driver included.
    ///
    /// Takes sets of types too: those that spans have stand for the host, those of devices for their collectors. What is
    /// launched while the host alone is paused belongs to no span. [`Status::Paused`] is that of the host.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn pause_activities(&self, types: impl Into<ActivityTypes>) -> Result<(), Error> {
        self.session()?.pause(types.into())
    }

    /// Goes on recording a group, whether it was paused with others or by itself.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn resume_activities(&self, types: impl Into<ActivityTypes>) -> Result<(), Error> {
        self.session()?.resume(types.into())
    }

    /// Returns what was recorded so far, while the recording goes on.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn snapshot(&self) -> Result<Trace, Error> {
        self.session()?.look()
    }

    /// Writes what was recorded so far to the guard's output, while the recording goes on; returns when it is there.
    ///
    /// # Errors
    /// Those of [`snapshot`](Profiler::snapshot) and of [`Trace::save`]; [`Config`](crate::ErrorKind::Config) if there
    /// is no output.
    pub fn flush(&self) -> Result<(), Error> {
        self.session()?.flush()
    }

    /// Adds a text to the header of the recording that goes on, or of the next one; legal until its file is written.
    ///
    /// A profiler that is switched off takes it and does nothing.
    pub fn add_metadata(&self, key: &str, value: &str) {
        if let Some(session) = &self.session {
            // The one error is that of a fork in the middle of a start; the child has no recording to describe.
            let _ = session.with_metadata(|metadata| metadata.add(key, value));
        }
    }

    /// Adds a JSON value to the header of the recording that goes on, or of the next one.
    ///
    /// # Errors
    /// [`Json`](crate::ErrorKind::Json) if `json` is not valid JSON.
    pub fn add_metadata_json(&self, key: &str, json: &str) -> Result<(), Error> {
        match &self.session {
            Some(session) => session.with_metadata(|metadata| metadata.add_json(key, json))?,
            None => Ok(()),
        }
    }

    /// Returns what is going on.
    pub fn status(&self) -> Status {
        self.session.as_ref().map_or(Status::Idle, |session| session.status())
    }
}

/// Collectors that run and wait for a recording to begin; see [`Profiler::prepare`].
#[derive(Debug)]
#[must_use = "dropping it lets go of the collectors"]
pub struct Prepared {
    session: Arc<Session>,
    ticket: u64,
    reports: Vec<CollectorReport>,
}

impl Prepared {
    /// Returns how each collector fared of which something is selected.
    pub fn reports(&self) -> &[CollectorReport] {
        &self.reports
    }

    /// Starts the recording.
    ///
    /// # Errors
    /// Those of [`Profiler::start`].
    pub fn start(self) -> Result<(), Error> {
        self.session.start()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.session.disarm(self.ticket);
    }
}
