//! The segments of a recording, in the folder that its process has left.

use super::Segment;
use crate::error::{Error, ErrorKind};
use crate::live::{self, FileHeader};
use crate::os::folder::{ENTRIES_MAX, Folder, open_entry, read_entries};
use crate::os::{file_lock, process};
use crate::text::escaped_path;
use kineto_base::sorting::sort_few;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The name of the file in a folder of segments that its process keeps locked.
pub(crate) const LOCK: &str = "lock";
/// The name of the file there that holds the path of the live file, if there is one.
pub(crate) const LIVE: &str = "live";
/// The most bytes of a segment or a live file: more than a machine has memory for.
pub(super) const BYTES_MAX: u64 = 1 << 40;

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
        let path = folder.as_ref();
        let failed = |error| Error::io("read", path, error, "name a folder of segments that you may read");
        files_of(&Folder::open(path).map_err(failed)?, path)
    }
}

/// Returns the files of the segments in an open folder, which has that path.
fn files_of(folder: &Folder, path: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = read_entries(path)
        .map_err(|error| Error::io("read", path, error, "name a folder of segments that you may read"))?;
    if is_in_use(folder) {
        let why = format!("the process that writes {} still runs; wait for its end", escaped_path(path));
        return Err(Error::new(ErrorKind::AlreadyActive, why));
    }
    if entries.len() == ENTRIES_MAX {
        let why = io::Error::other(format!("it has {ENTRIES_MAX} entries or more"));
        return Err(Error::io(
            "search",
            path,
            why,
            "move its segments to a folder of their own, with `lock` and `live`",
        ));
    }
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("seg-") && (name.ends_with(".kseg") || name.ends_with(".kseg.tmp"))
    };
    let mut files: Vec<_> = entries.into_iter().filter(is_segment).collect();
    sort_few(&mut files);
    if let Some(live) = live_file_of(folder, path) {
        // The live file also has the records of an unfinished segment.
        files.retain(|path| path.extension().is_some_and(|end| end == "kseg"));
        files.push(live);
    }
    if files.is_empty() {
        let why = format!("there are no segments in {}; name a folder of OVERFLOW=spill", escaped_path(path));
        return Err(Error::new(ErrorKind::NotATrace, why));
    }
    Ok(files)
}

/// Returns the text of a small file in a folder.
fn read_text(folder: &Folder, name: &str) -> Option<String> {
    /// The longest path that systems take.
    const BYTES_MAX: u64 = 4096;
    let mut text = String::new();
    folder.open_entry(name.as_ref(), BYTES_MAX).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns whether the process that made the folder still runs. Its forked children hold the lock longer than it.
fn is_in_use(folder: &Folder) -> bool {
    let is_locked = folder.open_entry(LOCK.as_ref(), BYTES_MAX).is_ok_and(|lock| !file_lock::try_lock(&lock));
    let process = read_text(folder, LOCK).and_then(|text| text.trim().parse().ok());
    is_locked && process.is_none_or(process::is_alive)
}

/// Returns the path of the live file that a folder of segments names.
pub(crate) fn named_live_file(folder: &Path) -> Option<PathBuf> {
    live_path(&Folder::open(folder).ok()?)
}

fn live_path(folder: &Folder) -> Option<PathBuf> {
    read_text(folder, LIVE).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the live file that has what is not in the segments of a folder, if it is still there: in the folder itself, if it was copied
/// there, else where the process has made it.
fn live_file_of(folder: &Folder, path: &Path) -> Option<PathBuf> {
    let named = live_path(folder)?;
    let name = named.file_name()?;
    if folder.open_entry(name, BYTES_MAX).is_ok() {
        return Some(path.join(name));
    }
    open_entry(&named, BYTES_MAX).is_ok().then_some(named)
}

/// Returns whether the process that records into a live file still runs.
///
/// Forked children do not hold the lock. If another process holds it, the number of the file's process decides, unless that
/// number is of another namespace.
pub(super) fn is_live_file_in_use(file: &File, header: &FileHeader) -> bool {
    if header.slots == 0 {
        return false;
    }
    let is_elsewhere = header.namespace != process::id_namespace();
    let is_locked = !file_lock::try_lock(file);
    if !is_locked {
        file_lock::unlock(file);
    }
    is_locked && (is_elsewhere || process::is_alive(header.process_id))
}

/// Returns the live files in a folder that killed processes have left.
pub(crate) fn left_live_files(folder: &Path) -> Vec<PathBuf> {
    let is_left = |parent: &Folder, name: &OsStr, _: &Path| {
        let Ok(mut file) = parent.open_entry(name, BYTES_MAX) else { return false };
        let header = super::read::read_start(&mut file).ok().and_then(|(header, _)| header.ok());
        header.is_some_and(|header| header.slots > 0 && !is_live_file_in_use(&file, &header))
    };
    find_entries(folder, live::EXTENSION, is_left)
}

/// Returns the folders of segments in a folder that processes have left.
pub(crate) fn left_segment_folders(folder: &Path) -> Vec<PathBuf> {
    let is_left = |parent: &Folder, name: &OsStr, path: &Path| {
        parent.open_folder(name).is_ok_and(|segments| files_of(&segments, path).is_ok())
    };
    find_entries(folder, "segments", is_left)
}

/// Returns the paths of entries with that extension in a folder, in order, for which `is_wanted` is true. It gets the open
/// folder, the name of the entry, and its path.
fn find_entries(folder: &Path, extension: &str, is_wanted: impl Fn(&Folder, &OsStr, &Path) -> bool) -> Vec<PathBuf> {
    let (Ok(parent), Ok(paths)) = (Folder::open(folder), read_entries(folder)) else { return Vec::new() };
    let named = paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == extension));
    let mut found: Vec<_> =
        named.filter(|path| is_wanted(&parent, path.file_name().unwrap_or_default(), path)).collect();
    sort_few(&mut found);
    found
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    #[test]
    fn folder_with_too_many_entries_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..ENTRIES_MAX {
            File::create(folder.path().join(format!("seg-{number}.kseg"))).unwrap();
        }
        let error = Segment::files_in(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("it has 100000 entries or more; move its segments"), "{error}");
    }
}
