//! Tells a forked child from its parent, without anything on the span path.
#![allow(unsafe_code, reason = "pthread_atfork has no safe form")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// A value behind a lock, of which each forked child has one of its own, at its default: in its parent's, a thread that the
/// child does not have may hold the lock for ever.
#[derive(Debug)]
pub(crate) struct Own<T> {
    /// The process in which it was made.
    born: u64,
    link: Link<T>,
}

#[derive(Debug, Default)]
struct Link<T> {
    value: Mutex<T>,
    child: OnceLock<Box<Link<T>>>,
}

impl<T: Default> Own<T> {
    /// Locks the value of this process, which is whole whoever has panicked with it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.own().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, if nobody has it locked.
    #[cfg_attr(not(feature = "capi"), allow(dead_code, reason = "asked for by the functions for C"))]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.own().try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(value)) => Some(value.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn own(&self) -> &Mutex<T> {
        &(self.born..generation()).fold(&self.link, |link, _| link.child.get_or_init(Box::default)).value
    }
}

impl<T: Default> Default for Own<T> {
    fn default() -> Own<T> {
        Own { born: generation(), link: Link::default() }
    }
}

/// The process that has something for good once it has settled for it: a forked child has a copy that is not its own.
#[derive(Debug, Default)]
pub(crate) struct Home {
    /// 0 while there is none.
    process: AtomicU32,
}

impl Home {
    pub(crate) const fn new() -> Home {
        Home { process: AtomicU32::new(0) }
    }

    /// It is this process, unless there is one.
    pub(crate) fn settle(&self) {
        let _ = self.process.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it is another process, of which this one is a fork.
    pub(crate) fn is_inherited(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process != std::process::id()
    }
}

/// How many forks lie between this process and the one that first recorded.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Returns a number that is another one in every forked child.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has `in_child` called in every forked child, on the thread that forked; once for the process.
///
/// `in_child` may only touch memory: other threads may have held any lock at the time of the fork.
#[cfg(unix)]
pub(crate) fn watch(in_child: fn()) {
    static IN_CHILD: OnceLock<fn()> = OnceLock::new();
    extern "C" fn child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        if let Some(in_child) = IN_CHILD.get() {
            in_child();
        }
    }
    IN_CHILD.get_or_init(|| {
        // SAFETY: the handler is a plain function that lives for ever, touches only atomics and the forking thread's
        // own memory, and does not unwind.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
        in_child
    });
}

/// There is no fork on this platform.
#[cfg(not(unix))]
pub(crate) fn watch(_in_child: fn()) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_not_at_home() {
        let home = Home::new();
        assert!(!home.is_inherited(), "nobody has it");
        home.settle();
        assert!(!home.is_inherited());
        home.process.fetch_add(1, Ordering::Relaxed);
        home.settle();
        assert!(home.is_inherited());
    }
}
