//! How much the program has allocated: counted on every path of [`Tracked`](super::Tracked), so kept apart by thread.
//!
//! While nobody records, each thread adds to one of a few counters, so that threads are not in each other's way. While
//! somebody does, all add to one, which makes the total behind each event exact.

use crate::recorder::memory_listeners::InternalAllocGuard;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Counters that the threads share out among themselves.
const SHARDS: usize = 32;

/// A counter with a cache line of its own, and the next, which processors fetch with it.
#[repr(align(128))]
struct Shard(AtomicI64);

static SHARD: [Shard; SHARDS] = [const { Shard(AtomicI64::new(0)) }; SHARDS];
/// The counter of those times in which somebody records.
static TOTAL: AtomicI64 = AtomicI64::new(0);
/// What was allocated and freed while somebody recorded, and is in no record.
static UNRECORDED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// The thread's counter, from 1; 0 until it has one.
    static OWN_SHARD: Cell<usize> = const { Cell::new(0) };
}

/// What the program has allocated through [`Tracked`](super::Tracked).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes that are allocated now.
    pub live_bytes: u64,
    /// How much more than it has freed the program has allocated while somebody recorded, without a record of it: what
    /// this crate allocates itself, and what the losses of a trace count ([`Loss`](crate::Loss)).
    pub unrecorded_bytes: i64,
}

/// Returns what the program has allocated through [`Tracked`](super::Tracked), all zeros if it is not the allocator.
///
/// Exact where no other thread allocates meanwhile. Between two calls, `live_bytes` changes by the sum of what was
/// recorded and of what `unrecorded_bytes` changes by, if somebody records all that time.
#[must_use]
pub fn usage() -> Usage {
    let sum: i64 = SHARD.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum();
    Usage {
        live_bytes: u64::try_from(sum + TOTAL.load(Ordering::Relaxed)).unwrap_or(0),
        unrecorded_bytes: UNRECORDED.load(Ordering::Relaxed),
    }
}

/// Puts together what the threads have counted apart, now that somebody records.
pub(crate) fn gather() {
    let _own = InternalAllocGuard::begin();
    SHARD.iter().for_each(gather_one);
}

fn gather_one(shard: &Shard) {
    // Relaxed throughout: counters, which order nothing.
    TOTAL.fetch_add(shard.0.swap(0, Ordering::Relaxed), Ordering::Relaxed);
}

#[inline(always)]
fn own_shard() -> &'static Shard {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    #[cold]
    fn choose() -> usize {
        let chosen = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS + 1;
        OWN_SHARD.with(|own| own.set(chosen));
        chosen
    }
    let own = OWN_SHARD.with(Cell::get);
    let own = if own == 0 { choose() } else { own };
    let [first, ..] = &SHARD;
    SHARD.get(own - 1).unwrap_or(first)
}

/// Adds to the thread's own counter, while nobody records.
#[inline(always)]
pub(super) fn add(bytes: i64) {
    own_shard().0.fetch_add(bytes, Ordering::Relaxed);
}

/// Adds to the counter of all while somebody records; returns the total.
pub(super) fn add_to_total(bytes: i64) -> u64 {
    let own = own_shard();
    if own.0.load(Ordering::Relaxed) != 0 {
        // The thread was counting while the recording began.
        gather_one(own);
    }
    u64::try_from(TOTAL.fetch_add(bytes, Ordering::Relaxed) + bytes).unwrap_or(0)
}

/// Notes that something was counted and not recorded.
pub(super) fn note_unrecorded(bytes: i64) {
    UNRECORDED.fetch_add(bytes, Ordering::Relaxed);
}
