//! Searches for AMD's libraries, if there is a device or a program that uses HIP.

use crate::library::search::{FolderGroup, existing_folders};
use crate::library::{Attempt, Candidate, Library};
use crate::{Options, Unavailable, Why};
use std::path::Path;

/// The names of HIP's runtime.
pub(super) const HIP: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// The device file of the kernel's driver for AMD devices.
const DRIVER: &str = "/dev/kfd";

/// Folders in ROCm's installations, of which each version has its own, in a Conda environment, and in a Python environment.
const FOLDERS: [FolderGroup; 3] = [
    (&["ROCM_PATH", "ROCM_HOME", "HIP_PATH"], &["/opt/rocm", "/opt/rocm-*"], &["lib", "lib64"]),
    (&["CONDA_PREFIX"], &[], &["lib"]),
    (&["VIRTUAL_ENV", "CONDA_PREFIX"], &[], &IN_PYTHON),
];
const IN_PYTHON: [&str; 2] =
    ["lib/python3*/site-packages/_rocm_sdk_core/lib", "lib/python3*/site-packages/_rocm_sdk_devel/lib"];

/// Returns HIP's runtime, if the process has loaded it.
pub(super) fn loaded_hip() -> Option<Library> {
    Library::open_first(Candidate::mapped(&HIP), &mut Vec::new())
}

/// Checks for AMD devices, or a program that uses HIP, before loading a library.
///
/// # Errors
/// There are none.
pub(super) fn check_for_device() -> Result<(), Unavailable> {
    if !cfg!(target_os = "linux") {
        return Err(Unavailable::new(Why::Unsupported, "AMD's devices are recorded on Linux alone", "record on Linux"));
    }
    if Path::new(DRIVER).exists() || loaded_hip().is_some() {
        return Ok(());
    }
    let message = format!("there is no AMD GPU: no {DRIVER}, and no libamdhip64 in the process");
    Err(Unavailable::new(Why::NoDevice, message, "in a container, pass /dev/kfd and /dev/dri to it"))
}

/// Finds a library by its names, best first. The order: libraries that are already loaded, the file or folder that
/// the user names, the loader's path, ROCm's folders. Adds the attempts to `attempts`.
pub(super) fn find_library(
    names: &[&str],
    named: Option<&Path>,
    options: &Options,
    attempts: &mut Vec<Attempt>,
) -> Option<Library> {
    let in_folder = |folder: &Path| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let named = Candidate::named(named.map(Path::to_owned), in_folder);
    let first = Candidate::mapped(names).chain(named).chain(Candidate::by_loader(names));
    // Search folders only if the loader finds nothing.
    Library::open_first(first, attempts).or_else(|| {
        let files = existing_folders(&FOLDERS, options).into_iter().flat_map(|folder| in_folder(&folder));
        Library::open_first(files.filter(|file| file.exists()).map(Candidate::File), attempts)
    })
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::fs;

    // Shows the keys KINETO_ROCPROFILER_PATH, KINETO_ROCTRACER_PATH.
    #[test]
    fn search_tries_places_in_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for folder in
            ["named", "rocm/lib", "conda/lib", "venv/lib/python3.12/site-packages/_rocm_sdk_core/lib", "empty/lib"]
        {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("libnothing.so.1"), "no library").unwrap();
        }
        fs::remove_file(root.join("empty/lib/libnothing.so.1")).unwrap();
        let mut options = Options::default();
        for (name, folder) in
            [("ROCM_PATH", "rocm"), ("HIP_PATH", "empty"), ("CONDA_PREFIX", "conda"), ("VIRTUAL_ENV", "venv")]
        {
            options.set(name, root.join(folder).to_str().unwrap());
        }
        let mut attempts = Vec::new();
        assert!(find_library(&["libnothing.so.1"], Some(&root.join("named")), &options, &mut attempts).is_none());
        let tried = attempts.iter().map(|attempt| attempt.what.replace(root.to_str().unwrap(), ""));
        let all = [
            "/named/libnothing.so.1",
            "libnothing.so.1, by the loader",
            "/rocm/lib/libnothing.so.1",
            "/conda/lib/libnothing.so.1",
            "/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/libnothing.so.1",
        ];
        assert_eq!(tried.collect::<Vec<_>>(), all);
    }

    #[test]
    fn without_a_device_nothing_is_looked_for() {
        if !Path::new(DRIVER).exists() {
            let reason = check_for_device().unwrap_err();
            assert_eq!(reason.why(), Why::NoDevice);
        }
    }
}
