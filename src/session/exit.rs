//! Writes files when the process ends without dropping a guard.

use super::observer::Event;
use super::requested::FOREIGN;
use super::saving::Patience;
use super::{Session, Status};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{exit, fork};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The sessions of this process.
static SESSIONS: fork::PerProcess<Mutex<Vec<Weak<Session>>>> = fork::PerProcess::of_first(Mutex::new(Vec::new()));

/// Returns the list of this process. A forked child begins with its parent's sessions, with which it may record too, unless the
/// list was being changed at the fork.
fn sessions() -> &'static Mutex<Vec<Weak<Session>>> {
    SESSIONS.get(|parents| Mutex::new(parents.try_lock().map(|sessions| sessions.clone()).unwrap_or_default()))
}

/// Has the session flushed when the process exits.
pub(crate) fn register(session: &Arc<Session>) {
    exit::at_exit(at_exit);
    let mut sessions = sessions().lock().unwrap_or_else(PoisonError::into_inner);
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(session));
}

/// Returns the session that was made last, one that records nothing if there is such a one.
pub(crate) fn newest() -> Option<Arc<Session>> {
    let sessions = sessions().lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut live: Vec<_> = sessions.iter().rev().filter_map(Weak::upgrade).collect();
    live.sort_by_key(|session| session.status() != Status::Idle);
    live.into_iter().next()
}

/// Writes what every recording of this process has so far to its output; recordings go on.
///
/// For panic hooks, signal tasks and places that end the process without dropping the guard; `process::exit` calls it by
/// itself. Each file is waited for as long as its `flush_timeout` says; one that would take longer is closed before, with
/// what is in it by then. Does nothing in a forked child, and nothing for
/// recordings that have no output.
pub fn flush_all() {
    flush_each(Session::look_and_write);
}

/// The process ends: as [`flush_all`], and handlers of traces get what there is. For observers, that is the end.
pub(crate) fn at_exit() {
    each(|session| session.close_requests(Patience::InAll(session.flush_timeout())));
    each(|session| session.writes.wait_for_others(session.flush_timeout()));
    flush_each(|session| {
        let _call = session.call();
        let flushed = if session.hand_over() { Ok(()) } else { session.look_and_write() };
        session.observers.note(Event::Stopped);
        flushed
    });
    // A guard may have been dropped meanwhile.
    each(|session| session.writes.wait_for_others(session.flush_timeout()));
}

fn each(work: impl Fn(&Session)) {
    // A thread that was stopped with the lock in hand must not hang the end of the process.
    let Ok(sessions) = sessions().try_lock() else { return };
    let live: Vec<_> = sessions.iter().filter_map(Weak::upgrade).collect();
    drop(sessions);
    live.iter().for_each(|session| work(session));
}

fn flush_each(flush: impl Fn(&Session) -> Result<(), Error>) {
    each(|session| {
        if !session.is_reachable() {
            diag!(
                Error,
                "flush",
                "the trace was not written: a recording is being started or stopped and does not come to an end"
            );
            return;
        }
        let is_recording = matches!(session.status(), Status::Recording | Status::Paused);
        // What was asked for from outside is written where that was said, when it ends.
        if session.is_forked() || !is_recording || session.guest().is_some() {
            return;
        }
        if let Err(error) = flush(session) {
            diag!(Error, "flush", "the trace was not written: {error}");
        }
    });
}

impl Session {
    /// Writes what was recorded so far to the output in time, if there is one.
    fn look_and_write(&self) -> Result<(), Error> {
        if self.output().is_none() {
            return Ok(());
        }
        let trace = self.look()?;
        if let Some(why) = self.why_empty(&trace) {
            diag!(Warning, "flush", "nothing was recorded: {why}");
            return Ok(());
        }
        self.write_in_time(trace, Patience::InAll(self.flush_timeout()))
    }

    /// Writes what was recorded so far to the output.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let Some(path) = self.output() else {
            let advice = "there is no output to flush to; give the builder an `output`, or use `snapshot` and `save`";
            return Err(Error::new(ErrorKind::Config, advice));
        };
        if self.guest().is_some() {
            return Err(Error::new(ErrorKind::NotActive, FOREIGN));
        }
        self.look()?.save_all(&path)
    }
}
