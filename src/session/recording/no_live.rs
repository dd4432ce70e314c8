//! Stub of the live file of a recording, for builds without the feature `segments`: there is none.

use super::clock_thread::ClockThread;
use super::{RecordingState, SessionRecording};
use crate::live::LiveFile;
use std::sync::Arc;

impl SessionRecording {
    pub(super) fn begin_live(&self, _state: &RecordingState) {}

    /// Calls `take`; there is no file to return.
    pub(in crate::session) fn with_live_file<R>(&self, take: impl FnOnce() -> R) -> (R, Option<Arc<LiveFile>>) {
        (take(), None)
    }

    pub(super) fn note_info(&self, _state: &RecordingState) {}
}

impl ClockThread {
    pub(super) fn maintain_live(&self) {}

    pub(super) fn refresh_live(&self) {}
}
