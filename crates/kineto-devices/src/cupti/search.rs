//! Searches for libcupti, and chooses between several.
//!
//! A library that the process has already loaded wins, then the file that the user names. Libraries for a newer CUDA
//! than the driver supports are skipped: they fail at best.

use crate::Options;
use crate::library::search::{FolderGroup, existing_folders, files_in};
use crate::library::{Attempt, Candidate, Library, version_numbers};
use std::path::{Path, PathBuf};

/// The names that the loader knows; the last is without a version.
const NAMES: [&str; 5] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so.11.7", "libcupti.so"];

/// Toolkits, with the folders in them, in a Conda environment, and in a Python environment.
const TOOLKITS: [&str; 3] = ["/usr/local/cuda", "/usr/local/cuda-13*", "/usr/local/cuda-12*"];
const FOLDERS: [FolderGroup; 3] = [
    (&["CUDA_HOME", "CUDA_PATH"], &TOOLKITS, &["extras/CUPTI/lib64", "lib64", "targets/*/lib"]),
    (&["CONDA_PREFIX"], &[], &["lib"]),
    (&["VIRTUAL_ENV", "CONDA_PREFIX"], &[], &IN_PYTHON),
];
const IN_PYTHON: [&str; 2] =
    ["lib/python3*/site-packages/nvidia/cu1*/lib", "lib/python3*/site-packages/nvidia/cuda_cupti/lib"];

/// Finds libcupti for a driver of that version, 13000 for 13.0; adds the attempts to `attempts`.
pub(super) fn find_library(options: &Options, driver: i32, attempts: &mut Vec<Attempt>) -> Option<Library> {
    let newest = u64::try_from(driver / 1000).unwrap_or(0);
    let first = Candidate::mapped(&NAMES).chain(Candidate::named(path_from_options(options), cupti_files_in));
    if let Some(library) = Library::open_first(first, attempts) {
        return Some(library);
    }
    let fits = |candidate: &Candidate, attempts: &mut Vec<Attempt>| {
        let major = cuda_major(candidate);
        if major > newest {
            let outcome = format!("skipped: the driver supports only CUDA {newest}");
            attempts.push(Attempt::new(candidate.to_string(), outcome));
        }
        major <= newest
    };
    let by_loader = Candidate::by_loader(&NAMES).filter(|candidate| cuda_major(candidate) <= newest);
    // Search folders only if the loader finds nothing.
    Library::open_first(by_loader, attempts).or_else(|| {
        let files = existing_folders(&FOLDERS, options).into_iter().flat_map(|folder| cupti_files_in(&folder));
        let fitting: Vec<_> = files.map(Candidate::File).filter(|candidate| fits(candidate, attempts)).collect();
        Library::open_first(fitting.into_iter(), attempts)
    })
}

/// Returns the file or folder that the user names. NVTX ranges can only be recorded by the libcupti that receives
/// them.
fn path_from_options(options: &Options) -> Option<PathBuf> {
    let is_cupti = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("cupti"));
    let receives_nvtx = || options.path("NVTX_INJECTION64_PATH").filter(is_cupti);
    options.path("KINETO_CUPTI_PATH").or_else(|| receives_nvtx().filter(|_| options.flag("NVTX_RANGES")))
}

/// Returns the libcupti files in a folder, newest first, the file without a version last.
fn cupti_files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = files_in(folder, "libcupti.so");
    // Toolkits name the file by the year of its release, and link the loader's name to it.
    found.retain(|path| file_version(path) < 2000);
    found
}

fn file_version(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    version_numbers(name).first().copied().unwrap_or(0)
}

/// Returns the major version of CUDA that a candidate is for, 0 if unknown.
fn cuda_major(candidate: &Candidate) -> u64 {
    match candidate {
        Candidate::Mapped(name) | Candidate::Loader(name) => file_version(Path::new(name)),
        Candidate::File(path) => file_version(path),
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn search_tries_places_in_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for name in [
            "home/extras/CUPTI/lib64/libcupti.so.12",
            "home/extras/CUPTI/lib64/libcupti.so",
            "home/extras/CUPTI/lib64/libcupti.so.2025.3.1",
            "home/lib64/libcupti.so.11.8",
            "home/targets/x86_64-linux/lib/libcupti.so.13",
            "conda/lib/libcupti.so.12",
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
            "venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "no library").unwrap();
        }
        let mut options = Options::default();
        for (name, folder) in [("CUDA_HOME", "home"), ("CONDA_PREFIX", "conda"), ("VIRTUAL_ENV", "venv")] {
            options.set(name, root.join(folder).to_str().unwrap());
        }
        let mut attempts = Vec::new();
        // None of them is a library, so all that match are tried.
        assert!(find_library(&options, 12_040, &mut attempts).is_none());
        let ours = |attempt: &&Attempt| attempt.what.starts_with(root.to_str().unwrap());
        let seen: Vec<_> =
            attempts.iter().filter(ours).map(|attempt| &attempt.what[root.to_str().unwrap().len() + 1..]).collect();
        let left_out = [
            "home/targets/x86_64-linux/lib/libcupti.so.13",
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
        ];
        let tried = [
            "home/extras/CUPTI/lib64/libcupti.so.12",
            "home/extras/CUPTI/lib64/libcupti.so",
            "home/lib64/libcupti.so.11.8",
            "conda/lib/libcupti.so.12",
            "venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        ];
        assert_eq!(seen, [&left_out[..], &tried[..]].concat());
        let loader = |attempt: &Attempt| attempt.what.ends_with(", by the loader");
        let first = attempts.iter().find(|attempt| loader(attempt)).unwrap();
        assert_eq!(first.what, "libcupti.so.12, by the loader", "13 is for a newer driver");
    }

    #[test]
    fn named_file_comes_first_whatever_its_version() {
        let mut options = Options::default();
        options.set("KINETO_CUPTI_PATH", "/nowhere/libcupti.so.13");
        let mut attempts = Vec::new();
        find_library(&options, 11_040, &mut attempts);
        assert_eq!(attempts[0].to_string(), "/nowhere/libcupti.so.13: not there");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("libcupti.so.12"), "no library").unwrap();
        attempts.clear();
        options.set("KINETO_CUPTI_PATH", folder.path().to_str().unwrap());
        find_library(&options, 11_040, &mut attempts);
        assert!(attempts[0].what.ends_with("/libcupti.so.12"), "a folder: {attempts:?}");
    }

    #[test]
    fn libcupti_that_receives_nvtx_is_the_one_in_use() {
        let find = |ranges: bool, path: &str, injection: &str| {
            let mut options = Options::default();
            options.set("NVTX_RANGES", ranges);
            options.set("KINETO_CUPTI_PATH", path);
            options.set("NVTX_INJECTION64_PATH", injection);
            path_from_options(&options)
        };
        assert_eq!(find(true, "", "/x/libcupti.so.13"), Some("/x/libcupti.so.13".into()));
        assert_eq!(find(true, "/y.so", "/x/libcupti.so.13"), Some("/y.so".into()));
        assert_eq!((find(false, "", "/x/libcupti.so.13"), find(true, "", "/cupti/nsys.so")), (None, None));
    }
}
