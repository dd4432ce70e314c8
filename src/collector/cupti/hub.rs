//! What there is one of in a process, since CUPTI has no user data for its callbacks: the buffers, and who records.

use crate::collector::CaptureRange;
use crate::collector::pool::Pool;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The one hub.
pub(super) static HUB: Hub = Hub {
    pool: Pool::new(),
    taken: AtomicBool::new(false),
    recording: AtomicU32::new(0),
    process: AtomicU32::new(0),
    lets_go: AtomicBool::new(false),
    range: Mutex::new(None),
};

/// The one place where CUPTI's callbacks and the recording meet.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) pool: Pool,
    taken: AtomicBool,
    /// Counts recordings.
    recording: AtomicU32,
    /// The process that recorded first: a forked child has a copy of the hub, and no CUDA.
    process: AtomicU32,
    /// The next call that returns is to let go of the library.
    lets_go: AtomicBool,
    /// Who is told of the program's marks.
    range: Mutex<Option<CaptureRange>>,
}

impl Hub {
    /// Returns whether the hub is another process's, of which this one is a fork.
    pub(super) fn is_inherited(&self) -> bool {
        let own = std::process::id();
        let first = self.process.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        first.is_err_and(|first| first != own)
    }

    /// Takes the hub for a recording; `false` if another one has it.
    pub(super) fn take(&self) -> bool {
        let taken = self.taken.swap(true, Ordering::AcqRel);
        if !taken {
            self.recording.fetch_add(1, Ordering::Relaxed);
        }
        !taken
    }

    /// Gives it up.
    pub(super) fn release(&self) {
        self.watch(None);
        self.taken.store(false, Ordering::Release);
    }

    /// Returns the number of the recording, never 0 while there is one.
    pub(super) fn recording(&self) -> u32 {
        self.recording.load(Ordering::Relaxed)
    }

    /// Says who is told of the program's marks.
    pub(super) fn watch(&self, range: Option<CaptureRange>) {
        *self.range.lock().unwrap_or_else(PoisonError::into_inner) = range;
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
    fn one_recording_has_the_hub() {
        let hub = Hub {
            pool: Pool::new(),
            taken: AtomicBool::new(false),
            recording: AtomicU32::new(0),
            process: AtomicU32::new(0),
            lets_go: AtomicBool::new(false),
            range: Mutex::new(None),
        };
        assert!(!hub.is_inherited() && !hub.is_inherited());
        hub.process.fetch_add(1, Ordering::Relaxed);
        assert!(hub.is_inherited());
        assert!(hub.take() && !hub.take());
        hub.release();
        assert!(hub.take());
        assert_eq!(hub.recording(), 2);
        assert!(!hub.is_to_let_go());
        hub.let_go();
        assert!(hub.is_to_let_go() && !hub.is_to_let_go());
    }
}
