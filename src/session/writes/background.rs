//! Saves on threads of their own, for which the end of the process waits.

use super::{ActiveWrite, UnstartedWrite, report_written_trace};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::session::exit::register_at_exit;
use crate::trace::{Saver, Trace};
use crate::write::sink::Writers;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that a thread writes while the program continues, from [`Trace::save_in_background`] or
/// [`Profiler::dump`](crate::Profiler::dump).
///
/// The file is written even if this is dropped, and the end of the process waits for it, at most for the layer's
/// [`flush_timeout`](crate::KinetoLayerBuilder::flush_timeout). A message reports the file, or why it was not written.
pub struct BackgroundSave {
    path: PathBuf,
    write: Arc<ActiveWrite>,
    /// The fork generation of the process that writes it.
    process: u64,
}

impl BackgroundSave {
    /// Returns the path of the file, which appears when it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether writing has ended; `true` in a forked child, where nothing writes.
    pub fn is_finished(&self) -> bool {
        self.process != fork::generation() || self.write.result().is_some()
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
        self.write.wait().map(|()| self.path)
    }

    /// Starts a thread that calls `save`, which passes the trace to the write before it writes the file; then calls `report_end`,
    /// after the handle has the result. The end of the process waits for the thread, at most for `flush_timeout`.
    pub(in crate::session) fn start(
        write: Arc<ActiveWrite>,
        path: PathBuf,
        save: impl FnOnce(&ActiveWrite, &Path) -> Result<Trace, Error> + Send + 'static,
        report_end: impl FnOnce(Result<&Path, Error>) + Send + 'static,
    ) -> Result<BackgroundSave, Error> {
        register_at_exit();
        let handle = BackgroundSave { path: path.clone(), write: write.clone(), process: fork::generation() };
        let (target, reported) = (path.clone(), path.clone());
        let work = move |write: &ActiveWrite| {
            let trace = save(write, &target)?;
            report_written_trace(&trace, &target);
            Ok(())
        };
        let end = move |write: &ActiveWrite, saved: Result<(), Error>| {
            if let Err(error) = &saved {
                diag!(Error, "trace", "the trace was not written: {error}");
            }
            write.set_result(saved.clone());
            report_end(saved.map(|()| &*reported));
        };
        write.start(path, work, end).map_err(UnstartedWrite::into_error)?;
        Ok(handle)
    }
}

impl fmt::Debug for BackgroundSave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_finished = self.is_finished();
        f.debug_struct("BackgroundSave").field("path", &self.path).field("is_finished", &is_finished).finish()
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
        let save = move |write: &ActiveWrite, path: &Path| {
            write.set_trace(Some(trace.clone()));
            // The saver is dropped when the file is written, before anyone learns of the result.
            self.save(path).map(|()| trace)
        };
        let write = ActiveWrite::register(None, false, flush_timeout);
        BackgroundSave::start(write, path.as_ref().to_owned(), save, |_| ())
    }
}
