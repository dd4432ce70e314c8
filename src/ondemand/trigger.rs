//! Requests as files: in a watched folder, `<pid>.request` is a request to the process of that id.
//!
//! The answer is written to `<pid>.<id>.answer`, where the id is the request's `REQUEST_TRACE_ID`, or to `<pid>.answer` if
//! that is absent or cannot be a part of a file's name. The answers of a killed process are removed by the next process of
//! the same id when it begins to watch.

use super::source::{AnswerChannel, Incoming, RequestProgress, RequestSource, id_of, outcome_json, report_outcome};
use crate::config::ParsedRequest;
use crate::diag::diag;
use crate::os::descriptor::CheckedDescriptor;
use crate::os::file_limit::FileLimitGuard;
use crate::os::folder::{Folder, open_entry};
use crate::os::inotify::{Change, Watch};
use crate::os::{datagram, process};
use crate::wait::{since, steady};
use crate::write::file;
use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The watched folder.
///
/// A file is read when its writer has closed it or renamed it to its name, as inotify reports: so it is complete, and the
/// folder is not polled. A file that existed before the folder was watched is read a second later.
#[derive(Debug)]
pub(super) struct Trigger {
    folder: PathBuf,
    request: PathBuf,
    status: PathBuf,
    /// The text of the status file; empty if there is none.
    published: String,
    /// A trusted user, in addition to root and the process's own.
    trusted: Option<u32>,
    watch: Option<Watch>,
    /// When to check for the file, or to open the folder.
    due: Option<Instant>,
    /// Whether a message has reported that the folder cannot be watched.
    is_reported: bool,
    /// The files of answers, oldest first, each with its request's handle, which is dropped when the request has ended.
    answers: VecDeque<(PathBuf, Weak<AnswerFile>)>,
    /// When the process began, if known; `/proc` may be hidden later.
    born: Instant,
}

/// How often an unwatchable folder is opened again, and how long an existing file may still be written to.
const RETRY: Duration = Duration::from_secs(1);
/// How often a busy process checks whether it can take a request.
const BUSY_RETRY: Duration = Duration::from_millis(100);
/// How far the times of files may lag behind the clock: some file systems store whole seconds, and a virtual machine that
/// waits for its host updates them late.
const FILE_TIME_ERROR: Duration = Duration::from_secs(1);
/// The wait while nothing is due.
const NEVER_DUE: Duration = Duration::from_secs(3600);
/// The maximum length of a request.
const TEXT_MAX: u64 = 64 * 1024;
/// The number of answers that are kept for callers that have not read them yet.
const ANSWERS_MAX: usize = 32;
/// The number of entries of the folder that are searched for leftovers.
const LEFTOVERS_MAX: usize = 10_000;

impl Trigger {
    /// Creates the source; the first poll begins to watch.
    pub(super) fn new(folder: &Path, trusted: Option<u32>) -> Trigger {
        // A program may change its working directory.
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let pid = std::process::id();
        let now = steady();
        Trigger {
            request: folder.join(format!("{pid}.request")),
            status: folder.join(format!("{pid}.status")),
            published: String::new(),
            folder,
            trusted,
            watch: None,
            due: Some(now),
            is_reported: false,
            answers: VecDeque::new(),
            born: now.checked_sub(process::age().unwrap_or_default()).unwrap_or(now),
        }
    }

    /// Begins to watch.
    fn start_watch(&mut self, now: Instant) {
        let retry = match Watch::new(&self.folder) {
            Ok(watch) => {
                self.remove_leftovers(self.process_start());
                // Before the message: a request written after it is reported by inotify.
                let was_there = fs::symlink_metadata(&self.request).is_ok();
                diag!(Stage, "ondemand", "`touch {}` traces this process", self.request.display());
                (self.watch, self.is_reported) = (Some(watch), false);
                was_there
            }
            Err(why) => {
                self.report_unwatchable(&why);
                true
            }
        };
        self.due = retry.then(|| now + RETRY);
    }

