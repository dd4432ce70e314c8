//! Counts how much the program has allocated, on every path of [`Tracked`](super::Tracked).
//!
//! While no layer records memory, threads are spread over a few counters, to avoid contention. While one does, all threads
//! add to a single counter, which makes the total of each event exact.

use crate::recorder::memory_listeners::InternalAllocGuard;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// The number of counters that threads are spread over.
const SHARDS: usize = 32;

/// A counter with a cache line of its own, and the next, which processors prefetch with it.
#[repr(align(128))]
struct Shard(AtomicI64);

static SHARD: [Shard; SHARDS] = [const { Shard(AtomicI64::new(0)) }; SHARDS];
/// The counter used while a layer records memory.
static TOTAL: AtomicI64 = AtomicI64::new(0);
/// Bytes allocated less bytes freed, without a record, while a layer recorded memory.
static UNRECORDED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// The index of the thread's counter, from 1; 0 until it has one.
    static OWN_SHARD: Cell<usize> = const { Cell::new(0) };
}

/// The program's memory allocated through [`Tracked`](super::Tracked).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The bytes that are allocated now.
    pub live_bytes: u64,
    /// Bytes allocated less bytes freed, without a record, while a layer recorded memory: this crate's own allocations, and
    /// events counted as lost ([`Loss`](crate::Loss)).
    pub unrecorded_bytes: i64,
}

/// Returns the memory that the program has allocated through [`Tracked`](super::Tracked); all zeros if that is not the
/// allocator.
///
/// Exact if no other thread allocates meanwhile. While a layer records memory, `live_bytes` changes between two calls by the
/// sum of the recorded events and of the change of `unrecorded_bytes`.
#[must_use]
pub fn usage() -> Usage {
    let sum: i64 = SHARD.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum();
    Usage {
        live_bytes: u64::try_from(sum + TOTAL.load(Ordering::Relaxed)).unwrap_or(0),
        unrecorded_bytes: UNRECORDED.load(Ordering::Relaxed),
    }
}

/// Moves the threads' counts into the total, at the start of a recording.
pub(crate) fn gather_counts() {
    let _own = InternalAllocGuard::begin();
    SHARD.iter().for_each(gather_one);
}

fn gather_one(shard: &Shard) {
    // Relaxed throughout: counters that order no other memory.
    TOTAL.fetch_add(shard.0.swap(0, Ordering::Relaxed), Ordering::Relaxed);
}

#[inline(always)]
fn own_shard() -> &'static Shard {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    #[cold]
    fn choose_shard() -> usize {
        let chosen = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS + 1;
        OWN_SHARD.with(|own| own.set(chosen));
        chosen
    }
    let own = OWN_SHARD.with(Cell::get);
    let own = if own == 0 { choose_shard() } else { own };
    let [first, ..] = &SHARD;
    SHARD.get(own - 1).unwrap_or(first)
}

/// Adds to the thread's counter, while no layer records memory.
#[inline(always)]
pub(super) fn add_bytes(bytes: i64) {
    own_shard().0.fetch_add(bytes, Ordering::Relaxed);
}

/// Adds to the single counter while a layer records memory; returns the total.
pub(super) fn add_to_total(bytes: i64) -> u64 {
    let own = own_shard();
    if own.0.load(Ordering::Relaxed) != 0 {
        // A thread may still have used its own counter when the recording began.
        gather_one(own);
    }
    u64::try_from(TOTAL.fetch_add(bytes, Ordering::Relaxed) + bytes).unwrap_or(0)
}

/// Notes bytes that were counted but not recorded.
pub(super) fn note_unrecorded(bytes: i64) {
    UNRECORDED.fetch_add(bytes, Ordering::Relaxed);
}
