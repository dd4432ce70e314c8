//! A process that takes requests from a folder, as seen in `/proc`, and its answers.

use super::process::is_zombie;
use kineto_base::text::printable;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tracing_kineto::open_entry;

/// A process that takes requests.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) pid: u32,
    user: u32,
    /// The process id in its own namespace.
    own_pid: u32,
    /// The folder, held open so that it cannot be replaced, and its path for messages.
    folder: File,
    display_path: PathBuf,
}

/// The name of the thread that identifies a listening process.
const THREAD: &str = "kineto-ondemand";

impl Listener {
    /// Finds the folder of the process `pid`: `folder`, or the one in its environment.
    ///
    /// A process in a container may have another id and another root; this function resolves both.
    ///
    /// # Errors
    /// If the process takes no requests, with the reason and advice.
    pub(crate) fn find(pid: u32, folder: Option<&Path>) -> Result<Listener, String> {
        if is_zombie(pid) {
            return Err("it has ended, and its parent has not waited for it".to_owned());
        }
        let process = PathBuf::from(format!("/proc/{pid}"));
        let status = fs::read_to_string(process.join("status")).map_err(|_| "there is no such process".to_owned())?;
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        if let Some(of) = numbers("Tgid").first().filter(|of| **of != pid) {
            return Err(format!("not a process: a thread of process {of}"));
        }
        let user = numbers("Uid").get(1).copied().ok_or("its user is unknown")?;
        // A caller with other rights may have set its environment.
        if ["Uid", "Gid"].iter().any(|name| numbers(name).iter().any(|number| Some(number) != numbers(name).first())) {
            return Err("on-demand tracing is disabled in set-user-ID and set-group-ID programs".to_owned());
        }
        let display_path =
            folder.map_or_else(|| folder_from_environment(&process, user), |folder| Ok(folder.to_owned()))?;
        let opened = open_folder(&display_path, folder.is_some())?;
        if folder.is_none() && !is_writable_by(&opened, user) {
            return Err(format!("{} belongs to another user; pass --dir to use it", display_path.display()));
        }
        if folder.is_none() && !is_visible_to(&process, &opened) {
            return Err(format!("{} leads out of its container; pass the folder with --dir", display_path.display()));
        }
        if !is_listening(&process) {
            return Err("it does not listen: it has no layer yet, or no longer has one".to_owned());
        }
        let own_pid = numbers("NSpid").last().copied().unwrap_or(pid);
        Ok(Listener { pid, user, own_pid, folder: opened, display_path })
    }

    /// Returns the path of its request, answer or status file.
    fn file_path(&self, end: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{}.{end}", self.folder.as_raw_fd(), self.own_pid))
    }

    /// Returns whether it has a different file system view from this process.
    pub(crate) fn has_own_files(&self) -> bool {
        has_own_mounts(Path::new(&format!("/proc/{}", self.pid)))
    }

    /// Writes a request to the folder atomically.
    ///
    /// # Errors
    /// If the file cannot be written, with the reason and advice.
    pub(crate) fn submit_request(self, text: &str) -> Result<SubmittedRequest, String> {
        let id = RandomState::new().hash_one((self.pid, std::process::id()));
        let (request, temporary) = (self.file_path("request"), self.file_path(&format!("request.{id:016x}.tmp")));
        let write = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            // Regardless of this process's umask, the other process must be able to read it.
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.write_all(format!("{text}\nREQUEST_TRACE_ID={id}\n").as_bytes())?;
            // Only root can do this. In a user namespace, root's files belong to an unknown user, and in a sticky
            // folder they could not be removed.
            let _ = fchown(&file, Some(self.user), None);
            // A cancel request also replaces a waiting request.
            let is_cancel = text.lines().any(|line| line == super::trigger::CANCEL);
            if is_cancel { fs::rename(&temporary, &request) } else { rename_new(&temporary, &request) }.map(|()| file)
        };
        let file = write().map_err(|why| {
            let _ = fs::remove_file(&temporary);
            let (folder, user) = (self.display_path.display(), self.user);
            if why.kind() == io::ErrorKind::AlreadyExists {
                return format!("another request is waiting: {}.request in {folder}", self.own_pid);
            }
            format!("cannot write to {folder}: {why}; {}", advice_for(why.kind(), user, own_user(), MAKE_WRITABLE))
        })?;
        Ok(SubmittedRequest {
            listener: self,
            id: id.to_string(),
            file,
            answer: None,
            unread: String::new(),
            is_header_read: false,
        })
    }

    fn is_alive(&self) -> bool {
        is_listening(Path::new(&format!("/proc/{}", self.pid)))
    }

    /// Reads the process's status file.
    ///
    /// # Errors
    /// If it cannot be read, with the reason.
    pub(crate) fn read_status(&self) -> Result<String, String> {
        const LONGEST: u64 = 64 * 1024;
        let mut text = String::new();
        let read = self.open_file("status").and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        read.map(|_| text).map_err(|why| {
            format!("cannot read its status: {why}: {}.status in {}", self.own_pid, self.display_path.display())
        })
    }

    /// Opens a regular file of the process's user.
    fn open_file(&self, end: &str) -> io::Result<File> {
        const BYTES_MAX: u64 = 1 << 20;
        let file = open_entry(self.file_path(end), BYTES_MAX)?;
        if file.metadata()?.uid() != self.user {
            return Err(io::Error::other("not a file of the process's user"));
        }
        Ok(file)
    }
}

