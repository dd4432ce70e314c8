//! Platforms without descriptors of folders.

use super::Folder;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;

impl Folder {
    /// Opens a folder.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Ok(Folder(path.to_owned()))
    }

    /// Opens a folder in it.
    pub fn open_folder(&self, name: &OsStr) -> io::Result<Folder> {
        let path = self.0.join(name);
        if fs::symlink_metadata(&path)?.is_dir() { Ok(Folder(path)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Opens a regular file for reading; see [`open_entry`](super::open_entry).
    pub fn open_entry(&self, name: &OsStr, bytes_max: u64) -> io::Result<File> {
        let path = self.0.join(name);
        if !fs::symlink_metadata(&path)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        super::check_entry(File::open(path)?, bytes_max)
    }
}
