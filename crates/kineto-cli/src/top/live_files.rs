//! Finds the live files of a process or in a folder.

use crate::process::is_zombie;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How the names of live files end.
const EXTENSION: &str = "klive";

/// Returns the live files of a process, by its number, or in a folder.
///
/// # Errors
/// If there are none, with advice.
pub(super) fn find_live_files(target: &str) -> Result<Vec<PathBuf>, String> {
    const ADVICE: &str = "start the program with KINETO_SHM_DIR=/dev/shm, or build it with `shm_folder`";

    let (files, whose) = match target.parse::<u32>() {
        Ok(pid) => {
            if is_zombie(pid) {
                return Err(format!(
                    "process {pid} has ended; pass the folder of its live file to see the last records"
                ));
            }
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|why| match why.kind() {
                ErrorKind::NotFound => format!("there is no process {pid}; check the number"),
                _ => format!("cannot read the maps of process {pid}: {why}; run this command as its user or as root"),
            })?;
            (mapped_files(Path::new(&format!("/proc/{pid}/root")), &maps), format!("process {pid}"))
        }
        Err(_) => {
            let entries = fs::read_dir(target)
                .map_err(|why| format!("cannot read {target}: {why}; pass a process or a folder"))?;
            (entries.flatten().map(|entry| entry.path()).collect(), target.to_owned())
        }
    };
    let mut files: Vec<_> = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == EXTENSION) && is_regular(path))
        .collect();
    files.sort();
    files.dedup();
    if files.is_empty() { Err(format!("{whose} has no live file; {ADVICE}")) } else { Ok(files) }
}

/// Returns whether that is a file, and no link.
fn is_regular(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Returns the paths of mapped files, seen from the root of their process; removed files are left out.
fn mapped_files(root: &Path, maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let start = line.find('/')?;
        let path = line.get(start + 1..)?;
        (!path.ends_with(" (deleted)")).then(|| root.join(path))
    };
    maps.lines().filter_map(path).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn maps_name_files_below_the_root() {
        let maps = "7f00-7f01 rw-s 00000000 00:1a 5 /dev/shm/a b-1-0.klive\n7f02-7f03 rw-p 0 00:00 0\n\
                    7f04-7f05 rw-s 0 00:1a 6 /dev/shm/old.klive (deleted)\n7f06-7f07 r-xp 0 00:00 0 [vdso]\n";
        assert_eq!(mapped_files(Path::new("/proc/5/root"), maps), [Path::new("/proc/5/root/dev/shm/a b-1-0.klive")]);
    }

    #[test]
    fn missing_files_are_errors_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let error = find_live_files(folder.path().to_str().unwrap()).unwrap_err();
        assert!(error.ends_with(
            "has no live file; start the program with KINETO_SHM_DIR=/dev/shm, or build it with `shm_folder`"
        ));
        let error = find_live_files("4294967295").unwrap_err();
        assert_eq!(error, "there is no process 4294967295; check the number");
        assert!(find_live_files("/no such folder").unwrap_err().ends_with("pass a process or a folder"));
    }
}
