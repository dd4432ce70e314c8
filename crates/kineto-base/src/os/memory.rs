//! Memory that is never freed: mapped at once, made present ahead of need, discarded while it keeps its address.
#![allow(unsafe_code, reason = "mmap and madvise have no safe form")]

pub use crate::fallible::try_vec_with_capacity;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns whether records may take more memory.
///
/// At a limit on the process's address space or data (`ulimit -v`, `-d`), allocations of the program fail, and most programs
/// abort then. So records leave a part of the limit free. The end of the recording needs most of that part.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn has_headroom() -> bool {
    const PART: u64 = 4;
    const MOST: u64 = 32 << 20;
    let limit_of = |resource| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` is a valid place for the result.
        unsafe { libc::getrlimit(resource, &raw mut limit) };
        limit.rlim_cur
    };
    let limit = limit_of(libc::RLIMIT_AS).min(limit_of(libc::RLIMIT_DATA));
    if limit == libc::RLIM_INFINITY {
        return true;
    }
    let bytes = usize::try_from((limit / PART).min(MOST)).unwrap_or(usize::MAX);
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses affects no existing memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    // SAFETY: removes the mapping above, which nothing refers to.
    start != libc::MAP_FAILED && unsafe { libc::munmap(start, bytes) } == 0
}

/// Returns `true`: no limits are known on this platform.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn has_headroom() -> bool {
    true
}

/// Returns `count` zeroed words that live forever, page-aligned where pages are known. They take no memory until they are
/// written. `None` if there is no memory for them.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn zeroed_words(count: usize) -> Option<&'static [AtomicU64]> {
    if !has_headroom() {
        return None;
    }
    let bytes = count * size_of::<AtomicU64>();
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses affects no existing memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: 1. The mapping has `bytes` bytes, begins on a page, and is never unmapped. 2. It reads as zeros, which are
    // valid for atomics, and there is no other reference to it.
    Some(unsafe { std::slice::from_raw_parts(start.cast(), count) })
}

/// Returns `count` zeroed words that live forever; `None` if there is no memory for them.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn zeroed_words(count: usize) -> Option<&'static [AtomicU64]> {
    let mut words = try_vec_with_capacity(count)?;
    words.resize_with(count, AtomicU64::default);
    Some(words.leak())
}

/// Makes `words`, which are whole pages, read as zeros in each child process that gets a copy of them. Older kernels refuse.
pub fn wipe_in_children(words: &'static [AtomicU64]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the range is that of `words`, whose content changes in no process that exists.
    unsafe {
        libc::madvise(words.as_ptr().cast_mut().cast(), size_of_val(words), libc::MADV_WIPEONFORK)
    };
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = words;
}

/// Makes every page of `words` present and writable, so that no write to it faults. The words may not be in use yet; their
/// content may be lost.
pub fn populate_pages(words: &'static [AtomicU64]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if populate_or_fail(words).is_ok() {
        return;
    }
    const SMALLEST_PAGE: usize = 4096 / size_of::<AtomicU64>();
    words.iter().step_by(SMALLEST_PAGE).for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Makes every page of `words` present without a store by this process: a lack of memory is an error instead of a signal.
///
/// # Errors
/// The system's number: `EINVAL` before Linux 5.14.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn populate_or_fail(words: &'static [AtomicU64]) -> Result<(), libc::c_int> {
    loop {
        // SAFETY: the range lies inside `words`; populating changes no content.
        let populated = unsafe {
            let start = words.as_ptr().cast_mut().cast();
            libc::madvise(start, size_of_val(words), libc::MADV_POPULATE_WRITE)
        };
        match std::io::Error::last_os_error().raw_os_error() {
            _ if populated == 0 => return Ok(()),
            Some(libc::EINTR | libc::EAGAIN) => {}
            why => return Err(why.unwrap_or(libc::EINVAL)),
        }
    }
}

/// Makes the pages of a list's spare capacity present in one call: page faults one by one cost several times that.
pub fn populate_spare(words: &mut Vec<u64>) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let spare = words.spare_capacity_mut();
        let page = page_size();
        let start = spare.as_mut_ptr().cast::<u8>();
        let before = start.addr().next_multiple_of(page) - start.addr();
        let whole = size_of_val(spare).saturating_sub(before) / page * page;
        if whole > 0 {
            // SAFETY: the range lies inside the list's allocation; populating changes no content. Older kernels refuse, and
            // then each page is populated on first touch.
            unsafe { libc::madvise(start.wrapping_add(before).cast(), whole, libc::MADV_POPULATE_WRITE) };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = words;
}

/// Gives the memory of `words` back to the OS: whole pages read as zero afterwards, and take no memory until they are written
/// again.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn discard_pages(words: &'static [AtomicU64]) {
    const LARGEST_PAGE: usize = 64 * 1024;
    let bytes = size_of_val(words);
    let start = words.as_ptr().cast::<u8>();
    // Whole pages only, so that no other data is affected. Where pages are larger than 64 KiB the OS refuses, and nothing is
    // given back.
    let small = page_size().min(LARGEST_PAGE);
    let before = start.addr().next_multiple_of(small) - start.addr();
    let whole = bytes.saturating_sub(before) / small * small;
    if whole > 0 {
        // SAFETY: 1. The range lies inside `words`, which live for ever and are atomics, so zeros are valid for them.
        // 2. It is private anonymous memory, so nothing else is lost.
        unsafe { libc::madvise(start.wrapping_add(before).cast_mut().cast(), whole, libc::MADV_DONTNEED) };
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn page_size() -> usize {
    // SAFETY: sysconf only returns a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(64 * 1024)
}

/// Does nothing on this platform: the memory stays allocated until it is reused.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn discard_pages(_words: &'static [AtomicU64]) {}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn zeroed_words_take_memory_once_populated() {
        let words = zeroed_words(16 * 1024).unwrap();
        let present = |words: &[AtomicU64]| {
            let mut present = vec![0u8; size_of_val(words) / page_size()];
            let start = words.as_ptr().cast_mut().cast();
            // SAFETY: the range begins on a page, and `present` has a byte for each of its pages.
            assert_eq!(unsafe { libc::mincore(start, size_of_val(words), present.as_mut_ptr()) }, 0);
            present.iter().filter(|page| **page & 1 != 0).count()
        };
        assert_eq!(present(words), 0);
        populate_pages(words);
        assert_eq!(present(words), size_of_val(words) / page_size());
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        discard_pages(words);
        assert_eq!(present(words), 0);
    }

    #[test]
    fn too_large_requests_return_none() {
        assert!(zeroed_words(1 << 58).is_none());
        assert!(try_vec_with_capacity::<u64>(1 << 58).is_none() && try_vec_with_capacity::<u64>(7).is_some());
    }

    #[test]
    fn populating_capacity_keeps_content() {
        let mut words = Vec::with_capacity(64 * 1024);
        words.push(7);
        populate_spare(&mut words);
        words.resize(words.capacity(), 1);
        assert_eq!((words[0], words[words.len() - 1]), (7, 1));
        populate_spare(&mut Vec::new());
    }

    #[test]
    fn discard_zeroes_whole_pages_only() {
        let words: &'static [AtomicU64] = (0..16 * 1024).map(AtomicU64::new).collect::<Vec<_>>().leak();
        discard_pages(words);
        let zeros = words.iter().filter(|word| word.load(Ordering::Relaxed) == 0).count();
        assert!(zeros >= 8 * 1024, "{zeros}");
        words.iter().for_each(|word| word.store(7, Ordering::Relaxed));
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 7));
    }
}
