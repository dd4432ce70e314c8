//! The exclusive lease of a library that serves a single recording at a time in a process.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::LocalKey;

/// A lease that at most one recording holds.
#[derive(Debug)]
pub(crate) struct ExclusiveLease {
    taken: AtomicBool,
    /// Counts recordings.
    recording: AtomicU32,
}

impl ExclusiveLease {
    pub(crate) const fn new() -> ExclusiveLease {
        ExclusiveLease { taken: AtomicBool::new(false), recording: AtomicU32::new(0) }
    }

    /// Acquires the lease; returns `false` if another recording holds it.
    pub(crate) fn try_acquire(&self) -> bool {
        let taken = self.taken.swap(true, Ordering::AcqRel);
        if !taken {
            self.recording.fetch_add(1, Ordering::Relaxed);
        }
        !taken
    }

    /// Releases the lease.
    pub(crate) fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Pops the ids that an earlier recording left on the calling thread because it ended while the thread was inside
    /// a slice. `clean_for` holds the recording for which the thread did this last; `pop` removes an id.
    #[inline]
    pub(crate) fn forget_stale_ids(&self, clean_for: &'static LocalKey<Cell<u32>>, pop: impl Fn() -> bool) {
        let recording = self.recording.load(Ordering::Relaxed);
        let is_clean = clean_for.try_with(|clean_for| clean_for.replace(recording) == recording);
        if !is_clean.unwrap_or(true) {
            // No thread is in deeper slices; the bound guards against a library that never reports the end.
            const DEEPEST: usize = 1 << 16;
            let _ = (0..DEEPEST).take_while(|_| pop()).count();
        }
    }
}

/// The process that first used a library. A forked child inherits the state, but cannot use it.
#[derive(Debug, Default)]
pub(crate) struct OwningProcess {
    /// 0 while there is none.
    process: AtomicU32,
}

impl OwningProcess {
    pub(crate) const fn new() -> OwningProcess {
        OwningProcess { process: AtomicU32::new(0) }
    }

    /// Returns one that another process has claimed.
    #[cfg(test)]
    pub(crate) fn another() -> OwningProcess {
        OwningProcess { process: AtomicU32::new(std::process::id().wrapping_add(1).max(1)) }
    }

    /// Claims it for this process, unless a process has claimed it.
    pub(crate) fn claim(&self) {
        let _ = self.process.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether another process has claimed it, of which this one is a fork.
    pub(crate) fn is_inherited(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process != std::process::id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_recording_holds_the_lease() {
        let lease = ExclusiveLease::new();
        assert!(lease.try_acquire() && !lease.try_acquire());
        lease.release();
        assert!(lease.try_acquire());
    }

    #[test]
    fn each_recording_begins_without_stale_ids() {
        thread_local! { static CLEAN_FOR: Cell<u32> = const { Cell::new(0) }; }
        let (lease, left) = (ExclusiveLease::new(), Cell::new(0_u32));
        let forget = |ids| {
            left.set(ids);
            lease.forget_stale_ids(&CLEAN_FOR, || left.replace(left.get().saturating_sub(1)) > 0);
            left.get()
        };
        assert!(lease.try_acquire());
        assert_eq!([forget(3), forget(2)], [0, 2], "once");
        lease.release();
        assert_eq!(forget(2), 2);
        assert!(lease.try_acquire());
        assert_eq!([forget(2), forget(1)], [0, 1]);
        lease.release();
        assert!(lease.try_acquire());
        assert_eq!(forget(u32::MAX), u32::MAX - (1 << 16), "the bound holds");
    }

    #[test]
    fn fork_is_not_the_owning_process() {
        let owner = OwningProcess::new();
        assert!(!owner.is_inherited(), "unclaimed");
        owner.claim();
        assert!(!owner.is_inherited());
        owner.process.fetch_add(1, Ordering::Relaxed);
        owner.claim();
        assert!(owner.is_inherited());
    }
}
