//! Saves on threads of their own, for which the end of the process waits.

use super::exit::register_at_exit;
use super::saving::{TIME_TO_CLOSE, contain_panics, report_written_trace};
use super::settings::exit_deadline;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{fork, thread};
use crate::trace::{Saver, Trace};
use crate::wait::{sleep, steady};
use crate::write::sink::Writers;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A file that a thread writes while the program continues, from [`Trace::save_in_background`] or
/// [`Profiler::dump`](crate::Profiler::dump).
///
/// The file is written even if this is dropped, and the end of the process waits for it, at most for the layer's
/// [`flush_timeout`](crate::KinetoLayerBuilder::flush_timeout). A message reports the file, or why it was not written.
#[derive(Debug)]
pub struct BackgroundSave {
    path: PathBuf,
    outcome: Outcome,
    /// The fork generation of the process that writes it.
    process: u64,
}

/// The result of a save, once it has ended.
type Outcome = Arc<OnceLock<Result<(), Error>>>;

/// A file that a thread of its own writes.
pub(super) trait SaveJob: Send + Sized + 'static {
    /// Returns the trace; called once, on the thread that writes.
    fn take_trace(&mut self) -> Result<Trace, Error>;

    /// Writes the file.
    fn save(&mut self, trace: &Trace, path: &Path) -> Result<(), Error>;

    /// Called after the handle has the result.
    fn report_end(self, _path: &Path, _saved: Result<(), Error>) {}
}

impl BackgroundSave {
    /// Returns the path of the file, which appears when it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether writing has ended.
    pub fn is_finished(&self) -> bool {
        self.process != fork::generation() || self.outcome.get().is_some()
    }

    /// Waits until the file is complete; returns its path.
    ///
    /// # Errors
    /// Those of [`Trace::save`]; [`Forked`](ErrorKind::Forked) in a forked child, where nothing writes.
    pub fn wait(self) -> Result<PathBuf, Error> {
        if self.process != fork::generation() {
            let text = format!("{} is written by the parent process; wait there", Writers::output_name(&self.path));
            return Err(Error::new(ErrorKind::Forked, text));
        }
        self.outcome.wait().clone().map(|()| self.path)
    }

    /// Starts a thread that saves a trace; the end of the process waits for it, at most for `flush_timeout`.
    pub(super) fn start(
        path: PathBuf,
        flush_timeout: Duration,
        mut job: impl SaveJob,
    ) -> Result<BackgroundSave, Error> {
        register_at_exit();
        let handle = BackgroundSave { path, outcome: Outcome::default(), process: fork::generation() };
        let (active, path) = (ActiveSave::register(flush_timeout, &handle.outcome), handle.path.clone());
        let write = move || {
            let saved = contain_panics(&path, || job.take_trace()).and_then(|trace| {
                active.set_trace(Some(trace.clone()));
                contain_panics(&path, || job.save(&trace, &path)).inspect(|()| report_written_trace(&trace, &path))
            });
            if let Err(error) = &saved {
                diag!(Error, "trace", "the trace was not written: {error}");
            }
            // The records are free again before anyone learns of the result.
            active.set_trace(None);
            let _ = active.outcome.set(saved.clone());
            job.report_end(&path, saved);
        };
        match thread::spawn("kineto-write", Box::new(write)) {
            Ok(_) => Ok(handle),
            Err(error) => Err(Error::io("start a thread that writes", &handle.path, error, "end other threads")),
        }
    }
}

