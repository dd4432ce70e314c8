//! Renames a file without replacing another one.
#![allow(unsafe_code, reason = "renameat2 has no safe form")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Renames a file, unless the new name exists.
///
/// # Errors
/// `AlreadyExists` if it exists; else those of the system.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let [from_name, to_name] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (from_name, to_name) = (from_name?, to_name?);
    // SAFETY: both paths are C strings that outlive the call. The call is by number since old C libraries lack the function.
    let result = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from_name.as_ptr(),
            libc::AT_FDCWD,
            to_name.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let why = io::Error::last_os_error();
    match why.raw_os_error() {
        // The file system or the kernel does not support the flag.
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) if std::fs::symlink_metadata(to).is_err() => {
            std::fs::rename(from, to)
        }
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => Err(io::ErrorKind::AlreadyExists.into()),
        _ => Err(why),
    }
}
