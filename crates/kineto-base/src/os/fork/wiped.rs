//! Words that a child process finds zeroed, however it was made: `clone(2)` without the C library calls no handler.

use crate::os::memory;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The words of the smallest page. The first is not 0 in the process that has mapped it.
const WORDS: usize = 512;

/// The first word, null until the page is needed.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// Which words are claimed.
static CLAIMED: [AtomicBool; WORDS] = [const { AtomicBool::new(false) }; WORDS];

/// A word that is 0 at first and in a child process.
#[derive(Debug)]
pub struct WipedWord {
    word: &'static AtomicU64,
    /// Its place in the page, if it is there.
    place: Option<usize>,
}

impl Default for WipedWord {
    fn default() -> WipedWord {
        WipedWord::new()
    }
}

impl WipedWord {
    /// Claims a word, until it is dropped. Beyond a page of them, it is not zeroed in a child that calls no handler.
    pub fn new() -> WipedWord {
        let claim = |place: &usize| CLAIMED.get(*place).is_some_and(|is| !is.swap(true, Ordering::AcqRel));
        let word = |page: &'static [AtomicU64]| (1..page.len()).find(claim).and_then(|at| Some((page.get(at)?, at)));
        match page().and_then(word) {
            Some((word, place)) => WipedWord { word, place: Some(place) },
            None => WipedWord { word: Box::leak(Box::default()), place: None },
        }
    }

    /// Returns the word. Nothing may use it after this is dropped.
    pub fn get(&self) -> &'static AtomicU64 {
        self.word
    }
}

impl Drop for WipedWord {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Relaxed);
        if let Some(is_claimed) = self.place.and_then(|place| CLAIMED.get(place)) {
            is_claimed.store(false, Ordering::Release);
        }
    }
}

/// Returns the page, which is mapped at first use; `None` if memory is short.
fn page() -> Option<&'static [AtomicU64]> {
    if PAGE.load(Ordering::Acquire).is_null() {
        let words = memory::zeroed_words(WORDS)?;
        memory::wipe_in_children(words);
        words.first()?.store(1, Ordering::Relaxed);
        let first = words.as_ptr().cast_mut();
        // A thread that was slower leaves its page unused.
        let _ = PAGE.compare_exchange(std::ptr::null_mut(), first, Ordering::AcqRel, Ordering::Acquire);
    }
    // SAFETY: the pointer is that of so many words, which live for ever.
    Some(unsafe { std::slice::from_raw_parts(PAGE.load(Ordering::Acquire), WORDS) })
}

/// Marks this process as known; returns whether it was not yet, as in a forked child. Allocates nothing.
pub(super) fn mark_process() -> bool {
    // SAFETY: null, or the first word of the page, which lives for ever.
    let first = unsafe { PAGE.load(Ordering::Acquire).as_ref() };
    // The plain load comes first: nearly all calls end there.
    first.is_some_and(|first| {
        first.load(Ordering::Relaxed) == 0 && first.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    })
}
