//! Where allocators find the recorders of their reports, without a lock and without a growing list.

use super::Recorder;
use crate::buffer::Losses;
use crate::os::fork;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

/// A slot for one recorder.
#[derive(Debug)]
pub(crate) struct Listener {
    is_taken: AtomicBool,
    /// The current or latest epoch.
    epoch: AtomicU64,
    /// The fork generation of the recording process.
    fork: AtomicU64,
    /// `None` is zeros, like all else in a free slot, so the list takes no room in the program's file.
    recorder: Mutex<Option<Weak<Recorder>>>,
    /// The recording, 0 if it includes all threads.
    restricted_recording: AtomicU64,
    /// Events that were not recorded.
    pub(crate) losses: Losses,
}

/// The most recorders that can receive reports at a time: one for each bit of [`OPEN`].
const SLOTS: usize = 64;
static LISTENERS: [Listener; SLOTS] = [const { Listener::new() }; SLOTS];
/// One bit for each listener that records now.
static OPEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How many guards the thread holds.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether any recorder receives allocators' reports.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    // Relaxed: a thread that reads the old value misses, or needlessly records, events of these nanoseconds.
    OPEN.load(Ordering::Relaxed) != 0
}

/// Returns the listeners that record now.
#[inline]
pub(crate) fn open_listeners() -> impl Iterator<Item = &'static Listener> {
    // Detects a forked child that called no handler, which must leave its parent's lane first.
    fork::generation();
    let mut left = OPEN.load(Ordering::Relaxed);
    std::iter::from_fn(move || {
        let listener = LISTENERS.get(left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(listener)
    })
}

impl Listener {
    const fn new() -> Listener {
        Listener {
            is_taken: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            fork: AtomicU64::new(0),
            recorder: Mutex::new(None),
            restricted_recording: AtomicU64::new(0),
            losses: Losses::new(),
        }
    }

    /// Returns the epoch that it records.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Returns the recording, 0 if it includes all threads.
    pub(crate) fn selective_recording(&self) -> u64 {
        self.restricted_recording.load(Ordering::Relaxed)
    }

    /// Returns the recorder; `None` in a forked child of the recording process, where the listener is closed.
    pub(crate) fn recorder(&self) -> Option<Arc<Recorder>> {
        if self.fork.load(Ordering::Relaxed) != fork::generation() {
            self.close();
            return None;
        }
        self.lock_recorder()?.as_ref()?.upgrade()
    }

    /// Locks the recorder. Gives up after a while: in a forked child, the holder may be a thread that does not exist.
    fn lock_recorder(&self) -> Option<MutexGuard<'_, Option<Weak<Recorder>>>> {
        const TRIES: usize = 10_000;
        (0..TRIES).find_map(|_| match self.recorder.try_lock() {
            Ok(recorder) => Some(recorder),
            Err(TryLockError::Poisoned(recorder)) => Some(recorder.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::hint::spin_loop();
                None
            }
        })
    }

    /// Replaces the recorder; returns false if the slot cannot be locked.
    fn set_recorder(&self, recorder: Option<Weak<Recorder>>) -> bool {
        let before = self.lock_recorder().map(|mut slot| std::mem::replace(&mut *slot, recorder));
        // Dropped outside the lock, because that may call the allocator.
        before.is_some()
    }

    /// Returns the slot's bit of [`OPEN`].
    fn bit(&self) -> u64 {
        let slot = LISTENERS.iter().position(|listener| std::ptr::eq(listener, self));
        slot.map_or(0, |slot| 1 << slot)
    }

    /// Claims a slot for a recorder; `None` if all are taken.
    pub(super) fn claim_for(recorder: &Arc<Recorder>) -> Option<&'static Listener> {
        let listener = LISTENERS.iter().find(|listener| !listener.is_taken.swap(true, Ordering::Acquire))?;
        listener.set_recorder(Some(Arc::downgrade(recorder))).then_some(())?;
        listener.fork.store(fork::generation(), Ordering::Relaxed);
        listener.losses.take_counts();
        Some(listener)
    }

    /// Sets the recording that includes only some threads, 0 if it includes all.
    pub(super) fn restrict_to(&self, recording: u64) {
        self.restricted_recording.store(recording, Ordering::Relaxed);
    }

    pub(super) fn open(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.fork.store(fork::generation(), Ordering::Relaxed);
        // Release: readers take the bit as a hint, but no record should precede the epoch.
        OPEN.fetch_or(self.bit(), Ordering::Release);
    }

    pub(super) fn close(&self) {
        OPEN.fetch_and(!self.bit(), Ordering::Relaxed);
    }

    /// Makes the slot free for other recorders.
    pub(super) fn release_slot(&self) {
        self.close();
        if self.set_recorder(None) {
            self.is_taken.store(false, Ordering::Release);
        }
    }
}

/// Marks the thread's allocations as this crate's own, which are not recorded, while it is held.
#[derive(Debug)]
pub(crate) struct InternalAllocGuard(());

impl InternalAllocGuard {
    pub(crate) fn begin() -> InternalAllocGuard {
        OWN.with(|own| own.set(own.get() + 1));
        InternalAllocGuard(())
    }

    /// Returns whether the thread holds a guard.
    #[inline]
    pub(crate) fn is_held() -> bool {
        OWN.with(Cell::get) != 0
    }
}

impl Drop for InternalAllocGuard {
    fn drop(&mut self) {
        OWN.with(|own| own.set(own.get() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(recorder: &Arc<Recorder>) -> bool {
        open_listeners().any(|listener| listener.recorder().is_some_and(|open| Arc::ptr_eq(&open, recorder)))
    }

    fn recorder_with_slot() -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::for_tests());
        assert!(recorder.claim_listener_slot());
        recorder
    }

    #[test]
    fn each_open_listener_is_found_until_it_closes() {
        let recorders = [(); 3].map(|()| recorder_with_slot());
        let are_open = || recorders.each_ref().map(is_open);
        let epochs = recorders.each_ref().map(|recorder| recorder.open_epoch(None));
        assert_eq!((are_open(), recorders[1].listener().unwrap().epoch()), ([true; 3], epochs[1]));
        recorders[1].close_epoch();
        assert_eq!(are_open(), [true, false, true]);
        recorders[2].release_listener_slot();
        recorders[2].open_epoch(None);
        assert_eq!(are_open(), [true, false, false], "a slot that was left stays closed");
    }

    #[test]
    fn dropped_slot_is_free_again() {
        for _ in 0..2 * SLOTS {
            let recorder = recorder_with_slot();
            assert!(recorder.listener().unwrap().recorder().is_some(), "the last one was released");
        }
    }

    #[test]
    fn released_slot_is_not_released_again() {
        let first = recorder_with_slot();
        first.release_listener_slot();
        let second = recorder_with_slot();
        drop(first);
        let listener = second.listener().unwrap();
        assert!(listener.is_taken.load(Ordering::Relaxed) && listener.recorder().is_some());
    }
}
