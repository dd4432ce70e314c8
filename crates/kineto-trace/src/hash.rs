//! Hash maps and sets with a faster hash than the standard library's, seeded at random in each process.

use foldhash::fast::RandomState;

/// A map of values by key.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set of keys.
pub(crate) type HashSet<K> = std::collections::HashSet<K, RandomState>;
