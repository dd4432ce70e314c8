//! Where a request may have a file written.

use crate::error::{Error, ErrorKind};
use crate::write::file::Format;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// A request's file: in the folder that requests may write to, or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Why it is not the one that was asked for.
    pub(super) instead: Option<String>,
}

impl Place {
    /// Finds the file for `asked`, with the process's number in its name; where it may not be, `default` in `folder`
    /// itself.
    ///
    /// # Errors
    /// If there is no such folder, nothing can be written.
    pub(super) fn find(asked: Option<&Path>, folder: &Path, pid: u32, default: &str) -> Result<Place, String> {
        let allowed = fs::canonicalize(folder).map_err(|error| {
            format!(
                "nothing can be written to {}: {error}; name a folder in KINETO_ONDEMAND_TRACE_DIR",
                folder.display()
            )
        })?;
        let fallback = || allowed.join(with_pid(default, pid));
        Ok(match asked.map(|asked| check(asked, &allowed, pid)) {
            None => Place { path: fallback(), instead: None },
            Some(Ok(path)) => Place { path, instead: None },
            Some(Err(why)) => Place { path: fallback(), instead: Some(why) },
        })
    }
}

/// A file's folder, held open: the file comes into this one, whatever takes the place of a part of its path meanwhile.
#[derive(Debug)]
pub(super) struct Held<'p> {
    folder: File,
    path: &'p Path,
}

