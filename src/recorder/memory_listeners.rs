//! Where allocators find the recorders of their reports, without a lock and without a growing list.

use super::Recorder;
use crate::buffer::Loss;
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
    recorder: Mutex<Weak<Recorder>>,
    /// The recording, 0 if it includes all threads.
    restricted_recording: AtomicU64,
    over_limit: AtomicU64,
    missed: AtomicU64,
    internal_allocs: AtomicU64,
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
            recorder: Mutex::new(Weak::new()),
            restricted_recording: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            internal_allocs: AtomicU64::new(0),
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
        self.lock_recorder()?.upgrade()
    }

    /// Counts an event that was not recorded.
    #[cold]
    pub(crate) fn count_loss(&self, loss: Loss) {
        let counter = match loss {
            Loss::MemoryOverLimit => &self.over_limit,
            Loss::MemoryOwn => &self.internal_allocs,
            _ => &self.missed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks the recorder. Gives up after a while: in a forked child, the holder may be a thread that does not exist.
    fn lock_recorder(&self) -> Option<MutexGuard<'_, Weak<Recorder>>> {
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
    fn set_recorder(&self, recorder: Weak<Recorder>) -> bool {
        let before = self.lock_recorder().map(|mut slot| std::mem::replace(&mut *slot, recorder));
        // Dropped outside the lock, because that may call the allocator.
        before.is_some()
    }

    fn close(&self) {
        let slot = LISTENERS.iter().position(|listener| std::ptr::eq(listener, self));
        OPEN.fetch_and(!slot.map_or(0, |slot| 1 << slot), Ordering::Relaxed);
    }
}

/// A recorder's claim to its slot; released on drop.
#[derive(Debug)]
pub(crate) struct ListenerSlot {
    listener: &'static Listener,
    bit: u64,
    has_left: AtomicBool,
}

impl ListenerSlot {
    /// Claims a slot; `None` if all are taken.
    pub(super) fn claim_for(recorder: &Arc<Recorder>) -> Option<ListenerSlot> {
        let is_free = |(_, listener): &(usize, &Listener)| !listener.is_taken.swap(true, Ordering::Acquire);
        let (slot, listener) = LISTENERS.iter().enumerate().find(is_free)?;
        listener.set_recorder(Arc::downgrade(recorder)).then_some(())?;
        listener.fork.store(fork::generation(), Ordering::Relaxed);
        let listener_slot = ListenerSlot { listener, bit: 1 << slot, has_left: AtomicBool::new(false) };
        listener_slot.take_losses();
        Some(listener_slot)
    }

    /// Sets the recording that includes only some threads, 0 if it includes all.
    pub(super) fn restrict_to(&self, recording: u64) {
        self.listener.restricted_recording.store(recording, Ordering::Relaxed);
    }

    pub(super) fn open(&self, epoch: u64) {
        if self.has_left.load(Ordering::Relaxed) {
            return;
        }
        self.listener.epoch.store(epoch, Ordering::Relaxed);
        self.listener.fork.store(fork::generation(), Ordering::Relaxed);
        // Release: readers take the bit as a hint, but no record should precede the epoch.
        OPEN.fetch_or(self.bit, Ordering::Release);
    }

    pub(super) fn close(&self) {
        if self.has_left.load(Ordering::Relaxed) {
            return;
        }
        OPEN.fetch_and(!self.bit, Ordering::Relaxed);
    }

    /// Takes the counts of events that were not recorded.
    pub(super) fn take_losses(&self) -> [(Loss, u64); 3] {
        let Listener { over_limit, missed, internal_allocs: own, .. } = self.listener;
        [(Loss::MemoryOverLimit, over_limit), (Loss::MemoryMissed, missed), (Loss::MemoryOwn, own)]
            .map(|(loss, counter)| (loss, counter.swap(0, Ordering::Relaxed)))
    }
}

impl ListenerSlot {
    /// Releases the slot; nothing is opened afterwards.
    pub(super) fn release_slot(&self) {
        self.close();
        if !self.has_left.swap(true, Ordering::Relaxed) && self.listener.set_recorder(Weak::new()) {
            self.listener.is_taken.store(false, Ordering::Release);
        }
    }
}

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        self.release_slot();
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

    fn is_open(slot: &ListenerSlot) -> bool {
        open_listeners().any(|listener| std::ptr::eq(listener, slot.listener))
    }

    #[test]
    fn each_open_listener_is_found_until_it_closes() {
        let recorder = Arc::new(Recorder::for_tests());
        let slots = [(); 3].map(|()| ListenerSlot::claim_for(&recorder).unwrap());
        let are_open = || slots.each_ref().map(is_open);
        slots.iter().for_each(|slot| slot.open(7));
        assert_eq!((are_open(), slots[1].listener.epoch()), ([true; 3], 7));
        slots[1].listener.close();
        assert_eq!(are_open(), [true, false, true]);
        slots[2].release_slot();
        slots[2].open(8);
        assert_eq!(are_open(), [true, false, false], "a slot that was left stays closed");
    }

    #[test]
    fn dropped_slot_is_free_again() {
        let recorder = Arc::new(Recorder::for_tests());
        for _ in 0..2 * SLOTS {
            let slot = ListenerSlot::claim_for(&recorder).expect("the last one was released");
            assert!(slot.listener.recorder().is_some());
        }
    }

    #[test]
    fn released_slot_is_not_released_again() {
        let recorder = Arc::new(Recorder::for_tests());
        let first = ListenerSlot::claim_for(&recorder).unwrap();
        first.release_slot();
        let second = ListenerSlot::claim_for(&recorder).unwrap();
        drop(first);
        assert!(second.listener.is_taken.load(Ordering::Relaxed) && second.listener.recorder().is_some());
    }

    #[test]
    fn lost_events_are_counted_by_cause_and_taken_once() {
        let recorder = Arc::new(Recorder::for_tests());
        let slot = ListenerSlot::claim_for(&recorder).unwrap();
        for cause in [Loss::MemoryOverLimit, Loss::MemoryOwn, Loss::MemoryOwn] {
            slot.listener.count_loss(cause);
        }
        let taken = slot.take_losses();
        assert_eq!(taken, [(Loss::MemoryOverLimit, 1), (Loss::MemoryMissed, 0), (Loss::MemoryOwn, 2)]);
        assert_eq!(slot.take_losses().map(|(_, count)| count), [0; 3]);
    }
}
