//! The segments of a recording, in the folder that its process has left.

use super::Segment;
use crate::error::{Error, ErrorKind};
use crate::os::{file_lock, process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The name of the file in a folder of segments that its process keeps locked.
pub(crate) const LOCK: &str = "lock";

impl Segment {
    /// Returns the files of the segments in a folder, oldest first, also one that its process had not finished.
    ///
    /// [`Overflow::Spill`](crate::Overflow::Spill) makes such folders. The files stay.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if the folder cannot be read. [`AlreadyActive`](ErrorKind::AlreadyActive) if its process still
    /// records or writes the traces itself. [`NotATrace`](ErrorKind::NotATrace) if there is no segment.
    pub fn files_in(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
        let folder = folder.as_ref();
        let failed = |error| Error::io("read", folder, error, "name a folder of segments that you may read");
        let entries = fs::read_dir(folder).map_err(failed)?;
        if is_in_use(folder) {
            let why = format!("the process that writes {} still runs; wait for its end", folder.display());
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
        let is_segment = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("seg-") && (name.ends_with(".kseg") || name.ends_with(".kseg.tmp"))
        };
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_segment).collect();
        files.sort();
        if files.is_empty() {
            let why = format!("there are no segments in {}; name a folder of OVERFLOW=spill", folder.display());
            return Err(Error::new(ErrorKind::NotATrace, why));
        }
        Ok(files)
    }
}

/// Returns whether the process that made the folder still runs. Its forked children hold the lock longer than it.
fn is_in_use(folder: &Path) -> bool {
    let path = folder.join(LOCK);
    let is_locked = File::open(&path).is_ok_and(|lock| !file_lock::try_lock(&lock));
    let process = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    is_locked && process.is_none_or(process::is_alive)
}
