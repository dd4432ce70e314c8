//! Locks that tell whether the process that writes a file is still there.
#![allow(unsafe_code, reason = "flock has no safe form in the oldest compiler that is supported")]

use std::fs::File;

/// Locks a file until its last handle is closed, also if the process is killed. Returns `false` if another process or handle
/// holds the lock, or the file system has none.
#[cfg(unix)]
pub fn try_lock(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: takes numbers; the descriptor is open as long as `file` is borrowed.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// There are no such locks on this platform.
#[cfg(not(unix))]
pub fn try_lock(_file: &File) -> bool {
    false
}

/// Returns a lock.
#[cfg(unix)]
pub fn unlock(file: &File) {
    use std::os::fd::AsRawFd;
    // SAFETY: takes numbers; the descriptor is open as long as `file` is borrowed.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// There are no such locks on this platform.
#[cfg(not(unix))]
pub fn unlock(_file: &File) {}
