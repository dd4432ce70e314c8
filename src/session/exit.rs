//! Writes traces when the process ends without dropping a guard.

use super::observer::SessionEvent;
use super::part_counts::PartCounts;
use super::refusals::REQUEST_IS_RECORDING;
use super::writes::{ActiveWrite, Patience, PendingWrite, ProcessEnd};
use super::{Session, Status, YEAR, lock_within};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::live::LiveFile;
use crate::os::{exit, fork, platform, signal};
use crate::wait::steady;
use crate::write::sink::Writers;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A file that is being written, and the live file with its records.
type PendingFlush = (PendingWrite, Option<Arc<LiveFile>>);

/// The sessions of this process.
static SESSIONS: fork::PerProcess<Mutex<Vec<Weak<Session>>>> = fork::PerProcess::of_first(Mutex::new(Vec::new()));

/// Returns the list of this process. A forked child inherits its parent's sessions, unless the list was being changed at the
/// fork.
fn registered_sessions() -> &'static Mutex<Vec<Weak<Session>>> {
    SESSIONS.get(|parents| Mutex::new(parents.try_lock().map(|sessions| sessions.clone()).unwrap_or_default()))
}

/// Returns the sessions of this process; none if the list cannot be locked within `wait`.
pub(super) fn live_sessions(wait: Duration) -> Vec<Arc<Session>> {
    let sessions = lock_within(registered_sessions(), wait);
    sessions.map(|sessions| sessions.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
}

/// Registers the session to be flushed when the process exits.
pub(crate) fn register_session(session: &Arc<Session>) {
    register_at_exit();
    let mut sessions = registered_sessions().lock().unwrap_or_else(PoisonError::into_inner);
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(session));
}

/// Makes the end of the process write recordings and wait for files.
pub(super) fn register_at_exit() {
    exit::at_exit(|| {
        at_exit();
        signal::end_by_pending_signal();
    });
}

/// Returns the newest idle session, or the newest one if none is idle.
pub(crate) fn newest_session() -> Option<Arc<Session>> {
    let live = live_sessions(YEAR);
    live.iter().rfind(|session| session.recording.status() == Status::Idle).or(live.last()).cloned()
}

/// Writes what each recording of this process has so far to its output; recordings continue.
///
/// For panic hooks, signal tasks and code that ends the process without dropping the guard; `process::exit` calls it by
/// itself. It waits at most `flush_timeout` for all files together; a file that would take longer is closed early, with the
/// rows written by then. It does nothing in a forked child, nor for recordings without an output or with a
/// [`writer`](crate::KinetoLayerBuilder::writer), which takes one trace, at the end.
pub fn flush_all() {
    if !platform::CAN_RECORD {
        return;
    }
    let sessions = ending_sessions(steady());
    flush_sessions(&sessions, |session, deadline| session.begin_flush(deadline, false), |_| ());
}

/// Flushes as [`flush_all`] does when the process ends; also calls trace handlers, and reports the end to observers.
///
/// All files share one deadline, `flush_timeout` from now.
pub(crate) fn at_exit() {
    let now = steady();
    let sessions = ending_sessions(now);
    let end = ProcessEnd::begin(now);
    for (session, deadline) in &sessions {
        session.finish_dump();
        session.requests.close(Patience::Until(*deadline));
    }
    // What is written in the background shares the time limit with what is flushed.
    end.wait_for(ActiveWrite::is_awaited_elsewhere);
    flush_sessions(
        &sessions,
        |session, deadline| {
            let _scope = session.recording.observers.notify_scope();
            // Each segment takes time.
            session.spill.join_cuts();
            session.spill.take_cuts(session);
            // No part may be both in the file and in a segment.
            session.spill.end_recording();
            let parts = session.spill.take_ended(session, deadline);
            let ((is_delivered, begun), live) = session.recording.with_live_file(|| {
                let is_delivered = session.deliver_at_exit(deadline);
                (is_delivered, if is_delivered { Ok(None) } else { session.begin_flush(deadline, true) })
            });
            // Meanwhile a thread writes the rest.
            let has_all = parts.as_ref().is_none_or(|parts| session.leave_parts_at_exit(parts, deadline));
            // Without an output, the live file has the recording.
            let is_over = has_all && (is_delivered || session.output_path().is_some() || parts.is_some());
            live.iter().filter(|_| is_over && matches!(begun, Ok(None))).for_each(|live| live.remove_file());
            session.recording.observers.queue_event(SessionEvent::Stopped);
            begun
        },
        LiveFile::remove_file,
    );
    // Recordings that have ended, whose parts nothing has written.
    for (session, deadline) in &sessions {
        let parts = session.spill.take_ended(session, *deadline);
        if let Some(parts) = parts {
            parts.leave_on_disk(session, None, Some(*deadline));
        }
    }
    sessions.iter().for_each(|(session, _)| session.report_why_nothing());
    // A guard may have been dropped meanwhile.
    end.wait_for(|write| write.is_in_background() || write.is_awaited_elsewhere());
}

/// Returns the sessions of this process, each with the time at which it waits for nothing more if the process ends `now`.
fn ending_sessions(now: Instant) -> Vec<(Arc<Session>, Instant)> {
    // A thread that was stopped while it held the lock must not hang the end of the process.
    let live = live_sessions(Duration::from_secs(1));
    live.into_iter().map(|session| (session.clone(), session.settings.exit_deadline(now))).collect()
}

