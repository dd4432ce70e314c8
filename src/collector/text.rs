//! Copies C strings that lie somewhere in the process, without trusting that they do.
#![allow(unsafe_code, reason = "the strings are foreign, and may be gone")]

/// The longest text that is copied.
pub(crate) const LONGEST: usize = 64 * 1024;

/// Copies the C string at that address into `text`, cut at [`LONGEST`]; `false` if there is none.
///
/// The kernel copies it, so that an address of unmapped memory, such as the name of a kernel whose module has been
/// unloaded, is an error and no crash. Where the kernel does not let us, the memory is read as it is.
#[cfg(target_os = "linux")]
pub(crate) fn copy(address: u64, text: &mut Vec<u8>) -> bool {
    text.clear();
    if address == 0 {
        return false;
    }
    if !has_kernels_help() {
        return copy_unchecked(address, text);
    }
    const PIECE: usize = 256;
    let mut piece = [0u8; PIECE];
    let mut at = address;
    while text.len() < LONGEST {
        // Not across the end of a page: the next one may not be there.
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
    text.truncate(LONGEST);
    true
}

/// Has the kernel copy what lies at that address; returns how many bytes it could.
#[cfg(target_os = "linux")]
fn copy_piece(address: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let Ok(address) = usize::try_from(address) else { return 0 };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: into.len() };
    // SAFETY: getpid takes nothing.
    let process = unsafe { libc::getpid() };
    // SAFETY: `local` is a place for as many bytes as are asked for; the kernel itself looks whether `remote` is there.
    let read = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// Whether the kernel copies for us, which a sandbox may forbid.
#[cfg(target_os = "linux")]
fn has_kernels_help() -> bool {
    static HELPS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HELPS.get_or_init(|| {
        let known = *b"known";
        let mut copied = [0u8; 5];
        copy_piece(known.as_ptr().addr() as u64, &mut copied) == known.len() && copied == known
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn copy(address: u64, text: &mut Vec<u8>) -> bool {
    text.clear();
    address != 0 && copy_unchecked(address, text)
}

fn copy_unchecked(address: u64, text: &mut Vec<u8>) -> bool {
    let Ok(address) = usize::try_from(address) else { return false };
    let start = std::ptr::with_exposed_provenance::<u8>(address);
    for at in 0..LONGEST {
        // SAFETY: the library says that there is a C string, of which no zero has come yet.
        match unsafe { start.wrapping_add(at).read() } {
            0 => break,
            byte => text.push(byte),
        }
    }
    true
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn address(bytes: &[u8]) -> u64 {
        bytes.as_ptr().expose_provenance() as u64
    }

    fn copied(address: u64) -> Option<Vec<u8>> {
        let mut text = b"left over".to_vec();
        copy(address, &mut text).then_some(text)
    }

    #[test]
    fn texts_end_with_their_zero_or_the_limit() {
        let long = [vec![b'a'; 1000], vec![0, b'b']].concat();
        let endless = [vec![b'x'; LONGEST + 100], vec![0]].concat();
        for (bytes, length) in [(&long[..], 1000), (&endless, LONGEST), (b"\0", 0)] {
            assert_eq!(copied(address(bytes)).unwrap().len(), length);
            let mut text = Vec::new();
            assert!(copy_unchecked(address(bytes), &mut text));
            assert_eq!(text.len(), length);
        }
    }

    #[test]
    fn no_address_is_no_text() {
        assert_eq!(copied(0), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_not_mapped_is_no_text() {
        assert!(has_kernels_help());
        for nowhere in [1, 0xDEAD_BEEF, u64::MAX, u64::MAX / 2] {
            assert_eq!(copied(nowhere), None);
        }
    }
}