impl<'p> Held<'p> {
    /// Holds the folder of a file.
    ///
    /// # Errors
    /// It is no longer the one that was looked at, such as where a link has taken its place.
    pub(super) fn of(path: &'p Path) -> Result<Held<'p>, Error> {
        let found = path.parent().unwrap_or(Path::new("/"));
        let refuse = |why: &str| Error::new(ErrorKind::Io, format!("the folder {} {why}", found.display()));
        // What it is, is asked of the open one.
        let open = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(found);
        let held = Held { folder: open.map_err(|error| refuse(&format!("cannot be opened: {error}")))?, path };
        let now =
            fs::read_link(held.itself()).map_err(|error| refuse(&format!("cannot be looked at in /proc: {error}")))?;
        if now != found {
            return Err(refuse("has become another one since it was looked at"));
        }
        Ok(held)
    }

    fn itself(&self) -> PathBuf {
        // Not the process's: its first thread may have ended.
        PathBuf::from(format!("/proc/thread-self/fd/{}", self.folder.as_raw_fd()))
    }

    /// Returns a path of the file that leads through the open folder, for this thread: as `openat` and `renameat`.
    pub(super) fn path(&self) -> PathBuf {
        self.itself().join(self.path.file_name().unwrap_or_default())
    }

    /// Tells an error with the file's own path.
    pub(super) fn told(&self, error: &Error) -> Error {
        let folder = self.path.parent().unwrap_or(Path::new("/")).display().to_string();
        Error::new(error.kind(), error.to_string().replace(&self.itself().display().to_string(), &folder))
    }
}

/// Names the file in its folder without links, if that is the allowed one or lies below it.
fn check(asked: &Path, allowed: &Path, pid: u32) -> Result<PathBuf, String> {
    let shown = asked.to_string_lossy().escape_debug().to_string();
    let refuse = |why: &str| Err(format!("\"{shown}\" {why}"));
    if shown.len() > 2048 {
        return Err("the path is too long".to_owned());
    }
    if !asked.is_absolute() || asked.to_string_lossy().chars().any(char::is_control) {
        return refuse("is no absolute path of printable characters");
    }
    if asked.components().any(|part| part == Component::ParentDir) {
        return refuse("has a part `..`");
    }
    let (Some(folder), Some(name)) = (asked.parent(), asked.file_name().and_then(|name| name.to_str())) else {
        return refuse("names no file");
    };
    let resolved = match fs::canonicalize(folder) {
        Ok(resolved) => resolved,
        Err(error) => return refuse(&format!("has a folder that cannot be used: {error}")),
    };
    if !resolved.starts_with(allowed) {
        return refuse(&format!(
            "is not in {}, where requests may write (KINETO_ONDEMAND_TRACE_DIR)",
            allowed.display()
        ));
    }
    let path = resolved.join(with_pid(name, pid));
    if path.is_dir() {
        return refuse("is a folder");
    }
    Format::of(&path).map(|_| path).map_err(|why| why.to_string())
}

/// Splices the process's number in as `dyno gputrace` prints it: before each `.json` of the name.
///
/// libkineto does so at one place of the whole path, and before `.pt.trace.json` if it has that, so that file and print
/// may be two.
fn with_pid(name: &str, pid: u32) -> OsString {
    name.replace(".json", &format!("_{pid}.json")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn names_are_those_that_the_command_line_prints() {
        for (asked, expected) in [
            ("a.json", "a_7.json"),
            ("libkineto_trace_host.json", "libkineto_trace_host_7.json"),
            ("a.json.gz", "a_7.json.gz"),
            ("a.pt.trace.json", "a.pt.trace_7.json"),
            ("a.json.json", "a_7.json_7.json"),
            ("a", "a"),
        ] {
            assert_eq!(with_pid(asked, 7), expected);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_file_below_the_folder_is_taken_and_others_are_put_into_it() {
        let (allowed, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = fs::canonicalize(allowed.path()).unwrap();
        fs::create_dir_all(root.join("x.json.d/deep")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("away")).unwrap();
        std::os::unix::fs::symlink(root.join("x.json.d"), root.join("within")).unwrap();
        let find = |asked: &str| Place::find(Some(Path::new(asked)), allowed.path(), 7, "default.json").unwrap();
        let inside = |name: &str| find(root.join(name).to_str().unwrap());
        for (name, expected) in [
            ("t.json", "t_7.json"),
            ("x.json.d/t.json", "x.json.d/t_7.json"),
            ("within/deep/t.json", "x.json.d/deep/t_7.json"),
            ("sp ace=#.json", "sp ace=#_7.json"),
        ] {
            assert_eq!(inside(name), Place { path: root.join(expected), instead: None });
        }
        let refused =
            ["x.json.d/../../t.json", "away/t.json", "no/t.json", "a\nb.json", "a\0.json", "t.pftrace", "within"];
        let elsewhere = ["/etc/t.json", "t.json", "s3://bucket/t.json", "/", "", "/tmp/.."];
        let long = format!("{}/{}", root.display(), "x".repeat(5000));
        for place in refused.map(inside).into_iter().chain(elsewhere.map(find)).chain([find(&long)]) {
            assert_eq!(place.path, root.join("default_7.json"), "{place:?}");
            assert!(place.instead.is_some());
        }
        // Nothing of another file's name is enough.
        let sibling = format!("{}x/t.json", root.display());
        fs::create_dir(format!("{}x", root.display())).unwrap();
        assert!(find(&sibling).instead.is_some());
        fs::remove_dir(format!("{}x", root.display())).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn without_its_folder_there_is_no_place() {
        let error = Place::find(None, Path::new("/no/such"), 7, "default.json").unwrap_err();
        assert!(error.contains("/no/such") && error.contains("KINETO_ONDEMAND_TRACE_DIR"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_folder_that_becomes_a_link_is_noticed_and_one_that_is_held_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        let path = root.join("a/t.json");
        let held = Held::of(&path).unwrap();
        fs::rename(root.join("a"), root.join("moved")).unwrap();
        std::os::unix::fs::symlink("/", root.join("a")).unwrap();
        let error = Held::of(&path).unwrap_err().to_string();
        assert!(error.contains("has become another one"), "{error}");
        // What is held is where it was.
        crate::write::file::save(&held.path(), 1, |out| out.write_all(b"{}")).unwrap();
        assert_eq!(fs::read(root.join("moved/t.json")).unwrap(), b"{}");
        let full = |_: &mut dyn std::io::Write| Err(std::io::ErrorKind::StorageFull.into());
        let error = held.told(&crate::write::file::save(&held.path(), 1, full).unwrap_err()).to_string();
        assert!(error.contains(path.to_str().unwrap()) && !error.contains("/proc/"), "{error}");
        assert_eq!(fs::read_dir(root.join("moved")).unwrap().count(), 1);
        fs::remove_file(root.join("a")).unwrap();
        let error = Held::of(&path).unwrap_err().to_string();
        assert!(error.contains("cannot be opened"), "{error}");
    }
}
