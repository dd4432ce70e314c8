//! Locks among all copies of this crate in the process: shared libraries may each have one, with statics of its own.
//!
//! A lock is a byte of a memory file (`memfd_create`). It belongs to an open file description (`F_OFD_SETLK`), because locks
//! of a process do not exclude each other within it.
//!
//! 1. A copy searches the process's descriptors for such files of other copies. If there is none, it creates one.
//! 2. It searches again. If two copies create files at the same time, the second one to search finds the file of the first.
//! 3. It locks its byte in all files that it has found.
//!
//! Other processes do not see the files, and nothing is left behind.
#![allow(unsafe_code, reason = "memfd_create and locks of descriptions have no safe form")]

use super::descriptor::CheckedDescriptor;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

const NAME: &CStr = c"tracing-kineto-locks";
/// How `/proc` shows such a file.
const LINK: &str = "/memfd:tracing-kineto-locks (deleted)";

/// A locked name; unlocked on drop, but not by a forked child, which shares the file descriptions.
#[derive(Debug)]
pub struct ProcessLock {
    files: Vec<CheckedDescriptor<File>>,
    place: libc::off_t,
    process: u32,
}

impl ProcessLock {
    /// Locks a name in this process; `None` if it is locked.
    ///
    /// # Errors
    /// Those of the system, for example without `/proc`.
    pub fn try_lock(name: &[u8]) -> io::Result<Option<ProcessLock>> {
        let mut files = open_files()?;
        let created = if files.is_empty() { Some(create_file()?) } else { None };
        if created.is_some() {
            files = open_files()?;
        }
        let process = std::process::id();
        let files = files.into_iter().map(CheckedDescriptor::new).collect();
        let locked = ProcessLock { files, place: place_of(process, name), process };
        for file in &locked.files {
            match set_lock(file.get()?, libc::F_WRLCK, locked.place) {
                Err(why) if matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => return Ok(None),
                done => done?,
            }
        }
        Ok(Some(locked))
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let open = self.files.iter().filter_map(|file| file.get().ok());
            open.for_each(|file| _ = set_lock(file, libc::F_UNLCK, self.place));
        }
    }
}

/// Opens each file of locks in this process anew.
fn open_files() -> io::Result<Vec<File>> {
    let mut files: Vec<(u64, File)> = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        if !fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == LINK) {
            continue;
        }
        // One that is closed meanwhile holds no lock.
        let Ok(file) = File::options().read(true).write(true).open(entry.path()) else { continue };
        let inode = file.metadata()?.ino();
        if files.iter().all(|(known, _)| *known != inode) {
            files.push((inode, file));
        }
    }
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

fn create_file() -> io::Result<File> {
    // SAFETY: the name ends with a zero byte.
    let descriptor = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened the descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Returns the byte of a name: the same in each copy, whatever compiled it, and another in a forked child.
fn place_of(process: u32, name: &[u8]) -> libc::off_t {
    // FNV-1a.
    let hash = process
        .to_le_bytes()
        .iter()
        .chain(name)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    // It is positive also where it has 32 bits.
    libc::off_t::try_from(hash % (1 << (libc::off_t::BITS - 2))).unwrap_or(0)
}

fn set_lock(file: &File, kind: libc::c_int, place: libc::off_t) -> io::Result<()> {
    // SAFETY: all zeros are a valid flock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind.try_into().unwrap_or_default();
    lock.l_whence = libc::SEEK_SET.try_into().unwrap_or_default();
    (lock.l_start, lock.l_len) = (place, 1);
    // SAFETY: the descriptor is open, and the struct is valid.
    let failed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn name_is_locked_once_until_it_is_dropped() {
        let lock = |name: &str| ProcessLock::try_lock(name.as_bytes()).unwrap();
        let first = lock("/a/x.json").unwrap();
        assert!(lock("/a/x.json").is_none());
        let other = lock("/a/y.json").unwrap();
        drop(first);
        let again = lock("/a/x.json").unwrap();
        drop((other, again));
    }

    #[test]
    fn of_two_files_both_are_locked() {
        let lock = || ProcessLock::try_lock(b"of two files").unwrap();
        // As if two copies had created one at the same time.
        let files = [create_file().unwrap(), create_file().unwrap()];
        let locked = lock().unwrap();
        assert!(locked.files.len() >= 2);
        assert!(files.iter().all(|file| set_lock(file, libc::F_WRLCK, locked.place).is_err()));
        assert!(lock().is_none());
    }
}
