//! The chunks of a recording. If the newest records are kept, the ring evicts the oldest chunks.
//!
//! A chunk is retired when its thread begins another one, and chunks are evicted in the order of retirement. The *horizon* is the
//! latest retirement of an evicted chunk, or the time to which dropped records of devices reach. Earlier records may be missing,
//! later ones are complete, so a trace begins there.
//!
//! Hooks push to queues; a thread that locks the ring receives their entries.

mod chunk;
mod live;

use super::busy::Busy;
use super::memory_listeners::InternalAllocGuard;
use super::retained::{NeededRecords, RetainedRecord, RetainedRecords, large_payload_of};
use super::{LargePayload, LiveIds, ProcessBuffers, RecordedBuffers, RecordedPart};
use crate::buffer::{Chunk, ChunkPool, ReservedBytes, SLOTS, Tag};
use crate::clock;
use crate::encoding::{Encoded, encoded};
use crate::live::{JournalKind, LiveFile, LiveHandle};
use crate::time::Ticks;
use chunk::{HeldChunk, RingChunk};
use crossbeam_queue::SegQueue;
use kineto_base::hash::{HashMap, HashSet};
use live::HeldStretches;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// All chunks of a recording.
#[derive(Debug, Default)]
pub(super) struct ChunkRing {
    opened: SegQueue<Chunk>,
    /// Chunks that were retired, and when.
    retired: SegQueue<(Chunk, Ticks)>,
    large_payloads: SegQueue<(u64, Arc<LargePayload>)>,
    state: Mutex<RingState>,
    live: LiveHandle,
}

#[derive(Debug, Default)]
pub(super) struct RingState {
    /// Chunks that are not known to be retired, by first id.
    in_use: HashMap<u64, RingChunk>,
    /// The others, in the order of retirement, and when that was.
    retired: VecDeque<(RingChunk, Ticks)>,
    /// How many of the first of those were searched for references to the end.
    searched: usize,
    /// The first ids of all of them.
    first_ids: HashSet<u64>,
    large_payloads: LargePayloads,
    /// How many chunks and retained records refer to a record outside of them, by its id.
    references: References,
    retained: RetainedRecords,
    /// Evicted chunks that a trace still holds.
    held: Vec<HeldChunk>,
    /// With a live file: what traces hold in whole.
    held_stretches: HeldStretches,
    /// If records are moved to disk: a trace has all that were committed by then.
    saved_until: Option<Ticks>,
    /// The counts since the recording began.
    evicted: EvictionCounts,
    /// Where what outlives its chunk is noted, while the ring is locked.
    live: Option<Arc<LiveFile>>,
}

/// Large payloads by id.
#[derive(Debug, Default)]
struct LargePayloads {
    known: HashMap<u64, Arc<LargePayload>>,
    /// Those that were dropped since that was noted.
    dropped: Vec<u64>,
    /// Whether there is a live file to note that in.
    has_live_file: bool,
}

impl LargePayloads {
    fn remove(&mut self, id: u64) {
        if self.known.remove(&id).is_some() && self.has_live_file {
            self.dropped.push(id);
        }
    }
}

/// How many kept chunks and records refer to a record, by its id.
pub(super) type References = HashMap<u64, u32>;

/// What was evicted from the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvictionCounts {
    /// The horizon; `None` if nothing was evicted.
    pub(crate) horizon: Option<Ticks>,
    /// The lowest and the highest id in evicted chunks.
    pub(crate) ids: (u64, u64),
    /// The number of evicted slices and events.
    pub(crate) records: u64,
    /// The number of evicted records that newer ones need: there was no room for them.
    pub(crate) needed: u64,
    /// The number of evicted slices, events and memory records that were to be moved to disk before.
    pub(crate) unsaved: u64,
}

encoded! {
    EvictionCounts { horizon, ids, records, needed, unsaved }
}

