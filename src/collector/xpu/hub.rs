//! What there is one of in a process, since PTI has no user data for its callbacks: the buffers, and who records.

use crate::collector::pool::Pool;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The one hub.
pub(super) static HUB: Hub = Hub::new();

/// The one place where PTI's callbacks and the recording meet.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) pool: Pool,
    taken: AtomicBool,
    /// Counts recordings.
    recording: AtomicU32,
    /// The process that has the driver, 0 while none has: a forked child has a copy of the hub, and no driver.
    process: AtomicU32,
}

impl Hub {
    const fn new() -> Hub {
        Hub {
            pool: Pool::new(),
            taken: AtomicBool::new(false),
            recording: AtomicU32::new(0),
            process: AtomicU32::new(0),
        }
    }

    /// This process has the driver.
    pub(super) fn settle(&self) {
        let _ = self.process.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether the driver is another process's, of which this one is a fork.
    pub(super) fn is_inherited(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process != std::process::id()
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
        self.taken.store(false, Ordering::Release);
    }

    /// Returns the number of the recording, never 0 while there is one.
    pub(super) fn recording(&self) -> u32 {
        self.recording.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_recording_has_the_hub() {
        let hub = Hub::new();
        assert!(!hub.is_inherited());
        hub.settle();
        assert!(!hub.is_inherited());
        hub.process.fetch_add(1, Ordering::Relaxed);
        assert!(hub.is_inherited());
        assert!(hub.take() && !hub.take());
        hub.release();
        assert!(hub.take());
        assert_eq!(hub.recording(), 2);
    }
}
