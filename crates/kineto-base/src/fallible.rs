//! Collections that report failed allocations; those of `std` abort the process.
//!
//! Within an [`attempt`], a collection that cannot grow drops the item, and the attempt returns an error in the end. So
//! the code inside needs no error handling; its result is dropped. Outside of an attempt, the process aborts as with
//! `std`.

use crate::hash::{HashMap, HashSet};
use std::cell::Cell;
use std::collections::TryReserveError;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Memory was short; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<OutOfMemory> for io::Error {
    fn from(_: OutOfMemory) -> io::Error {
        io::ErrorKind::OutOfMemory.into()
    }
}

/// The effect of a failed allocation on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllocationMode {
    /// The process aborts.
    Fatal,
    /// The current attempt fails; it has not failed yet.
    Attempt,
    Failed,
}

thread_local! {
    static STATE: Cell<AllocationMode> = const { Cell::new(AllocationMode::Fatal) };
}

/// Restores the thread's mode at the end of an attempt, even if that panics.
struct RestoreMode(AllocationMode);

impl RestoreMode {
    fn begin_attempt() -> RestoreMode {
        RestoreMode(STATE.replace(AllocationMode::Attempt))
    }
}

impl Drop for RestoreMode {
    fn drop(&mut self) {
        STATE.set(self.0);
    }
}

/// Runs `make` and returns its result.
///
/// # Errors
/// If a collection of this module could not grow.
pub fn attempt<T>(make: impl FnOnce() -> T) -> Result<T, OutOfMemory> {
    let _restore = RestoreMode::begin_attempt();
    let made = make();
    check_memory().map(|()| made)
}

/// Checks the current attempt, so that the caller can skip the rest if it has failed.
///
/// # Errors
/// If a collection of this module could not grow in the attempt.
pub fn check_memory() -> Result<(), OutOfMemory> {
    if STATE.get() == AllocationMode::Failed { Err(OutOfMemory) } else { Ok(()) }
}

/// Returns whether a collection may grow now; if not, the attempt fails.
#[inline]
pub fn may_grow(reserved: Result<(), TryReserveError>) -> bool {
    reserved.is_ok() || is_fatal()
}

/// Returns whether a failed allocation aborts the process; if not, the attempt fails.
#[cold]
fn is_fatal() -> bool {
    let is_fatal = STATE.get() == AllocationMode::Fatal;
    if !is_fatal {
        STATE.set(AllocationMode::Failed);
    }
    is_fatal
}

/// A value that is computed on first access.
///
/// If memory is short, an attempt continues with an empty value and fails; the next access computes it again.
#[derive(Default)]
pub struct Lazy<T> {
    value: OnceLock<T>,
    empty: OnceLock<T>,
    /// Held by the thread that computes the value.
    making: Mutex<()>,
}

impl<T> fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("is_made", &self.value.get().is_some()).finish_non_exhaustive()
    }
}

impl<T: Default> Lazy<T> {
    /// Returns the value if it was made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value, and makes it first if there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.get() {
            return value;
        }
        let made = if STATE.get() == AllocationMode::Fatal { Ok(make()) } else { attempt(make) };
        let (cell, value) = match made {
            Ok(value) => (&self.value, value),
            Err(OutOfMemory) => {
                STATE.set(AllocationMode::Failed);
                (&self.empty, T::default())
            }
        };
        cell.get_or_init(|| value)
    }
}

/// Returns an empty `Vec` with capacity for `count` items; `None` if memory is short.
pub fn try_vec_with_capacity<T>(count: usize) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).ok()?;
    Some(list)
}

/// A fallible `Vec`.
#[derive(PartialEq, Eq)]
pub struct List<T>(Vec<T>);

/// A clone is empty if there is no memory for it.
impl<T: Clone> Clone for List<T> {
    fn clone(&self) -> List<T> {
        let mut clone = List::new();
        clone.extend_exact(self.0.iter().cloned());
        clone
    }
}

impl<T> List<T> {
    /// Creates an empty list.
    pub const fn new() -> List<T> {
        List(Vec::new())
    }

    /// Creates a list with memory for that many items, if there is so much.
    pub fn with_capacity(capacity: usize) -> List<T> {
        let mut list = List::new();
        list.reserve(capacity);
        list
    }

