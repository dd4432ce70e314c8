//! Guards that end a recording and write its trace when they are dropped.

use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::profiler::Profiler;
use crate::session::{Cycle, EndedBy, EndedRecording, Ending, Session, SessionHandle, Status};
use crate::trace::Trace;
use crate::wait::{since, steady};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ends the recording and writes the trace when it is dropped; keep it until the program's end.
///
/// ```no_run
/// # use tracing_subscriber::prelude::*;
/// # fn main() -> Result<(), tracing_kineto::Error> {
/// let (layer, _guard) = tracing_kineto::KinetoLayer::builder().output("app.pt.trace.json.gz").build()?;
/// tracing_subscriber::registry().with(layer).init();
/// // ... the program ...
/// # Ok(())
/// # }
/// ```
///
/// `let _ = …` would drop it at once. If a guard is never dropped (leaked, or skipped by `process::exit`), the trace is written
/// when the process exits; a panic writes it too. Dropping waits for the file as long as it grows, and gives up after the
/// builder's `flush_timeout` without progress. One line on stderr reports the file and any losses; if nothing was recorded, it
/// reports the reason, and there is no file. With [`write_at_end(false)`](crate::KinetoLayerBuilder::write_at_end), it writes no
/// file.
#[must_use = "the trace is written when the guard is dropped: keep it in a variable until the program's end"]
pub struct KinetoGuard {
    session: SessionHandle,
    /// The time of its creation, if there is a session.
    built: Option<Instant>,
}

impl fmt::Debug for KinetoGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinetoGuard")
            .field("status", &self.session.get().map_or(Status::Idle, |session| session.recording.status_now()))
            .finish_non_exhaustive()
    }
}

impl KinetoGuard {
    pub(crate) fn new(session: Arc<Session>) -> KinetoGuard {
        KinetoGuard { session: session.into(), built: Some(steady()) }
    }

    /// Creates a guard without a session.
    pub(crate) fn inert() -> KinetoGuard {
        KinetoGuard { session: SessionHandle::default(), built: None }
    }

    /// Returns a handle to start, stop and describe recordings.
    ///
    /// If `build` began a schedule, the first call that finds a subscriber begins the annotation of the first step, on the
    /// calling thread: call it after the layer is installed.
    pub fn profiler(&self) -> Profiler {
        if let Some(session) = self.session.get() {
            session.annotate_late();
        }
        Profiler::new(self.session.clone())
    }

    /// Writes what was recorded so far to the output, while the recording continues.
    ///
    /// # Errors
    /// Those of [`Profiler::flush`].
    pub fn flush(&self) -> Result<(), Error> {
        self.profiler().flush()
    }

    /// Ends the recording and returns the trace instead of writing it to the output.
    ///
    /// A trace that is dropped unused is reported. Schedules and trace handlers end as with [`Profiler::stop`].
    ///
    /// # Errors
    /// [`NotActive`](ErrorKind::NotActive) if no recording is running.
    pub fn finish(mut self) -> Result<Trace, Error> {
        let session = self.session.take();
        if let Some(session) = session.get() {
            session.requests.close(session.settings.patience());
            session.set_claim(None);
        }
        Profiler::new(session).stop()
    }

    /// Ends the recording, starts the next one, which goes to `output`, and then writes the ended one to its own output, with
    /// messages about errors.
    ///
    /// # Errors
    /// Why the next recording cannot be written; the running one continues.
    pub(crate) fn start_next(&self, output: PathBuf) -> Result<(), Error> {
        let Some(session) = self.session.get() else { return Ok(()) };
        let next = session.reserve_output(&output)?;
        let _ending = session.writes.register_ending();
        let ended = match session.finish(EndedBy::Guard) {
            Err(error) if error.kind() != ErrorKind::NotActive => return Err(error),
            ended => ended.ok(),
        };
        let _claim = session.set_output(next);
        let started = session.begin_schedule();
        if let Some(Ending::Recording(ended)) = ended {
            // Errors have been reported.
            let _ = write_recording(session, ended, str::to_owned);
        }
        if let Err(error) = started {
            diag!(Error, "guard", "the next recording was not started: {error}");
        }
        Ok(())
    }

    /// Ends the recording and writes the trace, as dropping does, and returns the error if nothing was written.
    ///
    /// # Errors
    /// Why the trace was not written; a message reports it too.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    pub(crate) fn end(&mut self) -> Result<(), Error> {
        let session = self.session.take();
        let Some(session) = session.get() else { return Ok(()) };
        session.requests.close(session.settings.patience());
        let lived = self.built.map_or(Duration::ZERO, since);
        let closed = finish_and_write(session, EndedBy::Guard, |why| explain_early_drop(session, lived, why));
        session.end_guard();
        closed
    }
}

impl Drop for KinetoGuard {
    fn drop(&mut self) {
        // Errors have been reported.
        let _ = self.end();
    }
}