impl Trace {
    /// Writes the trace to a file as [`save`](Trace::save) does, on a thread, while the program continues.
    ///
    /// ```
    /// # fn main() -> Result<(), tracing_kineto::Error> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("epoch_1.pt.trace.json.gz");
    /// # let (layer, guard) = tracing_kineto::KinetoLayer::builder().no_output().build()?;
    /// # drop(layer);
    /// let trace = guard.profiler().stop()?;
    /// let save = trace.save_in_background(path)?;
    /// drop(trace); // Its memory is returned when the file is complete.
    /// // Later:
    /// println!("{}", save.wait()?.display());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the thread cannot be started; the trace can still be [saved](Trace::save). Those of writing are returned by
    /// [`BackgroundSave::wait`].
    pub fn save_in_background(&self, path: impl AsRef<Path>) -> Result<BackgroundSave, Error> {
        self.saver().save_in_background(path)
    }
}

impl Saver<'static> {
    /// Writes the trace to a file on a thread; see [`Trace::save_in_background`].
    ///
    /// # Errors
    /// Those of [`Trace::save_in_background`].
    pub fn save_in_background(self, path: impl AsRef<Path>) -> Result<BackgroundSave, Error> {
        BackgroundSave::start(path.as_ref().to_owned(), self.trace.flush_timeout(), Some(self))
    }
}

/// A saver that is dropped when the file is written, before anyone learns of the result.
impl SaveJob for Option<Saver<'static>> {
    fn take_trace(&mut self) -> Result<Trace, Error> {
        self.as_ref()
            .map(|saver| saver.trace.clone())
            .ok_or_else(|| Error::new(ErrorKind::NotActive, "the trace was saved already; please report this"))
    }

    fn save(&mut self, _trace: &Trace, path: &Path) -> Result<(), Error> {
        self.take().map_or(Ok(()), |saver| saver.save(path))
    }
}

/// The saves in progress; a forked child starts with none.
static ACTIVE: fork::Own<Vec<RegisteredSave>> = fork::Own::of_first(Vec::new());

struct RegisteredSave {
    outcome: Outcome,
    flush_timeout: Duration,
    /// When the file is closed, if the process is ending.
    deadline: Option<Instant>,
    /// The trace, while it is being written.
    trace: Option<Trace>,
}

impl RegisteredSave {
    /// Makes the writer close its file in time, if the process is ending.
    fn close_in_time(&self) {
        if let (Some(trace), Some(deadline)) = (&self.trace, self.deadline) {
            trace.progress().close_at(deadline);
        }
    }
}

/// A save in progress, until it is dropped.
struct ActiveSave {
    outcome: Outcome,
}

impl ActiveSave {
    fn register(flush_timeout: Duration, outcome: &Outcome) -> ActiveSave {
        let outcome = outcome.clone();
        ACTIVE.lock().push(RegisteredSave { outcome: outcome.clone(), flush_timeout, deadline: None, trace: None });
        ActiveSave { outcome }
    }

    fn set_trace(&self, trace: Option<Trace>) {
        let mut active = ACTIVE.lock();
        let Some(own) = active.iter_mut().find(|save| Arc::ptr_eq(&save.outcome, &self.outcome)) else { return };
        let before = std::mem::replace(&mut own.trace, trace);
        own.close_in_time();
        // Dropping a trace returns memory, which takes other locks.
        drop(active);
        drop(before);
    }
}

impl Drop for ActiveSave {
    fn drop(&mut self) {
        ACTIVE.lock().retain(|save| !Arc::ptr_eq(&save.outcome, &self.outcome));
    }
}

/// Makes all saves close their files in time if the process began to end at `now`; returns the last of their deadlines.
pub(super) fn limit_saves(now: Instant) -> Option<Instant> {
    let limit = |save: &mut RegisteredSave| {
        let deadline = *save.deadline.insert(exit_deadline(save.flush_timeout, now));
        save.close_in_time();
        deadline
    };
    ACTIVE.lock().iter_mut().map(limit).max()
}

/// Waits for all saves; the process began to end at `now`.
pub(super) fn wait_for_saves(now: Instant) {
    const INTERVAL: Duration = Duration::from_millis(5);
    while limit_saves(now).is_some_and(|deadline| steady() < deadline + TIME_TO_CLOSE) {
        sleep(INTERVAL);
    }
}
