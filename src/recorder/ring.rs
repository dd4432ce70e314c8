//! The chunks of a recording: a ring in which the oldest are reused, if the newest records are kept.
//!
//! Chunks are reused in the order in which their threads left them. The *horizon* is the last time at which a thread left a
//! reused chunk: records before it may be missing, those after it are complete. So a trace begins at the horizon.
//!
//! Hooks push to queues; a thread that locks the ring receives their entries.

use super::busy::Busy;
use super::memory_listeners::InternalAllocGuard;
use super::older::{Found, OlderRecord, OlderRecords};
use super::{LargePayload, LiveIds};
use crate::buffer::{Chunk, ChunkPool, ReservedBytes, SLOTS};
use crate::clock;
use crate::time::Ticks;
use crossbeam_queue::SegQueue;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All chunks of a recording.
#[derive(Debug, Default)]
pub(super) struct ChunkRing {
    opened: SegQueue<Chunk>,
    /// Chunks that their threads have left, and when.
    left: SegQueue<(Chunk, Ticks)>,
    large_payloads: SegQueue<(u64, Arc<LargePayload>)>,
    state: Mutex<RingState>,
}

#[derive(Debug, Default)]
pub(super) struct RingState {
    /// Chunks that their threads have not left, as far as is known, by first id.
    at_hand: HashMap<u64, RingChunk>,
    /// The others, in the order in which their threads left them, and when.
    left: VecDeque<(RingChunk, Ticks)>,
    /// How many of the first of those were searched for references to the end.
    searched: usize,
    /// The first ids of all of them.
    first_ids: HashSet<u64>,
    large_payloads: HashMap<u64, Arc<LargePayload>>,
    /// How many chunks and older records refer to a record outside of them, by its id.
    references: References,
    older: OlderRecords,
    /// The counts since the recording began.
    evicted: Evicted,
}

/// How many kept chunks and records refer to a record, by its id.
pub(super) type References = BTreeMap<u64, u32>;

/// What left the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Until when records may be missing; `None` if none is.
    pub(crate) horizon: Option<Ticks>,
    /// The number of slices and events.
    pub(crate) records: u64,
    /// The number of records that newer ones need, and for which there was no room.
    pub(crate) needed: u64,
}

/// The locked state. An allocator may not enter a hook meanwhile, which would lock it again.
struct LockedRing<'r> {
    state: MutexGuard<'r, RingState>,
    _busy: Option<Busy>,
    _own: InternalAllocGuard,
}

/// A chunk, and the records outside of it to which those in it refer.
#[derive(Debug)]
struct RingChunk {
    chunk: Chunk,
    /// How many of its slots were searched for references.
    searched: usize,
    references: Vec<u64>,
    reserved: ReservedBytes,
}

/// What newer records need of an evicted chunk: records, and the ends of slices in other chunks.
#[derive(Debug, Default)]
struct NeededRecords {
    records: Vec<OlderRecord>,
    ends: Vec<(u64, Ticks)>,
}

/// Everything in a ring.
#[derive(Debug, Default)]
pub(super) struct RingContents {
    pub(super) at: Ticks,
    pub(super) chunks: Vec<Chunk>,
    pub(super) large_payloads: Vec<(u64, Arc<LargePayload>)>,
    pub(super) older: Vec<Arc<OlderRecord>>,
    pub(super) evicted: Evicted,
}

/// The part of the limit that older records may take.
const PART_FOR_OLDER: u64 = 4;

impl ChunkRing {
    /// Adds a chunk that a thread begins to fill.
    pub(super) fn add_chunk(&self, chunk: Chunk) {
        self.opened.push(chunk);
    }

    /// Adds a payload.
    pub(super) fn add_large_payload(&self, id: u64, payload: Arc<LargePayload>) {
        self.large_payloads.push((id, payload));
    }

    /// Notes that no thread will write into a chunk any more.
    pub(super) fn leave_chunk(&self, chunk: Chunk, now: Ticks) {
        self.left.push((chunk, now));
    }

