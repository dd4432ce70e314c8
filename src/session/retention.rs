//! Removes the oldest files: dumps of an output, and files of this process's requests.
//!
//! A request names any path, so a file of another process cannot be proved to be that of a request.

use super::dumps::time_part;
use crate::config::RetentionLimits;
use crate::diag::diag;
use crate::text::escaped_path;
use crate::wait::wall;
use crate::write::sink::Sinks;
use kineto_base::sorted::SortedMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The parts of a dump's file name, `<stem>_<pid>_<time>_<number>_<reason><end>`, as `dump_path` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DumpName<'n> {
    stem: &'n str,
    pid: &'n str,
    time: &'n str,
    /// Everything before the reason.
    id: &'n str,
    /// The extensions.
    end: &'n str,
}

impl<'n> DumpName<'n> {
    fn parse(name: &'n str) -> Option<DumpName<'n>> {
        let (id, reason) = name.rsplit_once('_')?;
        let mut parts = id.rsplitn(4, '_');
        let (number, time, pid, stem) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Such as 20261126T074938.123Z.
        let pattern = time.replace(|letter: char| letter.is_ascii_digit(), "0");
        let is_dump = is_number(number) && is_number(pid) && pattern == "00000000T000000.000Z";
        let end = reason.find('.').and_then(|at| reason.get(at..)).unwrap_or_default();
        is_dump.then_some(DumpName { stem, pid, time, id, end })
    }

    /// Returns whether it is a dump of the same output, or the execution trace of one.
    fn is_of_output_of(&self, other: &DumpName<'_>) -> bool {
        self.stem == other.stem && (self.end == other.end || self.end.starts_with(".et.json"))
    }
}

/// A dump: the trace, and its execution trace if there is one.
#[derive(Debug, Default)]
struct DumpFiles {
    paths: Vec<PathBuf>,
    bytes: u64,
    /// When the newest was changed last, if the system knows.
    changed: Option<SystemTime>,
}

/// Counts the files that are kept, from the newest on.
#[derive(Debug)]
pub(crate) struct KeptFiles<'l> {
    limits: &'l RetentionLimits,
    count: usize,
    bytes: u64,
}

impl KeptFiles<'_> {
    pub(crate) fn new(limits: &RetentionLimits) -> KeptFiles<'_> {
        KeptFiles { limits, count: 0, bytes: 0 }
    }

    /// Counts an older file; returns whether it is within the limits. A file with an unknown or future time is not too old.
    pub(crate) fn add(&mut self, bytes: u64, changed: Option<SystemTime>) -> bool {
        (self.count, self.bytes) = (self.count + 1, self.bytes.saturating_add(bytes));
        let age = changed.and_then(|changed| changed.elapsed().ok()).unwrap_or_default();
        self.count <= self.limits.files_max && self.bytes <= self.limits.bytes_max && age <= self.limits.age_max
    }
}

/// Removes the oldest dumps of an output, after `newest` was written, until the rest is within the limits. Nothing is removed
/// behind a URL, except of `file://`.
///
/// The folder is read each time: earlier processes have left dumps, and users remove some. Files of other users stay, and
/// with `of_this_process` those of other processes; so do dumps after `newest`. Those whose names lie in the future are the first
/// to be removed: the clock was set back since.
pub(super) fn remove_old_dumps(newest: &Path, limits: &RetentionLimits, of_this_process: bool) {
    let Some(newest) = Sinks::file_path(newest) else { return };
    let name_of = |path: &Path| path.file_name().and_then(|name| name.to_str().map(str::to_owned));
    let Some(newest_name) = name_of(newest) else { return };
    let Some(newest_name) = DumpName::parse(&newest_name) else { return };
    let (Ok(owner), Some(Ok(entries))) = (fs::symlink_metadata(newest), newest.parent().map(fs::read_dir)) else {
        return;
    };
    let mut dumps: SortedMap<(String, String), DumpFiles> = SortedMap::new();
    for entry in entries.flatten() {
        let Some(text) = name_of(&entry.path()) else { continue };
        let Some(name) = DumpName::parse(&text).filter(|name| name.is_of_output_of(&newest_name)) else { continue };
        let is_ours = |file: &fs::Metadata| file.is_file() && has_same_owner(file, &owner);
        let Some(file) = entry.metadata().ok().filter(is_ours) else { continue };
        if !of_this_process || name.pid == newest_name.pid {
            let files = dumps.get_or_insert_with((name.time.to_owned(), name.id.to_owned()), Default::default);
            files.paths.push(entry.path());
            files.bytes += file.len();
            files.changed = files.changed.max(file.modified().ok());
        }
    }
    let mut kept = KeptFiles::new(limits);
    let latest = latest_time(newest_name.time);
    let (of_future, others): (Vec<_>, Vec<_>) = dumps.iter().rev().partition(|((time, _), _)| *time > latest);
    for ((time, id), files) in others.into_iter().chain(of_future) {
        let is_later = *time <= latest && (time.as_str(), id.as_str()) >= (newest_name.time, newest_name.id);
        if !kept.add(files.bytes, files.changed) && !is_later {
            files.paths.iter().for_each(|path| remove_old_file(path, || fs::remove_file(path)));
        }
    }
}

/// Returns the latest time that the name of a dump may have: that of `newest`, or a minute from now, because the clocks of the
/// machines that share a folder differ.
fn latest_time(newest: &str) -> String {
    const AHEAD: Duration = Duration::from_secs(60);
    let now = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    time_part(now.saturating_add(AHEAD)).max(newest.to_owned())
}