    #[inline]
    fn reserve(&mut self, more: usize) -> bool {
        may_grow(self.0.try_reserve(more))
    }

    /// Appends an item; drops it if the list cannot grow.
    #[inline]
    pub fn push(&mut self, item: T) {
        if self.reserve(1) {
            self.0.push(item);
        }
    }

    /// Appends all items, or none if the list cannot grow. Faster than `extend`, and more code for each type of iterator.
    pub fn extend_exact(&mut self, items: impl ExactSizeIterator<Item = T>) {
        if self.reserve(items.len()) {
            self.0.extend(items);
        }
    }

    /// Inserts an item before that index; drops it if the list cannot grow.
    pub fn insert(&mut self, at: usize, item: T) {
        if self.reserve(1) {
            self.0.insert(at, item);
        }
    }

    /// Truncates the list, or appends copies of an item, up to a length.
    pub fn resize(&mut self, length: usize, item: T)
    where
        T: Clone,
    {
        if self.reserve(length.saturating_sub(self.0.len())) {
            self.0.resize(length, item);
        }
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Removes the last item if it meets a condition.
    #[inline]
    pub fn pop_if(&mut self, is_due: impl FnOnce(&mut T) -> bool) -> Option<T> {
        self.0.pop_if(is_due)
    }

    /// Removes all items; keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes the items from an index on.
    pub fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// Removes the items that `keep` refuses.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
    }

    /// Removes each item that `is_same` as the one before it.
    pub fn dedup_by(&mut self, is_same: impl FnMut(&mut T, &mut T) -> bool) {
        self.0.dedup_by(is_same);
    }

    /// Releases unused capacity, if there is memory for a copy.
    pub fn shrink_to_fit(&mut self) {
        let mut exact = Vec::new();
        if self.0.len() < self.0.capacity() && exact.try_reserve_exact(self.0.len()).is_ok() {
            exact.append(&mut self.0);
            self.0 = exact;
        }
    }

    /// Returns the number of items for which there is memory.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl<T> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List::new()
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for List<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> Extend<T> for List<T> {
    #[inline]
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        let items = items.into_iter();
        if self.reserve(items.size_hint().0) {
            for item in items {
                self.push(item);
            }
        }
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> List<T> {
        let mut list = List::new();
        list.extend(items);
        list
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> std::vec::IntoIter<T> {
        self.0.into_iter()
    }
}

impl<'l, T> IntoIterator for &'l List<T> {
    type Item = &'l T;
    type IntoIter = std::slice::Iter<'l, T>;

    fn into_iter(self) -> std::slice::Iter<'l, T> {
        self.0.iter()
    }
}

impl<'l, T> IntoIterator for &'l mut List<T> {
    type Item = &'l mut T;
    type IntoIter = std::slice::IterMut<'l, T>;

    fn into_iter(self) -> std::slice::IterMut<'l, T> {
        self.0.iter_mut()
    }
}

/// A fallible `HashMap`.
pub struct Map<K, V> {
    map: HashMap<K, V>,
    /// Holds a value that could not be inserted.
    unplaced: Option<V>,
}

impl<K: Eq + Hash, V> Map<K, V> {
    #[inline]
    fn reserve(&mut self, more: usize) -> bool {
        may_grow(self.map.try_reserve(more))
    }

    /// Sets the value of a key; returns the previous one. Drops the value if the map cannot grow.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.reserve(1) { self.map.insert(key, value) } else { None }
    }

    /// Returns the value of a key, inserting the result of `make` if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if self.reserve(1) { self.map.entry(key).or_insert_with(make) } else { self.unplaced.insert(make()) }
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.map.remove(key)
    }

    /// Removes the entries that `keep` refuses.
    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.map.retain(keep);
    }

    /// Returns the values, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.map.values_mut()
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("len", &self.map.len()).finish_non_exhaustive()
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map { map: HashMap::default(), unplaced: None }
    }
}

impl<K, V> Deref for Map<K, V> {
    type Target = HashMap<K, V>;

    #[inline]
    fn deref(&self) -> &HashMap<K, V> {
        &self.map
    }
}

impl<K: Eq + Hash, V> Extend<(K, V)> for Map<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, items: I) {
        let items = items.into_iter();
        if self.reserve(items.size_hint().0) {
            for (key, value) in items {
                self.insert(key, value);
            }
        }
    }
}

