//! Snapshots that another thread takes, up to the time of the call: the caller does not wait for the ring of chunks.

use super::recording::{SessionRecording, SnapshotPoint};
use super::refusals::REQUEST_IS_RECORDING;
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::trace::Trace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The snapshots of a session that are not taken yet; a forked child starts with none.
#[derive(Debug, Default)]
pub(super) struct PendingSnapshots {
    all: fork::Own<Vec<Arc<PendingSnapshot>>>,
}

/// A snapshot that is taken by its own thread, or by the end of the recording if that comes first.
#[derive(Debug)]
pub(super) struct PendingSnapshot {
    recording: Arc<SessionRecording>,
    point: SnapshotPoint,
    /// The snapshot, once it is taken; its thread removes it from there.
    trace: Mutex<Option<Result<Trace, Error>>>,
}

impl PendingSnapshots {
    /// Adds a snapshot of what is recorded until now.
    pub(super) fn add(&self, recording: &Arc<SessionRecording>) -> Result<Arc<PendingSnapshot>, Error> {
        // The end of the recording holds this lock too, so it misses none.
        let state = recording.lock_state()?;
        if state.machine.request().is_some() {
            return Err(Error::new(ErrorKind::NotActive, REQUEST_IS_RECORDING));
        }
        let point = recording.mark_snapshot(&state)?;
        let snapshot = Arc::new(PendingSnapshot { recording: recording.clone(), point, trace: Mutex::default() });
        self.all.lock().push(snapshot.clone());
        Ok(snapshot)
    }

    /// Returns whether all are taken.
    pub(super) fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }

    /// Takes all snapshots, because the recording is about to end.
    pub(super) fn take_all(&self) {
        let all = self.all.lock().clone();
        for snapshot in all {
            drop(self.take(&snapshot));
        }
    }

    /// Takes a snapshot and returns the trace.
    pub(super) fn take_trace(&self, snapshot: &Arc<PendingSnapshot>) -> Result<Trace, Error> {
        let taken = self.take(snapshot).take();
        taken.unwrap_or_else(|| snapshot.recording.snapshot_until(&snapshot.point))
    }

    /// Takes a snapshot, unless that is done.
    fn take<'s>(&self, snapshot: &'s Arc<PendingSnapshot>) -> MutexGuard<'s, Option<Result<Trace, Error>>> {
        let mut trace = snapshot.trace.lock().unwrap_or_else(PoisonError::into_inner);
        if self.all.lock().iter().any(|pending| Arc::ptr_eq(pending, snapshot)) {
            *trace = Some(snapshot.recording.snapshot_until(&snapshot.point));
            self.remove(snapshot);
        }
        trace
    }

    /// Removes a snapshot that is taken, or that no thread will take.
    pub(super) fn remove(&self, snapshot: &Arc<PendingSnapshot>) {
        self.all.lock().retain(|pending| !Arc::ptr_eq(pending, snapshot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overflow, Split};
    use crate::session::Session;

    #[test]
    fn dump_is_whole_if_a_part_is_taken_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        (config.overflow, config.split) = (Overflow::Spill, Some(Split::Steps(1)));
        config.spill_folder = Some(folder.path().to_owned());
        let session = Session::with_limit(64 << 20, config);
        session.start().unwrap();
        session.record_instants(10);
        let pending = &session.pending_snapshots;
        let first = pending.add(&session.recording).unwrap();
        let is_taken = first.trace.lock().unwrap();
        session.spill.end_step(&session.recorder);
        let dump = std::thread::scope(|scope| {
            scope.spawn(|| session.spill.take_cuts(&session));
            // The thread that takes the part knows the first snapshot, and waits for it.
            while Arc::strong_count(&first) < 3 {
                std::thread::yield_now();
            }
            let second = pending.add(&session.recording).unwrap();
            drop(is_taken);
            second
        });
        while session.spill.has_cuts() {
            std::thread::yield_now();
        }
        let events = [first, dump].map(|pending_dump| pending.take_trace(&pending_dump).unwrap().stats().events);
        assert_eq!((events, session.stop().unwrap().stats().events), ([10; 2], 0));
    }
}