/// Opens a folder. A device or pipe is not opened, because that could have side effects. A link is followed only if the
/// caller has named it.
fn open_folder(path: &Path, is_named: bool) -> Result<File, String> {
    let follow = if is_named { OFlags::empty() } else { OFlags::NOFOLLOW };
    open_path(path, OFlags::DIRECTORY | follow).map_err(|why| {
        if path.is_symlink() && !is_named {
            format!("{} is a link; pass --dir to follow it", path.display())
        } else {
            format!("cannot use {}: {why}", path.display())
        }
    })
}

/// Opens a file or folder without reading or writing it.
fn open_path(path: &Path, flags: OFlags) -> io::Result<File> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())?.into())
}

/// Renames a file, unless the new name exists.
///
/// # Errors
/// `AlreadyExists` if the new name exists; else the system's error.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system or the kernel does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::symlink_metadata(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(from, to),
        },
        done => Ok(done?),
    }
}

/// Returns the folder that the process's environment names, through its root.
fn folder_from_environment(process: &Path, user: u32) -> Result<PathBuf, String> {
    let variables = fs::read(process.join("environ")).map_err(|why| {
        format!(
            "cannot read its environment: {why}; {}, or pass the folder (--dir)",
            advice_for(io::ErrorKind::PermissionDenied, user, own_user(), GAIN_PTRACE)
        )
    })?;
    let folder_from_environment =
        variables.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"KINETO_TRIGGER_DIR="));
    let folder =
        folder_from_environment.filter(|path| !path.is_empty()).map(|path| Path::new(OsStr::from_bytes(path))).ok_or(
            "it was started without KINETO_TRIGGER_DIR; start it with that, or pass the folder that it was built with \
         (--dir)",
        )?;
    Ok(match folder.strip_prefix("/") {
        Ok(from_root) => process.join("root").join(from_root),
        Err(_) => process.join("cwd").join(folder),
    })
}

/// What to do if a folder of the own user cannot be written to.
const MAKE_WRITABLE: &str = "make it writable for the user of the traced program";

/// What to do if the kernel denies access to a process of the own user.
const GAIN_PTRACE: &str =
    "the kernel denies it to this user too; run this command with CAP_SYS_PTRACE, outside of a container";

/// Returns the user of this process.
fn own_user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|process| process.uid())
}

/// Returns what to do if this process, of the user `own`, may not access what a process of `user` has.
/// `if_same_user` is for a user who should have access.
fn advice_for(kind: io::ErrorKind, user: u32, own: Option<u32>, if_same_user: &str) -> String {
    match kind {
        io::ErrorKind::PermissionDenied if own == Some(0) || own == Some(user) => if_same_user.to_owned(),
        io::ErrorKind::PermissionDenied => format!("run this command as user {user} or as root"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space there".to_owned(),
        _ => "start the traced program with another KINETO_TRIGGER_DIR".to_owned(),
    }
}

/// Returns whether that user could write to the folder anyway; otherwise, a process could direct files to foreign
/// folders.
fn is_writable_by(folder: &File, user: u32) -> bool {
    let may_write = |folder: Metadata| folder.uid() == user || folder.mode() & 0o002 != 0;
    user == 0 || folder.metadata().is_ok_and(may_write)
}

/// Returns whether the folder is in the process's own file system view. An absolute link in its path was resolved in
/// this process's view.
fn is_visible_to(process: &Path, folder: &File) -> bool {
    if !has_own_mounts(process) {
        return true;
    }
    let of = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let (about, mounts) =
        (of(format!("/proc/self/fdinfo/{}", folder.as_raw_fd()).into()), of(process.join("mountinfo")));
    let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
    mount.is_some() && mounts.lines().any(|line| line.split(' ').next() == mount)
}

fn has_own_mounts(process: &Path) -> bool {
    let mounts = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    mounts(process).is_some_and(|own| Some(own) != mounts(Path::new("/proc/self")))
}

/// Returns whether the process has the thread that takes requests.
fn is_listening(process: &Path) -> bool {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.trim_end() == THREAD)
}

/// A request that has been submitted to a process.
#[derive(Debug)]
pub(crate) struct SubmittedRequest {
    pub(crate) listener: Listener,
    /// The request's id; the answer's first line repeats it.
    id: String,
    /// The request's file; its link count is 0 once the process has taken it.
    file: File,
    /// Whether the answer's first line had this id.
    is_header_read: bool,
    answer: Option<File>,
    /// The incomplete last line read so far.
    unread: String,
}

