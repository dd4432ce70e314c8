//! Names of the process and of the host, and whether its rights are its caller's.
#![allow(unsafe_code, reason = "gethostname and getauxval have no safe form")]

/// Returns the name of the program: the last part of the path with which it was started, as libkineto has it.
pub(crate) fn name() -> String {
    let first = std::env::args_os().next().unwrap_or_default();
    let path = std::path::PathBuf::from(first);
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the name of this host; empty where the OS does not tell.
#[cfg(unix)]
pub(crate) fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length less one, so that a 0 byte always ends it.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    if failed { String::new() } else { String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned() }
}

/// Returns the name of this host; empty where the OS does not tell.
#[cfg(not(unix))]
pub(crate) fn host_name() -> String {
    String::new()
}

/// Whether the program has rights that its caller has not (set-user-ID and the like), who says what its environment is.
#[cfg(target_os = "linux")]
pub(crate) fn has_more_rights() -> bool {
    // SAFETY: getauxval takes a number, and returns 0 for what is not there.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_program_has_a_name() {
        assert!(super::name().starts_with("tracing_kineto"), "{}", super::name());
    }
}
