//! Hash maps with a faster hash than the standard library's, seeded at random in each process.

use foldhash::fast::RandomState;

/// A map of values by key.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