#[cfg(unix)]
fn has_same_owner(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    one.uid() == other.uid()
}

/// The folders of other users are not writable on this platform.
#[cfg(not(unix))]
fn has_same_owner(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// Removes a file by `remove`, and reports that.
pub(crate) fn remove_old_file(path: &Path, remove: impl FnOnce() -> io::Result<()>) {
    match remove() {
        Ok(()) => diag!(Info, "retention", "removed {}: it exceeds the limits for kept files", escaped_path(path)),
        // Another process that writes dumps here has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            diag!(
                Warning,
                "retention",
                "cannot remove the old file {}: {error}; remove it yourself",
                escaped_path(path)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_found_by_their_names() {
        let name = DumpName::parse("my_app_7_20201126T074938.123Z_001_slow-span.pt.trace.json.gz").unwrap();
        let id = "my_app_7_20201126T074938.123Z_001";
        let expected =
            DumpName { stem: "my_app", pid: "7", time: "20201126T074938.123Z", id, end: ".pt.trace.json.gz" };
        assert_eq!(name, expected);
        for other in [
            "my_app_7.pt.trace.json.gz",
            "my_app_7_20201126T074938.123Z.json",
            "my_app_x_20201126T074938.123Z_001_a.json",
            "my_app_7_20201126T074938.123Z_a_a.json",
            "my_app_7_20201126T074938Z_001_a.json",
            "7_20201126T074938.123Z_001_a.json",
        ] {
            assert_eq!(DumpName::parse(other), None, "{other}");
        }
    }

    // Shows the keys DUMP_FILES_MB, DUMP_FILES_AGE.
    #[test]
    fn oldest_dumps_are_removed_beyond_the_limits() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, [0; 100]).unwrap();
            path
        };
        let name = |second: u32, rest: &str| format!("app_7_20201126T0749{second:02}.000Z_001_{rest}");
        let others = [
            "app_7_20201126T074900.000Z_001_folder.pt.trace.json",
            "app.pt.trace.json",
            "other_7_20201126T074900.000Z_001_a.pt.trace.json",
            "app_7_20201126T074900.000Z_001_a.pftrace",
            "app_7_20201126T074900.000Z_001_a.pt.trace.json.7-0-0123456789abcdef.tmp",
            "app_7_20201126T074907.000Z_001_later.pt.trace.json",
        ];
        fs::create_dir(folder.path().join(others[0])).unwrap();
        others.iter().skip(1).for_each(|other| drop(write(other)));
        (1..=5).for_each(|second| drop(write(&name(second, "a.pt.trace.json"))));
        write(&name(2, "a.et.json"));
        let newest = write(&name(6, "b.pt.trace.json"));
        let left = |files_max, bytes_max| {
            remove_old_dumps(&newest, &RetentionLimits { files_max, bytes_max, ..RetentionLimits::default() }, false);
            let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
            left.sort();
            assert!(others.iter().all(|other| left.contains(&(*other).into())), "{left:?}");
            left.len() - others.len()
        };
        assert_eq!(left(7, 1 << 20), 7);
        assert_eq!(left(6, 800), 6, "the first");
        assert_eq!(left(6, 600), 4, "the second, which has two files");
        assert_eq!(left(3, 600), 2);
        assert_eq!(left(1, 1), 1, "the newest stays");
        let limits = RetentionLimits { files_max: 1, ..RetentionLimits::default() };
        remove_old_dumps(&folder.path().join("app.pt.trace.json"), &limits, false);
        remove_old_dumps(Path::new("sink://x/app_7_20201126T074900.000Z_001_a.json"), &limits, false);
        let hour = RetentionLimits { age_max: Duration::from_secs(3600), ..RetentionLimits::default() };
        let [old, young] = [name(3, "old.pt.trace.json"), name(4, "young.pt.trace.json")].map(|name| write(&name));
        let two_hours_ago = SystemTime::now() - Duration::from_secs(7200);
        fs::File::options().write(true).open(&old).unwrap().set_modified(two_hours_ago).unwrap();
        remove_old_dumps(&PathBuf::from(format!("file://{}", newest.display())), &hour, false);
        assert!(!old.exists() && young.exists(), "by age, behind file://");
        fs::remove_file(young).unwrap();
        let other_process = write("app_8_20201126T074908.000Z_001_b.pt.trace.json");
        remove_old_dumps(&other_process, &limits, true);
        assert!(newest.exists(), "of another process");
        remove_old_dumps(&other_process, &limits, false);
        assert!(!newest.exists() && other_process.exists());
    }

    #[test]
    fn dumps_of_the_future_are_removed_first() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let hour = Duration::from_secs(3600);
        let write = |since: Duration, reason: &str| {
            let path = folder.path().join(format!("app_7_{}_001_{reason}.json", time_part(since)));
            fs::write(&path, "").unwrap();
            path
        };
        let future = [1, 2, 3].map(|n| write(now + n * hour, "future"));
        let limits = RetentionLimits { files_max: 3, ..RetentionLimits::default() };
        let past: Vec<_> = (0..4)
            .map(|n| {
                let newest = write(now - hour + Duration::from_secs(n), "past");
                remove_old_dumps(&newest, &limits, false);
                newest
            })
            .collect();
        assert!(future.iter().chain(&past[..1]).all(|path| !path.exists()));
        assert!(past[1..].iter().all(|path| path.exists()));
    }
}