thread_local! {
    static LOCKED_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Notes that this thread locks the ring: an allocator that records events needs a chunk meanwhile.
struct LockedHere(());

impl LockedHere {
    fn begin() -> LockedHere {
        LOCKED_HERE.with(|here| here.set(true));
        LockedHere(())
    }
}

impl Drop for LockedHere {
    fn drop(&mut self) {
        LOCKED_HERE.with(|here| here.set(false));
    }
}

/// Retained records may take one part in that many of the limit.
const PART_FOR_RETAINED: u64 = 4;

impl ChunkRing {
    pub(super) fn new(live: LiveHandle) -> ChunkRing {
        ChunkRing { live, ..ChunkRing::default() }
    }

    /// Adds a chunk that a thread begins to fill.
    pub(super) fn add_chunk(&self, chunk: Chunk) {
        self.opened.push(chunk);
    }

    /// Adds a payload.
    pub(super) fn add_large_payload(&self, id: u64, payload: Arc<LargePayload>) {
        self.live.put(JournalKind::LargePayload, (id, 0), |out| payload.encode(out));
        self.large_payloads.push((id, payload));
    }

    /// Marks a chunk as complete: its thread writes no more.
    pub(super) fn retire_chunk(&self, chunk: Chunk, now: Ticks) {
        self.retired.push((chunk, now));
    }

    /// Calls `action` with the locked state. Guards keep the allocator out of hooks, which would lock the ring again.
    fn with_state<R>(&self, action: impl FnOnce(&mut RingState) -> R) -> R {
        let (_busy, _own, _here) = (Busy::begin(), InternalAllocGuard::begin(), LockedHere::begin());
        // Dropped after the unlock: the last handle closes the file.
        let live = self.live.current();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A kept file contains the records that are evicted from now on: nothing is noted in it.
        let eviction = live.as_deref().and_then(LiveFile::begin_eviction);
        state.set_live(eviction.as_ref().and(live.as_ref()).cloned());
        state.receive(self);
        let result = action(&mut state);
        state.live = None;
        result
    }

    /// Returns when the oldest chunk that no trace holds was retired.
    pub(super) fn oldest_free(&self) -> Option<Ticks> {
        self.with_state(|state| state.oldest_free())
    }

    /// Returns how many bytes the retired chunks have.
    pub(super) fn retired_bytes(&self) -> u64 {
        self.with_state(|state| state.retired.len() as u64 * Chunk::BYTES)
    }

    /// Returns the horizon.
    pub(super) fn horizon(&self) -> Option<Ticks> {
        self.with_state(|state| state.evicted.horizon)
    }

    /// Returns the numbers of the lanes whose records are kept.
    pub(super) fn used_lanes(&self, pool: &ChunkPool) -> HashSet<u64> {
        let mut lanes = HashSet::default();
        self.with_state(|state| {
            state.search_references(pool);
            state.visit_kept(&mut |chunk| {
                for lane in &chunk.lanes {
                    lanes.insert(*lane);
                }
            });
            state.retained.visit(&mut |record| lanes.extend(record.copied.lane));
        });
        lanes
    }

    /// Returns the epochs of all records that are kept.
    pub(super) fn used_epochs(&self, pool: &ChunkPool) -> HashSet<u64> {
        let mut epochs = HashSet::default();
        self.with_state(|state| {
            state.free_held(pool);
            state.visit_kept(&mut |chunk| _ = epochs.insert(chunk.chunk.epoch()));
            state.retained.visit(&mut |record| _ = epochs.insert(record.copied.epoch));
        });
        epochs
    }

    /// Notes all retained records in the live file again.
    pub(super) fn note_retained(&self) {
        self.with_state(|state| {
            state.retained.mark_all_changed();
            state.note_changes();
        });
    }

    /// Moves the horizon to `to`: earlier records of devices were dropped.
    pub(super) fn move_horizon(&self, to: Ticks) {
        self.with_state(|state| {
            state.evicted.horizon = state.evicted.horizon.max(Some(to));
            state.note_changes();
        });
    }

    /// Notes that a trace has all records that were committed by then, and will be moved to disk.
    pub(super) fn set_saved_until(&self, until: Ticks) {
        self.with_state(|state| state.saved_until = Some(until));
    }

    /// Takes everything.
    pub(super) fn take_contents(&self) -> RecordedBuffers {
        self.with_state(|state| {
            let contents = state.contents(self, None);
            *state = RingState { live: state.live.take(), ..RingState::default() };
            contents
        })
    }

    /// Returns handles to everything.
    pub(super) fn contents(&self) -> RecordedBuffers {
        self.with_state(|state| state.contents(self, None))
    }

    /// Does the same after the oldest chunks have made room: while a trace holds all others, threads continue in the free ones.
    /// With `saves_until`, the contents until then will be moved to disk, and chunks that begin later are left out.
    pub(super) fn newest_contents(&self, buffers: &ProcessBuffers, saves_until: Option<Ticks>) -> RecordedBuffers {
        let newest = |state: &mut RingState| {
            let pool = &buffers.pool;
            state.free_held(pool);
            let live = state.collect_live_ids(buffers);
            // No more than that, although threads take chunks meanwhile.
            for _ in 0..state.retired.len() / 8 {
                if !state.is_eviction_due(pool, Ticks(0)) {
                    break;
                }
                state.evict_oldest(pool, &live);
            }
            state.drop_unneeded(&live);
            state.note_changes();
            let contents = state.contents(self, saves_until);
            if saves_until.is_some() {
                state.saved_until = saves_until;
                // These are losses of the contents.
                (state.evicted.needed, state.evicted.unsaved) = (0, 0);
                state.note_changes();
            } else {
                state.note_held(contents.at);
            }
            contents
        };
        self.with_state(newest)
    }

    /// Evicts until a chunk can be reused; `None` if the pool has chunks, or none is left.
    pub(super) fn evict_one(&self, buffers: &ProcessBuffers) -> Option<Chunk> {
        if LOCKED_HERE.with(Cell::get) {
            return None;
        }
        self.with_state(|state| {
            let pool = &buffers.pool;
            state.free_held(pool);
            if !pool.is_exhausted() {
                return pool.take_ready();
            }
            // While traces hold all chunks, evicting them would leave nothing.
            state.oldest_free()?;
            let live = state.collect_live_ids(buffers);
            let mut reused = None;
            // A chunk outside of the live file is not reused, but leaves room for another.
            while reused.is_none() && pool.is_exhausted() && state.evict_oldest(pool, &live) {
                reused = pool.take_ready();
            }
            reused
        })
    }

    /// Evicts the oldest chunks until the pool has room, and those that were retired before `until`.
    pub(super) fn evict(&self, buffers: &ProcessBuffers, until: Ticks) {
        /// Threads and snapshots wait while the ring is locked.
        const AT_ONCE: usize = 8;
        let evict_some = |state: &mut RingState| {
            let pool = &buffers.pool;
            state.free_held(pool);
            if !state.is_eviction_due(pool, until) {
                return false;
            }
            let live = state.collect_live_ids(buffers);
            for _ in 0..AT_ONCE {
                if !state.is_eviction_due(pool, until) || !state.evict_oldest(pool, &live) {
                    break;
                }
            }
            state.drop_unneeded(&live);
            state.note_changes();
            true
        };
        while self.with_state(evict_some) {}
    }
}

impl RingState {
    /// Sets the live file while the ring is locked.
    fn set_live(&mut self, live: Option<Arc<LiveFile>>) {
        self.retained.set_live(live.is_some());
        self.large_payloads.has_live_file = live.is_some();
        self.live = live;
    }

    fn receive_opened(&mut self, queues: &ChunkRing) {
        while let Some(chunk) = queues.opened.pop() {
            self.first_ids.insert(chunk.first_id());
            self.in_use.insert(chunk.first_id(), RingChunk::new(chunk));
        }
    }

    /// Receives the entries of the queues.
    fn receive(&mut self, queues: &ChunkRing) {
        self.receive_opened(queues);
        while let Some((chunk, at)) = queues.retired.pop() {
            let first_id = chunk.first_id();
            let mut known = self.in_use.remove(&first_id);
            if known.is_none() {
                // It was opened after the ring had received those that were opened.
                self.receive_opened(queues);
                known = self.in_use.remove(&first_id);
            }
            // The chunks of an ended recording are unknown.
            if let Some(known) = known {
                self.retired.push_back((known, at));
            }
        }
        while let Some((id, payload)) = queues.large_payloads.pop() {
            self.large_payloads.known.insert(id, payload);
        }
    }

    fn contents(&mut self, queues: &ChunkRing, saves_until: Option<Ticks>) -> RecordedBuffers {
        // All records before this are committed, and none after it is evicted.
        let at = clock::now();
        // A thread may have filled a chunk since the ring was locked.
        self.receive(queues);
        let is_spilling = self.saved_until.is_some();
        let mut parts = Vec::with_capacity(self.in_use.len() + self.retired.len() + self.retained.len());
        let mut take = |chunk: &mut RingChunk| {
            if let Some(taken) = chunk.take(is_spilling, saves_until) {
                parts.push(RecordedPart::Chunk(taken));
            }
        };
        for chunk in self.in_use.values_mut() {
            take(chunk);
        }
        for (chunk, _) in &mut self.retired {
            take(chunk);
        }
        self.retained.visit(&mut |record| parts.push(RecordedPart::Retained(record.clone())));
        let mut large_payloads = Vec::with_capacity(self.large_payloads.known.len());
        for (id, payload) in &self.large_payloads.known {
            large_payloads.push((*id, payload.clone()));
        }
        RecordedBuffers { at, parts, lanes: Vec::new(), large_payloads, evicted: self.evicted }
    }

    /// Calls `each` for every chunk that is not evicted.
    fn visit_chunks<'r>(&'r self, each: &mut dyn FnMut(&'r RingChunk)) {
        for chunk in self.in_use.values() {
            each(chunk);
        }
        for (chunk, _) in &self.retired {
            each(chunk);
        }
    }

    /// Also calls it for those that traces hold: a trace, or a process that is killed, shows them too.
    fn visit_kept<'r>(&'r self, each: &mut dyn FnMut(&'r RingChunk)) {
        self.visit_chunks(each);
        for held in &self.held {
            each(&held.chunk);
        }
    }

    fn oldest_free(&self) -> Option<Ticks> {
        self.retired.iter().find(|(oldest, _)| oldest.chunk.is_unique()).map(|(_, at)| *at)
    }

    /// Returns whether the oldest chunk is to be evicted.
    fn is_eviction_due(&self, pool: &ChunkPool, until: Ticks) -> bool {
        let Some((oldest, at)) = self.retired.front() else { return false };
        // Evicting what a trace holds frees nothing: the history stays until threads need the memory after it.
        let is_useful = || {
            if oldest.chunk.is_unique() { pool.is_low() } else { pool.is_half_used() && self.oldest_free().is_some() }
        };
        let is_needless = *at < until && (self.saved_until.is_none() || oldest.is_saved());
        is_needless || is_useful()
    }

    /// Finds what newer records may need; returns the ids of live spans and of open slices.
    fn collect_live_ids(&mut self, buffers: &ProcessBuffers) -> LiveIds {
        // First: a span that closes later is live; if one closed earlier, the search finds all references to it.
        let live = buffers.live_ids();
        self.receive(&buffers.ring);
        self.search_references(&buffers.pool);
        live
    }

    /// Evicts the oldest chunk; returns `false` if there is none.
    fn evict_oldest(&mut self, pool: &ChunkPool, live: &LiveIds) -> bool {
        let Some((mut oldest, at)) = self.retired.pop_front() else { return false };
        self.searched -= 1;
        self.first_ids.remove(&oldest.chunk.first_id());
        self.evicted.horizon = self.evicted.horizon.max(Some(at));
        let (ids, (first, last)) = (oldest.own_ids(), self.evicted.ids);
        self.evicted.ids = (if first == 0 { ids.start } else { first.min(ids.start) }, last.max(ids.end - 1));
        let is_unique = oldest.chunk.is_unique();
        let before = self.evicted;
        // A live file shows what a trace holds, with what that needs.
        let stays = !is_unique && self.live.is_some();
        oldest.uncount_references(&mut self.references);
        let needed = self.find_needed(&oldest, live);
        if stays {
            oldest.count_references(&mut self.references);
            self.first_ids.insert(oldest.chunk.first_id());
        } else {
            self.note_lost(&oldest, at);
        }
        // If the budget has no room for what is needed, that takes the chunk's bytes.
        let room = pool.reserve_bytes(needed.records.iter().map(RetainedRecord::bytes).sum());
        let (room, is_whole) = match room {
            // A trace holds the chunk: what is needed of it is worth more than the limit.
            None if !is_unique => {
                (pool.reserve_beyond_limit(needed.records.iter().map(RetainedRecord::bytes).sum()), true)
            }
            None => (oldest.chunk.take_reserved().unwrap_or_default(), false),
            Some(room) => (room, true),
        };
        let most = pool.bytes_max() / PART_FOR_RETAINED;
        self.keep_needed(needed, most, room);
        if self.retained.is_check_due(most) {
            self.drop_unneeded(live);
        }
        // Notes what is needed of the chunk, and then frees it, unless a trace holds it.
        if is_unique {
            self.note_changes();
            pool.give_back(is_whole.then_some(oldest.chunk));
        } else {
            if let Some(at) = self.saved_until.filter(|_| oldest.is_saved()) {
                oldest.chunk.mark_moved(at);
            }
            if !stays {
                oldest.references = Vec::new();
            }
            let (records, unsaved) = (self.evicted.records - before.records, self.evicted.unsaved - before.unsaved);
            self.held.push(HeldChunk { chunk: oldest, retired: at, records, unsaved });
            self.note_changes();
        }
        pool.set_held(self.held.len() as u64 * Chunk::BYTES);
        true
    }

    /// Gives back the evicted chunks that no trace holds any more.
    fn free_held(&mut self, pool: &ChunkPool) {
        let freed: Vec<_> = self.held.extract_if(.., |each| each.chunk.chunk.is_unique()).collect();
        if self.live.is_some() && !freed.is_empty() {
            for held in &freed {
                self.first_ids.remove(&held.chunk.chunk.first_id());
                held.chunk.uncount_references(&mut self.references);
                self.note_lost(&held.chunk, held.retired);
            }
            // The live file must not promise what is used again.
            self.note_changes();
        }
        pool.give_back(freed.into_iter().map(|each| each.chunk.chunk));
        pool.set_held(self.held.len() as u64 * Chunk::BYTES);
    }

    /// Searches what was recorded since the last search for references to other chunks.
    fn search_references(&mut self, pool: &ChunkPool) {
        let RingState { in_use, retired, references, searched, .. } = self;
        for chunk in in_use.values_mut() {
            chunk.search_references(references, pool);
        }
        for (chunk, _) in retired.range_mut(*searched..) {
            chunk.search_references(references, pool);
        }
        *searched = retired.len();
    }

    /// Finds the records of an evicted chunk that newer ones may need, and counts the others.
    fn find_needed(&mut self, evicted: &RingChunk, live: &LiveIds) -> NeededRecords {
        let RingState { references, first_ids, large_payloads, evicted: counts, saved_until, .. } = self;
        let is_referred = |id: u64| is_referred(id, references, live);
        let is_kept = |id: u64| first_ids.contains(&chunk_of(id));
        NeededRecords::of_chunk(&evicted.chunk, &is_referred, &is_kept, &mut |record| {
            let is_shown = matches!(record.head.tag, Tag::Slice | Tag::Instant | Tag::Counter);
            counts.records += u64::from(is_shown);
            if is_shown || record.head.tag == Tag::Memory {
                // The part of a chunk that was written before is in a trace.
                let is_unsaved = |saved: Ticks| record.slot >= evicted.new_from() || record.words[0] > saved.0;
                counts.unsaved += u64::from(saved_until.is_some_and(is_unsaved));
            }
            large_payloads.remove(large_payload_of(record));
        })
    }

    /// Keeps those records, as far as there is room.
    fn keep_needed(&mut self, needed: NeededRecords, most: u64, mut room: ReservedBytes) {
        let RingState { references, retained, large_payloads, evicted: counts, in_use, retired, held, .. } = self;
        for record in needed.records {
            let is_slice = record.slice_start().is_some();
            let forget_payload = |id| large_payloads.remove(id);
            if !retained.insert(record, most, &mut room, references, forget_payload) {
                counts.needed += 1;
                counts.records += u64::from(is_slice);
            }
        }
        for (slice, at) in needed.ends {
            // Another thread may have exited the slice, whose own chunk is kept.
            let first_id = chunk_of(slice);
            let store_end = |kept: &RingChunk| {
                let is_own = kept.chunk.first_id() == first_id;
                if is_own {
                    kept.chunk.slots().store_end(usize::try_from(slice - first_id).unwrap_or(0), at.0);
                }
                is_own
            };
            let _ = retained.end_slice(slice, at)
                || in_use.get(&first_id).is_some_and(store_end)
                || retired.iter().any(|(chunk, _)| store_end(chunk))
                || held.iter().any(|held| store_end(&held.chunk));
        }
    }

    /// Drops the retained records that nothing needs any more.
    fn drop_unneeded(&mut self, live: &LiveIds) {
        let mut epochs = HashSet::default();
        self.visit_chunks(&mut |chunk| _ = epochs.insert(chunk.chunk.epoch()));
        let RingState { references, first_ids, retained, large_payloads, evicted, saved_until, .. } = self;
        // Something refers to it, or may do so later, or its chunk is kept.
        let is_needed =
            |id: u64, references: &References| is_referred(id, references, live) || first_ids.contains(&chunk_of(id));
        let stretches = &self.held_stretches;
        let is_held = |start, end| stretches.overlaps(start, end);
        retained.retain_needed(&epochs, is_needed, is_held, references, |large_payload, slice_start| {
            large_payloads.remove(large_payload);
            evicted.records += u64::from(slice_start.is_some());
            // No part was taken since the slice began.
            evicted.unsaved += u64::from(saved_until.is_some_and(|saved| slice_start > Some(saved)));
        });
    }
}

/// Returns whether something refers to a span or slice, or may do so later.
fn is_referred(id: u64, references: &References, live: &LiveIds) -> bool {
    references.contains_key(&id) || live.binary_search(&id).is_ok()
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
