//! The files that requests may write.

use super::request::Request;
use super::source::report_progress;
use crate::config::{OnDemandConfig, PlaceholderValues, RetentionLimits, has_placeholder};
use crate::error::{Error, ErrorKind};
use crate::handler::numbered_path;
use crate::os::descriptor::CheckedDescriptor;
use crate::os::file_lock;
use crate::os::folder::{FileId, Folder};
use crate::session::{KeptFiles, remove_old_file};
use crate::wait::wall;
use crate::write::file::{Contents, Destination, FileFormat, file_error, temporary_name, unfinished_name};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// A request's file: in the folder that requests may write to, or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutputFile {
    pub(super) path: PathBuf,
    /// Why it is not the requested file.
    pub(super) rejection: Option<String>,
    /// Whether it replaces a file that this process wrote for an earlier request.
    pub(super) replaces_own: bool,
}

impl OutputFile {
    /// Returns the file for `asked`, with its parts expanded and the process id in its name. If that is not allowed, the file
    /// is `default` in `folder`.
    ///
    /// # Errors
    /// If the folder does not exist.
    pub(super) fn from_requested_path(
        asked: Option<&Path>,
        folder: &Path,
        parts: &PlaceholderValues,
        default: &str,
    ) -> Result<OutputFile, String> {
        let allowed = fs::canonicalize(folder).map_err(|error| {
            format!(
                "nothing can be written to {}: {error}; name a folder in KINETO_ONDEMAND_TRACE_DIR",
                folder.display()
            )
        })?;
        let fallback = || allowed.join(with_pid(default, parts.pid));
        Ok(
            match asked.map(|asked| {
                resolve_allowed_path(&parts.expand(asked), &allowed, parts.pid, has_placeholder(asked, "{pid}"))
            }) {
                None => OutputFile { path: fallback(), rejection: None, replaces_own: true },
                // A name with a time means a new file, and the time has whole seconds.
                Some(Ok(path)) => OutputFile {
                    path,
                    rejection: None,
                    replaces_own: !asked.is_some_and(|asked| has_placeholder(asked, "{time}")),
                },
                Some(Err(why)) => OutputFile { path: fallback(), rejection: Some(why), replaces_own: true },
            },
        )
    }
}

/// A request's files, in their open folder. They never replace a file that this process did not write.
#[derive(Debug)]
pub(super) struct RequestFiles<'r> {
    folder: Folder,
    request: &'r Request,
    mode: u32,
    written: &'r WrittenFiles,
}

impl<'r> RequestFiles<'r> {
    /// Opens the folder of a request's file.
    ///
    /// # Errors
    /// If the folder is no longer in the one that requests may write to, for example because a link has replaced it.
    pub(super) fn open_folder(
        request: &'r Request,
        settings: &OnDemandConfig,
        written: &'r WrittenFiles,
    ) -> Result<RequestFiles<'r>, Error> {
        let path = request.output.parent().unwrap_or(Path::new("/"));
        let refuse = |why: &str| Error::new(ErrorKind::Io, format!("the folder {} {why}; restore it", path.display()));
        let open = |path| Folder::open(path).map_err(|why| refuse(&format!("cannot be opened: {why}")));
        let folder = open(path)?;
        let is_within = folder.is_within(&open(&settings.trace_folder)?);
        if !is_within.map_err(|why| refuse(&format!("cannot be looked up: {why}")))? {
            return Err(refuse("is no longer in the folder that requests may write to"));
        }
        Ok(RequestFiles { folder, request, mode: settings.file_mode, written })
    }

    /// Returns whether the request may replace that file.
    fn may_replace(&self, id: &FileId) -> bool {
        self.request.replaces_own && self.written.contains(id)
    }

    /// Returns the first name for `path`, numbered if need be, that is free or belongs to a file that the request may replace.
    fn find_name(&self, path: &Path) -> io::Result<PathBuf> {
        const MOST: u64 = 10_000;
        for number in 0..=MOST {
            let candidate = if number == 0 { path.to_owned() } else { numbered_path(path, number) };
            match self.folder.id_of(file_name(&candidate)?) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(candidate),
                Err(why) => return Err(why),
                Ok(id) if self.may_replace(&id) => return Ok(candidate),
                Ok(_) => {}
            }
        }
        Err(io::Error::other(format!("there are {MOST} files of that name already; remove some")))
    }

    /// Renames a complete file to its name; returns `false` if a file that the request may not replace has that name now.
    fn publish_file(&self, temporary: &OsStr, name: &OsStr) -> io::Result<bool> {
        match self.folder.rename_new(temporary, name) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                self.folder.rename_over(temporary, name, |id| self.may_replace(id))
            }
            done => done.map(|()| true),
        }
    }
}

