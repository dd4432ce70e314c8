//! Maps and sets as sorted lists: for up to some thousands of keys. A B-tree costs 4,000 lines of machine-independent code for each type
//! of keys and values, these a few hundred.
//!
//! Finding a key takes logarithmic time, and inserting one linear time unless it is the last.

use crate::sorting::sort_few_by;
use std::borrow::Borrow;

/// Values by key, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

/// Keys, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedSet<K>(SortedMap<K, ()>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> SortedMap<K, V> {
        SortedMap::new()
    }
}

impl<K, V> SortedMap<K, V> {
    /// Creates an empty map.
    pub const fn new() -> SortedMap<K, V> {
        SortedMap(Vec::new())
    }

    /// Returns the keys and values, in the order of the keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + ExactSizeIterator {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Returns the keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.iter().map(|(key, _)| key)
    }

    /// Returns the values, in the order of the keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }

    /// Returns the values, in the order of the keys.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> + ExactSizeIterator {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V> SortedMap<K, Vec<V>> {
    /// Groups values by key; those of a key keep their order.
    pub fn group(mut pairs: Vec<(K, V)>) -> SortedMap<K, Vec<V>> {
        sort_few_by(&mut pairs, |(a, _), (b, _)| a.cmp(b));
        let mut groups: Vec<(K, Vec<V>)> = Vec::new();
        for (key, value) in pairs {
            match groups.last_mut().filter(|(last, _)| *last == key) {
                Some((_, group)) => group.push(value),
                None => groups.push((key, vec![value])),
            }
        }
        SortedMap(groups)
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Of several values of a key, the last counts.
    fn from_pairs(mut pairs: Vec<(K, V)>) -> SortedMap<K, V> {
        sort_few_by(&mut pairs, |(a, _), (b, _)| a.cmp(b));
        pairs.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                std::mem::swap(next, kept);
            }
            is_same
        });
        SortedMap(pairs)
    }

    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// Returns the value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().and_then(|at| self.0.get(at)).map(|(_, value)| value)
    }

    /// Returns the value of a key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().and_then(|at| self.0.get_mut(at)).map(|(_, value)| value)
    }

    /// Returns whether the key is known.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// Sets the value of a key; returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(at) => self.0.get_mut(at).map(|(_, known)| std::mem::replace(known, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// Returns the value of a key, inserting the result of `make` if there is none.
    #[expect(clippy::indexing_slicing, reason = "the key is at that place")]
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let at = self.place(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, make()));
            at
        });
        &mut self.0[at].1
    }

    /// Removes a key; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.place(key).ok().map(|at| self.0.remove(at).1)
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Of several values of a key, the last counts.
impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> SortedMap<K, V> {
        // A loop, because `collect` costs some 600 lines of machine-independent code for each type of iterator.
        let mut pairs = Vec::new();
        for pair in items {
            pairs.push(pair);
        }
        SortedMap::from_pairs(pairs)
    }
}

impl<K> Default for SortedSet<K> {
    fn default() -> SortedSet<K> {
        SortedSet::new()
    }
}

impl<K> SortedSet<K> {
    /// Creates an empty set.
    pub const fn new() -> SortedSet<K> {
        SortedSet(SortedMap::new())
    }

    /// Returns the keys, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.keys()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord> SortedSet<K> {
    /// Adds a key; returns whether it is new.
    pub fn insert(&mut self, key: K) -> bool {
        self.0.insert(key, ()).is_none()
    }

    /// Returns whether the key is known.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }
}

impl<K> IntoIterator for SortedSet<K> {
    type Item = K;
    type IntoIter = std::iter::Map<std::vec::IntoIter<(K, ())>, fn((K, ())) -> K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(key, ())| key)
    }
}

impl<K: Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> SortedSet<K> {
        let mut pairs = Vec::new();
        for key in keys {
            pairs.push((key, ()));
        }
        SortedSet(SortedMap::from_pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn sorted_map_matches_btree_map(first: Vec<(u8, u32)>, steps: Vec<(u8, Option<u32>)>) {
            let (mut map, mut expected): (SortedMap<_, _>, BTreeMap<_, _>) =
                (first.iter().copied().collect(), first.iter().copied().collect());
            for (key, value) in steps {
                match value {
                    Some(value) if value % 2 == 0 => prop_assert_eq!(map.insert(key, value), expected.insert(key, value)),
                    Some(value) => {
                        let found = *map.get_or_insert_with(key, || value);
                        prop_assert_eq!(found, *expected.entry(key).or_insert(value));
                    }
                    None => prop_assert_eq!(map.remove(&key), expected.remove(&key)),
                }
                prop_assert_eq!((map.get(&key), map.len()), (expected.get(&key), expected.len()));
            }
            prop_assert!(map.iter().eq(expected.iter()));
            let keys: SortedSet<u8> = expected.keys().rev().copied().collect();
            prop_assert!(keys.into_iter().eq(expected.into_keys()));
        }
    }
}