/// Begins to flush each session that records for the program, then waits for all files; calls `written` with the live file of each whole
/// one.
fn flush_sessions(
    sessions: &[(Arc<Session>, Instant)],
    begin: impl Fn(&Session, Instant) -> Result<Option<PendingFlush>, Error>,
    written: impl Fn(&LiveFile),
) {
    let failed = |error: Error| diag!(Error, "flush", "the trace was not written: {error}");
    let mut pending = Vec::new();
    for (session, deadline) in sessions.iter().filter(|(session, deadline)| session.has_unwritten(*deadline)) {
        match begin(session, *deadline) {
            Ok(write) => pending.extend(write),
            Err(error) => failed(error),
        }
    }
    for (write, live) in pending {
        let trace = write.trace().clone();
        match write.wait() {
            Ok(()) if trace.progress().file_cut().is_none_or(|cut| cut.is_at_size_limit()) => {
                if let Some(live) = &live {
                    written(live);
                }
            }
            Ok(()) => {}
            Err(error) => {
                let counts = PartCounts::of_trace(&trace);
                diag!(Error, "flush", "the trace was not written, {counts} lost: {error}");
            }
        }
    }
}

impl Session {
    /// Returns whether the session has a recording that the end of the process must write.
    fn has_unwritten(&self, deadline: Instant) -> bool {
        if !self.recording.is_reachable(deadline) {
            diag!(
                Error,
                "flush",
                "the trace was not written: a start or stop of the recording hangs; do not exit inside a handler or callback"
            );
            return false;
        }
        // A requested recording is written by its request.
        let is_recording = matches!(self.recording.status(), Status::Recording | Status::Paused);
        is_recording && !self.recording.is_forked() && self.requests.active_request().is_none()
    }

    /// Begins to write what was recorded so far to the output, if any, for a process that ends at `deadline`.
    ///
    /// With `at_end`, the program decides nothing more, and its settings may say that no file is written.
    fn begin_flush(&self, deadline: Instant, at_end: bool) -> Result<Option<PendingFlush>, Error> {
        let is_wanted = |path: &PathBuf| at_end || !Writers::is_url(path);
        if self.output_path().filter(is_wanted).is_none() {
            return Ok(None);
        }
        let snapshot = || self.recording.with_live_file(|| self.recording.snapshot());
        let (path, (trace, live)) = self.take_with_output(snapshot);
        let Some(path) = path.filter(is_wanted) else { return Ok(None) };
        let trace = trace?;
        if let Some(why) = self.why_empty(&trace) {
            diag!(Warning, "flush", "nothing was recorded: {why}");
        }
        if self.why_empty(&trace).is_some() || at_end && !self.writes_at_end() {
            return Ok(None);
        }
        if at_end {
            self.note_write_at_exit(&path);
        }
        Ok(Some((self.writes.begin_write(trace, path, Patience::Until(deadline)), live)))
    }

    /// Writes what was recorded so far to the output.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let output = self.output_now("flush")?;
        if Writers::is_url(&output) {
            let why = "its writer takes one trace, at the end; use `snapshot` and `save` for what was recorded so far";
            return Err(Error::new(ErrorKind::Config, format!("cannot flush: {why}")));
        }
        let (path, trace) = self.take_with_output(|| self.recording.snapshot());
        let (path, trace) = (path.unwrap_or(output), trace?);
        self.writes.write_here(&trace, &path)
    }

    /// Returns what `take` takes of a recording, with the output of that one: another may begin in between.
    fn take_with_output<T>(&self, take: impl Fn() -> T) -> (Option<PathBuf>, T) {
        let values = self.settings.next_config().placeholder_values();
        loop {
            let (path, taken) = (self.output_path_with(&values), take());
            if self.output_path_with(&values) == path {
                return (path, taken);
            }
        }
    }

    /// Returns the output for what was recorded so far, if `verb` may write the program's recording to it.
    pub(super) fn output_now(&self, verb: &str) -> Result<PathBuf, Error> {
        let Some(output) = self.output_path() else {
            let why = "the layer has no output; set `output` on the builder, or use `snapshot` and `save`";
            return Err(Error::new(ErrorKind::Config, format!("cannot {verb}: {why}")));
        };
        if self.requests.active_request().is_some() {
            return Err(Error::new(ErrorKind::NotActive, REQUEST_IS_RECORDING));
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::sleep;
    use std::sync::mpsc;

    /// Another thread may hold the list briefly, or may have panicked while it held it.
    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn sessions_are_found_while_the_list_is_locked() {
        test_base::virtual_time(|clock| clock.run(find_sessions_while_the_list_is_locked));
    }

    fn find_sessions_while_the_list_is_locked() {
        let session = Session::for_tests();
        register_session(&session);
        let is_found = || ending_sessions(steady()).iter().any(|(found, _)| Arc::ptr_eq(found, &session));
        let (taken, is_taken) = mpsc::channel();
        let holder = std::thread::Builder::new().spawn(move || {
            let _held = registered_sessions().lock().unwrap_or_else(PoisonError::into_inner);
            taken.send(()).unwrap();
            sleep(Duration::from_millis(20));
            std::panic::resume_unwind(Box::new("with the list in hand"));
        });
        is_taken.recv().unwrap();
        assert!(is_found(), "another thread has the list");
        assert!(holder.unwrap().join().is_err());
        assert!(is_found(), "a thread has panicked with the list");
    }
}
