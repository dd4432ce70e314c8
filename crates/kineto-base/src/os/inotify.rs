//! Watches a folder for completed files, by inotify.
#![allow(unsafe_code, reason = "inotify has no safe form")]

use super::descriptor::CheckedDescriptor;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A watched folder. No method blocks.
#[derive(Debug)]
pub struct Watch(CheckedDescriptor<File>);

/// A change in the folder.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// A file of that name was closed after writing, or was renamed to it.
    FileCompleted(OsString),
    /// The kernel's event queue overflowed.
    QueueOverflowed,
    /// The folder was removed, or the program has closed the descriptor.
    Gone,
}

/// The watched events of files; the kernel always reports the rest about the folder itself.
const OF_FILES: u32 = libc::IN_CLOSE_WRITE | libc::IN_MOVED_TO;
const OF_FOLDER: u32 = libc::IN_MOVE_SELF | libc::IN_DELETE_SELF | libc::IN_IGNORED | libc::IN_UNMOUNT;
/// The size of an event before its name: watch, mask, cookie, length of the name.
const HEAD: usize = 16;
/// The most reads in one call: other processes may create files as fast as these are read.
const BATCH: usize = 64;

impl Watch {
    /// Watches a folder.
    ///
    /// # Errors
    /// Those of `inotify_init1` and `inotify_add_watch`.
    pub fn new(folder: &Path) -> io::Result<Watch> {
        let path = CString::new(folder.as_os_str().as_bytes())?;
        // SAFETY: inotify_init1 takes only flags.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened the descriptor, and nothing else owns it.
        let watch = Watch(CheckedDescriptor::new(unsafe { File::from_raw_fd(descriptor) }));
        let what = OF_FILES | libc::IN_MOVE_SELF | libc::IN_DELETE_SELF | libc::IN_ONLYDIR;
        // SAFETY: the path ends with a zero byte and outlives the call.
        let failed = unsafe { libc::inotify_add_watch(descriptor, path.as_ptr(), what) } < 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(watch) }
    }

    /// Returns the descriptor that is readable when there are changes; `None` if the program has closed it.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.get().ok().map(AsRawFd::as_raw_fd)
    }

    /// Takes the changes since the last call; a large number of them is split over several calls.
    pub fn take_changes(&self) -> Vec<Change> {
        let (mut changes, mut buffer) = (Vec::new(), [0; 4096]);
        for _ in 0..BATCH {
            let Ok(mut file) = self.0.get() else { return vec![Change::Gone] };
            let Ok(length @ 1..) = file.read(&mut buffer) else { break };
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Some((change, behind)) = split_event(rest) {
                changes.extend(change);
                rest = behind;
            }
        }
        changes
    }
}

/// Splits off the first event; its change is `None` if the event is irrelevant here.
fn split_event(events: &[u8]) -> Option<(Option<Change>, &[u8])> {
    let number = |at: usize| Some(u32::from_ne_bytes(events.get(at..at + 4)?.try_into().ok()?));
    let (what, length) = (number(4)?, usize::try_from(number(12)?).ok()?);
    let name = events.get(HEAD..HEAD + length)?.split(|byte| *byte == 0).next()?;
    let change = match what {
        what if what & libc::IN_Q_OVERFLOW != 0 => Some(Change::QueueOverflowed),
        what if what & OF_FOLDER != 0 => Some(Change::Gone),
        what if what & OF_FILES != 0 => Some(Change::FileCompleted(OsStr::from_bytes(name).to_owned())),
        _ => None,
    };
    Some((change, events.get(HEAD + length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn file_is_reported_when_closed_or_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::new(folder.path()).unwrap();
        let whole = |name: &str| Change::FileCompleted(name.into());
        let mut file = File::create(folder.path().join("a")).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(watch.take_changes(), []);
        drop(file);
        assert_eq!(watch.take_changes(), [whole("a")]);
        fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        fs::write(folder.path().join("c"), "").unwrap();
        fs::read(folder.path().join("c")).unwrap();
        assert_eq!(watch.take_changes(), [whole("b"), whole("c")]);
        let crowd: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
        crowd.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        assert_eq!(watch.take_changes(), crowd.iter().map(|name| whole(name)).collect::<Vec<_>>());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn removed_folder_is_reported_and_missing_one_fails() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        assert_eq!(Watch::new(&inner).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&inner).unwrap();
        let (one, other) = (Watch::new(&inner).unwrap(), Watch::new(folder.path()).unwrap());
        fs::rename(&inner, folder.path().join("elsewhere")).unwrap();
        assert_eq!(one.take_changes(), [Change::Gone]);
        assert_eq!(other.take_changes(), [Change::FileCompleted("elsewhere".into())]);
        let removed = Watch::new(&folder.path().join("elsewhere")).unwrap();
        fs::remove_dir(folder.path().join("elsewhere")).unwrap();
        assert!(removed.take_changes().contains(&Change::Gone));
        fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(Watch::new(&folder.path().join("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn malformed_bytes_are_not_events() {
        assert_eq!(split_event(&[]), None);
        assert_eq!(split_event(&[0; 15]), None);
        let mut long = [0; 16];
        long[12..].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(split_event(&long), None);
        let mut lost = [0; 16];
        lost[4..8].copy_from_slice(&libc::IN_Q_OVERFLOW.to_ne_bytes());
        assert_eq!(split_event(&lost), Some((Some(Change::QueueOverflowed), &[][..])));
    }
}
