//! Searches for libpti_view, if there is an Intel GPU.

use super::level_zero::{LOADER, LevelZero};
use crate::library::search::{FolderGroup, existing_folders, files_in, files_of_vendor};
use crate::library::{Attempt, Candidate, Library};
use crate::{Options, Unavailable, Why};
use std::path::Path;

/// The names that the loader knows: 1.x, and 0.11 to 0.17.
const NAMES: [&str; 2] = ["libpti_view.so.1", "libpti_view.so.0"];
/// Folders in Python environments, and in oneAPI's installation.
const FOLDERS: [FolderGroup; 2] =
    [(&["VIRTUAL_ENV", "CONDA_PREFIX"], &[], &["lib"]), (&["ONEAPI_ROOT"], &[], &["pti/latest/lib"])];
/// The kernel's files with the vendors of GPUs.
const VENDORS: &str = "/sys/class/drm/renderD*/device/vendor";
const INTEL: &str = "0x8086";

/// Checks for an Intel GPU, without loading a library.
///
/// # Errors
/// There is none.
pub(super) fn check_for_gpu(attempts: &mut Vec<Attempt>) -> Result<(), Unavailable> {
    let found = files_of_vendor(Path::new(VENDORS), INTEL).count();
    attempts.push(Attempt::new(VENDORS, format!("{found} from Intel")));
    if found > 0 {
        return Ok(());
    }
    if LevelZero::is_mapped() {
        // A sandbox may hide the kernel's files; a program that has loaded the loader uses a GPU.
        attempts.push(Attempt::new(format!("{LOADER}, already loaded"), "there"));
        return Ok(());
    }
    let advice = "load the driver i915 or xe, and make /sys/class/drm readable";
    Err(Unavailable::new(Why::NoDevice, "no Intel GPU found", advice))
}

/// Finds libpti_view; adds the attempts to `attempts`.
pub(super) fn find_library(options: &Options, attempts: &mut Vec<Attempt>) -> Option<Library> {
    let view_files_in = |folder: &Path| files_in(folder, "libpti_view.so");
    let named = Candidate::named(options.path("KINETO_PTI_PATH"), view_files_in).into_iter();
    let in_folders = existing_folders(&FOLDERS, options).into_iter().flat_map(|folder| view_files_in(&folder));
    let files = named.chain(in_folders.map(Candidate::File)).inspect(|candidate| {
        if let Candidate::File(path) = candidate {
            open_dependencies(path);
        }
    });
    Library::open_first(Candidate::mapped(&NAMES).chain(files).chain(Candidate::by_loader(&NAMES)), attempts)
}

/// Opens libraries that libpti_view needs and that may be in its folder, which the loader does not search: the
/// libraries of Intel's compiler.
fn open_dependencies(file: &Path) {
    /// In the order of their dependencies.
    const NAMES: [&str; 5] = ["libintlc.so.5", "libimf.so", "libsvml.so", "libirng.so", "libxptifw.so"];
    if let Some(folder) = file.parent().filter(|_| file.exists()) {
        // If one cannot be opened, the loader's message about libpti_view names it.
        let in_folder_of_view = NAMES.map(|name| folder.join(name)).into_iter().filter(|path| path.exists());
        in_folder_of_view.for_each(|path| _ = Library::open_file(&path));
    }
}

/// Opens the core of PTI if it is in the same folder; up to 0.17, libpti_view searches for it by name only.
pub(super) fn open_core(library: Library, attempts: &mut Vec<Attempt>) {
    let in_folder_of_view =
        library.path_by_symbol(c"ptiVersion").and_then(|file| Some(file.parent()?.join("libpti.so")));
    if let Some(path) = in_folder_of_view.filter(|path| path.exists()) {
        let outcome = Library::open_file(&path).map_or_else(|error| error, |_| "opened".to_owned());
        attempts.push(Attempt::new(path.display().to_string(), outcome));
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::fs;

    // Shows the key KINETO_PTI_PATH.
    #[test]
    fn search_tries_places_in_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for name in [
            "named/libpti_view.so.0.17.0",
            "named/libpti_view.so.1.2.0",
            "named/libpti_view.so",
            "venv/lib/libpti_view.so.1",
            "conda/lib/libpti_view.so.0",
            "oneapi/pti/latest/lib/libpti_view.so.1",
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "no library").unwrap();
        }
        let mut options = Options::default();
        for (name, folder) in [
            ("KINETO_PTI_PATH", "named"),
            ("VIRTUAL_ENV", "venv"),
            ("CONDA_PREFIX", "conda"),
            ("ONEAPI_ROOT", "oneapi"),
        ] {
            options.set(name, root.join(folder).to_str().unwrap());
        }
        let mut attempts = Vec::new();
        assert!(find_library(&options, &mut attempts).is_none());
        let begin = format!("{}/", root.display());
        let tried: Vec<_> = attempts.iter().filter_map(|attempt| attempt.what.strip_prefix(&begin)).collect();
        let expected = [
            "named/libpti_view.so.1.2.0",
            "named/libpti_view.so.0.17.0",
            "named/libpti_view.so",
            "venv/lib/libpti_view.so.1",
            "conda/lib/libpti_view.so.0",
            "oneapi/pti/latest/lib/libpti_view.so.1",
        ];
        assert_eq!(tried, expected);
        assert!(attempts.last().unwrap().what.starts_with("libpti_view.so.0, by the loader"));
        attempts.clear();
        options.set("KINETO_PTI_PATH", "/nowhere/libpti_view.so.1");
        find_library(&options, &mut attempts);
        assert_eq!(attempts[0].to_string(), "/nowhere/libpti_view.so.1: not there");
    }

    #[test]
    fn intel_gpus_are_counted_by_vendor() {
        let root = tempfile::tempdir().unwrap();
        for (node, vendor) in [("renderD128", "0x8086\n"), ("renderD129", "0x10de\n"), ("renderD130", "0x8086\n")] {
            let folder = root.path().join(node).join("device");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("vendor"), vendor).unwrap();
        }
        let intel_gpus = |pattern| files_of_vendor(&root.path().join(pattern), INTEL).count();
        assert_eq!((intel_gpus("renderD*/device/vendor"), intel_gpus("card*/device/vendor")), (2, 0));
    }
}
