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
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
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

    /// Starts a thread that calls `save`, which passes the trace to its first argument before it writes the file; then calls
    /// `report_end`, after the handle has the result. The end of the process waits for the thread, at most for `flush_timeout`.
    pub(super) fn start(
        path: PathBuf,
        flush_timeout: Duration,
        save: impl FnOnce(&dyn Fn(&Trace), &Path) -> Result<Trace, Error> + Send + 'static,
        report_end: impl FnOnce(Result<&Path, Error>) + Send + 'static,
    ) -> Result<BackgroundSave, Error> {
        register_at_exit();
        let handle = BackgroundSave { path, outcome: Outcome::default(), process: fork::generation() };
        let outcome = handle.outcome.clone();
        let (active, path) = (ActiveSave::register(flush_timeout), handle.path.clone());
        let write = move || {
            let register = |trace: &Trace| active.set_trace(Some(trace.clone()));
            let saved = contain_panics(&path, || save(&register, &path));
            let saved = saved.map(|trace| report_written_trace(&trace, &path));
            if let Err(error) = &saved {
                diag!(Error, "trace", "the trace was not written: {error}");
            }
            // The records are free again before anyone learns of the result.
            active.set_trace(None);
            let _ = outcome.set(saved.clone());
            report_end(saved.map(|()| &*path));
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
        let (trace, flush_timeout) = (self.trace.clone(), self.trace.flush_timeout());
        let save = move |register: &dyn Fn(&Trace), path: &Path| {
            register(&trace);
            // The saver is dropped when the file is written, before anyone learns of the result.
            self.save(path).map(|()| trace)
        };
        BackgroundSave::start(path.as_ref().to_owned(), flush_timeout, save, |_| ())
    }
}

/// The saves in progress; a forked child starts with none.
static ACTIVE: fork::Own<Vec<Weak<ActiveSave>>> = fork::Own::of_first(Vec::new());

/// A save in progress, until it is dropped.
struct ActiveSave {
    flush_timeout: Duration,
    state: Mutex<SaveState>,
}

#[derive(Default)]
struct SaveState {
    /// When the file is closed, if the process is ending.
    deadline: Option<Instant>,
    /// The trace, while it is being written.
    trace: Option<Trace>,
}

impl ActiveSave {
    fn register(flush_timeout: Duration) -> Arc<ActiveSave> {
        let save = Arc::new(ActiveSave { flush_timeout, state: Mutex::default() });
        let mut active = ACTIVE.lock();
        active.retain(|save| save.strong_count() > 0);
        active.push(Arc::downgrade(&save));
        save
    }

    /// Changes the state, and makes the writer close its file in time, if the process is ending.
    fn change<R>(&self, change: impl FnOnce(&mut SaveState) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut state);
        if let SaveState { deadline: Some(deadline), trace: Some(trace) } = &*state {
            trace.progress().close_at(*deadline);
        }
        changed
    }

    fn set_trace(&self, trace: Option<Trace>) {
        // Dropping a trace returns memory, which takes other locks.
        drop(self.change(|state| std::mem::replace(&mut state.trace, trace)));
    }
}

/// Makes all saves close their files in time if the process began to end at `now`; returns the last of their deadlines.
pub(super) fn limit_saves(now: Instant) -> Option<Instant> {
    let active: Vec<_> = ACTIVE.lock().iter().filter_map(Weak::upgrade).collect();
    let limit = |save: &Arc<ActiveSave>| {
        let deadline = exit_deadline(save.flush_timeout, now);
        save.change(|state| state.deadline = Some(deadline));
        deadline
    };
    active.iter().map(limit).max()
}

/// Waits for all saves; the process began to end at `now`.
pub(super) fn wait_for_saves(now: Instant) {
    const INTERVAL: Duration = Duration::from_millis(5);
    while limit_saves(now).is_some_and(|deadline| steady() < deadline + TIME_TO_CLOSE) {
        sleep(INTERVAL);
    }
}
