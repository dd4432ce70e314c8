//! Parts that leave the memory of a running recording, to be moved to disk.

use super::reports::Reports;
use super::snapshots::Extent;
use super::{RecordingState, SessionRecording};
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::session::machine::SessionMachine;
use crate::time::Ticks;
use crate::trace::{DeviceRecords, Trace};

impl SessionRecording {
    /// Returns what was recorded until a time, and evicts it: the next trace begins where this one ends. Of the records of
    /// collectors, this one has all that are delivered. `None` if no recording is running, or if it is not the one that
    /// `is_current` means. `end` returns the time, which must not lie ahead.
    pub(in crate::session) fn take_segment(
        &self,
        state: &mut RecordingState,
        is_current: impl FnOnce() -> bool,
        end: impl FnOnce() -> Ticks,
    ) -> Option<Trace> {
        let _own = InternalAllocGuard::begin();
        self.check_process().ok()?;
        if !self.machine.read(SessionMachine::has_records) || !is_current() {
            return None;
        }
        self.recorder.gather_losses();
        // Records of collectors come first: the slices of their calls are in the part, or in an earlier one. If the part ends
        // with a step, they may also be in the next.
        let moved = DeviceRecords::new(self.collectors.take_records());
        // The times of two processors may differ by nanoseconds.
        let until = end().max(state.moved_until.unwrap_or_default());
        moved.set_moved(until);
        let mut taken = self.recorder.snapshot(Some(until));
        // For the same reason as chunks that begin later.
        taken.drop_unnamed_payloads();
        let trace = self.build_snapshot(state, taken, Extent::Moved(moved, until)).ok()?;
        self.note_part_losses(state, &trace);
        state.reports = Reports::default();
        // Windows contain their ends.
        state.moved_until = Some(Ticks(until.0.saturating_add(1)));
        self.recorder.evict_saved(until);
        Some(trace)
    }
}
