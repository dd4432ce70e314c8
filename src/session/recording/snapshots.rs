//! Traces of a running recording, up to now or up to a time that was marked before.

use super::{RecordingState, SessionRecording, build_converter, none_is_running};
use crate::buffer::Loss;
use crate::clock::{self, Anchor};
use crate::error::Error;
use crate::recorder::RecordedBuffers;
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::session::lock_within;
use crate::session::machine::{Effect, Event, EventOnDrop, SessionMachine, SnapshotMark};
use crate::session::refusals::refusal_error;
use crate::time::Ticks;
use crate::trace::{DeviceRecords, Trace};
use kineto_devices::DELIVERY_WAIT;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

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
        self.check_process()?;
        self.collectors.await_ended_work();
        self.recorder.gather_losses();
        let mut state = self.lock_state()?;
        let taken = self.recorder.snapshot(None);
        self.build_snapshot(&mut state, taken, Extent::Between(between))
    }

    /// Marks this time of the program's running recording: [`take_snapshot`](Self::take_snapshot) returns what is recorded until then.
    /// Waits at most until a part has left the memory.
    pub(in crate::session) fn mark(&self) -> Result<Arc<SnapshotMark>, Error> {
        self.check_process()?;
        // Its collectors may be starting still.
        self.windows.is_open().ok_or_else(none_is_running)?;
        self.recorder.gather_losses();
        // All records before this are committed.
        let point = || SnapshotPoint { at: clock::now(), losses: self.recorder.losses.counts() };
        self.machine.add_mark(point).map_err(|why| refusal_error(Event::Mark, why))
    }

    /// Takes what was marked, because the recording is about to end, or a part is about to leave the memory.
    pub(super) fn take_marked(&self) {
        for mark in self.machine.marks() {
            drop(self.take(&mark));
        }
    }

    /// Returns what was recorded until the mark.
    pub(in crate::session) fn take_snapshot(&self, mark: &Arc<SnapshotMark>) -> Result<Trace, Error> {
        let taken = self.take(mark).take();
        taken.unwrap_or_else(|| self.snapshot_until(&mark.point))
    }

    /// Takes what was marked, unless that is done.
    fn take<'m>(&self, mark: &'m Arc<SnapshotMark>) -> MutexGuard<'m, Option<Result<Trace, Error>>> {
        let mut trace = mark.trace.lock().unwrap_or_else(PoisonError::into_inner);
        if self.machine.marks().iter().any(|pending| Arc::ptr_eq(pending, mark)) {
            *trace = Some(self.snapshot_until(&mark.point));
            self.machine.remove_mark(mark);
        }
        trace
    }

    /// Locks the state when a part may leave the memory: all that was marked is taken, and what is marked from now on waits until
    /// the returned scope ends.
    pub(in crate::session) fn lock_to_move_part(&self) -> Option<(MutexGuard<'_, RecordingState>, EventOnDrop<'_>)> {
        loop {
            let state = self.lock_state().ok()?;
            if *self.machine.move_part().ok()? == [Effect::MovePart] {
                return Some((state, EventOnDrop(&self.machine, Event::PartMoved)));
            }
            drop(state);
            self.take_marked();
        }
    }

    /// Returns what was recorded until that time. The recording must not end meanwhile.
    fn snapshot_until(&self, point: &SnapshotPoint) -> Result<Trace, Error> {
        let _own = InternalAllocGuard::begin();
        // They may take long, and other threads wait for the state.
        self.collectors.await_ended_work();
        let taken = self.recorder.snapshot(None);
        self.build_snapshot(&mut *self.lock_state()?, taken, Extent::Until(point))
    }

    /// Returns how many windows of the recording have ended.
    pub(in crate::session) fn window_count(&self) -> usize {
        self.windows.count()
    }

    /// Drops the windows that ended before `until`, unless the state is locked for longer than `wait`, or a snapshot that is
    /// taken later may hold older records. Those of collectors stay while records may be delivered late.
    pub(in crate::session) fn drop_windows(&self, until: Ticks, wait: Duration) {
        let _own = InternalAllocGuard::begin();
        let Some(_state) = lock_within(&self.state, wait).filter(|_| self.machine.marks().is_empty()) else { return };
        let devices_until = self.clock_thread.time_before(until, DELIVERY_WAIT);
        self.windows.drop_ended(until, devices_until, &self.recorder.used_epochs());
    }

    pub(super) fn build_snapshot(
        &self,
        state: &mut RecordingState,
        taken: RecordedBuffers,
        extent: Extent<'_>,
    ) -> Result<Trace, Error> {
        self.check_process()?;
        let has_records = self.machine.read(SessionMachine::has_records);
        let (mut windows, since) =
            has_records.then(|| self.windows.snapshot(taken.at)).flatten().ok_or_else(none_is_running)?;
        let end = Anchor::read_clocks();
        state.reports.close_builder(end.unix);
        let mut between = None;
        let (mut devices, losses) = match extent {
            Extent::Between(times) => {
                between = times;
                (DeviceRecords::new(self.collectors.snapshot()), self.recorder.losses.counts())
            }
            Extent::Until(point) => {
                windows = windows.cut_until(point.at);
                (DeviceRecords::new(self.collectors.snapshot()), point.losses)
            }
            Extent::Moved(devices, until) => {
                windows = windows.cut_host_until(until);
                (devices, self.recorder.losses.take_counts())
            }
        };
        let converter = build_converter(self.clock_thread.anchors(), since, Some(end));
        let (windows, taken) = self.cut_windows(state, between, windows, taken, &converter);
        let recorded = windows.assign_windows(&mut devices, taken, &self.recorder, false);
        Ok(self.build_trace(state, recorded, devices, converter, &losses))
    }
}

/// What a snapshot holds.
pub(super) enum Extent<'s> {
    /// What was recorded between these times.
    Between(Option<(SystemTime, SystemTime)>),
    /// What was recorded until then.
    Until(&'s SnapshotPoint),
    /// What was recorded until then, with records that were moved out of the collectors.
    Moved(DeviceRecords, Ticks),
}
