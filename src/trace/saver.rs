//! Saving with a callback for the progress.

use super::Trace;
use super::progress::{ProgressReport, SaveProgress};
use crate::error::Error;
use std::path::Path;

/// Saves a trace with options, from [`Trace::saver`].
pub struct Saver<'f> {
    pub(crate) trace: Trace,
    report: ProgressReport<'f>,
}

impl std::fmt::Debug for Saver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saver").field("trace", &self.trace).finish_non_exhaustive()
    }
}

impl Trace {
    /// Returns a saver, which can report its progress.
    ///
    /// ```
    /// # fn main() -> Result<(), tracing_kineto::Error> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("app.pt.trace.json.gz");
    /// # let (layer, guard) = tracing_kineto::KinetoLayer::builder().no_output().build()?;
    /// # drop(layer);
    /// let trace = guard.profiler().stop()?;
    /// trace.saver().on_progress(|save| println!("{} of {} rows", save.rows, save.all_rows)).save(path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn saver<'f>(&self) -> Saver<'f> {
        Saver { trace: self.clone(), report: ProgressReport::default() }
    }

    /// Removes the live file that holds the records, because a file has all of them now; or keeps it, because they could not be
    /// written.
    pub(crate) fn settle_live_file(&self, is_saved: bool) {
        let Some(live) = self.contents().recorded.live_file() else { return };
        let is_whole = || self.progress().file_cut().is_none_or(|cut| cut.is_at_size_limit());
        if is_saved && is_whole() {
            live.remove_file();
        } else {
            live.set_unsaved();
        }
    }
}

impl<'f> Saver<'f> {
    /// Calls `callback` on the thread that writes: ten times a second at most, and when all rows are written.
    ///
    /// If it panics, a message reports that, it is not called again, and the trace is saved.
    #[must_use]
    pub fn on_progress(self, callback: impl FnMut(SaveProgress) + Send + 'f) -> Saver<'f> {
        Saver { report: ProgressReport::new(callback), ..self }
    }

    /// Writes the trace to a file; see [`Trace::save`].
    ///
    /// # Errors
    /// Those of [`Trace::save`].
    pub fn save(self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.trace.save_to(self.trace.destination(), path.as_ref(), &self.report).map(drop)
    }
}