impl Destination for RequestFiles<'_> {
    fn write_file(&self, path: &Path, gzip_level: u32, contents: &mut Contents<'_>) -> Result<PathBuf, Error> {
        let format = FileFormat::from_path(path)?;
        let failed = |what: &'static str| move |why| file_error(what, path, why);
        let mut named = self.find_name(path).map_err(failed("create"))?;
        let temporary = Temporary::create(&self.folder, path, self.mode).map_err(failed("create"))?;
        format.encode(&mut &temporary.file, gzip_level, &mut |out| contents(&named, out)).map_err(failed("write"))?;
        let (id, name) = (temporary.id, temporary.name.as_os_str());
        while !file_name(&named).and_then(|to| self.publish_file(name, to)).map_err(failed("replace"))? {
            named = self.find_name(path).map_err(failed("replace"))?;
        }
        self.written.add(id);
        if named != path {
            let (by, new) = (self.request.display_name(), named.display());
            let why = match self.request.replaces_own {
                true => "was not written by this process",
                false => "is a trace of the same second",
            };
            report_progress!(
                Warning,
                Ongoing,
                self.request.answer,
                "{by}: {} exists and {why}; the new file is {new}",
                path.display()
            );
        }
        Ok(named)
    }
}

fn file_name(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A file under a temporary name, removed when dropped unless it was renamed.
struct Temporary<'f> {
    folder: &'f Folder,
    name: OsString,
    file: CheckedDescriptor<File>,
    id: FileId,
}

impl<'f> Temporary<'f> {
    fn create(folder: &'f Folder, path: &Path, mode: u32) -> io::Result<Temporary<'f>> {
        let created = temporary_name(path)?;
        let file = folder.create(file_name(&created)?, mode)?;
        let (id, name) = (FileId::from_file(&file)?, file_name(&created)?.to_owned());
        // The lock shows other processes that the file is being written; the write works without it.
        file_lock::try_lock(&file);
        let mut temporary = Temporary { folder, name, file: CheckedDescriptor::new(file), id };
        let unfinished = unfinished_name(&created);
        folder.rename_new(&temporary.name, file_name(&unfinished)?)?;
        temporary.name = file_name(&unfinished)?.to_owned();
        Ok(temporary)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // It is gone if it was renamed, and another file may have its name after an exchange.
        if self.folder.id_of(&self.name).is_ok_and(|found| found == self.id) {
            let _ = self.folder.remove(&self.name);
        }
    }
}

/// The newest files that this process wrote for requests.
#[derive(Debug, Default)]
pub(super) struct WrittenFiles {
    ids: Mutex<VecDeque<FileId>>,
    /// The files of each request, oldest first, if only some are kept.
    requests: Mutex<VecDeque<WrittenRequest>>,
}

/// The files of one request: the trace, and its execution trace if there is one.
#[derive(Debug)]
struct WrittenRequest {
    files: Vec<(PathBuf, FileId)>,
    bytes: u64,
    written: SystemTime,
}

/// A destination that notes the files that are written.
pub(super) struct NotedFiles<'d> {
    to: &'d dyn Destination,
    paths: RefCell<Vec<PathBuf>>,
}

impl<'d> NotedFiles<'d> {
    pub(super) fn new(to: &'d dyn Destination) -> NotedFiles<'d> {
        NotedFiles { to, paths: RefCell::default() }
    }

    /// Returns the files so far.
    pub(super) fn into_paths(self) -> Vec<PathBuf> {
        self.paths.into_inner()
    }
}

impl Destination for NotedFiles<'_> {
    fn write_file(&self, path: &Path, gzip_level: u32, contents: &mut Contents<'_>) -> Result<PathBuf, Error> {
        let written = self.to.write_file(path, gzip_level, contents)?;
        self.paths.borrow_mut().push(written.clone());
        Ok(written)
    }
}

