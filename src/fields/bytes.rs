//! A growing list of bytes that begins on the stack and goes on in a buffer of the thread's, so that the fields of spans
//! touch no allocator in steady state.

use std::cell::Cell;

thread_local! {
    /// The buffer of the payload that last went to the heap.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes kept on the stack; more go to the heap.
const INLINE: usize = 192;

/// A payload being put together.
pub(crate) struct Bytes {
    inline: [u8; INLINE],
    length: usize,
    /// All bytes, once they are more than fit inline.
    spilled: Vec<u8>,
}

impl Bytes {
    #[inline(always)]
    pub(crate) fn new() -> Bytes {
        Bytes { inline: [0; INLINE], length: 0, spilled: Vec::new() }
    }

    /// Appends a few bytes, the number of which is known when compiling.
    #[inline(always)]
    pub(crate) fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        match self.inline.get_mut(self.length..self.length + N) {
            Some(place) => {
                place.copy_from_slice(&bytes);
                self.length += N;
            }
            None => self.spill(&bytes),
        }
    }

    /// Appends bytes.
    #[inline]
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        match self.inline.get_mut(self.length..self.length + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.spill(bytes),
        }
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled = SPARE.try_with(Cell::take).unwrap_or_default();
            self.spilled.clear();
            self.spilled.extend_from_slice(self.inline.get(..self.length).unwrap_or_default());
            // No further byte fits inline.
            self.length = INLINE + 1;
        }
        self.spilled.extend_from_slice(bytes);
    }

    /// Returns the bytes.
    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.inline.get(..self.length).unwrap_or(&self.spilled)
    }

    /// Takes other bytes in place of these.
    pub(crate) fn replace(&mut self, bytes: &[u8]) {
        self.spilled.clear();
        self.length = 0;
        self.extend(bytes);
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        const KEPT_BYTES_MAX: usize = 64 * 1024;
        if (1..=KEPT_BYTES_MAX).contains(&self.spilled.capacity()) {
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
        fn it_holds_what_was_put_in(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..9)) {
            let mut bytes = Bytes::new();
            let mut expected = Vec::new();
            for part in &parts {
                bytes.extend(part);
                bytes.push([1, 2, 3]);
                expected.extend_from_slice(part);
                expected.extend([1, 2, 3]);
            }
            prop_assert_eq!(bytes.as_slice(), &expected);
            bytes.replace(&[9]);
            prop_assert_eq!(bytes.as_slice(), &[9]);
        }
    }
}
