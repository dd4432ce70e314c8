//! Copies C strings from addresses that may not be valid.
#![allow(unsafe_code, reason = "the strings are foreign, and may be gone")]

use std::ffi::{CStr, c_char, c_int};

/// The longest text that is copied.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// Copies the C string at that address into `text`, cut at [`MAX_BYTES`]; returns `false` if there is none.
///
/// The kernel copies it, so unmapped memory causes an error instead of a crash: for instance the name of a kernel
/// whose module was unloaded. If a sandbox denies that too, the text is unknown.
#[cfg(target_os = "linux")]
pub(crate) fn copy_c_string(address: u64, text: &mut Vec<u8>) -> bool {
    text.clear();
    if address == 0 {
        return false;
    }
    const PIECE: usize = 256;
    let mut piece = [0u8; PIECE];
    let mut at = address;
    while text.len() < MAX_BYTES {
        // Do not cross the end of a page: the next page may not be mapped.
        let wanted = PIECE - usize::try_from(at % PIECE as u64).unwrap_or(0);
        let read = copy_piece(at, piece.get_mut(..wanted).unwrap_or_default());
        let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else { return false };
        if let Some(end) = read.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(read.get(..end).unwrap_or_default());
            break;
        }
        text.extend_from_slice(read);
        at = at.saturating_add(read.len() as u64);
    }
    text.truncate(MAX_BYTES);
    true
}

/// Reads nothing on other systems: no vendor's library that passes addresses supports them.
#[cfg(not(target_os = "linux"))]
pub(crate) fn copy_c_string(_address: u64, text: &mut Vec<u8>) -> bool {
    text.clear();
    false
}

/// Returns the text that `read` writes into a buffer of that length; it returns 0 on success.
pub(crate) fn read_text<C: Into<i64>>(read: impl FnOnce(*mut c_char, c_int) -> C) -> Option<String> {
    let mut text: [c_char; 256] = [0; 256];
    let length = c_int::try_from(text.len() - 1).unwrap_or(0);
    if read(text.as_mut_ptr(), length).into() != 0 {
        return None;
    }
    // SAFETY: the function got one byte less than the buffer has, so the last one is still zero.
    Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

/// Copies bytes from that address; returns how many could be read.
#[cfg(target_os = "linux")]
fn copy_piece(address: u64, into: &mut [u8]) -> usize {
    let Ok(start) = usize::try_from(address) else { return 0 };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: into.len() };
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: getpid takes no arguments.
    let process = unsafe { libc::getpid() };
    // SAFETY: `local` is writable for as many bytes as it names; the kernel checks `remote`.
    let read = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    let is_refused = || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT);
    if read < 0 && is_refused() { copy_through_pipe(start, into) } else { usize::try_from(read).unwrap_or(0) }
}

/// Does the same where a sandbox denies it. Each piece gets its own pipe, since a child that is forked meanwhile
/// shares the pipes of its parent.
#[cfg(target_os = "linux")]
fn copy_through_pipe(start: usize, into: &mut [u8]) -> usize {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    let Ok((mut reader, writer)) = std::io::pipe() else { return 0 };
    let address = std::ptr::without_provenance::<u8>(start);
    // SAFETY: the kernel checks the range; an empty pipe has room for that many bytes.
    let written = unsafe { libc::write(writer.as_raw_fd(), address.cast(), into.len()) };
    let written = usize::try_from(written).unwrap_or(0);
    let copied = into.get_mut(..written).map(|into| reader.read_exact(into));
    if matches!(copied, Some(Ok(()))) { written } else { 0 }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    fn address(bytes: &[u8]) -> u64 {
        bytes.as_ptr().expose_provenance() as u64
    }

    fn copied(address: u64) -> Option<Vec<u8>> {
        let mut text = b"left over".to_vec();
        copy_c_string(address, &mut text).then_some(text)
    }

    #[test]
    fn text_ends_at_its_zero_or_the_limit() {
        let long = [vec![b'a'; 1000], vec![0, b'b']].concat();
        let endless = [vec![b'x'; MAX_BYTES + 100], vec![0]].concat();
        for (bytes, length) in [(&long[..], 1000), (&endless, MAX_BYTES), (b"\0", 0)] {
            assert_eq!(copied(address(bytes)).unwrap().len(), length);
        }
    }

    #[test]
    fn null_address_has_no_text() {
        assert_eq!(copied(0), None);
    }

    /// Makes a system call fail on the calling thread from now on, as a sandbox does.
    #[cfg(target_arch = "x86_64")]
    #[expect(clippy::unwrap_used, reason = "a test's number")]
    fn refuse(call: libc::c_long) {
        let step = |code, jump_false, k| libc::sock_filter { code, jt: 0, jf: jump_false, k };
        let (refused, allowed) = (libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned(), libc::SECCOMP_RET_ALLOW);
        // Load the call's number, compare it, return.
        let call = u32::try_from(call).unwrap();
        let mut filter = [step(0x20, 0, 0), step(0x15, 1, call), step(0x06, 0, refused), step(0x06, 0, allowed)];
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: prctl takes plain numbers here.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        // SAFETY: `program` points to a filter of the length that it names.
        let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn text_is_safe_to_copy_in_a_sandbox() {
        let thread = std::thread::Builder::new().spawn(|| {
            refuse(libc::SYS_process_vm_readv);
            let long = [vec![b'a'; 10_000], vec![0]].concat();
            assert_eq!(copied(address(&long)).unwrap().len(), 10_000);
            assert_eq!([1, 0xDEAD_BEEF, u64::MAX].map(copied), [None, None, None]);
            refuse(libc::SYS_pipe2);
            assert_eq!(copied(address(&long)), None, "no method is left");
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn unmapped_address_has_no_text() {
        for nowhere in [1, 0xDEAD_BEEF, u64::MAX, u64::MAX / 2] {
            assert_eq!(copied(nowhere), None);
        }
    }
}
