//! The guard, which writes traces one after another.

use crate::diag::diag;
use crate::guard::KinetoGuard;
use crate::os::{fork, platform};
use crate::write::sink::Writers;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;

/// Writes the trace when it is dropped; keep it until the program's end.
///
/// If it is never dropped, the trace is written when the process exits, as by [`KinetoGuard`].
#[must_use = "the trace is written when the guard is dropped: keep it in a variable until the program's end"]
pub struct FlushGuard {
    pub(super) guard: KinetoGuard,
    pub(super) writers: Writers,
    /// The output of the running recording; locked while it changes.
    pub(super) output: fork::Own<PathBuf>,
}

impl FlushGuard {
    /// Writes what was recorded so far to the file, while the recording continues.
    ///
    /// A writer receives its trace only once, complete: nothing happens then. A message on stderr reports errors.
    pub fn flush(&self) {
        let output = self.output.lock();
        if !Writers::is_url(&output)
            && let Err(error) = self.guard.flush()
        {
            diag!(Error, "chrome", "the trace was not flushed: {error}");
        }
    }

    /// Ends the trace and starts the next one, which goes to `writer`, or to `./trace-{microseconds since the Unix epoch}.json`
    /// without one; then writes the ended one.
    ///
    /// A message on stderr reports errors. If the next trace cannot be written, the running one continues, for example with a
    /// writer under `KINETO_OVERFLOW=spill`, whose parts need a file.
    pub fn start_new(&self, writer: Option<Box<dyn Write + Send>>) {
        let mut output = self.output.lock();
        let next = writer.map_or_else(default_file, |writer| self.writers.add(writer));
        // A writer of an empty trace has received nothing, and is not needed any more.
        let unused = match self.guard.start_next(next.clone()) {
            Ok(()) => std::mem::replace(&mut *output, next),
            Err(error) => {
                diag!(Error, "chrome", "no new trace was started: {error}");
                next
            }
        };
        self.writers.remove(&unused);
    }
}

impl Drop for FlushGuard {
    fn drop(&mut self) {
        // Errors have been reported.
        let _ = self.guard.end();
        self.writers.remove(&self.output.lock());
    }
}

impl fmt::Debug for FlushGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlushGuard").finish_non_exhaustive()
    }
}

/// Returns the file of a trace for which the program names no other.
pub(super) fn default_file() -> PathBuf {
    PathBuf::from(format!("./trace-{}.json", platform::unix_time().as_micros()))
}
