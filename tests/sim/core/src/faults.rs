//! Faults that hit some of the records.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers the records, from 1 on.
#[derive(Debug, Default)]
pub struct RecordNumbers(AtomicU64);

impl RecordNumbers {
    pub const fn new() -> RecordNumbers {
        RecordNumbers(AtomicU64::new(0))
    }

    pub fn next(&self) -> RecordNumber {
        RecordNumber(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The number of a record, which decides what faults hit it.
#[derive(Clone, Copy, Debug)]
pub struct RecordNumber(pub u64);

impl RecordNumber {
    /// Returns whether this is an N-th record; none is for 0.
    pub fn is_each(self, each: u64) -> bool {
        each != 0 && self.0.is_multiple_of(each)
    }

    /// Returns whether the record is one in `each`. The choice is pseudo-random, so that it matches no pattern of a program,
    /// and the same in each run.
    pub fn is_one_in(self, each: u64) -> bool {
        let mut mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        each != 0 && (mixed ^ mixed >> 31).is_multiple_of(each)
    }

    /// Returns the garbage byte of this record.
    pub fn nonsense(self) -> u8 {
        if self.0.is_multiple_of(2) { 0xa5 } else { 0xff }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_hit_one_record_in_n() {
        for each in [2, 3, 5, 7] {
            let hits = (0..7_000).filter(|number| RecordNumber(*number).is_one_in(each)).count() as u64;
            assert!((hits * each).abs_diff(7_000) < 700, "{each}: {hits}");
        }
        assert!(!RecordNumber(1).is_one_in(0));
    }
}
