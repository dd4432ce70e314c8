//! The write service. It starts every thread that writes; [`ActiveWrite::save`] writes every trace that the crate saves by itself.
//!
//! A write is registered from the moment at which a recording is being ended for it until all that follows its result is done. The
//! guard, cycles, parts and the end of the process wait for theirs as long as [`Patience`] says; dumps, requests, segments and
//! [`BackgroundSave`]s are written while the program continues. Each write has its own thread, so that none waits for the slow disk
//! of another. The buffer limit bounds their memory: it counts the chunks of unwritten traces. Where no thread can be started,
//! the caller writes or gets the error.

mod active;
mod background;
mod ordered;
mod patience;

pub(super) use active::ProcessEnd;
pub(crate) use active::{ActiveWrite, UnstartedWrite};
pub use background::BackgroundSave;
pub(crate) use patience::Patience;
pub(super) use patience::{PendingWrite, TIME_TO_CLOSE, report_written_trace};

use super::settings::SessionSettings;
use crate::error::Error;
use crate::os::fork;
use crate::trace::Trace;
use kineto_base::sorted::SortedMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session's writes.
#[derive(Debug)]
pub(crate) struct Writes {
    settings: Arc<SessionSettings>,
    /// The newest trace in each file, by the order in which they were taken.
    newest: fork::Own<SortedMap<PathBuf, u64>>,
}

impl Writes {
    pub(super) fn new(settings: Arc<SessionSettings>) -> Writes {
        Writes { settings, newest: fork::Own::default() }
    }

    /// Registers the calling thread as ending a recording, whose file it then writes: the end of the process waits for that.
    pub(crate) fn register_ending(self: &Arc<Self>) -> Arc<ActiveWrite> {
        ActiveWrite::register(Some(self.clone()), true, self.settings.flush_timeout())
    }

    /// Registers a write during which the program continues.
    pub(crate) fn register_background(self: &Arc<Self>) -> Arc<ActiveWrite> {
        ActiveWrite::register(Some(self.clone()), false, self.settings.flush_timeout())
    }

    /// Returns a number that grows with the progress of all writers, plus the number of their traces.
    pub(crate) fn progress_steps(self: &Arc<Self>) -> u64 {
        active::progress_steps(self)
    }

    /// Writes a trace to a file on the calling thread.
    pub(super) fn write_here(self: &Arc<Self>, trace: &Trace, path: &Path) -> Result<(), Error> {
        self.register_ending().save(trace, &self.output_of(trace), path).map(drop)
    }

    /// Writes a trace to a file on a new thread, and waits for it. If the thread cannot be started, the calling one writes,
    /// which may take longer than `patience`.
    pub(crate) fn write_in_time(
        self: &Arc<Self>,
        trace: Trace,
        path: PathBuf,
        patience: Patience,
    ) -> Result<(), Error> {
        self.begin_write(trace, path, patience).wait()
    }

    /// Begins to write a trace to a file on a new thread.
    pub(super) fn begin_write(self: &Arc<Self>, trace: Trace, path: PathBuf, patience: Patience) -> PendingWrite {
        let write = self.register_ending();
        write.set_trace(Some(trace.clone()));
        if let Patience::Until(deadline) = patience {
            write.close_at(deadline);
        }
        let (writes, written, target) = (self.clone(), trace.clone(), path.clone());
        let work = move |write: &ActiveWrite| {
            write.save(&written, &writes.output_of(&written), &target)?;
            Ok((written, target))
        };
        let end = |write: &ActiveWrite, saved: Result<(Trace, PathBuf), Error>| {
            let (result, saved) = saved.map_or_else(|error| (Err(error), None), |saved| (Ok(()), Some(saved)));
            if write.set_result(result) {
                // The caller has given up.
                saved.into_iter().for_each(|(trace, path)| report_written_trace(&trace, &path));
            }
        };
        write.clone().start(path.clone(), work, end).unwrap_or_else(UnstartedWrite::run_here);
        PendingWrite { write, trace, path, patience }
    }
}
