//! A file that is written for long. The program may close its descriptor, for example by `closefrom(3)`, and use the number again.

use std::fs::File;
use std::io::{self, Write};

/// A file that writes and closes nothing if its descriptor belongs to another one.
pub(super) struct KeptFile {
    file: Option<File>,
    id: Option<FileNumbers>,
}

/// The device and the inode of a file.
type FileNumbers = (u64, u64);

impl KeptFile {
    /// Keeps a file that was opened just now.
    pub(super) fn new(file: File) -> KeptFile {
        KeptFile { id: file_numbers(&file), file: Some(file) }
    }

    fn get(&self) -> io::Result<&File> {
        let own = self.file.as_ref().filter(|file| self.id.is_some() && file_numbers(file) == self.id);
        own.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the program has closed the descriptor"))
    }
}

impl Write for KeptFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.get()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.get()?.flush()
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        let is_own = self.get().is_ok();
        if let Some(file) = self.file.take().filter(|_| !is_own) {
            leave_open(file);
        }
    }
}

#[cfg(unix)]
fn file_numbers(file: &File) -> Option<FileNumbers> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(unix)]
fn leave_open(file: File) {
    use std::os::fd::IntoRawFd;
    let _ = file.into_raw_fd();
}

/// Handles are not used again on this platform.
#[cfg(not(unix))]
fn file_numbers(_file: &File) -> Option<FileNumbers> {
    Some((0, 0))
}

#[cfg(not(unix))]
fn leave_open(_file: File) {}
