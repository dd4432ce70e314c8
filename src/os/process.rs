//! Names of the process and of the host.
#![allow(unsafe_code, reason = "gethostname has no safe form")]

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

#[cfg(test)]
mod tests {
    #[test]
    fn the_program_has_a_name() {
        assert!(super::name().starts_with("tracing_kineto"), "{}", super::name());
    }
}
