//! The libraries that are there.

use std::path::{Path, PathBuf};

/// One version of CUPTI.
#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    /// Such as "13.2"; the simulator has the same.
    pub(crate) version: String,
    pub(crate) library: PathBuf,
    /// Its headers.
    pub(crate) include: PathBuf,
}

/// The folder with all of them, if it is named.
pub(crate) fn folder() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test asks whether it is wanted")]
    let folder = std::env::var_os("CUPTI_WHEELS")?;
    // A relative path begins at the repository's root, and tests run in their package's folder.
    Some(folder).filter(|folder| !folder.is_empty()).map(|folder| support::root().join(folder))
}

/// All versions, oldest first; none if the folder is not named.
pub(crate) fn all() -> Vec<Wheel> {
    let entries = folder().map(|folder| std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder:?}: {e}")));
    let folders = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut wheels: Vec<_> = folders.filter_map(|folder| wheel(&folder)).collect();
    wheels.sort_by_key(|wheel| wheel.version.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>());
    wheels
}

fn wheel(folder: &Path) -> Option<Wheel> {
    let folder = folder.canonicalize().unwrap();
    let library = std::fs::read_dir(folder.join("lib")).ok()?.map(|entry| entry.unwrap().path()).next()?;
    let version = folder.file_name()?.to_str()?.to_owned();
    Some(Wheel { version, library, include: folder.join("include") })
}

/// CUDA's own headers, which CUPTI's include.
pub(crate) fn cuda_headers() -> PathBuf {
    folder().unwrap().canonicalize().unwrap().join("cuda/include")
}

/// Whether this machine has a driver, with which the libraries behave otherwise.
pub(crate) fn has_driver() -> bool {
    Path::new("/dev/nvidiactl").exists()
}