    fn lock(&self) -> LockedRing<'_> {
        let (busy, own) = (Busy::begin(), InternalAllocGuard::begin());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = LockedRing { state, _busy: busy, _own: own };
        state.receive_opened(self);
        while let Some((chunk, at)) = self.left.pop() {
            let first_id = chunk.first_id();
            let mut known = state.at_hand.remove(&first_id);
            if known.is_none() {
                // It was opened after the ring had received those that were opened.
                state.receive_opened(self);
                known = state.at_hand.remove(&first_id);
            }
            // The chunks of an ended recording are unknown.
            state.left.extend(known.map(|known| (known, at)));
        }
        state.large_payloads.extend(std::iter::from_fn(|| self.large_payloads.pop()));
        state
    }

    /// Returns when a thread left the oldest of the chunks that threads have left.
    pub(super) fn oldest(&self) -> Option<Ticks> {
        self.lock().left.front().map(|(_, at)| *at)
    }

    /// Returns until when records may be missing.
    pub(super) fn horizon(&self) -> Option<Ticks> {
        self.lock().evicted.horizon
    }

    /// Notes that records of devices are missing until then.
    pub(super) fn move_horizon(&self, to: Ticks) {
        let mut state = self.lock();
        state.evicted.horizon = state.evicted.horizon.max(Some(to));
    }

    /// Takes everything.
    pub(super) fn take_contents(&self) -> RingContents {
        let RingState { at_hand, left, large_payloads, older, evicted, .. } = std::mem::take(&mut *self.lock().state);
        let chunks = at_hand.into_values().chain(left.into_iter().map(|(chunk, _)| chunk));
        RingContents {
            at: clock::now(),
            chunks: chunks.map(|each| each.chunk).collect(),
            large_payloads: large_payloads.into_iter().collect(),
            older: older.all_records(),
            evicted,
        }
    }

    /// Returns handles to everything.
    pub(super) fn contents(&self) -> RingContents {
        let state = self.lock();
        RingContents {
            // All records before this are committed, and none after it is evicted.
            at: clock::now(),
            chunks: state.chunks().map(|each| each.chunk.clone()).collect(),
            large_payloads: state.large_payloads.iter().map(|(id, payload)| (*id, payload.clone())).collect(),
            older: state.older.all_records(),
            evicted: state.evicted,
        }
    }

    /// Returns a reused chunk if none is ready.
    pub(super) fn evict_one(&self, pool: &ChunkPool, live_ids: impl FnOnce() -> LiveIds) -> Option<Chunk> {
        let mut state = self.lock();
        if !pool.is_exhausted() {
            return None;
        }
        let live = state.prepare(pool, live_ids);
        let mut reused = None;
        while reused.is_none() && state.evict_oldest(pool, &live) {
            reused = pool.take_ready();
        }
        reused
    }

    /// Reuses the oldest chunks until the pool has room, and those that were left before `until`.
    ///
    /// `live_ids` returns the ids of live spans and of open slices.
    pub(super) fn evict(&self, pool: &ChunkPool, until: Ticks, live_ids: impl Fn() -> LiveIds) {
        /// Threads and snapshots wait while the ring is locked.
        const AT_ONCE: usize = 8;
        loop {
            let mut state = self.lock();
            if !state.may_evict(pool, until) {
                return;
            }
            let live = state.prepare(pool, &live_ids);
            let _ =
                (0..AT_ONCE).take_while(|_| state.may_evict(pool, until) && state.evict_oldest(pool, &live)).count();
            state.drop_older(&live);
        }
    }
}

impl Deref for LockedRing<'_> {
    type Target = RingState;

    fn deref(&self) -> &RingState {
        &self.state
    }
}

impl DerefMut for LockedRing<'_> {
    fn deref_mut(&mut self) -> &mut RingState {
        &mut self.state
    }
}

