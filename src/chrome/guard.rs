//! The guard, and where its traces go.

use crate::diag::diag;
use crate::guard::KinetoGuard;
use crate::write::TraceSink;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the trace when it is dropped; keep it until the program's end.
///
/// If it is never dropped, the trace is written when the process exits, as by [`KinetoGuard`].
#[must_use = "the trace is written when the guard is dropped: keep it in a variable until the program's end"]
#[derive(Debug)]
pub struct FlushGuard {
    guard: KinetoGuard,
    writers: Writers,
}

impl FlushGuard {
    pub(super) fn new(guard: KinetoGuard, writers: Writers) -> FlushGuard {
        FlushGuard { guard, writers }
    }

    /// Writes what was recorded so far to the file, while the recording continues.
    ///
    /// A writer receives its trace only once, complete: nothing happens then. A message on stderr reports errors.
    pub fn flush(&self) {
        if !self.writers.are_waiting()
            && let Err(error) = self.guard.flush()
        {
            diag!(Error, "chrome", "the trace was not flushed: {error}");
        }
    }

    /// Ends the trace and writes it, and starts the next one, which goes to `writer`, or to
    /// `./trace-{microseconds since the Unix epoch}.json` without one.
    ///
    /// The next recording has begun before the ended one is written. A message on stderr reports errors.
    pub fn start_new(&self, writer: Option<Box<dyn Write + Send>>) {
        let next = writer.map_or_else(default_file, |writer| self.writers.add(writer));
        if let Err(error) = self.guard.start_next(next) {
            diag!(Error, "chrome", "{error}");
        }
    }
}

/// Returns the file of a trace for which the program names no other.
pub(super) fn default_file() -> PathBuf {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    PathBuf::from(format!("./trace-{}.json", since_epoch.as_micros()))
}

/// The program's writers that have not received their trace yet, by URL.
#[derive(Clone, Default)]
pub(super) struct Writers(Arc<Mutex<WaitingWriters>>);

#[derive(Default)]
struct WaitingWriters {
    by_url: BTreeMap<String, Box<dyn Write + Send>>,
    added: usize,
}

impl Writers {
    pub(super) const SCHEME: &str = "chrome-writer";

    /// Keeps a writer; returns the output by which it receives a trace.
    pub(super) fn add(&self, writer: Box<dyn Write + Send>) -> PathBuf {
        let mut waiting = self.lock();
        waiting.added += 1;
        let url = format!("{}://{}.json", Writers::SCHEME, waiting.added);
        waiting.by_url.insert(url.clone(), writer);
        url.into()
    }

    /// Returns whether a writer waits for the trace that is being recorded.
    fn are_waiting(&self) -> bool {
        !self.lock().by_url.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, WaitingWriters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceSink for Writers {
    fn open(&self, url: &str) -> io::Result<Box<dyn Write + Send>> {
        let writer = self.lock().by_url.remove(url);
        writer.ok_or_else(|| io::Error::other("the writer has received a trace already; pass a new one to `start_new`"))
    }
}

impl fmt::Debug for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().by_url.keys()).finish()
    }
}
