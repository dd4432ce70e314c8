//! A process that takes requests from a folder, as `/proc` shows it, and what it answers.

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

/// Such a process.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) pid: u32,
    user: u32,
    /// The number that it knows itself by.
    own: u32,
    /// The folder, which is open so that it is the same one to the end, and its path for people.
    folder: File,
    shown: PathBuf,
}

/// The thread by which a listening process is known.
const THREAD: &str = "kineto-ondemand";

impl Listener {
    /// Finds the folder of the process `pid`: `folder`, or what its environment says.
    ///
    /// In a container, the process may have another number and another root; both are looked up.
    ///
    /// # Errors
    /// Why it takes no requests, and what to do.
    pub(crate) fn find(pid: u32, folder: Option<&Path>) -> Result<Listener, String> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let status = fs::read_to_string(process.join("status")).map_err(|_| "there is no such process".to_owned())?;
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        if let Some(of) = numbers("Tgid").first().filter(|of| **of != pid) {
            return Err(format!("that is a thread of process {of}"));
        }
        let user = numbers("Uid").get(1).copied().ok_or("its user is not known")?;
        // A caller with other rights may have set its environment.
        if ["Uid", "Gid"].iter().any(|name| numbers(name).iter().any(|number| Some(number) != numbers(name).first())) {
            return Err("it runs with other rights than its caller's (set-user-ID or the like)".to_owned());
        }
        let shown = folder.map_or_else(|| named(&process, user), |folder| Ok(folder.to_owned()))?;
        let opened = open_folder(&shown, folder.is_some())?;
        if folder.is_none() && !is_its(&opened, user) {
            return Err(format!("{} is not its user's folder: name it (--dir) if it is meant", shown.display()));
        }
        if folder.is_none() && !is_seen_by(&process, &opened) {
            return Err(format!("{} leads out of its own files: name the folder (--dir)", shown.display()));
        }
        if !listens(&process) {
            return Err("it does not listen: it has not made its layer yet, or has none any more".to_owned());
        }
        let own = numbers("NSpid").last().copied().unwrap_or(pid);
        Ok(Listener { pid, user, own, folder: opened, shown })
    }

    /// The path of its request, or of its answer.
    fn path(&self, end: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{}.{end}", self.folder.as_raw_fd(), self.own))
    }

    /// Whether it sees other files than this process does.
    pub(crate) fn has_own_files(&self) -> bool {
        has_own_mounts(Path::new(&format!("/proc/{}", self.pid)))
    }

    /// Leaves a request in the folder, which is whole as soon as it is there.
    ///
    /// # Errors
    /// Why that cannot be, and what to do.
    pub(crate) fn ask(self, text: &str) -> Result<Asked, String> {
        let id = RandomState::new().hash_one((self.pid, std::process::id()));
        let (request, temporary) = (self.path("request"), self.path(&format!("request.{id:016x}.tmp")));
        let write = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            // Whatever this process's mask is: the other one is to read it.
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.write_all(format!("{text}\nREQUEST_TRACE_ID={id}\n").as_bytes())?;
            // Where this is root: in a user namespace, root's files are a stranger's, and in a sticky folder they stay.
            let _ = fchown(&file, Some(self.user), None);
            // A request that waits is taken back too, so it makes room for what says so.
            let is_cancel = text.lines().any(|line| line == super::trigger::CANCEL);
            if is_cancel { fs::rename(&temporary, &request) } else { rename_new(&temporary, &request) }.map(|()| file)
        };
        let file = write().map_err(|why| {
            let _ = fs::remove_file(&temporary);
            let (folder, user) = (self.shown.display(), self.user);
            if why.kind() == io::ErrorKind::AlreadyExists {
                return format!("another request waits for it: {}.request in {folder}", self.own);
            }
            format!("nothing can be written to {folder}: {why}; run this as its user ({user}) or as root")
        })?;
        Ok(Asked { listener: self, id: id.to_string(), file, answer: None, unread: String::new(), is_own: false })
    }

    fn is_alive(&self) -> bool {
        listens(Path::new(&format!("/proc/{}", self.pid)))
    }

    /// Reads the process's status file.
    ///
    /// # Errors
    /// If it cannot be read, with the reason.
    pub(crate) fn status(&self) -> Result<String, String> {
        const LONGEST: u64 = 64 * 1024;
        let mut text = String::new();
        let read = self.open("status").and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        read.map(|_| text)
            .map_err(|why| format!("its status cannot be read: {why}: {}.status in {}", self.own, self.shown.display()))
    }

    /// Opens a regular file of the process's user. Another user may have put a device or a pipe into the folder, so the type
    /// is checked before the file is opened for reading.
    fn open(&self, end: &str) -> io::Result<File> {
        let found = open_path(&self.path(end), OFlags::NOFOLLOW)?;
        let metadata = found.metadata()?;
        if !metadata.is_file() || metadata.uid() != self.user {
            return Err(io::Error::other("it is not the process's own"));
        }
        File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
    }
}

/// Opens a folder, but no device or pipe, which might act on being opened. A link is followed only if the caller has named
/// it.
fn open_folder(path: &Path, is_named: bool) -> Result<File, String> {
    let follow = if is_named { OFlags::empty() } else { OFlags::NOFOLLOW };
    open_path(path, OFlags::DIRECTORY | follow).map_err(|why| match path.is_symlink() && !is_named {
        true => format!("{} is a link: name the folder (--dir) if it is meant", path.display()),
        false => format!("{} cannot be used: {why}", path.display()),
    })
}