impl RingState {
    fn receive_opened(&mut self, queues: &ChunkRing) {
        for chunk in std::iter::from_fn(|| queues.opened.pop()) {
            self.first_ids.insert(chunk.first_id());
            self.at_hand.insert(chunk.first_id(), RingChunk::new(chunk));
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &RingChunk> {
        self.at_hand.values().chain(self.left.iter().map(|(chunk, _)| chunk))
    }

    /// Returns whether the oldest chunk is to be reused.
    fn may_evict(&self, pool: &ChunkPool, until: Ticks) -> bool {
        // While a trace holds a chunk, its memory is not free, so this waits for the last moment.
        let is_useful = |oldest: &Chunk| pool.wants_room() && oldest.is_unique() || pool.is_exhausted();
        self.left.front().is_some_and(|(oldest, at)| *at < until || is_useful(&oldest.chunk))
    }

    /// Finds what newer records may need; returns the ids of live spans and of open slices.
    fn prepare(&mut self, pool: &ChunkPool, live_ids: impl FnOnce() -> LiveIds) -> LiveIds {
        // First: if a span closes after this, it is live; if before, the search finds all references to it.
        let live = live_ids();
        self.search_references(pool);
        live
    }

    /// Gives the oldest chunk back to the pool; returns `false` if there is none.
    fn evict_oldest(&mut self, pool: &ChunkPool, live: &LiveIds) -> bool {
        let Some((oldest, at)) = self.left.pop_front() else { return false };
        self.searched -= 1;
        self.first_ids.remove(&oldest.chunk.first_id());
        self.evicted.horizon = self.evicted.horizon.max(Some(at));
        let needed = self.find_needed(&oldest, live);
        // Without room for what is needed, that takes the chunk's.
        let room = pool.reserve_while_held(needed.records.iter().map(OlderRecord::bytes).sum());
        let room = match room {
            None => oldest.chunk.into_reserved().unwrap_or_default(),
            Some(room) => {
                pool.give_back([oldest.chunk]);
                room
            }
        };
        let most = pool.bytes_max() / PART_FOR_OLDER;
        self.keep_needed(needed, most, room);
        if self.older.is_check_due(most) {
            self.drop_older(live);
        }
        true
    }

    /// Searches what was recorded since the last search for references to other chunks.
    fn search_references(&mut self, pool: &ChunkPool) {
        let RingState { at_hand, left, references, searched, .. } = self;
        let newly_left = left.iter_mut().skip(*searched).map(|(chunk, _)| chunk);
        at_hand.values_mut().chain(newly_left).for_each(|chunk| chunk.search_references(references, pool));
        *searched = left.len();
    }

    /// Finds the records of an evicted chunk that newer ones may need, and counts the others.
    fn find_needed(&mut self, evicted: &RingChunk, live: &LiveIds) -> NeededRecords {
        for id in &evicted.references {
            remove_reference(&mut self.references, *id);
        }
        let RingState { references, first_ids, large_payloads, evicted: counts, .. } = self;
        let is_needed = |id: u64| is_needed(id, references, first_ids, live);
        let own = evicted.own_ids();
        let referred = references.range(own.clone()).map(|(id, _)| *id);
        let live = live.get(live.partition_point(|id| *id < own.start)..).unwrap_or_default();
        let inside = referred.chain(live.iter().copied().take_while(|id| own.contains(id))).collect();
        let mut needed = NeededRecords::default();
        OlderRecord::find_needed(&evicted.chunk, inside, is_needed, |found| match found {
            Found::End(slice, at) => needed.ends.push((slice, at)),
            Found::Needed(record) => needed.records.push(record),
            Found::Other { is_shown, large_payload } => {
                counts.records += u64::from(is_shown);
                large_payloads.remove(&large_payload);
            }
        });
        needed
    }

    /// Keeps those records, as far as there is room.
    fn keep_needed(&mut self, needed: NeededRecords, most: u64, mut room: ReservedBytes) {
        let RingState { references, older, evicted: counts, at_hand, left, .. } = self;
        for record in needed.records {
            let is_slice = record.is_slice();
            if !older.insert(record, most, &mut room, references) {
                counts.needed += 1;
                counts.records += u64::from(is_slice);
            }
        }
        for (slice, at) in needed.ends {
            // Another thread may have exited the slice, whose own chunk is kept.
            let first_id = chunk_of(slice);
            let kept = || left.iter().map(|(chunk, _)| chunk).find(|each| each.chunk.first_id() == first_id);
            if !older.end_slice(slice, at)
                && let Some(kept) = at_hand.get(&first_id).or_else(kept)
            {
                kept.chunk.slots().store_end(usize::try_from(slice - first_id).unwrap_or(0), at.0);
            }
        }
    }

    /// Drops the older records that nothing needs any more.
    fn drop_older(&mut self, live: &LiveIds) {
        let oldest_epoch = self.chunks().map(|each| each.chunk.epoch()).min().unwrap_or(0);
        let RingState { references, first_ids, older, large_payloads, evicted, .. } = self;
        let is_needed = |id: u64, references: &References| is_needed(id, references, first_ids, live);
        older.retain_needed(oldest_epoch, is_needed, references, |large_payload, is_slice| {
            large_payloads.remove(&large_payload);
            evicted.records += u64::from(is_slice);
        });
    }
}

impl RingChunk {
    fn new(chunk: Chunk) -> RingChunk {
        RingChunk { chunk, searched: 0, references: Vec::new(), reserved: ReservedBytes::default() }
    }

    fn own_ids(&self) -> Range<u64> {
        self.chunk.first_id()..self.chunk.first_id() + SLOTS as u64
    }

    fn search_references(&mut self, counts: &mut References, pool: &ChunkPool) {
        /// Repeated references are usually close to each other.
        const NEAR: usize = 4;
        let records = self.chunk.committed_slots(self.chunk.committed_len());
        let own = self.own_ids();
        while let Some(record) = records.read_record(self.searched) {
            self.searched = record.next_slot();
            for id in record.references().into_iter().filter(|id| *id != 0 && !own.contains(id)) {
                if !self.references.iter().rev().take(NEAR).any(|known| *known == id) {
                    self.references.push(id);
                    *counts.entry(id).or_default() += 1;
                }
            }
        }
        // With the entry of `counts`.
        let bytes = self.references.len() as u64 * 32;
        if bytes > self.reserved.bytes {
            self.reserved = ReservedBytes::default();
            self.reserved = pool.reserve_while_held(bytes).unwrap_or_default();
        }
    }
}

/// Returns whether something refers to a span or slice, or may do so later, or its chunk is kept.
fn is_needed(id: u64, references: &References, first_ids: &HashSet<u64>, live: &LiveIds) -> bool {
    references.contains_key(&id) || live.binary_search(&id).is_ok() || first_ids.contains(&chunk_of(id))
}

/// Returns the first id of the chunk in which a record was written.
fn chunk_of(id: u64) -> u64 {
    id - id % SLOTS as u64
}

/// Notes that there is one reference less.
pub(super) fn remove_reference(references: &mut References, id: u64) {
    if let Some(count) = references.get_mut(&id) {
        *count -= 1;
        if *count == 0 {
            references.remove(&id);
        }
    }
}
