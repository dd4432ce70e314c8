//! An open folder of a Unix system.
#![allow(unsafe_code, reason = "openat has no safe form")]

use super::Folder;
use crate::os::descriptor::CheckedDescriptor;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The flags that open a folder; only Linux can open one that is not readable.
#[cfg(target_os = "linux")]
pub(super) const FOLDER_FLAGS: libc::c_int = libc::O_PATH | libc::O_DIRECTORY;
#[cfg(not(target_os = "linux"))]
pub(super) const FOLDER_FLAGS: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY;

impl Folder {
    /// Opens a folder, which need not be readable.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Folder> {
        OpenOptions::new().read(true).custom_flags(FOLDER_FLAGS).open(path).map(CheckedDescriptor::new).map(Folder)
    }

    /// Opens a folder in it, which is no link.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open_folder(&self, name: &OsStr) -> io::Result<Folder> {
        open_at(self.0.get()?, &c_name(name)?, FOLDER_FLAGS, 0).map(CheckedDescriptor::new).map(Folder)
    }

    /// Opens a regular file for reading; see [`open_entry`](super::open_entry).
    ///
    /// # Errors
    /// Those of the system; and if the file is a link, not a regular file, or larger than `bytes_max`.
    pub fn open_entry(&self, name: &OsStr, bytes_max: u64) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        match open_at(self.0.get()?, &c_name(name)?, flags, 0) {
            Err(why) if why.raw_os_error() == Some(libc::ELOOP) => {
                Err(io::Error::other("it is a link, and links in a folder are not followed"))
            }
            opened => super::check_entry(opened?, bytes_max),
        }
    }
}

pub(super) fn open_at(folder: &File, name: &CStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<File> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the descriptor is open, and the name is a C string.
    let file = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, mode) };
    check_result(file)?;
    // SAFETY: the call above has opened the descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(file) })
}

pub(super) fn check_result(result: libc::c_int) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns a file's name as a C string; refuses one that would lead out of the folder.
pub(super) fn c_name(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if bytes.contains(&b'/') || [&b""[..], b".", b".."].contains(&bytes) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(CString::new(bytes)?)
}
