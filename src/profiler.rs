//! The handle with which a program controls its recording.

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

    /// Starts a recording.
    ///
    /// Spans that are open now appear when they are exited, from here on and marked `"clipped": true`.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if one is going on.
    pub fn start(&self) -> Result<(), Error> {
        self.session()?.start()
    }

    /// Ends the recording and returns it, at once: nothing is waited for, nothing converted yet.
    ///
    /// Spans that are open now end here, marked `"finished": false`.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if none is going on.
    pub fn stop(&self) -> Result<Trace, Error> {
        self.session()?.stop()
    }

    /// Stops recording spans until [`resume`](Profiler::resume); nothing if paused already.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn pause(&self) -> Result<(), Error> {
        self.session()?.pause()
    }

    /// Goes on recording spans; nothing if not paused.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn resume(&self) -> Result<(), Error> {
        self.session()?.resume()
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
