//! Hash maps for small integer keys: a single multiplication spreads them well enough.

use kineto_trace::fallible::Map;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from ids. Collectors and this crate assign them consecutively, so no attacker can force collisions.
pub(super) type IdMap<K, V> = Map<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by an odd number, and folds the high bits back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        // Fibonacci hashing.
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