/// The progress of a request since the last poll.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) lines: Vec<String>,
    /// Whether a file was written, once the request has ended.
    pub(crate) end: Option<bool>,
}

impl Progress {
    /// Adds a line; one that begins with a space continues the previous line.
    fn add_line(&mut self, line: &str) {
        match self.lines.last_mut().filter(|_| line.starts_with(' ')) {
            Some(last) => last.extend(["\n", line]),
            None => self.lines.push(line.to_owned()),
        }
    }
}

impl SubmittedRequest {
    /// Returns the progress of the request.
    ///
    /// # Errors
    /// If the request has failed, with the reason.
    pub(crate) fn poll(&mut self) -> Result<Progress, String> {
        let is_alive = self.listener.is_alive();
        if self.answer.is_none() {
            if self.file.metadata().is_ok_and(|request| request.nlink() > 0) {
                if is_alive {
                    return Ok(Progress::default());
                }
                self.withdraw();
                return Err("it has ended or stopped listening; the request was withdrawn".to_owned());
            }
            let opened = self.listener.open_file(&format!("{}.answer", self.id));
            // An ending process removes its answers.
            let unanswered = |why: io::Error| match (self.listener.is_alive(), why.kind()) {
                (true, io::ErrorKind::NotFound) => "a later request (--cancel) has replaced it; or no answer could be \
                                                    written, and then the process's log says why"
                    .to_owned(),
                (true, _) => format!("it took the request; cannot read its answer: {why}"),
                (false, _) => "it took the request and ended".to_owned(),
            };
            self.answer = Some(opened.map_err(unanswered)?);
        }
        let read = self.read_answer().map_err(|why| format!("cannot read its answer: {why}"))?;
        if read.end.is_none() && !is_alive {
            return Err("it ended before writing its file".to_owned());
        }
        Ok(read)
    }

    fn read_answer(&mut self) -> io::Result<Progress> {
        /// The maximum number of bytes read at once; another user may write without end.
        const LONGEST: u64 = 64 * 1024;
        let mut bytes = Vec::new();
        if let Some(answer) = &self.answer {
            answer.take(LONGEST).read_to_end(&mut bytes)?;
        }
        self.unread.push_str(&String::from_utf8_lossy(&bytes));
        let whole = self.unread.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.unread.split_off(whole);
        let lines = std::mem::replace(&mut self.unread, rest);
        let mut news = Progress::default();
        for line in lines.lines() {
            if !self.is_header_read {
                self.is_header_read = line.strip_prefix("request ") == Some(&self.id);
                if !self.is_header_read {
                    return Err(io::Error::other("it is the answer to another request"));
                }
                continue;
            }
            match line {
                "done" => news.end = Some(true),
                "failed" => news.end = Some(false),
                // The outcome as JSON, for programs.
                line if line.starts_with('{') => {}
                // The process must not control the terminal.
                line => news.add_line(&printable(line)),
            }
        }
        Ok(news)
    }

    /// Withdraws a request that the process has not taken yet; returns whether it was removed.
    pub(crate) fn withdraw(&self) -> bool {
        let path = self.listener.file_path("request");
        let id = |found: &Metadata| (found.dev(), found.ino());
        let own_file = self.file.metadata().ok().map(|found| id(&found));
        let is_there = fs::symlink_metadata(&path).ok().map(|found| id(&found));
        self.answer.is_none() && own_file.is_some() && own_file == is_there && fs::remove_file(path).is_ok()
    }

    /// Returns the location of the answer, for messages.
    pub(crate) fn answer_location(&self) -> String {
        format!("{}.{}.answer in {}", self.listener.own_pid, self.id, self.listener.display_path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_error() {
        let denied = |own| advice_for(io::ErrorKind::PermissionDenied, 7, own, GAIN_PTRACE);
        assert_eq!(denied(Some(8)), "run this command as user 7 or as root");
        for own in [0, 7] {
            assert!(!denied(Some(own)).contains("root") && denied(Some(own)).contains("CAP_SYS_PTRACE"));
        }
        assert_eq!(advice_for(io::ErrorKind::StorageFull, 0, None, MAKE_WRITABLE), "free space there");
    }

    #[test]
    fn rename_new_does_not_replace() {
        let folder = tempfile::tempdir().unwrap();
        let [new, old, free] = ["new", "old", "free"].map(|name| folder.path().join(name));
        fs::write(&new, "new").unwrap();
        fs::write(&old, "old").unwrap();
        assert_eq!(rename_new(&new, &old).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        rename_new(&new, &free).unwrap();
        assert_eq!((fs::read_to_string(&free).unwrap().as_str(), new.exists()), ("new", false));
    }
}
