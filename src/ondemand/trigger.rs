//! Requests as files: in a watched folder, `<pid>.request` is one for the process of that number.
//!
//! The answer is written to `<pid>.<id>.answer`, where the id is the request's `REQUEST_TRACE_ID`, or to `<pid>.answer` if
//! it has none that can be a part of a file's name. A process that is killed leaves its answers; the next process of that
//! number removes them when it begins to watch.

use super::outcome::Outcome;
use super::source::{Answer, Course, Incoming, RequestSource, id_of, tell_end};
use crate::config::Asked;
use crate::diag::diag;
use crate::os::file_limit::FileLimitGuard;
use crate::os::folder::Folder;
use crate::os::inotify::{Change, Watch};
use crate::os::{datagram, process};
use crate::write::file;
use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The folder, as this process sees it.
///
/// A file is taken when whoever writes it has closed it or renamed it to its name, which the kernel tells (inotify): so
/// nothing is read by halves, and nobody looks while nothing comes. One that was there before the folder was watched is
/// taken a second later.
#[derive(Debug)]
pub(super) struct Trigger {
    folder: PathBuf,
    request: PathBuf,
    status: PathBuf,
    /// The text of the status file; empty if there is none.
    published: String,
    /// A user beside root and the process's own whose files are taken.
    trusted: Option<u32>,
    watch: Option<Watch>,
    /// When the file is to be looked for, or the folder to be opened.
    due: Option<Instant>,
    /// It was said that the folder cannot be watched.
    is_told: bool,
    /// The files of answers, oldest first, each with its request's handle, which is dropped when the request has ended.
    answers: VecDeque<(PathBuf, Weak<Lines>)>,
    /// When the process began, as far as that is known; `/proc` may be hidden later.
    born: Instant,
}

/// So often a folder that cannot be watched is tried again; so long a file that was there before may be written to.
const SECOND: Duration = Duration::from_secs(1);
/// So often it is looked whether a request that is left where it is can be taken.
const MOMENT: Duration = Duration::from_millis(100);
/// How far the times of files may lag behind the clock.
const TICK: Duration = Duration::from_millis(10);
/// When nothing is due.
const LATER: Duration = Duration::from_secs(3600);
/// The longest text.
const LONGEST: u64 = 64 * 1024;
/// The number of answers that are kept for callers that have not read them yet.
const ANSWERS_MAX: usize = 32;
/// The number of entries of the folder that are searched for leftovers.
const LEFTOVERS_MAX: usize = 10_000;

impl Trigger {
    /// Says where requests come; the first turn begins to watch.
    pub(super) fn new(folder: &Path, trusted: Option<u32>) -> Trigger {
        // A program may go to another folder.
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let pid = std::process::id();
        let now = Instant::now();
        Trigger {
            request: folder.join(format!("{pid}.request")),
            status: folder.join(format!("{pid}.status")),
            published: String::new(),
            folder,
            trusted,
            watch: None,
            due: Some(now),
            is_told: false,
            answers: VecDeque::new(),
            born: now.checked_sub(process::age().unwrap_or(TICK)).unwrap_or(now),
        }
    }

    /// Begins to watch.
    fn open(&mut self, now: Instant) {
        let retry = match Watch::new(&self.folder) {
            Ok(watch) => {
                self.remove_leftovers(self.begin());
                // Before anyone is told: what comes from then on is taken when it is whole.
                let was_there = fs::symlink_metadata(&self.request).is_ok();
                diag!(Stage, "ondemand", "`touch {}` traces this process", self.request.display());
                (self.watch, self.is_told) = (Some(watch), false);
                was_there
            }
            Err(why) => {
                self.tell_of(&why);
                true
            }
        };
        self.due = retry.then(|| now + SECOND);
    }

