//! The machine of a session behind its lock, with the marks whose snapshots are not taken yet.

use super::{Effect, Event, Refusal, SessionMachine};
use crate::error::Error;
use crate::os::fork;
use crate::session::recording::SnapshotPoint;
use crate::trace::Trace;
use crate::wait::Condvar;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A machine that threads share. Its lock is held for microseconds; a forked child has a machine of its own.
#[derive(Debug, Default)]
pub(in crate::session) struct MachineControl(fork::PerProcess<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<ControlState>,
    has_changed: Condvar,
}

#[derive(Debug, Default)]
struct ControlState {
    machine: SessionMachine,
    marks: Vec<Arc<SnapshotMark>>,
}

/// A marked time, and the snapshot up to it. The dump's thread takes that, unless the recording ends or a part leaves the memory
/// first.
#[derive(Debug)]
pub(in crate::session) struct SnapshotMark {
    pub(in crate::session) point: SnapshotPoint,
    /// The snapshot, once it is taken; its thread removes it from there.
    pub(in crate::session) trace: Mutex<Option<Result<Trace, Error>>>,
}

/// Passes an event to the machine when it is dropped.
pub(in crate::session) struct EventOnDrop<'m>(pub(in crate::session) &'m MachineControl, pub(in crate::session) Event);

impl Drop for EventOnDrop<'_> {
    fn drop(&mut self) {
        let _ = self.0.handle(self.1);
    }
}

impl MachineControl {
    fn shared(&self) -> &Shared {
        self.0.get(|parents| {
            let machine = parents.state.try_lock().map(|state| state.machine.of_child()).unwrap_or_default();
            Shared { state: Mutex::new(ControlState { machine, marks: Vec::new() }), has_changed: Condvar::new() }
        })
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.shared().state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the machine refuses an event because a recording is changing.
    fn wait_while(&self, mut is_refused: impl FnMut(&mut SessionMachine) -> bool) -> MutexGuard<'_, ControlState> {
        let Shared { state, has_changed } = self.shared();
        has_changed.wait_while(state, self.lock(), |state| is_refused(&mut state.machine))
    }

    /// Returns what `read` reads.
    pub(in crate::session) fn read<R>(&self, read: impl FnOnce(&SessionMachine) -> R) -> R {
        read(&self.lock().machine)
    }

    /// Passes an event to the machine; returns what is to be done.
    pub(in crate::session) fn handle(&self, event: Event) -> Result<&'static [Effect], Refusal> {
        let handled = self.lock().machine.handle(event);
        self.shared().has_changed.notify_all();
        handled
    }

    /// Waits until the machine does not refuse an event because a recording is changing.
    pub(in crate::session) fn wait_for(&self, event: Event) {
        drop(self.wait_while(|machine| machine.clone().handle(event) == Err(Refusal::IsChanging)));
    }

    /// Adds a mark, once no part is leaving the memory: it would take records that the snapshot needs. `point` returns the time.
    pub(in crate::session) fn add_mark(
        &self,
        point: impl FnOnce() -> SnapshotPoint,
    ) -> Result<Arc<SnapshotMark>, Refusal> {
        let mut state = self.wait_while(|machine| machine.handle(Event::Mark) == Err(Refusal::IsChanging));
        state.machine.handle(Event::Mark)?;
        let mark = Arc::new(SnapshotMark { point: point(), trace: Mutex::default() });
        state.marks.push(mark.clone());
        Ok(mark)
    }

    /// Returns the marks.
    pub(in crate::session) fn marks(&self) -> Vec<Arc<SnapshotMark>> {
        self.lock().marks.clone()
    }

    /// Removes a mark that is taken, or that no thread will take.
    pub(in crate::session) fn remove_mark(&self, mark: &Arc<SnapshotMark>) {
        self.lock().marks.retain(|pending| !Arc::ptr_eq(pending, mark));
    }

    /// Asks whether a part may leave the memory now, or what is to be done before.
    pub(in crate::session) fn move_part(&self) -> Result<&'static [Effect], Refusal> {
        let state = &mut *self.lock();
        state.machine.handle(Event::MovePart { marks: state.marks.len() })
    }
}
