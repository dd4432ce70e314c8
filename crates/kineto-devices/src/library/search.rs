//! The places of a vendor's library, as data: names, options and folders.

use super::{Candidate, matching_paths};
use crate::Options;
use std::path::{Path, PathBuf};

/// Folders with libraries: the options that name a path, such as "CUDA_HOME", paths where vendors install, and the folders
/// in each of these paths. `*` may occur once in each component.
pub(crate) type FolderGroup = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// Returns the folders that exist, in order.
pub(crate) fn existing_folders(groups: &[FolderGroup], options: &Options) -> Vec<PathBuf> {
    let patterns = groups.iter().flat_map(|(named_by, defaults, folders)| {
        let paths = options.paths(named_by).into_iter().chain(defaults.iter().map(PathBuf::from));
        paths.flat_map(|path| folders.iter().map(move |folder| path.join(folder)))
    });
    patterns.flat_map(|pattern| matching_paths(&pattern)).collect()
}

/// Returns the kernel's files that match a pattern and contain that PCI vendor, such as "0x10de".
pub(crate) fn files_of_vendor(pattern: &Path, vendor: &str) -> impl Iterator<Item = PathBuf> {
    let is_of_vendor =
        move |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.trim().eq_ignore_ascii_case(vendor));
    matching_paths(pattern).into_iter().filter(is_of_vendor)
}

/// Returns the files of a library in a folder, newest first, the file without a version last.
pub(crate) fn files_in(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = matching_paths(&folder.join(format!("{name}.*")));
    found.extend(matching_paths(&folder.join(name)));
    found
}

impl Candidate {
    /// Returns the libraries of these names that the process has loaded.
    pub(crate) fn mapped(names: &[&str]) -> impl Iterator<Item = Candidate> {
        names.iter().map(|name| Candidate::Mapped((*name).to_owned()))
    }

    /// Returns the libraries of these names that the loader finds.
    pub(crate) fn by_loader(names: &[&str]) -> impl Iterator<Item = Candidate> {
        names.iter().map(|name| Candidate::Loader((*name).to_owned()))
    }

    /// Returns the file that the user names, or the files in the folder that the user names.
    pub(crate) fn named(path: Option<PathBuf>, files_in: impl Fn(&Path) -> Vec<PathBuf>) -> Vec<Candidate> {
        let files = path.map(|path| if path.is_dir() { files_in(&path) } else { vec![path] });
        files.into_iter().flatten().map(Candidate::File).collect()
    }
}
