//! Checks whether libcupti receives the NVTX ranges of the process.

use std::path::Path;

/// Returns why this libcupti does not receive the process's NVTX ranges, and what to do; `None` if it does.
///
/// NVTX reads the listener from an environment variable at its first call. The variable must be set when the program
/// starts: setting it later is unsound while other threads read the environment.
pub(super) fn find_nvtx_fault(injection: Option<&Path>, library: &Path) -> Option<String> {
    let why = match injection {
        None => "NVTX_INJECTION64_PATH is not set, so no tool receives them".to_owned(),
        Some(other) if is_same(other, library) => return None,
        Some(other) => format!("NVTX_INJECTION64_PATH is {}, which receives them", other.display()),
    };
    Some(format!(
        "NVTX ranges are not recorded: {why}; start the program with NVTX_INJECTION64_PATH={}",
        library.display()
    ))
}

/// Returns whether both paths name the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.canonicalize().ok();
    one == other || file(one).is_some_and(|one| file(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_must_name_the_library_in_use() {
        let (library, other) = (Path::new("/opt/libcupti.so.13"), Path::new("/opt/nsys.so"));
        let fault = |injection| find_nvtx_fault(injection, library).unwrap_or_default();
        assert_eq!(fault(Some(library)), "");
        assert!(fault(None).contains("is not set") && fault(Some(other)).contains("is /opt/nsys.so"));
        for text in [fault(None), fault(Some(other))] {
            assert!(text.ends_with("with NVTX_INJECTION64_PATH=/opt/libcupti.so.13"), "{text}");
        }
    }

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn link_to_the_library_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(find_nvtx_fault(Some(&link), &file), None);
    }
}
