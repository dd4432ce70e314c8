//! Gives memory back to the operating system without giving up its address.
#![allow(unsafe_code, reason = "madvise has no safe form")]

use std::sync::atomic::AtomicU64;

/// Tells the OS that what lies in `words` is not needed: its whole pages read as zero afterwards, and take no memory
/// until they are written again.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn discard(words: &'static [AtomicU64]) {
    const PAGE: usize = 64 * 1024;
    let bytes = size_of_val(words);
    let start = words.as_ptr().cast::<u8>();
    // A multiple of every page size in use, so that no page is touched that holds anything else; what lies before and
    // behind is at most a page each.
    let small = page_size().min(PAGE);
    let before = start.addr().next_multiple_of(small) - start.addr();
    let whole = bytes.saturating_sub(before) / small * small;
    if whole > 0 {
        // SAFETY: 1. The range lies inside `words`, which live for ever and are atomics, so zeros are valid for them.
        // 2. It is private anonymous memory of the allocator's, so nothing else is lost.
        unsafe { libc::madvise(start.wrapping_add(before).cast_mut().cast(), whole, libc::MADV_DONTNEED) };
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn page_size() -> usize {
    // SAFETY: sysconf only looks the number up.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(64 * 1024)
}

/// Does nothing on this platform: the memory stays taken until it is used again.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn discard(_words: &'static [AtomicU64]) {}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn whole_pages_read_as_zero_afterwards_and_the_rest_is_kept() {
        let words: &'static [AtomicU64] = (0..16 * 1024).map(AtomicU64::new).collect::<Vec<_>>().leak();
        discard(words);
        let zeros = words.iter().filter(|word| word.load(Ordering::Relaxed) == 0).count();
        assert!(zeros >= 8 * 1024, "{zeros}");
        words.iter().for_each(|word| word.store(7, Ordering::Relaxed));
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 7));
    }
}
