//! Where encoded values go, word by word: a growing list that begins on the stack and goes on in a buffer of the
//! thread's, so that the fields of spans touch no allocator in steady state, or the record itself.

use crate::buffer::Payload;
use std::cell::Cell;

/// Takes the words of a payload.
pub(crate) trait Sink {
    fn push(&mut self, word: u64);
}

impl<S: Sink> Sink for &mut S {
    #[inline(always)]
    fn push(&mut self, word: u64) {
        (**self).push(word);
    }
}

impl Sink for Payload {
    #[inline(always)]
    fn push(&mut self, word: u64) {
        Payload::push(self, word);
    }
}

thread_local! {
    /// The buffer of the payload that last went to the heap.
    static SPARE: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

/// Words kept on the stack; more go to the heap.
const INLINE: usize = 24;

/// A payload being put together.
pub(crate) struct Words {
    inline: [u64; INLINE],
    length: usize,
    /// All words, once they are more than fit inline.
    spilled: Vec<u64>,
}

impl Words {
    pub(crate) fn new() -> Words {
        Words { inline: [0; INLINE], length: 0, spilled: Vec::new() }
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, word: u64) {
        if self.spilled.is_empty() {
            self.spilled = SPARE.try_with(Cell::take).unwrap_or_default();
            self.spilled.clear();
            self.spilled.extend_from_slice(&self.inline);
            // No further word fits inline.
            self.length = INLINE + 1;
        }
        self.spilled.push(word);
    }

    /// Returns the words.
    pub(crate) fn as_slice(&self) -> &[u64] {
        self.inline.get(..self.length).unwrap_or(&self.spilled)
    }
}

impl Sink for Words {
    #[inline]
    fn push(&mut self, word: u64) {
        match self.inline.get_mut(self.length) {
            Some(place) => {
                *place = word;
                self.length += 1;
            }
            None => self.spill(word),
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
        fn it_holds_what_was_put_in(expected in prop::collection::vec(any::<u64>(), 0..4 * INLINE)) {
            let mut words = Words::new();
            expected.iter().for_each(|word| words.push(*word));
            prop_assert_eq!(words.as_slice(), &expected);
        }
    }
}
