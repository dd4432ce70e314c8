//! Where the traces of others lie that tests read.

use std::path::PathBuf;

/// Their folder, outside of the package: `KINETO_TRACES`, else beside it.
pub fn folder() -> PathBuf {
    let beside = || crate::root().join("../shared/traces");
    std::env::var_os("KINETO_TRACES").map_or_else(beside, PathBuf::from)
}

/// Whether they are there; says so if not.
pub fn are_there() -> bool {
    let folder = folder();
    if !folder.is_dir() {
        println!("passed over: no traces in {}", folder.display());
    }
    folder.is_dir()
}
