//! A growable bit set.

use kineto_base::fallible::List;

/// Bits, all clear at first.
#[derive(Debug, Default)]
pub(super) struct Bits(List<u64>);

impl Bits {
    #[inline]
    pub(super) fn set_bit(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    pub(super) fn clear_bit(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    #[inline]
    pub(super) fn is_set(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Counts the bits that are set here but not in `others`.
    pub(super) fn count_without(&self, others: &Bits) -> u64 {
        let others = others.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter().zip(others).map(|(word, other)| u64::from((word & !other).count_ones())).sum()
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
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
    fn bit_is_set_and_cleared_alone() {
        let mut bits = Bits::default();
        [0, 64, 1000].into_iter().for_each(|at| bits.set_bit(at));
        assert_eq!(
            [0, 1, 63, 64, 65, 1000, 9999].map(|at| bits.is_set(at)),
            [true, false, false, true, false, true, false]
        );
        bits.clear_bit(64);
        bits.clear_bit(9999);
        assert_eq!([0, 64, 1000].map(|at| bits.is_set(at)), [true, false, true]);
    }

    #[test]
    fn difference_is_counted_for_any_lengths() {
        let (mut few, mut many) = (Bits::default(), Bits::default());
        few.set_bit(3);
        [3, 5, 700].into_iter().for_each(|at| many.set_bit(at));
        assert_eq!(
            (many.count_without(&few), few.count_without(&many), few.count_without(&Bits::default())),
            (2, 0, 1)
        );
    }
}