    /// Reports once why the folder cannot be watched.
    fn report_unwatchable(&mut self, why: &io::Error) {
        let advice = match why.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
                "make it a folder that this process's user may read and write to"
            }
            _ => "raise fs.inotify.max_user_instances and max_user_watches",
        };
        if !std::mem::replace(&mut self.is_reported, true) {
            let folder = self.folder.display();
            diag!(Warning, "ondemand", "{folder} cannot be watched for requests yet: {why}; {advice}");
        }
    }

    /// Reads the changes of the folder.
    fn read_changes(&mut self, now: Instant) {
        for change in self.watch.as_ref().map(Watch::take_changes).unwrap_or_default() {
            match change {
                Change::FileCompleted(name) if Some(name.as_os_str()) != self.request.file_name() => {}
                Change::FileCompleted(_) | Change::QueueOverflowed => self.due = Some(now),
                Change::Gone => (self.watch, self.due) = (None, Some(now)),
            }
        }
    }

    /// Removes the request file, if there is one, and returns its request. A file that cannot be removed is refused, because
    /// it would be served again and again.
    fn take_request(&mut self) -> Option<Incoming> {
        let found = fs::symlink_metadata(&self.request).ok()?;
        let text = self.open_request(&found).and_then(read_request_text);
        // A requester that sees the request removed expects the answer.
        let answer = self.begin_answer(text.as_deref().ok().and_then(id_of));
        let removed = self.remove_request(&found).map_err(|why| {
            format!("it cannot be removed: {why}; let this process's user write to {}", self.folder.display())
        });
        match text.and_then(|text| removed.map(|()| text)) {
            Ok(text) => Some(Incoming { text, by: format!("a file of user {}", found.uid()), output: None, answer }),
            Err(why) => {
                let outcome = outcome_json("", "refused", &why, None);
                let text = format!("the request {} was refused: {why}", self.request.display());
                report_outcome!(Warning, Failed, answer, outcome, "{text}");
                None
            }
        }
    }

    /// Removes the request that was found. A file that has replaced it is kept, for the next poll.
    fn remove_request(&mut self, found: &Metadata) -> io::Result<()> {
        if found.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        let aside = file::temporary_name(&self.request)?;
        fs::rename(&self.request, &aside)?;
        let moved = fs::symlink_metadata(&aside)?;
        if (moved.dev(), moved.ino()) == (found.dev(), found.ino()) {
            return fs::remove_file(&aside);
        }
        self.due = Some(steady());
        let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
        Folder::open(&self.folder)?.rename_new(&name(&aside), &name(&self.request))
    }

    /// Returns whether the file cancels other requests; such a file is served at once.
    fn is_cancel(&self) -> bool {
        let text =
            fs::symlink_metadata(&self.request).ok().map(|found| self.open_request(&found).and_then(read_request_text));
        matches!(text, Some(Ok(text)) if ParsedRequest::is_cancel(&text))
    }

    /// Opens the file that was found, if it is trusted.
    fn open_request(&self, found: &Metadata) -> Result<File, String> {
        self.check_file(found)?;
        let file = open_entry(&self.request, TEXT_MAX).map_err(read_error)?;
        // Another file may have replaced it.
        let opened = file.metadata().map_err(read_error)?;
        let is_it = (opened.dev(), opened.ino(), opened.uid()) == (found.dev(), found.ino(), found.uid());
        if is_it { Ok(file) } else { Err("another file has replaced it; send the request again".to_owned()) }
    }

    /// Fails with the reason if a file is not a valid request.
    fn check_file(&self, file: &Metadata) -> Result<(), String> {
        let user = file.uid();
        let is_trusted = user == 0 || user == datagram::effective_user() || Some(user) == self.trusted;
        Err(if !file.is_file() {
            "it is not a regular file; write a plain file".to_owned()
        } else if file.nlink() != 1 {
            "it has other hard links; write a new file".to_owned()
        } else if !is_trusted {
            format!("it belongs to user {user}, who is not trusted; set KINETO_DAEMON_UID={user} to trust them")
        } else if file.len() > TEXT_MAX {
            format!("it has {} bytes, and {TEXT_MAX} are allowed; shorten it", file.len())
        } else if is_older(change_time(file), self.process_start()) {
            "it is older than this process and was meant for an earlier one of the same id; send it again".to_owned()
        } else {
            return Ok(());
        })
    }

    /// Returns when this process began, earlier by the time between the two clock reads; by the clock of the kernel, which dates
    /// files.
    fn process_start(&self) -> Option<SystemTime> {
        let now = SystemTime::now();
        now.checked_sub(process::age().unwrap_or_else(|| since(self.born)))
    }

    /// Returns the path of a request's answer. Each id has its own file.
    fn answer_path(&self, id: Option<&str>) -> PathBuf {
        let end = id.filter(|id| is_file_name(id)).map_or_else(|| "answer".to_owned(), |id| format!("{id}.answer"));
        self.request.with_extension(end)
    }

    /// Creates the answer file of a request; its first line is the request's id, if there is one. The file replaces an
    /// earlier one atomically, because a requester may be about to read that.
    fn begin_answer(&mut self, id: Option<&str>) -> Option<Arc<dyn AnswerChannel>> {
        let path = self.answer_path(id);
        let create = |temporary: &Path| {
            let file = OpenOptions::new().append(true).create_new(true).open(temporary)?;
            // The caller can read the file under any umask of this process.
            file.set_permissions(Permissions::from_mode(0o644))?;
            if let Some(id) = id {
                let _limit = FileLimitGuard::new();
                (&file).write_all(format!("request {}\n", id.escape_debug()).as_bytes())?;
            }
            fs::rename(temporary, &path).map(|()| file)
        };
        let created = file::temporary_name(&path)
            .and_then(|temporary| create(&temporary).inspect_err(|_| drop(fs::remove_file(&temporary))));
        match created {
            Ok(file) => {
                let lines = Arc::new(AnswerFile(CheckedDescriptor::new(file)));
                self.keep_answer(path, Arc::downgrade(&lines));
                Some(lines)
            }
            Err(why) => {
                diag!(
                    Warning,
                    "ondemand",
                    "cannot write the answer {}: {why}; make its folder writable",
                    path.display()
                );
                None
            }
        }
    }

    /// Registers an answer, and removes the oldest one of an ended request if there are too many.
    fn keep_answer(&mut self, path: PathBuf, lines: Weak<AnswerFile>) {
        self.answers.retain(|(kept, _)| *kept != path);
        self.answers.push_back((path, lines));
        let ended = self.answers.iter().position(|(_, lines)| lines.strong_count() == 0);
        if self.answers.len() > ANSWERS_MAX
            && let Some((path, _)) = ended.and_then(|at| self.answers.remove(at))
        {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes the answers that a killed process of the same id has left.
    fn remove_leftovers(&self, begin: Option<SystemTime>) {
        let prefix = format!("{}.", std::process::id());
        let is_answer = |name: &str| name.starts_with(&prefix) && name.ends_with(".answer");
        for entry in fs::read_dir(&self.folder).into_iter().flatten().take(LEFTOVERS_MAX).flatten() {
            let is_left =
                |found: Metadata| found.uid() == datagram::effective_user() && is_older(change_time(&found), begin);
            if entry.file_name().to_str().is_some_and(is_answer) && entry.metadata().is_ok_and(is_left) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns whether an id can be a part of a file's name.
fn is_file_name(id: &str) -> bool {
    const TEXT_MAX: usize = 64;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=TEXT_MAX).contains(&id.len()) && id.bytes().all(is_plain)
}

/// Returns when a file was last changed, by its ctime, which no program can set.
fn change_time(file: &Metadata) -> SystemTime {
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    UNIX_EPOCH + Duration::from_secs(part(file.ctime())) + Duration::from_nanos(part(file.ctime_nsec()))
}

/// Returns whether a file that was changed at this time is older than the process, as far as file systems tell the time.
fn is_older(changed: SystemTime, begin: Option<SystemTime>) -> bool {
    begin.is_some_and(|begin| changed + FILE_TIME_ERROR < begin)
}

fn read_request_text(file: File) -> Result<String, String> {
    let mut bytes = Vec::new();
    file.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(format!("it has more than {TEXT_MAX} bytes; shorten it"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8; write plain text".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` needs this signature")]
fn read_error(why: io::Error) -> String {
    format!("it cannot be read: {why}")
}

impl RequestSource for Trigger {
    fn descriptor(&self) -> Option<RawFd> {
        self.watch.as_ref()?.descriptor()
    }

    fn poll_requests(&mut self, now: Instant, busy: bool) -> Vec<Incoming> {
        self.read_changes(now);
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        match self.watch {
            None => self.start_watch(now),
            // The file stays in its place.
            Some(_) if busy && !self.is_cancel() => self.due = Some(now + BUSY_RETRY),
            Some(_) => {
                self.due = None;
                return self.take_request().into_iter().collect();
            }
        }
        Vec::new()
    }

    fn next_poll_time(&self) -> Instant {
        self.due.unwrap_or_else(|| steady() + NEVER_DUE)
    }

    fn publish_status(&mut self, status: &str) {
        if self.watch.is_none() {
            self.published.clear();
        } else if self.published != status && file::save(&self.status, 0, &mut |out| writeln!(out, "{status}")).is_ok()
        {
            status.clone_into(&mut self.published);
        }
    }

    fn close(&mut self, _deadline: Instant) {
        if !self.published.is_empty() {
            let _ = fs::remove_file(&self.status);
        }
        for (path, _) in self.answers.drain(..) {
            let _ = fs::remove_file(path);
        }
    }
}

/// The answer to a request: the log's lines about it, then `done` or `failed`.
#[derive(Debug)]
struct AnswerFile(CheckedDescriptor<File>);

impl AnswerChannel for AnswerFile {
    fn send_line(&self, line: &str, progress: RequestProgress) {
        let end = match progress {
            RequestProgress::Ongoing => "",
            RequestProgress::Done => "done\n",
            RequestProgress::Failed => "failed\n",
        };
        let _limit = FileLimitGuard::new();
        // One write, so that a reader sees whole lines. If it fails, the log has the line too.
        let text = format!("{}\n{end}", line.trim_end());
        let _ = (&self.0).write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// A source whose folder is watched.
    fn source() -> (tempfile::TempDir, Trigger) {
        let folder = tempfile::tempdir().unwrap();
        let mut trigger = Trigger::new(folder.path(), None);
        assert!(trigger.poll_requests(Instant::now(), false).is_empty());
        (folder, trigger)
    }

    /// Returns the texts of the present requests.
    fn taken(trigger: &mut Trigger) -> Vec<String> {
        trigger.poll_requests(Instant::now(), false).into_iter().map(|incoming| incoming.text).collect()
    }

    fn answer(trigger: &Trigger) -> String {
        fs::read_to_string(trigger.answer_path(None)).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn file_is_taken_when_complete_and_not_busy() {
        let (folder, mut trigger) = source();
        assert_eq!(taken(&mut trigger), [""; 0]);
        let mut file = File::create(&trigger.request).unwrap();
        file.write_all(b"ACTIVITIES_").unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        file.write_all(b"DURATION_MSECS=7").unwrap();
        drop(file);
        fs::write(folder.path().join("1.request.tmp"), "another one's").unwrap();
        assert!(trigger.poll_requests(Instant::now(), true).is_empty() && trigger.request.exists());
        assert!(trigger.next_poll_time() > Instant::now());
        let later = Instant::now() + 2 * BUSY_RETRY;
        let requests = trigger.poll_requests(later, false);
        assert_eq!(requests[0].text, "ACTIVITIES_DURATION_MSECS=7");
        assert_eq!(requests[0].by, format!("a file of user {}", datagram::effective_user()));
        assert!(!trigger.request.exists() && answer(&trigger).is_empty());
        let lines = requests[0].answer.as_ref().unwrap();
        lines.send_line("so far", RequestProgress::Ongoing);
        lines.send_line("good", RequestProgress::Done);
        assert_eq!(answer(&trigger), "so far\ngood\ndone\n");
        assert_eq!(taken(&mut trigger), [""; 0]);
        trigger.close(Instant::now());
        assert!(!trigger.answer_path(None).exists());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn request_that_replaces_another_one_is_taken_next() {
        let (folder, mut trigger) = source();
        fs::write(&trigger.request, "A=1").unwrap();
        let first = fs::symlink_metadata(&trigger.request).unwrap();
        let second = folder.path().join("second");
        fs::write(&second, "B=2").unwrap();
        fs::rename(&second, &trigger.request).unwrap();
        trigger.remove_request(&first).unwrap();
        assert_eq!(taken(&mut trigger), ["B=2"]);
        fs::create_dir(&trigger.request).unwrap();
        let found = fs::symlink_metadata(&trigger.request).unwrap();
        assert!(trigger.remove_request(&found).is_err() && trigger.request.is_dir());
        fs::remove_dir(&trigger.request).unwrap();
        let mut files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        assert!(files.all(|path| path.extension().is_none_or(|end| end != "tmp")));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn untrusted_files_are_refused_and_removed() {
        let (folder, mut trigger) = source();
        let other = folder.path().join("other");
        fs::write(&other, "kept").unwrap();
        let prepared = folder.path().join("prepared");
        symlink(&other, &prepared).unwrap();
        fs::rename(&prepared, &trigger.request).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains(": it is not a regular file; write a plain file\n"), "{}", answer(&trigger));
        fs::hard_link(&other, &prepared).unwrap();
        fs::rename(&prepared, &trigger.request).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains("other hard links"), "{}", answer(&trigger));
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        // A link under the answer's name is not followed.
        fs::remove_file(trigger.answer_path(None)).unwrap();
        symlink(&other, trigger.answer_path(None)).unwrap();
        fs::write(&trigger.request, [0xff]).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains("it is not UTF-8"), "{}", answer(&trigger));
        fs::write(&trigger.request, "A".repeat(65 * 1024)).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains("65536 are allowed"), "{}", answer(&trigger));
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert!(!trigger.request.exists());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn answer_is_never_absent_while_the_next_request_is_taken() {
        let (_folder, mut trigger) = source();
        drop(trigger.begin_answer(None));
        let (path, is_done) = (trigger.answer_path(None), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                std::iter::repeat_with(|| File::open(&path))
                    .take_while(|_| !is_done.load(Relaxed))
                    .find_map(Result::err)
            });
            for number in 0..2_000 {
                drop(trigger.begin_answer(Some(&format!("{number}."))));
            }
            is_done.store(true, Relaxed);
            assert!(reader.join().unwrap().is_none());
        });
        assert_eq!(answer(&trigger), "request 1999.\n");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn requests_with_an_id_have_an_answer_each() {
        let (folder, mut trigger) = source();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let running = trigger.begin_answer(Some("running")).unwrap();
        for id in 0..100 {
            trigger.begin_answer(Some(&id.to_string())).unwrap().send_line("good", RequestProgress::Done);
        }
        assert_eq!(count(), ANSWERS_MAX);
        // The newest ones, and those of requests that have not ended.
        for id in 100 - ANSWERS_MAX + 1..100 {
            let text = fs::read_to_string(trigger.answer_path(Some(&id.to_string()))).unwrap();
            assert_eq!(text, format!("request {id}\ngood\ndone\n"));
        }
        drop(running);
        // An id that is used again replaces its file.
        trigger.begin_answer(Some("99")).unwrap().send_line("again", RequestProgress::Done);
        assert_eq!(count(), ANSWERS_MAX);
        let long = "7".repeat(65);
        for no_name in ["", "../7", "7.8", "a/b", "ä", long.as_str()] {
            assert_eq!(trigger.answer_path(Some(no_name)), trigger.answer_path(None), "{no_name}");
        }
        trigger.close(Instant::now());
        assert_eq!(count(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn answers_of_a_killed_process_are_removed() {
        let (folder, trigger) = source();
        let (left, other) = (trigger.answer_path(Some("7")), folder.path().join("0.7.answer"));
        fs::write(&left, "request 7\n").unwrap();
        fs::write(&other, "request 7\n").unwrap();
        trigger.remove_leftovers(trigger.process_start());
        assert!(left.exists(), "the file is newer than this process");
        trigger.remove_leftovers(Some(SystemTime::now() + NEVER_DUE));
        assert!(!left.exists() && other.exists());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn unremovable_request_is_reported_once() {
        let (folder, mut trigger) = source();
        let prepared = folder.path().join("prepared");
        fs::create_dir(&prepared).unwrap();
        fs::rename(&prepared, &trigger.request).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains(": it is not a regular file; write a plain file\n"), "{}", answer(&trigger));
        assert!(trigger.request.exists());
        fs::remove_file(trigger.answer_path(None)).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(!trigger.answer_path(None).exists() && trigger.next_poll_time() > Instant::now() + RETRY);
    }

    #[test]
    fn file_is_older_beyond_the_error_of_its_time() {
        let begin = UNIX_EPOCH + Duration::from_secs(1000);
        assert!(is_older(begin - FILE_TIME_ERROR - Duration::from_nanos(1), Some(begin)));
        for later in [begin - FILE_TIME_ERROR, begin, begin + NEVER_DUE] {
            assert!(!is_older(later, Some(begin)), "{later:?}");
        }
        assert!(!is_older(UNIX_EPOCH, None));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn missing_folder_is_opened_when_it_appears() {
        let (folder, mut trigger) = source();
        fs::remove_dir(folder.path()).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(trigger.descriptor().is_none());
        fs::create_dir(folder.path()).unwrap();
        fs::write(&trigger.request, "A=1").unwrap();
        let mut now = Instant::now() + RETRY;
        assert!(trigger.poll_requests(now, false).is_empty() && trigger.descriptor().is_some());
        // It may still be written to.
        assert!(trigger.poll_requests(now, false).is_empty());
        now += RETRY;
        assert_eq!(trigger.poll_requests(now, false).len(), 1);
    }

    proptest! {
        // Each case prints to stderr.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        #[cfg_attr(miri, ignore = "asks the operating system")]
        fn any_bytes_are_the_text_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), busy: bool) {
            let (_folder, mut trigger) = source();
            fs::write(&trigger.request, &bytes).unwrap();
            prop_assert!(!busy || trigger.poll_requests(Instant::now(), true).is_empty());
            let requests = trigger.poll_requests(Instant::now() + 2 * BUSY_RETRY, false);
            prop_assert!(!trigger.request.exists());
            match String::from_utf8(bytes) {
                Ok(text) => prop_assert_eq!(&requests[0].text, &text),
                Err(_) => prop_assert!(requests.is_empty() && answer(&trigger).ends_with("failed\n")),
            }
        }
    }
}
