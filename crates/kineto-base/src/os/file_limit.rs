//! Makes writes beyond the limit on file sizes (RLIMIT_FSIZE) fail instead of ending the process.
#![allow(unsafe_code, reason = "signal masks have no safe form")]

/// Makes the calling thread's writes beyond the limit on file sizes fail with `FileTooLarge` until it is dropped; by
/// default the kernel's signal, SIGXFSZ, ends the process.
///
/// The signal is blocked in this thread alone, which is where the kernel sends it, and one that came meanwhile is
/// consumed. Other threads handle the signal as before.
pub struct FileLimitGuard {
    #[cfg(target_os = "linux")]
    _blocked: Option<linux::Blocked>,
    /// Not `Send`: the mask belongs to the thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl std::fmt::Debug for FileLimitGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLimitGuard").finish_non_exhaustive()
    }
}

impl Default for FileLimitGuard {
    fn default() -> FileLimitGuard {
        FileLimitGuard::new()
    }
}

impl FileLimitGuard {
    /// Blocks the signal in the calling thread.
    pub fn new() -> FileLimitGuard {
        FileLimitGuard {
            #[cfg(target_os = "linux")]
            _blocked: linux::Blocked::new(),
            _thread: std::marker::PhantomData,
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    /// The signal is blocked, and was not before.
    pub(super) struct Blocked(());

    impl Blocked {
        /// Blocks the signal; `None` if the thread had it blocked already, so that nothing is to be undone.
        pub(super) fn new() -> Option<Blocked> {
            let set = file_limit_set();
            let mut before = empty_set();
            // SAFETY: both sets are valid.
            let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) } != 0;
            // SAFETY: the set is valid, and so is the signal.
            let was_blocked = unsafe { libc::sigismember(&raw const before, libc::SIGXFSZ) } == 1;
            (!failed && !was_blocked).then(|| Blocked(()))
        }
    }

    impl Drop for Blocked {
        fn drop(&mut self) {
            let (set, at_once) = (file_limit_set(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
            // SAFETY: the set and the time are valid, and a null place for details is allowed.
            unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const at_once) };
            // SAFETY: the set is valid, and a null place for the old one is allowed.
            unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
        }
    }

    fn empty_set() -> libc::sigset_t {
        // SAFETY: a set of signals is plain numbers, for which zeros are valid.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is a valid place.
        unsafe { libc::sigemptyset(&raw mut set) };
        set
    }

    fn file_limit_set() -> libc::sigset_t {
        let mut set = empty_set();
        // SAFETY: the set is valid, and so is the signal.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGXFSZ) };
        set
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Returns whether the calling thread has the signal blocked, and whether one is pending.
    fn state() -> (bool, bool) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let is_in = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap() & (1 << (libc::SIGXFSZ - 1)) != 0
        };
        (is_in("SigBlk:"), is_in("SigPnd:"))
    }

    fn raise() {
        // SAFETY: takes nothing and cannot fail.
        let thread = unsafe { libc::pthread_self() };
        // SAFETY: the thread runs this, and the signal is blocked, so it stays pending.
        unsafe { libc::pthread_kill(thread, libc::SIGXFSZ) };
    }

    #[test]
    fn guard_consumes_the_signal_and_restores_the_mask() {
        let guard = FileLimitGuard::new();
        raise();
        assert_eq!(state(), (true, true));
        {
            let _inner = FileLimitGuard::new();
        }
        assert_eq!(state(), (true, true), "the outer one decides");
        drop(guard);
        assert_eq!(state(), (false, false));
    }
}
