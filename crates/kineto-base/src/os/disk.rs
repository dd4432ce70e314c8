//! The free space of a disk.
#![allow(unsafe_code, reason = "statvfs has no safe form")]

use std::io;
use std::path::Path;

/// The free bytes, or the part of the disk, below which a disk counts as full: the program itself needs space, too.
const LEAST: u64 = 256 << 20;
const PART: u64 = 50;

/// Checks that a folder's disk has room.
///
/// # Errors
/// [`StorageFull`](io::ErrorKind::StorageFull) if little is left. If the system does not say, that is no error.
pub fn check_free_space(folder: &Path) -> io::Result<()> {
    match free_and_total(folder) {
        Some((free, total)) if free < LEAST.min(total / PART) => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}

/// Returns the bytes that a folder's disk has free for this user, and all of its bytes.
#[cfg(unix)]
fn free_and_total(folder: &Path) -> Option<(u64, u64)> {
    use std::os::unix::ffi::OsStrExt;

    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: all zeros are a valid statvfs.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with 0, and `disk` is valid for writes.
    let failed = unsafe { libc::statvfs(path.as_ptr(), &raw mut disk) } != 0;
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the types differ between platforms")]
    let bytes = |blocks| (blocks as u64).saturating_mul(disk.f_frsize as u64);
    (!failed).then(|| (bytes(disk.f_bavail), bytes(disk.f_blocks)))
}

/// Free space is unknown here.
#[cfg(not(unix))]
fn free_and_total(_: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn temporary_folder_has_space() {
        let (free, total) = free_and_total(&std::env::temp_dir()).unwrap();
        assert!(free <= total && total > 0);
        assert!(free_and_total(Path::new("/no such folder")).is_none());
        assert!(check_free_space(Path::new("/no such folder")).is_ok());
    }
}
