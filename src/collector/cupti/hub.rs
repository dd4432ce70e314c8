//! What there is one of in a process, since CUPTI has no user data for its callbacks: the buffers, and who records.

use super::callbacks::UNLOADS;
use super::worker::ReaderCommands;
use crate::collector::CaptureRange;
use crate::collector::lease::{ExclusiveLease, OwningProcess};
use crate::collector::pool::Pool;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The one hub.
pub(super) static HUB: Hub = Hub {
    pool: Pool::new(),
    lease: ExclusiveLease::new(),
    owner: OwningProcess::new(),
    lets_go: AtomicBool::new(false),
    range: Mutex::new(None),
    commands: Mutex::new(None),
    unloads: [const { AtomicU32::new(0) }; UNLOADS.len()],
};

/// The one place where CUPTI's callbacks and the recording meet.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) pool: Pool,
    pub(super) lease: ExclusiveLease,
    /// The process that recorded first: a forked child has no CUDA.
    pub(super) owner: OwningProcess,
    /// The next call that returns is to let go of the library.
    lets_go: AtomicBool,
    /// Who is told of the program's marks.
    range: Mutex<Option<CaptureRange>>,
    /// The way to the thread that reads records.
    commands: Mutex<Option<Arc<ReaderCommands>>>,
    /// The numbers of the driver's functions that unload kernels.
    unloads: [AtomicU32; UNLOADS.len()],
}

/// The right to record with libcupti, which one recording of the process has; given up when it is dropped.
#[derive(Debug)]
pub(super) struct Lease(&'static Hub);

impl Drop for Lease {
    fn drop(&mut self) {
        // Marks have no effect from here on.
        self.0.watch(None);
        self.0.read_by(None);
        self.0.lease.release();
    }
}

impl Hub {
    /// Takes the lease; `None` if another recording has it.
    pub(super) fn lease(&'static self) -> Option<Lease> {
        self.lease.take().then(|| Lease(self))
    }

    /// Says who is told of the program's marks.
    pub(super) fn watch(&self, range: Option<CaptureRange>) {
        *self.range.lock().unwrap_or_else(PoisonError::into_inner) = range;
    }

    /// Says which thread reads the records.
    pub(super) fn read_by(&self, commands: Option<Arc<ReaderCommands>>) {
        *self.commands.lock().unwrap_or_else(PoisonError::into_inner) = commands;
    }

    /// Says which of the driver's functions unload kernels.
    pub(super) fn set_unloads(&self, functions: &[u32]) {
        self.unloads.iter().zip(functions).for_each(|(place, function)| place.store(*function, Ordering::Relaxed));
    }

    /// Whether that function of the driver unloads kernels.
    pub(super) fn unloads(&self, function: u32) -> bool {
        self.unloads.iter().any(|unload| unload.load(Ordering::Relaxed) == function)
    }

    /// A module is about to be unloaded, and the names of its kernels with it: records that are complete are read before.
    pub(super) fn before_unload(&self) {
        /// Far longer than it takes. A program that unloads is not held up by a library that hangs.
        const PATIENCE: Duration = Duration::from_millis(100);
        if self.owner.is_inherited() {
            return;
        }
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(commands) = commands {
            commands.drain(PATIENCE);
        }
    }

    /// The program begins or ends a range.
    pub(super) fn mark(&self, begins: bool) {
        // The lock is not held while others act.
        let range = self.range.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match range {
            Some(range) if begins => range.begin(),
            Some(range) => range.end(),
            None => {}
        }
    }

    /// The next call that returns is to let go of the library.
    pub(super) fn let_go(&self) {
        self.lets_go.store(true, Ordering::Release);
    }

    /// Returns whether the calling thread is to let go of the library: one thread is told so, once.
    pub(super) fn is_to_let_go(&self) -> bool {
        self.lets_go.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_lets_go() {
        let hub = Hub {
            pool: Pool::new(),
            lease: ExclusiveLease::new(),
            owner: OwningProcess::new(),
            lets_go: AtomicBool::new(false),
            range: Mutex::new(None),
            commands: Mutex::new(None),
            unloads: [const { AtomicU32::new(0) }; UNLOADS.len()],
        };
        assert!(!hub.is_to_let_go());
        hub.let_go();
        assert!(hub.is_to_let_go() && !hub.is_to_let_go());
    }
}
