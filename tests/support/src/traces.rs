//! The folder of other programs' traces that tests read.

use std::path::PathBuf;

/// Returns their folder, outside of the package: `KINETO_TRACES`, or else next to the package.
pub fn folder() -> PathBuf {
    let default_folder = || crate::root().join("../shared/traces");
    std::env::var_os("KINETO_TRACES").map_or_else(default_folder, PathBuf::from)
}

/// Returns whether the folder exists; prints a note if not.
pub fn are_available() -> bool {
    let folder = folder();
    if !folder.is_dir() {
        println!("skipped: no traces in {}", folder.display());
    }
    folder.is_dir()
}