/// Opens a file or folder without reading or writing it.
fn open_path(path: &Path, flags: OFlags) -> io::Result<File> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())?.into())
}

/// Renames a file, unless the new name exists.
///
/// # Errors
/// `AlreadyExists` if it exists; else those of the system.
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

/// The folder that the process's environment names, through its own root.
fn named(process: &Path, user: u32) -> Result<PathBuf, String> {
    let variables = fs::read(process.join("environ")).map_err(|why| {
        format!(
            "its environment cannot be read ({why}): run this as its user ({user}) or as root, or name the folder \
             (--dir)"
        )
    })?;
    let named = variables.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"KINETO_TRIGGER_DIR="));
    let folder = named.filter(|path| !path.is_empty()).map(|path| Path::new(OsStr::from_bytes(path))).ok_or(
        "it was started without KINETO_TRIGGER_DIR: start it with that, or name the folder that it was built with \
         (--dir)",
    )?;
    Ok(match folder.strip_prefix("/") {
        Ok(from_root) => process.join("root").join(from_root),
        Err(_) => process.join("cwd").join(folder),
    })
}

/// Whether that user could write to the folder anyway: nobody else's gets files because some process names it.
fn is_its(folder: &File, user: u32) -> bool {
    let may_write = |folder: Metadata| folder.uid() == user || folder.mode() & 0o002 != 0;
    user == 0 || folder.metadata().is_ok_and(may_write)
}

/// Whether a process with a file system of its own has the folder in that: where its path has an absolute link, this
/// process has followed it in its own.
fn is_seen_by(process: &Path, folder: &File) -> bool {
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

/// Whether it has the thread that takes requests.
fn listens(process: &Path) -> bool {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.trim_end() == THREAD)
}

/// A request that was left for a process.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) listener: Listener,
    /// The request's id, which the answer's first line repeats.
    id: String,
    /// The request's file; it has no link left once the process has taken it.
    file: File,
    /// The answer's first line had this request's id.
    is_own: bool,
    answer: Option<File>,
    /// What was read of a line that is not whole.
    unread: String,
}

/// What a process has said since it was last looked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) lines: Vec<String>,
    /// Whether there is a file, if nothing more comes.
    pub(crate) end: Option<bool>,
}

impl News {
    /// Adds a line; one that begins with a space belongs to the one before.
    fn add(&mut self, line: &str) {
        match self.lines.last_mut().filter(|_| line.starts_with(' ')) {
            Some(last) => last.extend(["\n", line]),
            None => self.lines.push(line.to_owned()),
        }
    }
}

impl Asked {
    /// Looks what has become of the request.
    ///
    /// # Errors
    /// Why nothing will come of it.
    pub(crate) fn look(&mut self) -> Result<News, String> {
        let is_alive = self.listener.is_alive();
        if self.answer.is_none() {
            if self.file.metadata().is_ok_and(|request| request.nlink() > 0) {
                if is_alive {
                    return Ok(News::default());
                }
                self.withdraw();
                return Err("it has ended, or listens no more; the request is taken back".to_owned());
            }
            let opened = self.listener.open(&format!("{}.answer", self.id));
            // When it ends, it takes its answer away.
            let untold = |why: io::Error| match (self.listener.is_alive(), why.kind()) {
                (true, io::ErrorKind::NotFound) => "a later request (--cancel) has replaced it; or no answer could be \
                                                    written, and then the process's log says why"
                    .to_owned(),
                (true, _) => format!("it has taken the request; its answer cannot be read: {why}"),
                (false, _) => "it has taken the request, and ended".to_owned(),
            };
            self.answer = Some(opened.map_err(untold)?);
        }
        let read = self.read().map_err(|why| format!("its answer cannot be read: {why}"))?;
        if read.end.is_none() && !is_alive {
            return Err("it has ended before its file was written".to_owned());
        }
        Ok(read)
    }

    fn read(&mut self) -> io::Result<News> {
        /// What comes in one go; somebody may write without end.
        const LONGEST: u64 = 64 * 1024;
        let mut bytes = Vec::new();
        if let Some(answer) = &self.answer {
            answer.take(LONGEST).read_to_end(&mut bytes)?;
        }
        self.unread.push_str(&String::from_utf8_lossy(&bytes));
        let whole = self.unread.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.unread.split_off(whole);
        let lines = std::mem::replace(&mut self.unread, rest);
        let mut news = News::default();
        for line in lines.lines() {
            if !self.is_own {
                self.is_own = line.strip_prefix("request ") == Some(&self.id);
                if !self.is_own {
                    return Err(io::Error::other("another request's has taken its place"));
                }
                continue;
            }
            match line {
                "done" => news.end = Some(true),
                "failed" => news.end = Some(false),
                // The outcome as JSON, for programs.
                line if line.starts_with('{') => {}
                // The terminal is not the process's.
                line => news.add(&line.replace(char::is_control, " ")),
            }
        }
        Ok(news)
    }

    /// Takes the request back, if it was not taken; returns whether that was so.
    pub(crate) fn withdraw(&self) -> bool {
        let path = self.listener.path("request");
        let id = |found: &Metadata| (found.dev(), found.ino());
        let own = self.file.metadata().ok().map(|found| id(&found));
        let is_there = fs::symlink_metadata(&path).ok().map(|found| id(&found));
        self.answer.is_none() && own.is_some() && own == is_there && fs::remove_file(path).is_ok()
    }

    /// Where the answer stands, for people.
    pub(crate) fn answers_in(&self) -> String {
        format!("{}.{}.answer in {}", self.listener.own, self.id, self.listener.shown.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_new_replaces_nothing() {
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
