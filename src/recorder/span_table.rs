//! The states of live spans that all threads can find, by the registry's id.
//!
//! The registry's extensions cannot hold them: another layer may format a span's fields under their lock, and a `Debug`
//! that traces re-enters this layer. Only this module's code runs under a lock of the table, not even the allocator's.
//! An entry is removed when its span closes, because the registry reuses the id.

use super::memory_listeners::InternalAllocGuard;
use super::{CLOSINGS, LiveIds, SpanState, WatchedSpan, span_bucket, state};
use crate::observer::ObservedSpan;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct SpanTable {
    shards: [TableShard; CLOSINGS],
}

#[derive(Debug, Default)]
struct TableShard {
    entries: Mutex<Entries>,
    /// Read without the lock when a span closes.
    len: AtomicUsize,
}

/// `DefaultHasher` needs no thread-local, so ending threads can use the table.
type Entries = HashMap<u64, SpanEntry, BuildHasherDefault<DefaultHasher>>;

#[derive(Debug, Default)]
pub(crate) struct SpanEntry {
    pub(crate) stored: Option<StoredState>,
    /// The encoded fields of a span that was created while nothing was recorded.
    pub(crate) idle_fields: Option<Arc<[u64]>>,
    /// The span as observers see it; `Some(None)` if its scope is not recorded.
    pub(crate) observed: Option<Option<Arc<ObservedSpan>>>,
    /// Set if a slow span of that name triggers a dump.
    pub(crate) watched: Option<WatchedSpan>,
}

/// The state of a span that several threads may know, in the latest epoch that used it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredState {
    pub(crate) epoch: u64,
    pub(crate) state: SpanState,
    pub(crate) origin: Origin,
    pub(crate) entered: bool,
    /// Whether threads may have cached it, so that its close must invalidate their caches.
    pub(crate) cached: bool,
}

impl StoredState {
    /// Notes an enter; returns whether it is the span's first, which may directly follow the creation.
    pub(crate) fn enter(&mut self, is_direct: bool) -> bool {
        let is_first = !std::mem::replace(&mut self.entered, true);
        if is_first && !is_direct {
            self.state.meta &= !state::DIRECT;
        }
        is_first
    }
}

/// The source of a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Only the thread that stored it had it.
    Own,
    /// It is also in a frame of another thread.
    Lent,
    /// The span was created while nothing was recorded.
    Idle,
}

impl SpanTable {
    pub(super) fn new() -> SpanTable {
        SpanTable { shards: std::array::from_fn(|_| TableShard::default()) }
    }

    #[expect(clippy::indexing_slicing, reason = "bucket() is smaller than CLOSINGS")]
    fn shard_for(&self, key: u64) -> &TableShard {
        &self.shards[span_bucket(key)]
    }

    /// Calls `access` with the span's entry, if there is one. `access` may not call other code, allocate or free.
    pub(crate) fn with_entry<R>(&self, key: u64, access: impl FnOnce(&mut SpanEntry) -> R) -> Option<R> {
        self.shard_for(key).lock().get_mut(&key).map(access)
    }

    /// Adds the ids of the spans.
    pub(super) fn collect_ids(&self, ids: &mut LiveIds) {
        for shard in self.shards.iter().filter(|shard| shard.len.load(Ordering::Relaxed) > 0) {
            loop {
                ids.reserve(shard.len.load(Ordering::Relaxed) * 2);
                let entries = shard.lock();
                if entries.len() <= ids.capacity() - ids.len() {
                    ids.extend(entries.values().filter_map(|entry| Some(entry.stored.as_ref()?.state.span)));
                    break;
                }
            }
        }
    }

    /// Calls `access` with the span's entry, after creating an empty one if there is none.
    pub(super) fn with_new<R>(&self, key: u64, access: impl FnOnce(&mut SpanEntry) -> R) -> R {
        let shard = self.shard_for(key);
        let mut entries = shard.lock_with_capacity();
        let result = access(entries.entry(key).or_default());
        shard.len.store(entries.len(), Ordering::Relaxed);
        result
    }

    /// Removes and returns the entry of a span that closes.
    pub(crate) fn remove(&self, key: u64) -> Option<SpanEntry> {
        let shard = self.shard_for(key);
        let mut entries = shard.lock();
        let removed = entries.remove(&key);
        shard.len.store(entries.len(), Ordering::Relaxed);
        let is_sparse = entries.capacity() > SPARSE_FROM && entries.len() < entries.capacity() / 8;
        let len = entries.len();
        drop(entries);
        if is_sparse {
            let _own = InternalAllocGuard::begin();
            shard.rehash(len * 2);
        }
        removed
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len.load(Ordering::Relaxed)).sum()
    }

    /// Drops the entry of a span that closes, if there is one.
    #[inline]
    pub(crate) fn forget_span(&self, key: u64) {
        // Relaxed: the entry was created before the span's last handle was dropped.
        if self.shard_for(key).len.load(Ordering::Relaxed) != 0 {
            let _own = InternalAllocGuard::begin();
            drop(self.remove(key));
        }
    }
}

/// The capacity from which a shard releases memory when it is sparse.
const SPARSE_FROM: usize = 256;

impl TableShard {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the entries, after making sure that there is capacity for one more.
    fn lock_with_capacity(&self) -> MutexGuard<'_, Entries> {
        loop {
            let entries = self.lock();
            let len = entries.len();
            if len < entries.capacity() {
                return entries;
            }
            drop(entries);
            let _own = InternalAllocGuard::begin();
            self.rehash(len * 2 + 4);
        }
    }

    /// Moves the entries into a map of about that capacity, if they fit and leave space for one more.
    fn rehash(&self, capacity: usize) {
        let mut other = Entries::with_capacity_and_hasher(capacity, BuildHasherDefault::default());
        let mut entries = self.lock();
        if entries.len() < other.capacity() {
            other.extend(entries.drain());
            std::mem::swap(&mut *entries, &mut other);
        }
        drop(entries);
        // `other` is freed here, after the lock.
        drop(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_table_shrinks_when_spans_close() {
        let table = SpanTable::new();
        let capacity = || table.shards.iter().map(|shard| shard.lock().capacity()).sum::<usize>();
        (1..=50_000).for_each(|key| table.with_new(key, |entry| entry.observed = Some(None)));
        assert!(capacity() >= 50_000);
        assert!((1..=50_000).all(|key| table.with_entry(key, |entry| entry.observed.is_some()) == Some(true)));
        (1..=50_000).for_each(|key| table.forget_span(key));
        assert!(capacity() <= CLOSINGS * SPARSE_FROM * 2, "{}", capacity());
        assert_eq!(table.len(), 0);
        let before = capacity();
        table.with_new(1, |_| ());
        table.forget_span(1);
        assert_eq!(capacity(), before, "a small table keeps its memory");
        assert!(table.with_entry(1, |_| ()).is_none() && table.remove(1).is_none());
    }

    #[test]
    fn span_table_grows_outside_its_locks() {
        let table = SpanTable::new();
        for key in 1..10_000 {
            let shard = table.shard_for(key);
            let entries = shard.lock_with_capacity();
            assert!(entries.len() < entries.capacity());
            drop(entries);
            table.with_new(key, |_| ());
        }
    }
}