/// Records from [`Profiler::record`] until it is dropped, and writes the trace then.
///
/// The file is the layer's output; from the second recording on its name has a number, such as `app.2.json`. Without an output,
/// only [`finish`](RecordingGuard::finish) keeps the trace. Writing, waiting and reports are as for [`KinetoGuard`].
///
/// ```
/// # use tracing_subscriber::prelude::*;
/// # use tracing_kineto::KinetoLayer;
/// let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build()?;
/// let profiler = guard.profiler();
/// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
/// let recording = profiler.record()?;
/// tracing::info_span!("slow part").in_scope(|| { /* ... */ });
/// let trace = recording.finish()?; // or drop it, which writes the trace
/// assert_eq!(trace.stats().slices, 1);
/// # Ok::<(), tracing_kineto::Error>(()) })?;
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[must_use = "the recording ends when this is dropped: keep it in a variable"]
pub struct RecordingGuard {
    session: SessionHandle,
}

impl Profiler {
    /// Starts a recording, or begins the schedule if there is one, until the guard that this returns is dropped.
    ///
    /// # Errors
    /// Those of [`start`](Profiler::start).
    pub fn record(&self) -> Result<RecordingGuard, Error> {
        self.start()?;
        Ok(RecordingGuard { session: self.session()?.clone().into() })
    }
}

impl RecordingGuard {
    /// Ends the recording and returns the trace instead of writing it.
    ///
    /// # Errors
    /// Those of [`Profiler::stop`].
    pub fn finish(mut self) -> Result<Trace, Error> {
        Profiler::new(self.session.take()).stop()
    }
}

impl Drop for RecordingGuard {
    fn drop(&mut self) {
        if let Some(session) = self.session.get() {
            // Errors have been reported.
            let _ = finish_and_write(session, EndedBy::RecordingGuard, str::to_owned);
        }
    }
}

impl fmt::Debug for RecordingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.session.get().map_or(Status::Idle, |session| session.recording.status_now());
        f.debug_struct("RecordingGuard").field("status", &status).finish_non_exhaustive()
    }
}

/// Ends the running recording or schedule and writes the trace, unless the program ends and wants no file then.
/// `why_empty` may replace the reason why the trace is empty.
fn finish_and_write(session: &Session, by: EndedBy, why_empty: impl Fn(&str) -> String) -> Result<(), Error> {
    if session.recording.is_forked() {
        return Ok(());
    }
    let is_idle = session.recording.status() == Status::Idle && !session.is_stepping();
    let written = if is_idle { Ok(()) } else { end_and_write(session, by, why_empty) };
    if is_idle && by == EndedBy::RecordingGuard {
        // The program has ended the recording, and may have flushed it before.
        session.steps.skip_file_number();
    }
    if by == EndedBy::Guard {
        // Those of recordings that were discarded.
        session.spill.leave_ended(session, None);
    }
    written
}

/// Ends the running recording or schedule and writes the trace.
fn end_and_write(session: &Session, by: EndedBy, why_empty: impl Fn(&str) -> String) -> Result<(), Error> {
    let _ending = session.writes.register_ending();
    match session.finish(by) {
        Ok(Ending::Recording(mut ended)) => {
            let path = ended.path.filter(|_| by != EndedBy::Guard || session.writes_at_end());
            ended.path = path.filter(|path| !session.is_written_at_exit(path));
            write_recording(session, ended, why_empty)?;
        }
        // The error has been reported.
        Ok(Ending::Cycle(Cycle { error: Some(error), .. })) => return Err(error),
        Ok(Ending::Cycle(_) | Ending::Nothing { has_traces: true, .. }) => {}
        Ok(Ending::Nothing { why, .. }) => diag!(Warning, "guard", "nothing was recorded: {why}"),
        Err(error) if error.kind() == ErrorKind::NotActive => {}
        Err(error) => {
            diag!(Error, "guard", "the trace was not written: {error}");
            return Err(error);
        }
    }
    Ok(())
}

/// Writes the trace of a recording that has ended, with the parts that were moved to disk.
fn write_recording(
    session: &Session,
    mut ended: EndedRecording,
    why_empty: impl Fn(&str) -> String,
) -> Result<(), Error> {
    let parts = ended.take_parts(session);
    let EndedRecording { trace, path, .. } = ended;
    let why = session.why_empty(&trace);
    // A part that cannot be written keeps it, also if the rest is empty and not written.
    let _live = why.as_ref().and_then(|_| trace.contents().recorded.live_file().cloned());
    let written = match (parts, path, why) {
        (Some(parts), path, _) => session.write_parts(&parts, Some(trace), path.as_deref()),
        (None, Some(path), None) => session.writes.write_in_time(trace, path, session.settings.patience()),
        (None, _, why) => {
            if let Some(why) = &why {
                diag!(Warning, "guard", "nothing was recorded: {}", why_empty(why));
            }
            Ok(())
        }
    };
    written.inspect_err(|error| diag!(Error, "guard", "the trace was not written: {error}"))
}

/// Returns why nothing was recorded: that the guard was dropped too early, if so, else `why`.
fn explain_early_drop(session: &Session, lived: Duration, why: &str) -> String {
    /// Most programs that keep the guard run longer.
    const YOUNG: Duration = Duration::from_secs(1);
    if lived >= YOUNG {
        return why.to_owned();
    }
    let lived = lived.as_millis();
    if session.is_installed() {
        return format!("{why} (the guard was dropped {lived} ms after `build`: keep it until the program's end)");
    }
    format!(
        "the layer was not installed when the guard was dropped, {lived} ms after `build`; add it with \
         tracing_subscriber::registry().with(layer).init(), and keep the guard (`let (layer, _guard) = …`) until the \
         program's end",
    )
}