    /// Says once why the folder cannot be watched.
    fn tell_of(&mut self, why: &io::Error) {
        let advice = match why.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
                "make it a folder that this process's user may read and write to"
            }
            _ => "the system's limits are fs.inotify.max_user_instances and max_user_watches",
        };
        if !std::mem::replace(&mut self.is_told, true) {
            let folder = self.folder.display();
            diag!(Warning, "ondemand", "{folder} cannot be watched for requests yet: {why}; {advice}");
        }
    }

    /// Takes note of what has happened in the folder.
    fn hear(&mut self, now: Instant) {
        for change in self.watch.as_ref().map(Watch::take).unwrap_or_default() {
            match change {
                Change::Whole(name) if Some(name.as_os_str()) != self.request.file_name() => {}
                Change::Whole(_) | Change::TooMuch => self.due = Some(now),
                Change::Gone => (self.watch, self.due) = (None, Some(now)),
            }
        }
    }

    /// Takes the file away, if there is one, and returns what it asks for. One that cannot be taken away is not done,
    /// lest it be done again and again.
    fn take(&mut self) -> Option<Incoming> {
        let found = fs::symlink_metadata(&self.request).ok()?;
        let text = self.open_request(&found).and_then(read);
        // Who sees the request gone looks for the answer.
        let answer = self.begin_answer(text.as_deref().ok().and_then(id_of));
        let removed = self.remove_request(&found).map_err(|why| {
            format!("it cannot be removed: {why}; let this process's user write to {}", self.folder.display())
        });
        match text.and_then(|text| removed.map(|()| text)) {
            Ok(text) => Some(Incoming { text, by: format!("a file of user {}", found.uid()), output: None, answer }),
            Err(why) => {
                let outcome = Outcome::new("", Outcome::REFUSED).because(&why);
                let text = format!("the request {} is refused because {why}", self.request.display());
                tell_end!(Warning, Failed, answer, outcome, "{text}");
                None
            }
        }
    }

    /// Removes the request that was found. Another one that has taken its place is kept, for the next turn.
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
        self.due = Some(Instant::now());
        let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
        Folder::open(&self.folder)?.rename_new(&name(&aside), &name(&self.request))
    }

    /// Returns whether the file cancels other requests; such a file does not wait for their ends.
    fn is_cancel(&self) -> bool {
        let text = fs::symlink_metadata(&self.request).ok().map(|found| self.open_request(&found).and_then(read));
        matches!(text, Some(Ok(text)) if Asked::is_cancel(&text))
    }

    /// Opens what was found, if it is to be trusted.
    fn open_request(&self, found: &Metadata) -> Result<File, String> {
        self.check(found)?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&self.request).map_err(unreadable)?;
        // Another one may have taken its place.
        let opened = file.metadata().map_err(unreadable)?;
        let is_it = (opened.dev(), opened.ino(), opened.uid()) == (found.dev(), found.ino(), found.uid());
        if is_it { Ok(file) } else { Err("another one has taken its place".to_owned()) }
    }

    /// Says why a file is no request.
    fn check(&self, file: &Metadata) -> Result<(), String> {
        let user = file.uid();
        let is_trusted = user == 0 || user == datagram::user() || Some(user) == self.trusted;
        Err(if !file.is_file() {
            "it is no regular file".to_owned()
        } else if file.nlink() != 1 {
            "the file has other names too".to_owned()
        } else if !is_trusted {
            format!(
                "it is of user {user}, whom this process does not trust; KINETO_DAEMON_UID={user} says that it does"
            )
        } else if file.len() > LONGEST {
            format!("it has {} bytes, and {LONGEST} are allowed", file.len())
        } else if is_older(file, self.begin()) {
            "it is older than this process: it was meant for another one of the same number".to_owned()
        } else {
            return Ok(());
        })
    }

    /// Returns when this process began; too early by the time between the reads of the two clocks.
    fn begin(&self) -> Option<SystemTime> {
        let now = SystemTime::now();
        now.checked_sub(process::age().unwrap_or_else(|| self.born.elapsed()))
    }

    /// Returns the path of a request's answer. Requests with an id have a file each, so that every caller gets its own.
    fn answer_path(&self, id: Option<&str>) -> PathBuf {
        let end = id.filter(|id| is_file_name(id)).map_or_else(|| "answer".to_owned(), |id| format!("{id}.answer"));
        self.request.with_extension(end)
    }

    /// Creates the answer file of a request, whose first line is the request's id, if there is one. The file replaces one of
    /// that name in one step, because the previous caller may be about to read it.
    fn begin_answer(&mut self, id: Option<&str>) -> Option<Arc<dyn Answer>> {
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
                let lines = Arc::new(Lines(file));
                self.keep_answer(path, Arc::downgrade(&lines));
                Some(lines)
            }
            Err(why) => {
                diag!(Warning, "ondemand", "no answer can be written to {}: {why}", path.display());
                None
            }
        }
    }

    /// Notes an answer, and removes the oldest one whose request has ended if there are too many.
    fn keep_answer(&mut self, path: PathBuf, lines: Weak<Lines>) {
        self.answers.retain(|(kept, _)| *kept != path);
        self.answers.push_back((path, lines));
        let ended = self.answers.iter().position(|(_, lines)| lines.strong_count() == 0);
        if self.answers.len() > ANSWERS_MAX
            && let Some((path, _)) = ended.and_then(|at| self.answers.remove(at))
        {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes the answers that a killed process of the same number has left.
    fn remove_leftovers(&self, begin: Option<SystemTime>) {
        let prefix = format!("{}.", std::process::id());
        let is_answer = |name: &str| name.starts_with(&prefix) && name.ends_with(".answer");
        for entry in fs::read_dir(&self.folder).into_iter().flatten().take(LEFTOVERS_MAX).flatten() {
            let is_left = |found: Metadata| found.uid() == datagram::user() && is_older(&found, begin);
            if entry.file_name().to_str().is_some_and(is_answer) && entry.metadata().is_ok_and(is_left) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns whether an id can be a part of a file's name.
fn is_file_name(id: &str) -> bool {
    const LONGEST: usize = 64;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LONGEST).contains(&id.len()) && id.bytes().all(is_plain)
}

/// Returns whether a file was last changed before the process began, by the one time that no program can set.
fn is_older(file: &Metadata, begin: Option<SystemTime>) -> bool {
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    let changed = UNIX_EPOCH + Duration::from_secs(part(file.ctime())) + Duration::from_nanos(part(file.ctime_nsec()));
    begin.is_some_and(|begin| changed < begin)
}

fn read(file: File) -> Result<String, String> {
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("it has more than {LONGEST} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what errors are mapped by")]
fn unreadable(why: io::Error) -> String {
    format!("it cannot be read: {why}")
}

impl RequestSource for Trigger {
    fn descriptor(&self) -> Option<RawFd> {
        self.watch.as_ref().map(Watch::descriptor)
    }

    fn turn(&mut self, now: Instant, busy: bool) -> Vec<Incoming> {
        self.hear(now);
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        match self.watch {
            None => self.open(now),
            // It is left where it is.
            Some(_) if busy && !self.is_cancel() => self.due = Some(now + MOMENT),
            Some(_) => {
                self.due = None;
                return self.take().into_iter().collect();
            }
        }
        Vec::new()
    }

    fn due(&self) -> Instant {
        self.due.unwrap_or_else(|| Instant::now() + LATER)
    }

    fn publish(&mut self, status: &str) {
        if self.watch.is_none() {
            self.published.clear();
        } else if self.published != status && file::save(&self.status, 0, |out| writeln!(out, "{status}")).is_ok() {
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

/// The answer to a request: the lines of the log that are about it, and `done` or `failed`.
#[derive(Debug)]
struct Lines(File);

impl Answer for Lines {
    fn tell(&self, line: &str, course: Course) {
        let end = match course {
            Course::GoesOn => "",
            Course::Done => "done\n",
            Course::Failed => "failed\n",
        };
        let _limit = FileLimitGuard::new();
        // Once, so that nobody reads a part; and if it cannot be written, the log has it too.
        let _ = (&self.0).write_all(format!("{}\n{end}", line.trim_end()).as_bytes());
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
        assert!(trigger.turn(Instant::now(), false).is_empty());
        (folder, trigger)
    }

    /// The texts of the requests that there are now.
    fn taken(trigger: &mut Trigger) -> Vec<String> {
        trigger.turn(Instant::now(), false).into_iter().map(|incoming| incoming.text).collect()
    }

    fn answer(trigger: &Trigger) -> String {
        fs::read_to_string(trigger.answer_path(None)).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_file_is_taken_once_it_is_whole_and_nothing_else_goes_on() {
        let (folder, mut trigger) = source();
        assert_eq!(taken(&mut trigger), [""; 0]);
        let mut file = File::create(&trigger.request).unwrap();
        file.write_all(b"ACTIVITIES_").unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        file.write_all(b"DURATION_MSECS=7").unwrap();
        drop(file);
        fs::write(folder.path().join("1.request.tmp"), "another one's").unwrap();
        assert!(trigger.turn(Instant::now(), true).is_empty() && trigger.request.exists());
        assert!(trigger.due() > Instant::now());
        let later = Instant::now() + 2 * MOMENT;
        let requests = trigger.turn(later, false);
        assert_eq!(requests[0].text, "ACTIVITIES_DURATION_MSECS=7");
        assert_eq!(requests[0].by, format!("a file of user {}", datagram::user()));
        assert!(!trigger.request.exists() && answer(&trigger).is_empty());
        let lines = requests[0].answer.as_ref().unwrap();
        lines.tell("so far", Course::GoesOn);
        lines.tell("good", Course::Done);
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
    fn what_is_no_file_to_be_trusted_is_thrown_away() {
        let (folder, mut trigger) = source();
        let other = folder.path().join("other");
        fs::write(&other, "kept").unwrap();
        let prepared = folder.path().join("prepared");
        symlink(&other, &prepared).unwrap();
        fs::rename(&prepared, &trigger.request).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains("because it is no regular file\n"), "{}", answer(&trigger));
        fs::hard_link(&other, &prepared).unwrap();
        fs::rename(&prepared, &trigger.request).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains("other names too"), "{}", answer(&trigger));
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        // Nothing that stands in the way of the answer is written to.
        fs::remove_file(trigger.answer_path(None)).unwrap();
        symlink(&other, trigger.answer_path(None)).unwrap();
        fs::write(&trigger.request, [0xff]).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains("it is no UTF-8"), "{}", answer(&trigger));
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
            trigger.begin_answer(Some(&id.to_string())).unwrap().tell("good", Course::Done);
        }
        assert_eq!(count(), ANSWERS_MAX);
        // The newest ones, and those of requests that have not ended.
        for id in 100 - ANSWERS_MAX + 1..100 {
            let text = fs::read_to_string(trigger.answer_path(Some(&id.to_string()))).unwrap();
            assert_eq!(text, format!("request {id}\ngood\ndone\n"));
        }
        drop(running);
        // An id that is used again replaces its file.
        trigger.begin_answer(Some("99")).unwrap().tell("again", Course::Done);
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
        trigger.remove_leftovers(trigger.begin());
        assert!(left.exists(), "the file is newer than this process");
        trigger.remove_leftovers(Some(SystemTime::now() + LATER));
        assert!(!left.exists() && other.exists());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn what_cannot_be_taken_away_is_looked_at_once() {
        let (folder, mut trigger) = source();
        let prepared = folder.path().join("prepared");
        fs::create_dir(&prepared).unwrap();
        fs::rename(&prepared, &trigger.request).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(answer(&trigger).contains("because it is no regular file\n"), "{}", answer(&trigger));
        assert!(trigger.request.exists());
        fs::remove_file(trigger.answer_path(None)).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(!trigger.answer_path(None).exists() && trigger.due() > Instant::now() + SECOND);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_file_is_older_than_a_process_that_begins_later() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let (metadata, now) = (file.as_file().metadata().unwrap(), SystemTime::now());
        assert!(is_older(&metadata, Some(now)) && !is_older(&metadata, now.checked_sub(LATER)));
        assert!(!is_older(&metadata, None));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_folder_that_is_not_there_is_opened_when_it_is() {
        let (folder, mut trigger) = source();
        fs::remove_dir(folder.path()).unwrap();
        assert_eq!(taken(&mut trigger), [""; 0]);
        assert!(trigger.descriptor().is_none());
        fs::create_dir(folder.path()).unwrap();
        fs::write(&trigger.request, "A=1").unwrap();
        let mut now = Instant::now() + SECOND;
        assert!(trigger.turn(now, false).is_empty() && trigger.descriptor().is_some());
        // It may still be written to.
        assert!(trigger.turn(now, false).is_empty());
        now += SECOND;
        assert_eq!(trigger.turn(now, false).len(), 1);
    }

    proptest! {
        // Each is said on stderr.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        #[cfg_attr(miri, ignore = "asks the operating system")]
        fn any_bytes_are_the_text_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), busy: bool) {
            let (_folder, mut trigger) = source();
            fs::write(&trigger.request, &bytes).unwrap();
            prop_assert!(!busy || trigger.turn(Instant::now(), true).is_empty());
            let requests = trigger.turn(Instant::now() + 2 * MOMENT, false);
            prop_assert!(!trigger.request.exists());
            match String::from_utf8(bytes) {
                Ok(text) => prop_assert_eq!(&requests[0].text, &text),
                Err(_) => prop_assert!(requests.is_empty() && answer(&trigger).ends_with("failed\n")),
            }
        }
    }
}
