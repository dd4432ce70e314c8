//! Snapshots: traces of a running recording, up to now or up to a time that was marked before.

use super::{RecordingState, SessionPhase, SessionRecording, build_converter, none_is_running};
use crate::buffer::Loss;
use crate::clock::{self, Anchor};
use crate::error::Error;
use crate::recorder::RecordedBuffers;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::time::Ticks;
use crate::trace::Trace;
use std::time::SystemTime;

/// A time of a running recording, up to which a snapshot can be taken later.
#[derive(Debug)]
pub(in crate::session) struct SnapshotPoint {
    at: Ticks,
    losses: [u64; Loss::ALL.len()],
}

impl SessionRecording {
    /// Returns what was recorded so far, while the recording continues.
    pub(crate) fn snapshot(&self) -> Result<Trace, Error> {
        self.snapshot_between(None)
    }

    /// Does the same; cuts the trace to `between` if these times are given, else to those of the recording's request.
    pub(in crate::session) fn snapshot_between(
        &self,
        between: Option<(SystemTime, SystemTime)>,
    ) -> Result<Trace, Error> {
        let _own = InternalAllocGuard::begin();
        self.recorder.gather_losses();
        let mut state = self.lock_state()?;
        self.check_process()?;
        let taken = self.recorder.snapshot();
        self.build_snapshot(&mut state, taken, between, None)
    }

    /// Marks this time of the running recording; waits for no other snapshot.
    pub(in crate::session) fn mark_snapshot(&self, state: &RecordingState) -> Result<SnapshotPoint, Error> {
        self.check_process()?;
        if !matches!(state.phase, SessionPhase::Recording) {
            return Err(none_is_running());
        }
        self.recorder.gather_losses();
        // All records before this are committed.
        Ok(SnapshotPoint { at: clock::now(), losses: self.recorder.losses.counts() })
    }

    /// Returns what was recorded until that time. The recording must not end meanwhile.
    pub(in crate::session) fn snapshot_until(&self, point: &SnapshotPoint) -> Result<Trace, Error> {
        let _own = InternalAllocGuard::begin();
        // It may take long, and other threads wait for the state.
        let taken = self.recorder.snapshot();
        self.build_snapshot(&mut *self.lock_state()?, taken, None, Some(point))
    }

    fn build_snapshot(
        &self,
        state: &mut RecordingState,
        taken: RecordedBuffers,
        between: Option<(SystemTime, SystemTime)>,
        point: Option<&SnapshotPoint>,
    ) -> Result<Trace, Error> {
        self.check_process()?;
        let is_recording = matches!(state.phase, SessionPhase::Recording);
        let windows = is_recording.then(|| self.windows.snapshot(taken.at)).flatten().ok_or_else(none_is_running)?;
        let windows = match point {
            Some(point) => windows.cut_until(point.at),
            None => windows,
        };
        let end = Anchor::read_clocks();
        state.reports.close_builder(end.unix);
        let mut collections = self.collectors.snapshot();
        let converter = build_converter(self.clock_thread.anchors(), windows.since, Some(end));
        let (windows, taken) = self.cut_windows(between.or(state.between), windows, taken, &converter);
        let recorded = windows.assign_windows(&mut collections, taken, &self.recorder, false);
        let losses = point.map_or_else(|| self.recorder.losses.counts(), |point| point.losses);
        Ok(self.build_trace(state, recorded, collections, converter, &losses))
    }
}
