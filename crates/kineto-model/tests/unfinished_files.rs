//! The names of files while they are written, in a process that locks them.
#![allow(clippy::unwrap_used, reason = "tests")]

use kineto_model::write::file::{Protection, install_protection, is_unfinished_name, save};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Returns, of each file in the folder, whether it has the name of an unfinished trace.
fn names(folder: &Path) -> Vec<bool> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| is_unfinished_name(entry.unwrap().file_name().to_str().unwrap())).collect()
}

#[test]
fn unfinished_name_is_given_after_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    FOLDER.set(folder.path().to_owned()).unwrap();
    install_protection(Protection {
        begin: || Box::new(()),
        created: |_| assert_eq!(names(FOLDER.get().unwrap()), [false], "before the lock"),
    });
    let path = folder.path().join("a.json");
    let written = save(&path, 1, &mut |out| {
        assert_eq!(names(folder.path()), [true], "behind the lock");
        out.write_all(b"{}")
    });
    written.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"{}");
    assert_eq!(names(folder.path()), [false]);
}