impl WrittenRequest {
    /// Finds the written files again, as far as `is_ours` says that they are still the same.
    fn new(paths: Vec<PathBuf>, is_ours: impl Fn(&Path, &FileId) -> bool) -> WrittenRequest {
        let known = |path: PathBuf| Some((open_folder_of(&path)?.id_of(path.file_name()?).ok()?, path));
        let files = paths.into_iter().filter_map(known).filter(|(id, path)| is_ours(path, id));
        let files: Vec<_> = files.map(|(id, path)| (path, id)).collect();
        let bytes = files.iter().filter_map(|(path, _)| fs::symlink_metadata(path).ok()).map(|file| file.len()).sum();
        WrittenRequest { files, bytes, written: wall() }
    }

    /// Removes those of the files that no other file has replaced.
    fn remove(self) {
        for (path, id) in &self.files {
            let (Some(folder), Some(name)) = (open_folder_of(path), path.file_name()) else { continue };
            if folder.id_of(name).is_ok_and(|found| found == *id) {
                remove_old_file(path, || folder.remove(name));
            }
        }
    }
}

fn open_folder_of(path: &Path) -> Option<Folder> {
    Folder::open(path.parent()?).ok()
}

impl WrittenFiles {
    const MOST: usize = 256;

    fn lock_ids(&self) -> MutexGuard<'_, VecDeque<FileId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the files of a request, and removes those of the oldest requests beyond the limits. If the request `is_own`, the
    /// program named the files; else, they are among those that were [added](Self::add).
    pub(super) fn add_request(&self, paths: Vec<PathBuf>, is_own: bool, limits: &RetentionLimits) {
        if *limits == RetentionLimits::default() {
            return;
        }
        // Not a device such as /dev/null, nor what has taken the file's place.
        let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|file| file.is_file());
        let added = WrittenRequest::new(paths, |path, id| is_file(path) && (is_own || self.contains(id)));
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that was written over is no longer there.
        let is_replaced = |path: &PathBuf| added.files.iter().any(|(new, _)| new == path);
        requests.retain(|request| !request.files.iter().all(|(path, _)| is_replaced(path)));
        requests.push_back(added);
        let mut kept = KeptFiles::new(limits);
        let is_kept = |request: &&WrittenRequest| kept.add(request.bytes, Some(request.written));
        let count = requests.iter().rev().take_while(is_kept).count().max(1);
        let old = requests.len().saturating_sub(count);
        let old: Vec<_> = requests.drain(..old).collect();
        drop(requests);
        old.into_iter().for_each(WrittenRequest::remove);
    }

    fn contains(&self, id: &FileId) -> bool {
        self.lock_ids().contains(id)
    }

    fn add(&self, id: FileId) {
        let mut ids = self.lock_ids();
        ids.push_back(id);
        if ids.len() > Self::MOST {
            ids.pop_front();
        }
    }
}

