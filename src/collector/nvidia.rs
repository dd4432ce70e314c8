//! What is known of NVIDIA's software without a call into it, for every build.

use std::path::Path;

/// The domain of the NVTX ranges that this crate makes where libcupti listens: those spans are recorded already.
pub(crate) const OWN_NVTX_DOMAIN: &str = "tracing-kineto";

/// Returns a version of CUDA as text: "CUDA 13.0" for 13000.
pub(crate) fn cuda_version(version: i32) -> String {
    format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
}

/// Says why the NVTX ranges of the process do not come to that libcupti, and what to do about it; `None` if they do.
///
/// Each library that makes ranges asks one variable for the listener, at its first call. The variable has to be there when the program starts: setting it in a running one is unsound where others read it.
pub(crate) fn nvtx_fault(injection: Option<&Path>, library: &Path) -> Option<String> {
    let why = match injection {
        None => "NVTX_INJECTION64_PATH is not set, so nobody listens to them".to_owned(),
        Some(other) if is_same(other, library) => return None,
        Some(other) => format!("NVTX_INJECTION64_PATH is {}, which listens to them", other.display()),
    };
    Some(format!(
        "NVTX ranges are not recorded: {why}; start the program with NVTX_INJECTION64_PATH={}",
        library.display()
    ))
}

/// Whether both are one file, by whatever names.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.canonicalize().ok();
    one == other || file(one).is_some_and(|one| file(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_to_name_the_library_in_use() {
        let (library, other) = (Path::new("/opt/libcupti.so.13"), Path::new("/opt/nsys.so"));
        let said = |injection| nvtx_fault(injection, library).unwrap_or_default();
        assert_eq!(said(Some(library)), "");
        assert!(said(None).contains("is not set") && said(Some(other)).contains("is /opt/nsys.so"));
        for fault in [said(None), said(Some(other))] {
            assert!(fault.ends_with("with NVTX_INJECTION64_PATH=/opt/libcupti.so.13"), "{fault}");
        }
    }

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn a_link_to_the_library_is_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(nvtx_fault(Some(&link), &file), None);
    }
}
