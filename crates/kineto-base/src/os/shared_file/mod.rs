//! A mapped file in memory (tmpfs) whose content outlives the process. Each part takes memory only while it is allocated.

#[cfg(not(all(target_os = "linux", not(miri))))]
mod absent;
#[cfg(all(target_os = "linux", not(miri)))]
mod mapping;

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use mapping::detach_child;

use std::io;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64};

/// A mapping that is never removed, and the file that it shows now.
#[derive(Debug)]
#[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code, reason = "this platform has no such files"))]
pub struct SharedFile {
    words: &'static [AtomicU64],
    /// The descriptor, with which the file is locked; -1 in a forked child.
    descriptor: AtomicI32,
    /// The device and inode of the file: the program may close the descriptor and reuse its number.
    device: AtomicU64,
    inode: AtomicU64,
    /// The fork generation of the process that made it.
    generation: u64,
    next: AtomicPtr<SharedFile>,
}

/// Why a folder cannot hold such a file.
#[derive(Debug)]
pub enum Unusable {
    /// The file could not be created or mapped.
    Io(io::Error),
    /// The folder is not in memory.
    NotInMemory,
    /// Only so many bytes are free.
    TooSmall(u64),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable::Io(error)
    }
}
