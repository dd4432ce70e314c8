//! Where allocators find the recorders that record what they do, without a lock and without a list that grows.

use super::Recorder;
use crate::buffer::Loss;
use crate::os::fork;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

/// A place for one recorder.
#[derive(Debug)]
pub(crate) struct Listener {
    is_taken: AtomicBool,
    /// The epoch that is recorded, or was recorded last.
    epoch: AtomicU64,
    /// The process that records.
    fork: AtomicU64,
    recorder: Mutex<Weak<Recorder>>,
    /// The recording, 0 if it reaches all threads.
    selective: AtomicU64,
    over_limit: AtomicU64,
    missed: AtomicU64,
    own: AtomicU64,
}

/// As many recorders as can listen at a time: one for each bit of [`OPEN`].
const PLACES: usize = 64;
static LISTENERS: [Listener; PLACES] = [const { Listener::new() }; PLACES];
/// A bit for each listener that records now.
static OPEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How many `Own` the thread holds.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether anybody records what allocators do.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    // Relaxed: a thread that reads the old value misses, or records in vain, what it does in these nanoseconds.
    OPEN.load(Ordering::Relaxed) != 0
}

/// Returns those who record now.
#[inline]
pub(crate) fn open() -> impl Iterator<Item = &'static Listener> {
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
            selective: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            own: AtomicU64::new(0),
        }
    }

    /// Returns the epoch that it records.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Returns the recording, 0 if it reaches all threads.
    pub(crate) fn selective(&self) -> u64 {
        self.selective.load(Ordering::Relaxed)
    }

    /// Returns the recorder; none in a forked child of the process that records, and then nobody asks again.
    pub(crate) fn recorder(&self) -> Option<Arc<Recorder>> {
        if self.fork.load(Ordering::Relaxed) != fork::generation() {
            self.close();
            return None;
        }
        self.lock()?.upgrade()
    }

    /// Counts what was not recorded.
    #[cold]
    pub(crate) fn count(&self, loss: Loss) {
        let counter = match loss {
            Loss::MemoryOverLimit => &self.over_limit,
            Loss::MemoryOwn => &self.own,
            _ => &self.missed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks the recorder, which nobody holds for long but in a forked child, where a thread may that does not exist.
    fn lock(&self) -> Option<MutexGuard<'_, Weak<Recorder>>> {
        const LOOKS: usize = 10_000;
        (0..LOOKS).find_map(|_| match self.recorder.try_lock() {
            Ok(recorder) => Some(recorder),
            Err(TryLockError::Poisoned(recorder)) => Some(recorder.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::hint::spin_loop();
                None
            }
        })
    }

    /// Puts another recorder in; `false` if the place cannot be had.
    fn set(&self, recorder: Weak<Recorder>) -> bool {
        let before = self.lock().map(|mut place| std::mem::replace(&mut *place, recorder));
        // Dropped outside the lock, as that may call the allocator.
        before.is_some()
    }

    fn close(&self) {
        let place = LISTENERS.iter().position(|listener| std::ptr::eq(listener, self));
        OPEN.fetch_and(!place.map_or(0, |place| 1 << place), Ordering::Relaxed);
    }
}

/// A recorder's hold on its place.
#[derive(Debug)]
pub(crate) struct Seat {
    listener: &'static Listener,
    bit: u64,
    has_left: AtomicBool,
}

impl Seat {
    /// Takes a place; `None` if all are taken.
    pub(super) fn take(recorder: &Arc<Recorder>) -> Option<Seat> {
        let is_free = |(_, listener): &(usize, &Listener)| !listener.is_taken.swap(true, Ordering::Acquire);
        let (place, listener) = LISTENERS.iter().enumerate().find(is_free)?;
        listener.set(Arc::downgrade(recorder)).then_some(())?;
        listener.fork.store(fork::generation(), Ordering::Relaxed);
        let seat = Seat { listener, bit: 1 << place, has_left: AtomicBool::new(false) };
        seat.take_losses();
        Some(seat)
    }

    /// That recording does not reach all threads, or does if it is 0.
    pub(super) fn restrict(&self, recording: u64) {
        self.listener.selective.store(recording, Ordering::Relaxed);
    }

    pub(super) fn open(&self, epoch: u64) {
        if self.has_left.load(Ordering::Relaxed) {
            return;
        }
        self.listener.epoch.store(epoch, Ordering::Relaxed);
        self.listener.fork.store(fork::generation(), Ordering::Relaxed);
        // Release: for the reader it is only a hint, but what is recorded should not come before the epoch.
        OPEN.fetch_or(self.bit, Ordering::Release);
    }

    pub(super) fn close(&self) {
        if self.has_left.load(Ordering::Relaxed) {
            return;
        }
        OPEN.fetch_and(!self.bit, Ordering::Relaxed);
    }

    /// Takes the counts of what was not recorded.
    pub(super) fn take_losses(&self) -> [(Loss, u64); 3] {
        let Listener { over_limit, missed, own, .. } = self.listener;
        [(Loss::MemoryOverLimit, over_limit), (Loss::MemoryMissed, missed), (Loss::MemoryOwn, own)]
            .map(|(loss, counter)| (loss, counter.swap(0, Ordering::Relaxed)))
    }
}

impl Seat {
    /// Gives the place to others; nothing is opened afterwards.
    pub(super) fn leave(&self) {
        self.close();
        if !self.has_left.swap(true, Ordering::Relaxed) && self.listener.set(Weak::new()) {
            self.listener.is_taken.store(false, Ordering::Release);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What the thread allocates and frees while it holds this is this crate's own, and passed over.
#[derive(Debug)]
pub(crate) struct Own(());

impl Own {
    pub(crate) fn begin() -> Own {
        OWN.with(|own| own.set(own.get() + 1));
        Own(())
    }

    /// Returns whether the thread does something of this crate's own.
    #[inline]
    pub(crate) fn is_held() -> bool {
        OWN.with(Cell::get) != 0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        OWN.with(|own| own.set(own.get() - 1));
    }
}
