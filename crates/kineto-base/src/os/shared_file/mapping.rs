//! The mappings of files in memory on Linux.
//!
//! A store to memory that a full tmpfs cannot supply raises SIGBUS, so a part is allocated before its first use. Parts are allocated and
//! released by address: the program may close the descriptor and use its number for a file of its own.
#![allow(unsafe_code, reason = "mmap, madvise, fallocate and statfs have no safe form")]

use super::{SharedFile, Unusable};
use crate::os::descriptor::DescriptorId;
use crate::os::file_limit::FileLimitGuard;
use crate::os::{file_lock, fork, memory};
use crate::wait::sleep;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

/// All mappings of this process, of which a forked child detaches itself.
static MAPPINGS: AtomicPtr<SharedFile> = AtomicPtr::new(std::ptr::null_mut());

/// Creates a file of `bytes` that only this user may open, and locks it.
fn create_file(path: &Path, bytes: u64) -> Result<File, Unusable> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let free = free_bytes(folder)?;
    if free < bytes {
        return Err(Unusable::TooSmall(free));
    }
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).custom_flags(flags).open(path)?;
    let _limit = FileLimitGuard::new();
    let fitted = file.set_len(bytes);
    if let Err(error) = fitted {
        let _ = fs::remove_file(path);
        return Err(error.into());
    }
    // A process that searches for left files may hold the lock for a moment.
    const TRIES: u32 = 50;
    let _ = (0..TRIES).any(|_| {
        file_lock::try_lock(&file) || {
            sleep(Duration::from_millis(1));
            false
        }
    });
    Ok(file)
}

/// Returns the free bytes of a folder in memory.
fn free_bytes(folder: &Path) -> Result<u64, Unusable> {
    let path = CString::new(folder.as_os_str().as_bytes()).map_err(io::Error::from)?;
    // SAFETY: all zeros are a valid statfs.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with 0, and `found` is valid for writes.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut found) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "the types differ between C libraries"
    )]
    let (kind, in_memory) = (i64::try_from(found.f_type), i64::try_from(libc::TMPFS_MAGIC));
    let is_in_memory = kind.ok().is_some() && kind.ok() == in_memory.ok();
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "the types differ between C libraries"
    )]
    let (block, blocks) = (u64::try_from(found.f_bsize).unwrap_or(0), u64::try_from(found.f_bavail).unwrap_or(0));
    let bytes = blocks.saturating_mul(block);
    // A tmpfs without a limit has 0 blocks.
    let bytes = if found.f_blocks == 0 { u64::MAX } else { bytes };
    if is_in_memory { Ok(bytes) } else { Err(Unusable::NotInMemory) }
}

fn map(at: *mut libc::c_void, bytes: usize, kind: libc::c_int, file: libc::c_int) -> io::Result<*mut libc::c_void> {
    map_for(libc::PROT_READ | libc::PROT_WRITE, at, bytes, kind, file)
}

fn map_for(
    access: libc::c_int,
    at: *mut libc::c_void,
    bytes: usize,
    kind: libc::c_int,
    file: libc::c_int,
) -> io::Result<*mut libc::c_void> {
    // SAFETY: with `MAP_FIXED`, callers pass the range of a mapping of this module, whose words are atomics; else the kernel
    // chooses an address, which affects no existing memory.
    let start = unsafe { libc::mmap(at, bytes, access, kind, file, 0) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start) }
}

/// Returns how many bytes so many words have.
fn byte_offset(words: usize) -> libc::off_t {
    libc::off_t::try_from(words * size_of::<AtomicU64>()).unwrap_or(libc::off_t::MAX)
}