/// Returns the file's path with links resolved, if its folder is the allowed one or a subfolder.
fn resolve_allowed_path(asked: &Path, allowed: &Path, pid: u32, has_pid: bool) -> Result<PathBuf, String> {
    let shown = asked.to_string_lossy().escape_debug().to_string();
    let refuse = |why: &str| Err(format!("\"{shown}\" {why}"));
    if shown.len() > 2048 {
        return Err("the path is too long; 2048 bytes are allowed".to_owned());
    }
    if !asked.is_absolute() || asked.to_string_lossy().chars().any(char::is_control) {
        return refuse("is not an absolute path of printable characters; name one");
    }
    if asked.components().any(|part| part == Component::ParentDir) {
        return refuse("has a part `..`; name the folder directly");
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
    let path = resolved.join(if has_pid { name.to_owned() } else { with_pid(name, pid) });
    if path.is_dir() {
        return refuse("is a folder");
    }
    FileFormat::from_path(&path).map(|_| path).map_err(|why| why.to_string())
}

/// Inserts the process id into a name as `dyno gputrace` prints it: before each `.json`. `dyno` prints a name without
/// `.json` unchanged; here it gets the id before its extension, so that processes do not share a file.
///
/// libkineto inserts it at one place of the whole path, before `.pt.trace.json` if present, so its file and the printed name
/// may differ.
fn with_pid(name: &str, pid: u32) -> String {
    for end in [".json", ".pftrace"] {
        if name.contains(end) {
            return name.replace(end, &format!("_{pid}{end}"));
        }
    }
    match name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) {
        Some((stem, extension)) => format!("{stem}_{pid}.{extension}"),
        None => format!("{name}_{pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::Incoming;
    use super::*;
    use crate::config::Config;
    use std::time::Duration;

    fn parts() -> PlaceholderValues {
        PlaceholderValues { host: "h".to_owned(), pid: 7, rank: 3, time: Some(SystemTime::now()) }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn names_equal_those_that_dyno_prints() {
        for (asked, expected) in [
            ("a.json", "a_7.json"),
            ("libkineto_trace_host.json", "libkineto_trace_host_7.json"),
            ("a.json.gz", "a_7.json.gz"),
            ("a.pt.trace.json", "a.pt.trace_7.json"),
            ("a.json.json", "a_7.json_7.json"),
            ("a.pftrace.gz", "a_7.pftrace.gz"),
            ("a", "a_7"),
            ("a.conf", "a_7.conf"),
            (".hidden", ".hidden_7"),
        ] {
            assert_eq!(with_pid(asked, 7), expected);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn file_outside_the_folder_is_moved_into_it() {
        let (allowed, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = fs::canonicalize(allowed.path()).unwrap();
        fs::create_dir_all(root.join("x.json.d/deep")).unwrap();
        fs::create_dir(root.join("folder_7")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("away")).unwrap();
        std::os::unix::fs::symlink(root.join("x.json.d"), root.join("within")).unwrap();
        let find = |asked: &str| {
            OutputFile::from_requested_path(Some(Path::new(asked)), allowed.path(), &parts(), "default.json").unwrap()
        };
        let inside = |name: &str| find(root.join(name).to_str().unwrap());
        for (name, expected) in [
            ("t.json", "t_7.json"),
            ("{rank}-{pid}.json", "3-7.json"),
            ("t.{host}.json", "t.h_7.json"),
            ("x.json.d/t.json", "x.json.d/t_7.json"),
            ("within/deep/t.json", "x.json.d/deep/t_7.json"),
            ("sp ace=#.json", "sp ace=#_7.json"),
        ] {
            let expected = OutputFile { path: root.join(expected), rejection: None, replaces_own: true };
            assert_eq!(inside(name), expected);
        }
        let refused = ["x.json.d/../../t.json", "away/t.json", "no/t.json", "a\nb.json", "a\0.json", "t.zip", "folder"];
        let elsewhere = ["/etc/t.json", "t.json", "s3://bucket/t.json", "/", "", "/tmp/.."];
        let long = format!("{}/{}", root.display(), "x".repeat(5000));
        for place in refused.map(inside).into_iter().chain(elsewhere.map(find)).chain([find(&long)]) {
            assert_eq!(place.path, root.join("default_7.json"), "{place:?}");
            assert!(place.rejection.is_some());
        }
        // A common prefix of the names is not enough.
        let sibling = format!("{}x/t.json", root.display());
        fs::create_dir(format!("{}x", root.display())).unwrap();
        assert!(find(&sibling).rejection.is_some());
        fs::remove_dir(format!("{}x", root.display())).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn missing_folder_is_an_error() {
        let error = OutputFile::from_requested_path(None, Path::new("/no/such"), &parts(), "default.json").unwrap_err();
        assert!(error.contains("/no/such") && error.contains("KINETO_ONDEMAND_TRACE_DIR"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn folder_that_leads_out_is_refused_and_an_open_one_stays() {
        let (temp, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = fs::canonicalize(temp.path()).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        let settings = OnDemandConfig { trace_folder: root.clone(), ..Config::default().ondemand };
        let incoming = Incoming {
            text: format!("ACTIVITIES_LOG_FILE={}", root.join("a/t.json").display()),
            by: "a test".to_owned(),
            output: None,
            answer: None,
        };
        let request = Request::from_incoming(&incoming, &settings, &parts()).unwrap();
        let written = WrittenFiles::default();
        let open = || RequestFiles::open_folder(&request, &settings, &written);
        let files = open().unwrap();
        fs::rename(root.join("a"), root.join("moved")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("a")).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains("is no longer in the folder"), "{error}");
        let save = |result: io::Result<()>| {
            let mut result = Some(result);
            files
                .write_file(&request.output, 1, &mut |_, out| out.write_all(b"{}").and(result.take().unwrap_or(Ok(()))))
        };
        assert_eq!(save(Ok(())).unwrap(), request.output);
        assert_eq!(fs::read(root.join("moved/t_7.json")).unwrap(), b"{}");
        let error = save(Err(io::ErrorKind::StorageFull.into())).unwrap_err().to_string();
        assert!(error.contains(request.output.to_str().unwrap()), "{error}");
        assert_eq!(fs::read_dir(root.join("moved")).unwrap().count(), 1);
        fs::remove_file(root.join("a")).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains("cannot be opened"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn files_of_one_second_are_numbered() {
        let temp = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(temp.path()).unwrap();
        let settings = OnDemandConfig { trace_folder: root.clone(), ..Config::default().ondemand };
        let (written, parts) = (WrittenFiles::default(), parts());
        let write = |name: &str| {
            let text = format!("ACTIVITIES_LOG_FILE={}", root.join(name).display());
            let incoming = Incoming { text, by: "a test".to_owned(), output: None, answer: None };
            let request = Request::from_incoming(&incoming, &settings, &parts).unwrap();
            let files = RequestFiles::open_folder(&request, &settings, &written).unwrap();
            files.write_file(&request.output, 1, &mut |_, out| out.write_all(b"{}")).unwrap()
        };
        let [first, second, third] = [(); 3].map(|()| write("{pid}_{time}.json"));
        assert_eq!([&second, &third], [&numbered_path(&first, 1), &numbered_path(&first, 2)]);
        assert_eq!(write("{pid}.json"), write("{pid}.json"));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 4);
    }

    // Shows the keys KINETO_ONDEMAND_FILES_AGE, KINETO_ONDEMAND_FILES_MB.
    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn oldest_requests_are_removed_beyond_the_limits() {
        let (temp, written) = (tempfile::tempdir().unwrap(), WrittenFiles::default());
        let root = fs::canonicalize(temp.path()).unwrap();
        let write = |name: &str| {
            fs::write(root.join(name), [0; 100]).unwrap();
            root.join(name)
        };
        let left = |names: &[&str], limits: RetentionLimits| {
            written.add_request(names.iter().map(|name| write(name)).collect(), true, &limits);
            let mut left: Vec<_> = fs::read_dir(&root).unwrap().map(|file| file.unwrap().file_name()).collect();
            left.sort();
            left.into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        let bytes = |bytes_max| RetentionLimits { bytes_max, ..RetentionLimits::default() };
        let files = |files_max| RetentionLimits { files_max, ..RetentionLimits::default() };
        write("other.json");
        assert_eq!(left(&["a.json", "a.et.json"], files(3)).len(), 3);
        assert_eq!(left(&["b.json"], bytes(300)), ["a.et.json", "a.json", "b.json", "other.json"]);
        assert_eq!(left(&["c.json"], bytes(300)), ["b.json", "c.json", "other.json"]);
        // The same file again counts once.
        assert_eq!(left(&["c.json"], files(2)), ["b.json", "c.json", "other.json"]);
        // The program has replaced `b.json`.
        fs::rename(write("new"), root.join("b.json")).unwrap();
        assert_eq!(left(&["d.json"], files(1)), ["b.json", "d.json", "other.json"]);
        assert_eq!(left(&["e.json"], bytes(1)), ["b.json", "e.json", "other.json"], "the newest stays");
        assert_eq!(left(&["f.json"], RetentionLimits::default()).len(), 4);
        let age = RetentionLimits { age_max: Duration::from_nanos(1), ..RetentionLimits::default() };
        assert_eq!(left(&["e.json"], age), ["b.json", "e.json", "f.json", "other.json"], "the newest stays");
        // Neither a device nor what has taken the place of a request's file is removed.
        let (foreign, limits) = (write("foreign.json"), files(1));
        written.add_request(vec![PathBuf::from("/dev/null"), foreign.clone()], false, &limits);
        written.add_request(vec![write("g.json")], true, &limits);
        assert!(Path::new("/dev/null").exists() && foreign.exists() && !root.join("e.json").exists());
    }

    #[test]
    fn written_files_are_the_newest() {
        let (files, written) = (tempfile::tempdir().unwrap(), WrittenFiles::default());
        let id = |name: &str| FileId::from_file(&File::create(files.path().join(name)).unwrap()).unwrap();
        let (first, second) = (id("first"), id("second"));
        written.add(first);
        (0..WrittenFiles::MOST).for_each(|_| written.add(second));
        assert!(!written.contains(&first) && written.contains(&second));
        assert_eq!(written.lock_ids().len(), WrittenFiles::MOST);
    }
}
