//! The libraries available for the tests.

use std::path::{Path, PathBuf};

/// A version of CUPTI.
#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    /// The version, such as "13.2", which the simulator also has.
    pub(crate) version: String,
    pub(crate) library: PathBuf,
    /// The library with which it evaluates metrics.
    pub(crate) metrics: Option<PathBuf>,
    /// The folder of its headers.
    pub(crate) include: PathBuf,
}

/// Returns the folder of all wheels, if it is set.
pub(crate) fn folder() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test asks whether it is wanted")]
    let folder = std::env::var_os("CUPTI_WHEELS")?;
    // A relative path starts at the repository's root, but tests run in their package's folder.
    Some(folder).filter(|folder| !folder.is_empty()).map(|folder| support::root().join(folder))
}

/// Returns all versions, oldest first; empty if the folder is not set.
pub(crate) fn all() -> Vec<Wheel> {
    let entries = folder().map(|folder| std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder:?}: {e}")));
    let folders = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut wheels: Vec<_> = folders.filter_map(|folder| wheel(&folder)).collect();
    wheels.sort_by_key(|wheel| wheel.version.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>());
    wheels
}

fn wheel(folder: &Path) -> Option<Wheel> {
    let folder = folder.canonicalize().unwrap();
    let files: Vec<_> = std::fs::read_dir(folder.join("lib")).ok()?.map(|entry| entry.unwrap().path()).collect();
    let named = |start: &str| files.iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start));
    let library = named("libcupti.so").cloned()?;
    let version = folder.file_name()?.to_str()?.to_owned();
    let metrics = named("libnvperf_host.so").cloned();
    Some(Wheel { version, library, metrics, include: folder.join("include") })
}

/// Returns the folder of CUDA's headers, which CUPTI's include.
pub(crate) fn cuda_headers() -> PathBuf {
    folder().unwrap().canonicalize().unwrap().join("cuda/include")
}

/// Returns whether this machine has a driver, with which the libraries behave differently.
pub(crate) fn has_driver() -> bool {
    Path::new("/dev/nvidiactl").exists()
}
