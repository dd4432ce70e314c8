//! Destinations of encoded values: a list that begins on the stack and continues in a thread's spare buffer, so that fields
//! need no allocator in steady state, or the record itself.

use crate::buffer::RecordPayload;
use std::cell::Cell;

/// Receives the words of a payload.
pub(crate) trait Sink {
    fn push_words<const N: usize>(&mut self, words: [u64; N]);
}

impl<S: Sink> Sink for &mut S {
    #[inline(always)]
    fn push_words<const N: usize>(&mut self, words: [u64; N]) {
        (**self).push_words(words);
    }
}

impl Sink for RecordPayload {
    #[inline(always)]
    fn push_words<const N: usize>(&mut self, words: [u64; N]) {
        RecordPayload::push_words(self, words);
    }
}

thread_local! {
    /// The buffer of the payload that last went to the heap.
    static SPARE: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

/// The number of words kept on the stack; more go to the heap.
const INLINE: usize = 24;

/// A payload under construction.
pub(crate) struct Words {
    inline: [u64; INLINE],
    length: usize,
    /// All words, once they no longer fit inline.
    spilled: Vec<u64>,
    /// Whether allocating failed, so that the payload is empty.
    is_lost: bool,
}

impl Words {
    pub(crate) fn new() -> Words {
        Words { inline: [0; INLINE], length: 0, spilled: Vec::new(), is_lost: false }
    }

    #[cold]
    #[inline(never)]
    fn spill_words(&mut self, words: &[u64]) {
        if self.spilled.is_empty() {
            self.spilled = SPARE.try_with(Cell::take).unwrap_or_default();
            self.spilled.clear();
            self.spilled.extend_from_slice(self.inline.get(..self.length).unwrap_or_default());
            // No further word fits inline.
            self.length = INLINE + 1;
        }
        self.is_lost |= self.spilled.try_reserve(words.len()).is_err();
        if self.is_lost {
            self.spilled = Vec::new();
        } else {
            self.spilled.extend_from_slice(words);
        }
    }

    /// Returns whether allocating failed, so that the payload is empty.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the words.
    pub(crate) fn as_slice(&self) -> &[u64] {
        self.inline.get(..self.length).unwrap_or(&self.spilled)
    }
}

impl Sink for Words {
    #[inline]
    fn push_words<const N: usize>(&mut self, words: [u64; N]) {
        match self.inline.get_mut(self.length..self.length + N) {
            Some(place) => {
                place.copy_from_slice(&words);
                self.length += N;
            }
            None => self.spill_words(&words),
        }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        const KEPT_WORDS_MAX: usize = 8 * 1024;
        if (1..=KEPT_WORDS_MAX).contains(&self.spilled.capacity()) {
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.spilled)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_equal_the_pushed_ones(parts in prop::collection::vec(any::<[u64; 3]>(), 0..INLINE)) {
            let (mut words, mut expected) = (Words::new(), Vec::new());
            for part in parts {
                words.push_words(part);
                words.push_words([7]);
                expected.extend(part);
                expected.push(7);
            }
            prop_assert_eq!(words.as_slice(), &expected);
        }
    }
}