impl SharedFile {
    /// Creates and maps a file of so many words.
    ///
    /// # Errors
    /// Why the folder cannot hold it.
    pub fn create(path: &Path, words: usize) -> Result<&'static SharedFile, Unusable> {
        let bytes = words * size_of::<AtomicU64>();
        let file = create_file(path, bytes as u64)?;
        let start = map(std::ptr::null_mut(), bytes, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd());
        let start = start.inspect_err(|_| drop(fs::remove_file(path)))?;
        // SAFETY: 1. The mapping has `bytes` bytes, begins on a page, and is never unmapped. 2. Words are read and written
        // only after `allocate`, so no access lies in a hole that a full file system could not fill.
        let words = unsafe { std::slice::from_raw_parts(start.cast(), words) };
        let mapping: &'static SharedFile = Box::leak(Box::new(SharedFile {
            words,
            descriptor: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            generation: fork::generation(),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }));
        mapping.keep_descriptor(file);
        let own = std::ptr::from_ref(mapping).cast_mut();
        let mut first = MAPPINGS.load(Ordering::Acquire);
        loop {
            mapping.next.store(first, Ordering::Relaxed);
            match MAPPINGS.compare_exchange(first, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(mapping),
                Err(other) => first = other,
            }
        }
    }

    /// Shows a new file in place of this one. Nothing may use the words meanwhile.
    ///
    /// # Errors
    /// Why the folder cannot hold it.
    pub fn replace(&self, path: &Path) -> Result<(), Unusable> {
        let bytes = size_of_val(self.words);
        let file = create_file(path, bytes as u64)?;
        let start = self.words.as_ptr().cast_mut().cast();
        let kind = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        map(start, bytes, kind, file.as_raw_fd()).inspect_err(|_| drop(fs::remove_file(path)))?;
        self.keep_descriptor(file);
        Ok(())
    }

    /// Keeps the descriptor of the file that is mapped now, which locks it, and closes the one before.
    fn keep_descriptor(&self, file: File) {
        self.close_descriptor();
        let number = file.into_raw_fd();
        if let Some(id) = DescriptorId::of_descriptor(number) {
            self.device.store(id.device, Ordering::Relaxed);
            self.inode.store(id.inode, Ordering::Relaxed);
            self.descriptor.store(number, Ordering::Release);
        }
    }

    /// Returns the descriptor, unless the program has closed it.
    fn own_descriptor(&self) -> Option<RawFd> {
        let number = self.descriptor.load(Ordering::Acquire);
        let id =
            DescriptorId { device: self.device.load(Ordering::Relaxed), inode: self.inode.load(Ordering::Relaxed) };
        (DescriptorId::of_descriptor(number) == Some(id)).then_some(number)
    }

    fn close_descriptor(&self) {
        let own = self.own_descriptor();
        self.descriptor.store(-1, Ordering::Relaxed);
        if let Some(number) = own {
            // SAFETY: the descriptor belongs to this mapping, and nothing else has its number any more.
            unsafe { libc::close(number) };
        }
    }

    /// Returns all words. Only allocated ones may be read or written.
    pub fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Unlocks the file: it does not change any more.
    pub fn unlock(&self) {
        if let Some(number) = self.own_descriptor() {
            // SAFETY: takes numbers; the descriptor belongs to this mapping.
            unsafe { libc::flock(number, libc::LOCK_UN) };
        }
    }

    /// Returns whether this is the process that made it.
    pub fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Takes memory for these words, in whole pages, and makes it present; returns `false` if memory is short.
    pub fn allocate(&self, words: Range<usize>) -> bool {
        let Some(part) = self.own_part(&words) else { return false };
        match memory::populate_or_fail(part) {
            Ok(()) => true,
            // The kernel is older than that call.
            Err(libc::EINVAL) => self.allocate_by_descriptor(words, part),
            Err(_) => {
                // The failed call may have populated some of the pages.
                self.release(words);
                false
            }
        }
    }

    fn allocate_by_descriptor(&self, words: Range<usize>, part: &'static [AtomicU64]) -> bool {
        const TRIES: usize = 1000;
        // If the file was cut meanwhile, it grows.
        let _limit = FileLimitGuard::new();
        let allocate = || {
            self.own_descriptor().map_or(libc::EBADF, |number| {
                // SAFETY: takes numbers; the descriptor belongs to this mapping.
                unsafe { libc::posix_fallocate(number, byte_offset(words.start), byte_offset(words.len())) }
            })
        };
        // A signal interrupts it.
        let is_allocated = (0..TRIES).map(|_| allocate()).find(|result| *result != libc::EINTR) == Some(0);
        if is_allocated {
            memory::populate_pages(part);
        }
        is_allocated
    }

    /// Returns the memory of these words, in whole pages: they read as zeros when they are allocated again.
    pub fn release(&self, words: Range<usize>) {
        let Some(part) = self.own_part(&words) else { return };
        let start = part.as_ptr().cast_mut().cast();
        // SAFETY: the range is one of this mapping, whose words are atomics, so zeros are valid for them.
        if unsafe { libc::madvise(start, size_of_val(part), libc::MADV_REMOVE) } == 0 {
            return;
        }
        // Of locked memory, only a call by descriptor returns pages.
        let kind = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let is_released = self.own_descriptor().is_some_and(|number| {
            // SAFETY: takes numbers; the descriptor belongs to this mapping, and zeros are valid for its words.
            unsafe { libc::fallocate(number, kind, byte_offset(words.start), byte_offset(words.len())) == 0 }
        });
        if !is_released {
            // The pages are present, and stay.
            part.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// Returns those words, if they are this process's.
    fn own_part(&self, words: &Range<usize>) -> Option<&'static [AtomicU64]> {
        if self.is_own() { self.words.get(words.clone()) } else { None }
    }
}

/// Maps memory of its own over the files of the parent, and closes them, in a forked child.
///
/// Limits of memory may forbid that. Shared memory counts to others than private memory, and memory that is only read to none. If all
/// three fail, the file stays mapped. The child writes to it in no case: [`is_own`](SharedFile::is_own) is checked before.
pub(in crate::os) fn detach_child() {
    let mut next = MAPPINGS.load(Ordering::Relaxed);
    // SAFETY: the list holds leaked values.
    while let Some(mapping) = unsafe { next.as_ref() } {
        let start = mapping.words.as_ptr().cast_mut().cast();
        let replace = |access, shares| {
            let kind = shares | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            map_for(access, start, size_of_val(mapping.words), kind, -1)
        };
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let _ = replace(writable, libc::MAP_PRIVATE)
            .or_else(|_| replace(writable, libc::MAP_SHARED))
            .or_else(|_| replace(libc::PROT_READ, libc::MAP_PRIVATE));
        mapping.close_descriptor();
        next = mapping.next.load(Ordering::Relaxed);
    }
}
