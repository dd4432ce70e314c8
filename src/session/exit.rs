//! Writes files in time, and when the process ends by a way that drops no guard.

use super::observer::Event;
use super::requested::FOREIGN;
use super::{Session, Status};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{exit, fork};
use crate::trace::Trace;
use std::sync::{Arc, Weak, mpsc};

/// The sessions of this process.
static SESSIONS: fork::Own<Vec<Weak<Session>>> = fork::Own::of_first(Vec::new());

/// Has the session flushed when the process exits.
pub(crate) fn register(session: &Arc<Session>) {
    exit::at_exit(at_exit);
    let mut sessions = SESSIONS.lock();
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(session));
}

/// Returns the session that was made last, one that records nothing if there is such a one.
pub(crate) fn newest() -> Option<Arc<Session>> {
    let sessions = SESSIONS.lock().clone();
    let mut live: Vec<_> = sessions.iter().rev().filter_map(Weak::upgrade).collect();
    live.sort_by_key(|session| session.status() != Status::Idle);
    live.into_iter().next()
}

/// Writes what every recording of this process has so far to its output; recordings go on.
///
/// For panic hooks, signal tasks and places that end the process without dropping the guard; `process::exit` calls it by
/// itself. Each file is waited for as long as its `flush_timeout` says. Does nothing in a forked child, and nothing for
/// recordings that have no output.
pub fn flush_all() {
    flush_each(Session::look_and_write);
}

/// The process ends: as [`flush_all`], and handlers of traces get what there is. For observers, that is the end.
pub(crate) fn at_exit() {
    each(|session| session.close_requests(session.flush_timeout()));
    flush_each(|session| {
        let _call = session.call();
        let flushed = if session.hand_over() { Ok(()) } else { session.look_and_write() };
        session.observers.note(Event::Stopped);
        flushed
    });
}

fn each(work: impl Fn(&Session)) {
    // A thread that was stopped with the lock in hand must not hang the end of the process.
    let Some(sessions) = SESSIONS.try_lock() else { return };
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
        self.output().map_or(Ok(()), |_| self.look().and_then(|trace| self.write_in_time(trace)).map(drop))
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

    /// Writes a trace to the output, on a thread of its own, and waits as long as the flush time-out allows.
    ///
    /// Returns why the trace is empty, if it is.
    pub(crate) fn write_in_time(&self, trace: Trace) -> Result<Option<&'static str>, Error> {
        let Some(path) = self.output() else { return Ok(trace.why_empty()) };
        let timeout = self.flush_timeout();
        let (done, outcome) = mpsc::channel();
        let shown = path.display().to_string();
        let write = move || {
            // Nobody could take it; they stand in the file.
            let _ = trace.check_violations();
            let saved = trace.save_all(&path).map(|()| trace.why_empty());
            let stats = trace.stats();
            if !stats.violations.is_empty() || stats.losses.iter().any(|(loss, _)| loss.is_loss()) {
                diag!(Warning, "trace", "{}: {}", path.display(), stats);
            }
            // Nobody waits any more after the time-out.
            let _ = done.send(saved);
        };
        let thread = std::thread::Builder::new().name("kineto-write".into());
        let spawned = thread.spawn(write).map_err(|e| {
            Error::new(
                ErrorKind::Unsupported,
                format!("cannot start a thread to write {shown}: {e}; free some threads"),
            )
        });
        spawned.and_then(|_| match outcome.recv_timeout(timeout) {
            Ok(saved) => saved,
            Err(_) => Err(Error::new(
                ErrorKind::Timeout,
                format!("{shown} was not written within {timeout:?}; raise flush_timeout, or record less"),
            )),
        })
    }
}
