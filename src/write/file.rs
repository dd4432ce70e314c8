//! Trace files that a traced program writes: locked while they are written, and no write ends the program.

use crate::error::Error;
use crate::os::file_limit::FileLimitGuard;
use crate::os::file_lock;
use crate::os::folder::{Folder, read_entries};
use crate::recorder::memory_listeners::InternalAllocGuard;
use kineto_model::write::file::{self as plain, Protection, is_unfinished_name};
pub(crate) use kineto_model::write::file::{FileContent, FileFormat, Format, check_writable, save, stem_and_end};
#[cfg(target_os = "linux")]
pub(crate) use kineto_model::write::file::{file_error, temporary_name, unfinished_name};
use std::io;
use std::path::{Path, PathBuf};

/// A destination of files.
pub(crate) trait Destination {
    /// Writes a file for `path`, which appears only when it is complete. Returns its name, which `contents` gets too.
    ///
    /// # Errors
    /// Those of [`save`].
    fn write_file(&self, path: &Path, gzip_level: u32, contents: &mut Contents<'_>) -> Result<PathBuf, Error>;
}

/// Writes the contents of a file of that name.
pub(crate) type Contents<'c> = dyn FnMut(&Path, &mut dyn FileContent) -> io::Result<()> + 'c;

/// The file system, with paths unchanged.
pub(crate) struct FileSystem;

impl Destination for FileSystem {
    fn write_file(&self, path: &Path, gzip_level: u32, contents: &mut Contents<'_>) -> Result<PathBuf, Error> {
        save(path, gzip_level, &mut |out| contents(path, out))?;
        Ok(path.to_owned())
    }
}

/// Makes the files that this process writes, those of `kineto-trace` too, such that no write ends the program: a write beyond
/// the limit on file sizes is an error and, on Linux, raises no signal. What writing allocates is not recorded as the program's.
/// A lock on the temporary file shows other processes that it is being written.
pub(crate) fn protect_files() {
    plain::install_protection(Protection {
        begin: || Box::new((FileLimitGuard::new(), InternalAllocGuard::begin())),
        created: |file| {
            // Without file locks, other processes cannot see it.
            let _ = file_lock::try_lock(file);
        },
    });
}

/// Returns the temporary files in the folder of `target` whose writers ended before they were complete, in any order.
///
/// None is removed: they may hold all that is left of a recording.
pub(crate) fn abandoned_files(target: &Path) -> Vec<PathBuf> {
    let folder = target.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let (Ok(opened), Ok(entries)) = (Folder::open(folder), read_entries(folder)) else { return Vec::new() };
    let mut left = Vec::new();
    for name in entries.iter().filter_map(|path| path.file_name()) {
        // Files of other users cannot be opened.
        if name.to_str().is_some_and(is_unfinished_name)
            && opened.open_entry(name, u64::MAX).is_ok_and(|file| file_lock::try_lock(&file))
        {
            left.push(folder.join(name));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    #[cfg(unix)]
    fn abandoned_finds_files_that_no_writer_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let create = || {
            let path = unfinished_name(&temporary_name(&path).unwrap());
            (path.clone(), File::create(path).unwrap())
        };
        let ((held, writer), (left, _)) = (create(), create());
        assert!(file_lock::try_lock(&writer));
        for other in [
            "a.json.1-2-0123456789abcdef.part",
            "a.tmp",
            "a.json.1-2-3.tmp",
            "a.json.x-2-0123456789abcdef.tmp",
            "b.json",
        ] {
            fs::write(folder.path().join(other), "").unwrap();
        }
        assert_eq!(abandoned_files(&path), std::slice::from_ref(&left));
        drop(writer);
        let mut both = vec![held, left];
        both.sort();
        let mut found = abandoned_files(&path);
        found.sort();
        assert_eq!(found, both);
        assert!(both.iter().all(|path| path.exists()), "they are reported, not removed");
    }
}
