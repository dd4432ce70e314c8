//! Files of a checkout.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Returns the files of a folder and of those below whose names end with one of the `endings`, sorted. Hidden folders and what cargo
/// builds are left out.
///
/// # Errors
///
/// If a folder cannot be read.
pub fn files(folder: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                folders.extend((name != "target" && !name.starts_with('.')).then(|| entry.path()));
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(entry.path());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the same files with their texts, by their paths from `root`.
///
/// # Errors
///
/// If a folder or a file cannot be read.
pub fn texts(root: &Path, folder: &str, endings: &[&str]) -> io::Result<Vec<(String, String)>> {
    let paths = files(&root.join(folder), endings)?.into_iter();
    let name = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    paths.map(|path| Ok((name(&path), fs::read_to_string(path)?))).collect()
}

/// Returns the folders of the sources of the packages in `crates`, from `root`.
///
/// # Errors
///
/// If the folder cannot be read.
pub fn packages(root: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(root.join("crates"))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names.into_iter().map(|name| format!("crates/{name}/src")).collect())
}