impl<K: Eq + Hash, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> Map<K, V> {
        let mut map = Map::default();
        map.extend(items);
        map
    }
}

impl<K, V> IntoIterator for Map<K, V> {
    type Item = (K, V);
    type IntoIter = std::collections::hash_map::IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.into_iter()
    }
}

/// A fallible `HashSet`.
pub struct Set<K>(HashSet<K>);

impl<K: Eq + Hash> Set<K> {
    /// Returns whether the key is new.
    pub fn insert(&mut self, key: K) -> bool {
        may_grow(self.0.try_reserve(1)) && self.0.insert(key)
    }

    /// Removes a key; returns whether it was there.
    pub fn remove(&mut self, key: &K) -> bool {
        self.0.remove(key)
    }

    /// Removes all keys; keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<K> fmt::Debug for Set<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

impl<K> Default for Set<K> {
    fn default() -> Set<K> {
        Set(HashSet::default())
    }
}

impl<K> Deref for Set<K> {
    type Target = HashSet<K>;

    #[inline]
    fn deref(&self) -> &HashSet<K> {
        &self.0
    }
}

impl<K: Eq + Hash> Extend<K> for Set<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, items: I) {
        items.into_iter().for_each(|item| _ = self.insert(item));
    }
}

impl<K: Eq + Hash> FromIterator<K> for Set<K> {
    fn from_iter<I: IntoIterator<Item = K>>(items: I) -> Set<K> {
        let mut set = Set::default();
        set.extend(items);
        set
    }
}

impl<K> IntoIterator for Set<K> {
    type Item = K;
    type IntoIter = std::collections::hash_set::IntoIter<K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any machine has.
    const TOO_MANY: usize = 1 << 58;

    #[test]
    fn attempt_without_memory_runs_to_its_end_and_fails() {
        let mut ends = 0;
        let failed = attempt(|| {
            let mut list = List::from_iter([7u64]);
            list.resize(TOO_MANY, 0);
            assert_eq!((&list[..], check_memory()), (&[7][..], Err(OutOfMemory)));
            ends += 1;
        });
        assert_eq!((failed, check_memory(), ends), (Err(OutOfMemory), Ok(()), 1));
        assert_eq!(io::Error::from(OutOfMemory).kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn failed_inner_attempt_does_not_fail_the_outer() {
        let inner = attempt(|| attempt(|| drop(List::<u64>::with_capacity(TOO_MANY))));
        assert_eq!(inner, Ok(Err(OutOfMemory)));
    }

    #[test]
    fn attempt_that_panics_ends() {
        let panicked = std::panic::catch_unwind(|| attempt(|| panic!("on purpose")));
        assert!(panicked.is_err() && STATE.get() == AllocationMode::Fatal);
    }

    #[test]
    fn lazy_value_is_made_again_when_memory_was_missing() {
        let lazy = Lazy::<List<u64>>::default();
        let failed = attempt(|| lazy.get_or_init(|| List::with_capacity(TOO_MANY)).len());
        assert_eq!((failed, lazy.get()), (Err(OutOfMemory), None));
        assert_eq!(attempt(|| lazy.get_or_init(|| List::from_iter([7])).len()), Ok(1));
        assert_eq!(lazy.get_or_init(List::new).len(), 1);
    }

    #[test]
    fn collections_behave_like_those_of_std() {
        let mut list: List<u32> = (0..9).collect();
        list.insert(1, 50);
        list.retain(|item| item % 2 == 0);
        list.truncate(4);
        list.shrink_to_fit();
        assert_eq!((list.to_vec(), list.capacity(), list.pop()), (vec![0, 50, 2, 4], 4, Some(4)));
        let mut map: Map<u32, u32> = [(1, 10), (2, 20), (1, 11)].into_iter().collect();
        *map.get_or_insert_with(3, || 30) += 1;
        *map.get_or_insert_with(2, || 0) += 1;
        map.retain(|key, _| *key > 1);
        assert_eq!((map.get(&1).copied(), map.remove(&2), map.insert(3, 0)), (None, Some(21), Some(31)));
        let mut set: Set<u32> = [1, 1, 2].into_iter().collect();
        assert!(!set.insert(2) && set.remove(&2) && !set.contains(&2) && set.len() == 1);
    }
}
