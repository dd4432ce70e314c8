//! Removes the oldest dumps of an output.

use crate::config::DumpConfig;
use crate::diag::diag;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of a dump's file name, `<stem>_<pid>_<time>_<number>_<reason><extensions>`, as `dump_path` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DumpName<'n> {
    stem: &'n str,
    time: &'n str,
    /// Everything before the reason.
    id: &'n str,
}

impl<'n> DumpName<'n> {
    fn parse(name: &'n str) -> Option<DumpName<'n>> {
        let (id, _reason) = name.rsplit_once('_')?;
        let mut parts = id.rsplitn(4, '_');
        let (number, time, pid, stem) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Such as 20261126T074938.123Z.
        let pattern = time.replace(|letter: char| letter.is_ascii_digit(), "0");
        let is_dump = is_number(number) && is_number(pid) && pattern == "00000000T000000.000Z";
        is_dump.then_some(DumpName { stem, time, id })
    }
}

/// A dump: the trace, and its execution trace if there is one.
#[derive(Debug, Default)]
struct DumpFiles {
    paths: Vec<PathBuf>,
    bytes: u64,
}

/// Removes the oldest dumps next to `newest`, also those of other processes, until the rest is within the limits.
///
/// The folder is read each time: earlier processes have left dumps, and users remove some.
pub(super) fn remove_old_dumps(newest: &Path, limits: &DumpConfig) {
    let Some(newest_name) = newest.file_name().and_then(|name| name.to_str()).and_then(DumpName::parse) else { return };
    let Some(Ok(entries)) = newest.parent().map(fs::read_dir) else { return };
    let mut dumps: BTreeMap<(String, String), DumpFiles> = BTreeMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(DumpName::parse).filter(|name| name.stem == newest_name.stem) else {
            continue;
        };
        let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
        let files = dumps.entry((name.time.to_owned(), name.id.to_owned())).or_default();
        files.paths.push(entry.path());
        files.bytes += metadata.len();
    }
    let (mut count, mut bytes) = (0, 0);
    for ((_, id), files) in dumps.into_iter().rev() {
        (count, bytes) = (count + 1, bytes + files.bytes);
        if id != newest_name.id && (count > limits.files_max || bytes > limits.bytes_max) {
            files.paths.iter().for_each(|path| remove_dump(path));
        }
    }
}

fn remove_dump(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => diag!(Info, "dump", "removed {}: newer dumps take its place", path.display()),
        // Another process that writes dumps here has removed it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            diag!(Warning, "dump", "cannot remove the old dump {}: {error}; remove it yourself", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_found_by_their_names() {
        let name = DumpName::parse("my_app_7_20261126T074938.123Z_001_slow-span.pt.trace.json.gz").unwrap();
        let id = "my_app_7_20261126T074938.123Z_001";
        assert_eq!(name, DumpName { stem: "my_app", time: "20261126T074938.123Z", id });
        for other in [
            "my_app_7.pt.trace.json.gz",
            "my_app_7_20261126T074938.123Z.json",
            "my_app_x_20261126T074938.123Z_001_a.json",
            "my_app_7_20261126T074938.123Z_a_a.json",
            "my_app_7_20261126T074938Z_001_a.json",
            "7_20261126T074938.123Z_001_a.json",
        ] {
            assert_eq!(DumpName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn oldest_dumps_are_removed_beyond_the_limits() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, [0; 100]).unwrap();
            path
        };
        let name = |second: u32, rest: &str| format!("app_7_20261126T0749{second:02}.000Z_001_{rest}");
        let others = ["app.json", "other_7_20261126T074900.000Z_001_a.json", "app_7_20261126T074900.000Z_001_a.tmp.d"];
        others.iter().take(2).for_each(|other| drop(write(other)));
        fs::create_dir(folder.path().join(others[2])).unwrap();
        (1..=5).for_each(|second| drop(write(&name(second, "a.pt.trace.json"))));
        write(&name(2, "a.et.json"));
        let newest = write(&name(6, "b.pt.trace.json"));
        let left = |files_max, bytes_max| {
            remove_old_dumps(&newest, &DumpConfig { files_max, bytes_max, ..DumpConfig::default() });
            let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
            left.sort();
            assert!(others.iter().all(|other| left.contains(&(*other).into())), "{left:?}");
            left.len() - others.len()
        };
        assert_eq!(left(6, 1 << 20), 7);
        assert_eq!(left(5, 700), 6, "the first");
        assert_eq!(left(5, 500), 4, "the second, which has two files");
        assert_eq!(left(2, 500), 2);
        assert_eq!(left(1, 1), 1, "the newest stays");
        remove_old_dumps(&folder.path().join("app.json"), &DumpConfig::default());
        remove_old_dumps(Path::new("sink://x/app_7_20261126T074900.000Z_001_a.json"), &DumpConfig::default());
    }
}
