//! Hash maps and sets with a faster hash than the standard library's, seeded at random in each process.

pub use foldhash::fast::RandomState;

/// A map of values by key.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set of keys.
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;
