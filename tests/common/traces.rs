//! Where the traces of others lie that tests read.

use std::path::{Path, PathBuf};

/// Their folder, outside of the package: `KINETO_TRACES`, else beside it.
#[expect(clippy::disallowed_methods, reason = "traces lie outside of the package")]
pub(crate) fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces");
    std::env::var_os("KINETO_TRACES").map_or_else(beside, PathBuf::from)
}

/// Whether they are there; says so if not.
#[expect(clippy::print_stdout, reason = "says that nothing was compared")]
pub(crate) fn are_there() -> bool {
    let folder = folder();
    if !folder.is_dir() {
        println!("passed over: no traces in {}", folder.display());
    }
    folder.is_dir()
}
