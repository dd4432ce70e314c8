//! Descriptors that stay open for long. The program may close them, for example by `closefrom(3)`, and reuse their numbers
//! for its own files.
#![allow(unsafe_code, reason = "a descriptor that may be closed has no safe form")]

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
#[cfg(unix)]
use std::os::fd::{AsRawFd, RawFd};

/// A file or socket. Before each use, its device and inode are compared; it is closed only if they are the same.
#[derive(Debug)]
pub struct CheckedDescriptor<T: AsRawFd> {
    descriptor: ManuallyDrop<T>,
    #[cfg(unix)]
    id: Option<DescriptorId>,
}

/// The device and the inode of an open file.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorId {
    /// The device that holds the file.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

#[cfg(unix)]
impl DescriptorId {
    /// Returns the device and inode of a descriptor; `None` if it is closed.
    pub fn of_descriptor(number: RawFd) -> Option<DescriptorId> {
        use std::os::fd::FromRawFd;
        use std::os::unix::fs::MetadataExt;
        if number < 0 {
            return None;
        }
        // SAFETY: the value closes nothing, and fstat accepts any number.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(number) });
        let found = file.metadata().ok()?;
        Some(DescriptorId { device: found.dev(), inode: found.ino() })
    }
}

impl<T: AsRawFd> CheckedDescriptor<T> {
    /// Keeps a file or socket that was opened just now.
    pub fn new(descriptor: T) -> CheckedDescriptor<T> {
        CheckedDescriptor {
            #[cfg(unix)]
            id: DescriptorId::of_descriptor(descriptor.as_raw_fd()),
            descriptor: ManuallyDrop::new(descriptor),
        }
    }

    /// Returns it for one use.
    ///
    /// # Errors
    /// `NotConnected` if the program has closed its descriptor.
    pub fn get(&self) -> io::Result<&T> {
        #[cfg(unix)]
        if self.id.is_none() || DescriptorId::of_descriptor(self.descriptor.as_raw_fd()) != self.id {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the program has closed the descriptor"));
        }
        Ok(&self.descriptor)
    }
}

impl io::Write for &CheckedDescriptor<File> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.get()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.get()?.flush()
    }
}

impl<T: AsRawFd> Drop for CheckedDescriptor<T> {
    fn drop(&mut self) {
        if self.get().is_ok() {
            // SAFETY: it is dropped here alone.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        }
    }
}

/// There are no numbers of descriptors on this platform.
#[cfg(not(unix))]
pub trait AsRawFd {}

#[cfg(not(unix))]
impl<T> AsRawFd for T {}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    #[test]
    fn reused_descriptor_is_neither_used_nor_closed() {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str| File::create(folder.path().join(name)).unwrap();
        // High numbers, which no other test reuses meanwhile.
        let renumber = |file: &File, number: RawFd| {
            // SAFETY: takes numbers; nothing else uses these.
            assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
            // SAFETY: the call above has opened it, and nothing else owns it.
            unsafe { File::from_raw_fd(number) }
        };
        let number = 900;
        let kept = CheckedDescriptor::new(renumber(&create("own"), number));
        assert!(kept.get().is_ok());
        let reused = renumber(&create("other"), number);
        assert_eq!(kept.get().unwrap_err().kind(), io::ErrorKind::NotConnected);
        drop(kept);
        assert!(reused.metadata().is_ok(), "the program's file is open");
    }
}
