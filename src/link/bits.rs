//! A row of bits.

/// Bits, all of them clear at first; those beyond the end stay so.
#[derive(Debug, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    pub(super) fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    pub(super) fn get(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Whether none is set.
    pub(super) fn are_clear(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_set_alone_and_none_beyond_the_end() {
        let mut bits = Bits::new(65);
        assert!(bits.are_clear());
        [0, 64, 1000].into_iter().for_each(|at| bits.set(at));
        assert_eq!([0, 1, 63, 64, 65, 1000].map(|at| bits.get(at)), [true, false, false, true, false, false]);
        assert!(!bits.are_clear());
    }
}
