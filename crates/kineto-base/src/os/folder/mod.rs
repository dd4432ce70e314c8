//! Open folders, and files in folders that other users may write to.
//!
//! `/tmp` may hold hostile entries: pipes whose opening waits for a writer, links to devices without end or to files that only this
//! process may read. [`open_entry`] opens each file that a scan of a folder has found, or that has a name of ours.

#[cfg(not(unix))]
mod absent;
#[cfg(target_os = "linux")]
mod exclusive;
#[cfg(unix)]
mod unix;

#[cfg(target_os = "linux")]
pub use exclusive::FileId;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// An open folder. Names are of files directly in it.
#[derive(Debug)]
pub struct Folder(#[cfg(unix)] super::descriptor::CheckedDescriptor<File>, #[cfg(not(unix))] PathBuf);

/// Opens a regular file of at most `bytes_max` bytes for reading, in a folder that other users may write to.
///
/// The file is opened relative to its open folder. A link at the end of the path is not followed, and a pipe or device is refused
/// without waiting for it. For paths that the user names, use [`File::open`].
///
/// # Errors
/// Those of the system; and if the file is a link, not a regular file, or larger.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("lock"), "4242\n")?;
/// assert!(tracing_kineto::open_entry(folder.path().join("lock"), 64).is_ok());
/// assert!(tracing_kineto::open_entry(folder.path().join("lock"), 4).is_err(), "too large");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open_entry(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<File> {
    let path = path.as_ref();
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    Folder::open(folder)?.open_entry(path.file_name().unwrap_or_default(), bytes_max)
}

/// The most entries of a folder that are searched: other users may fill it.
pub const ENTRIES_MAX: usize = 100_000;

/// Returns the paths of at most [`ENTRIES_MAX`] entries in a folder.
///
/// # Errors
/// Those of the system.
pub fn read_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(std::fs::read_dir(folder)?.take(ENTRIES_MAX).flatten().map(|entry| entry.path()).collect())
}

/// Opens a regular file of at most `bytes_max` bytes for reading, through links. A pipe or device is refused without waiting for it.
///
/// # Errors
/// Those of the system; and if the file is not regular, or larger.
pub fn open_regular(path: &Path, bytes_max: u64) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    check_entry(options.read(true).open(path)?, bytes_max)
}

/// Returns an open file if it is regular and of at most `bytes_max` bytes.
fn check_entry(file: File, bytes_max: u64) -> io::Result<File> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if found.len() > bytes_max {
        return Err(io::Error::other(format!("it has {} bytes, and {bytes_max} are allowed", found.len())));
    }
    Ok(file)
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn only_regular_entries_of_a_sane_size_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        symlink("file", path("link")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let error = |path: &Path| open_entry(path, 5).unwrap_err().to_string();
        assert!(open_entry(path("file"), 5).is_ok());
        std::fs::write(path("large"), "123456").unwrap();
        assert_eq!(error(&path("large")), "it has 6 bytes, and 5 are allowed");
        for name in ["link", "device"] {
            assert!(error(&path(name)).starts_with("it is a link"), "{name}");
        }
        for name in ["folder", "pipe"] {
            assert_eq!(error(&path(name)), "it is not a regular file", "{name}");
        }
        let folder = Folder::open(folder.path()).unwrap();
        assert!(folder.open_folder("folder".as_ref()).is_ok());
        symlink("folder", path("other")).unwrap();
        for name in ["other", "file", "pipe", "..", "folder/.."] {
            assert!(
                folder.open_folder(name.as_ref()).is_err() && folder.open_entry(name.as_ref(), 1).is_err(),
                "{name}"
            );
        }
        assert!(open_regular(&path("link"), 5).is_ok() && open_regular(&path("large"), 5).is_err());
        assert!(open_regular(&path("device"), 5).is_err() && open_regular(&path("pipe"), 5).is_err());
    }
}
