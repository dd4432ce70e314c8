//! The segments of a recording, in the folder that its process has left.

use super::Segment;
use crate::error::{Error, ErrorKind};
use crate::live::{self, LiveHeader};
use crate::os::{file_lock, process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The name of the file in a folder of segments that its process keeps locked.
pub(crate) const LOCK: &str = "lock";
/// The name of the file there that holds the path of the live file, if there is one.
pub(crate) const LIVE: &str = "live";

impl Segment {
    /// Returns the files of the segments in a folder, oldest first, also one that its process had not finished.
    ///
    /// [`Overflow::Spill`](crate::Overflow::Spill) makes such folders. With a [live
    /// file](crate::KinetoLayerBuilder::shm_folder), that is the last file: it has what was not moved to a segment. The files
    /// stay.
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
        if let Some(live) = live_file_of(folder) {
            // Which also has what is in an unfinished segment.
            files.retain(|path| path.extension().is_some_and(|end| end == "kseg"));
            files.push(live);
        }
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

/// Returns the path of the live file that a folder of segments names.
pub(crate) fn named_live_file(folder: &Path) -> Option<PathBuf> {
    fs::read_to_string(folder.join(LIVE)).ok().map(PathBuf::from)
}

/// Returns the live file that has what is not in the segments of a folder, if it is still there: in the folder itself, if it was copied
/// there, else where the process has made it.
fn live_file_of(folder: &Path) -> Option<PathBuf> {
    let named = named_live_file(folder)?;
    let copied = named.file_name().map(|name| folder.join(name));
    copied.into_iter().chain([named]).find(|path| path.is_file())
}

/// Returns whether the process that records into a live file still runs.
///
/// Forked children do not hold the lock. If another process holds it, the number of the file's process decides, unless that
/// number is of another namespace.
pub(super) fn is_live_file_in_use(file: &File, header: &LiveHeader) -> bool {
    let is_elsewhere = header.namespace != process::id_namespace();
    let is_locked = !file_lock::try_lock(file);
    if !is_locked {
        file_lock::unlock(file);
    }
    is_locked && (is_elsewhere || process::is_alive(header.process_id))
}

/// Returns the live files in a folder that killed processes have left.
pub(crate) fn left_live_files(folder: &Path) -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| {
        let is_ours = path.extension().is_some_and(|end| end == live::EXTENSION);
        let is_file = || fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
        if !is_ours || !is_file() {
            return false;
        }
        let Ok(mut file) = File::open(path) else { return false };
        let header = super::live::read_header(&mut file).ok();
        header.is_some_and(|header| !is_live_file_in_use(&file, &header))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(is_left).collect();
    files.sort();
    files
}

/// Returns the folders of segments in a folder that processes have left.
pub(crate) fn left_segment_folders(folder: &Path) -> Vec<PathBuf> {
    let is_left =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "segments") && Segment::files_in(path).is_ok();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).filter(is_left).collect();
    folders.sort();
    folders
}
