//! Files of an open folder that this process creates, renames and removes, even if a part of the folder's path is replaced.
#![allow(unsafe_code, reason = "renameat2, linkat and unlinkat have no safe form")]

use super::Folder;
use super::unix::{FOLDER_FLAGS, c_name, check_result, open_at};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::SystemTime;

/// The identity of a file: it differs from that of a later file with the same inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
    user: u32,
    /// The time of birth, if the file system stores it.
    born: Option<SystemTime>,
}

impl FileId {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn from_file(file: &File) -> io::Result<FileId> {
        let found = file.metadata()?;
        Ok(FileId { device: found.dev(), inode: found.ino(), user: found.uid(), born: found.created().ok() })
    }
}

impl Folder {
    /// Returns whether it is `other` or below it now.
    ///
    /// # Errors
    /// Those of the system.
    pub fn is_within(&self, other: &Folder) -> io::Result<bool> {
        /// More components than a path can have.
        const DEEPEST: usize = 4096;
        let (wanted, mut current) = (FileId::from_file(other.0.get()?)?, self.0.get()?.try_clone()?);
        for _ in 0..DEEPEST {
            let id = FileId::from_file(&current)?;
            if id == wanted {
                return Ok(true);
            }
            let parent = open_at(&current, c"..", FOLDER_FLAGS, 0)?;
            // The root is its own parent.
            if FileId::from_file(&parent)? == id {
                return Ok(false);
            }
            current = parent;
        }
        Ok(false)
    }

    /// Creates a file for writing, with these permissions regardless of the process's umask.
    ///
    /// # Errors
    /// Those of the system, for example if a file of that name exists.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let file = open_at(self.0.get()?, &c_name(name)?, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        Ok(file)
    }

    /// Returns the identity of the file of that name; a link is not followed.
    ///
    /// # Errors
    /// Those of the system, such as that the file does not exist.
    pub fn id_of(&self, name: &OsStr) -> io::Result<FileId> {
        FileId::from_file(&open_at(self.0.get()?, &c_name(name)?, libc::O_PATH | libc::O_NOFOLLOW, 0)?)
    }

    /// Renames a file, unless the new name exists.
    ///
    /// # Errors
    /// `AlreadyExists` if it exists; else those of the system.
    pub fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match self.rename(from, to, libc::RENAME_NOREPLACE) {
            // Network file systems, for example, do not support the flag.
            Err(why) if is_unsupported(&why) => self.rename_new_in_steps(from, to),
            done => done,
        }
    }

    /// Does the same without flags: by a link, or by a check and a rename where links are not supported either.
    fn rename_new_in_steps(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match self.link(from, to) {
            Ok(()) => return self.remove(from),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => return Err(why),
            Err(_) => {}
        }
        match self.id_of(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => self.rename(from, to, 0),
            Err(why) => Err(why),
        }
    }

    /// Renames `from` over the file `to` if `is_own` accepts that file; returns whether it did.
    ///
    /// # Errors
    /// Those of the system.
    pub fn rename_over(&self, from: &OsStr, to: &OsStr, is_own: impl Fn(&FileId) -> bool) -> io::Result<bool> {
        if !is_own(&self.id_of(to)?) {
            return Ok(false);
        }
        match self.rename(from, to, libc::RENAME_EXCHANGE) {
            Err(why) if is_unsupported(&why) => return self.rename(from, to, 0).map(|()| true),
            done => done?,
        }
        // Another file may have replaced it since the check; after the exchange, that file is under the name `from`.
        if is_own(&self.id_of(from)?) {
            return self.remove(from).map(|()| true);
        }
        let back = self.rename(from, to, libc::RENAME_EXCHANGE);
        // The new file may have been moved away meanwhile.
        back.or_else(|_| self.rename_new(from, to)).map(|()| false)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the descriptor is open, and the name is a C string.
        check_result(unsafe { libc::unlinkat(self.0.get()?.as_raw_fd(), name.as_ptr(), 0) })
    }

    fn rename(&self, from: &OsStr, to: &OsStr, flags: u32) -> io::Result<()> {
        let (folder, from, to) = (self.0.get()?.as_raw_fd(), c_name(from)?, c_name(to)?);
        let (from, to) = (from.as_ptr(), to.as_ptr());
        // SAFETY: the descriptor is open, and both names are C strings; by number, since old C libraries lack it.
        let result = unsafe { libc::syscall(libc::SYS_renameat2, folder, from, folder, to, flags) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn link(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (folder, from, to) = (self.0.get()?.as_raw_fd(), c_name(from)?, c_name(to)?);
        // SAFETY: the descriptor is open, and both names are C strings.
        check_result(unsafe { libc::linkat(folder, from.as_ptr(), folder, to.as_ptr(), 0) })
    }
}

/// Returns whether a rename failed because its flags are not supported.
fn is_unsupported(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn rename_over_replaces_own_files_only() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::open(temp.path()).unwrap();
        let [new, own, foreign] = ["new", "own", "foreign"].map(OsStr::new);
        let own_id = FileId::from_file(&folder.create(own, 0o600).unwrap()).unwrap();
        fs::write(temp.path().join(foreign), "foreign").unwrap();
        let is_own = |id: &FileId| *id == own_id;
        folder.create(new, 0o600).unwrap().write_all(b"new").unwrap();
        assert_eq!(folder.rename_new(new, own).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!folder.rename_over(new, foreign, is_own).unwrap());
        assert!(folder.rename_over(new, own, is_own).unwrap());
        assert_eq!(fs::read_to_string(temp.path().join(own)).unwrap(), "new");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2);
        // A foreign file that replaces the own one at the last moment is moved back.
        let answers = std::cell::Cell::new(0);
        let is_own_once = |_: &FileId| answers.replace(answers.get() + 1) == 0;
        folder.create(new, 0o600).unwrap();
        assert!(!folder.rename_over(new, foreign, is_own_once).unwrap());
        assert_eq!(fs::read_to_string(temp.path().join(foreign)).unwrap(), "foreign");
        folder.rename_new(new, OsStr::new("free")).unwrap();
        assert!(folder.remove(OsStr::new("../x")).is_err() && folder.id_of(OsStr::new("..")).is_err());
    }

    #[test]
    fn rename_new_in_steps_replaces_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::open(temp.path()).unwrap();
        let [file, directory, free, gone] = ["file", "directory", "free", "gone"].map(OsStr::new);
        folder.create(file, 0o600).unwrap();
        // A directory has no links, as no file has on some systems.
        fs::create_dir(temp.path().join(directory)).unwrap();
        for (from, to) in [(file, free), (directory, gone)] {
            let taken = folder.rename_new_in_steps(from, if from == file { directory } else { free });
            assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{}", from.display());
            folder.rename_new_in_steps(from, to).unwrap();
            assert!(temp.path().join(to).exists() && !temp.path().join(from).exists());
        }
    }

    #[test]
    fn is_within_compares_folders_not_names() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("a/b/c")).unwrap();
        fs::create_dir(temp.path().join("other")).unwrap();
        let open = |name: &str| Folder::open(&temp.path().join(name)).unwrap();
        let (a, c, other) = (open("a"), open("a/b/c"), open("other"));
        assert!(c.is_within(&a).unwrap() && a.is_within(&a).unwrap());
        assert!(!other.is_within(&a).unwrap() && !a.is_within(&c).unwrap());
        fs::rename(temp.path().join("a/b"), temp.path().join("other/b")).unwrap();
        assert!(!c.is_within(&a).unwrap() && c.is_within(&other).unwrap());
    }
}
