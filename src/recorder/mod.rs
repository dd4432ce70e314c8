//! What the layer's threads and the session share: which epoch is recorded, chunks, rows, callsites, losses.
//!
//! A hook reads only [`Recorder::epoch`]. The rest is used when a thread starts, needs a chunk, or meets a span that another
//! thread knows.

mod busy;
mod frames;
mod lanes;
#[cfg(feature = "segments")]
mod live;
#[cfg(not(feature = "segments"))]
#[path = "no_live.rs"]
mod live;
pub(crate) mod memory_listeners;
mod retained;
mod ring;
mod slice_extras;
mod span_table;
#[cfg(feature = "segments")]
mod stored;
mod taken;
mod thread_selection;
mod triggers;

pub(crate) use busy::Busy;
pub(crate) use frames::{Frame, Frames, SpanState, TOO_DEEP, lent_key, state};
pub(crate) use lanes::{LaneRegistry, LaneRow};
pub(crate) use retained::RetainedRecord;
pub(crate) use ring::EvictionCounts;
pub use slice_extras::CounterReport;
pub(crate) use slice_extras::{SliceExtras, no_stacks};
pub(crate) use span_table::{Origin, SpanEntry, SpanTable, StoredState};
#[cfg(test)]
pub(crate) use taken::TakenChunk;
pub(crate) use taken::{CopiedSlots, RecordedBuffers, RecordedPart};
pub use thread_selection::ThreadFilter;
pub(crate) use thread_selection::ThreadSelection;
pub(crate) use triggers::{TriggerCause, TriggerEvent, TriggerQueue, WatchedSpan};

use crate::buffer::{Chunk, ChunkPool, Loss, Losses, ReservedBytes, SLOTS};
use crate::callsite::Sites;
use crate::clock;
use crate::correlation::CorrelationSink;
use crate::live::LiveHandle;
use crate::observer::Observers;
use crate::os::{fork, memory, platform};
use crate::time::Ticks;
use crate::wait::steady;
use crossbeam_queue::ArrayQueue;
use kineto_base::budget::Eviction;
use kineto_base::hash::HashSet;
use kineto_devices::CollectorSet;
use memory_listeners::Listener;
use ring::ChunkRing;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Process-wide ids and epochs, from 1. A chunk takes [`SLOTS`] consecutive ids.
static NEXT_IDS: AtomicU64 = AtomicU64::new(SLOTS as u64);
static NEXT_EPOCH: AtomicU64 = AtomicU64::new(1);

/// The epoch shared by all recordings that only observers receive; no lane has it.
pub(crate) const OBSERVERS_ONLY: u64 = u64::MAX - 1;

/// The part of the limit that is left free for threads that find no chunk ready.
const PART_LEFT_FREE: u64 = 8;

/// How many partly filled chunks of ended threads are kept for new threads.
const PARTLY_FILLED: usize = 64;

/// The shared part of one layer.
pub(crate) struct Recorder {
    /// The epoch being recorded, 0 while nothing is; unique in the process, so that it also tells recorders apart.
    epoch: fork::WipedWord,
    /// Whether a span ever had an entry in the table. Each close reads it while nothing is recorded.
    keeps_spans: AtomicBool,
    /// The process in which this recorder records.
    fork: AtomicU64,
    buffers: fork::PerProcess<ProcessBuffers>,
    bytes_max: u64,
    pub(crate) losses: Losses,
    pub(crate) sites: Sites,
    /// Whether slices may overlap, because a span was exited out of order or by another thread.
    slices_may_overlap: AtomicBool,
    /// Bumped when a span closes that threads may have cached; see `layer::cache`.
    cache_generations: [AtomicU32; CLOSINGS],
    /// Receives the slice ids that threads enter. Each thread reads it once an epoch.
    correlation_sink: fork::Own<Option<Arc<dyn CorrelationSink>>>,
    /// The observers of spans.
    pub(crate) observers: Observers,
    /// Where allocators find this recorder, if it records memory. Once released, it may be another recorder's.
    listener_slot: OnceLock<&'static Listener>,
    has_released_slot: AtomicBool,
    /// Whether the current or next recording contains allocators' reports.
    memory_wanted: AtomicBool,
    /// Which threads are recorded.
    pub(crate) thread_selection: ThreadSelection,
    /// Stacks and counters of slices.
    pub(crate) slice_extras: SliceExtras,
    pub(crate) settings: RecorderSettings,
    /// Whether the oldest records of the recording are moved to disk.
    is_spilling: AtomicBool,
    /// Whether the layer was ever part of a subscriber.
    is_installed: AtomicBool,
}

/// A payload too large for a chunk.
#[derive(Debug)]
pub(crate) struct LargePayload {
    /// Boxed, because allocating an `Arc` of a slice cannot report a lack of memory.
    pub(crate) words: Box<[u64]>,
    pub(crate) reserved: ReservedBytes,
}

/// The buffers and tables that the threads of one process share.
struct ProcessBuffers {
    pool: ChunkPool,
    /// Every chunk that was opened since the session began, unless it was evicted.
    ring: ChunkRing,
    /// Chunks of ended threads, and when those ended.
    partly_filled: ArrayQueue<(Chunk, Ticks)>,
    lanes: LaneRegistry,
    spans: SpanTable,
    triggers: TriggerQueue,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The part of the configuration that the span path reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecorderSettings {
    /// The longest field value, in bytes.
    pub(crate) field_bytes_max: usize,
    /// Whether the fields of spans made while nothing is recorded are kept.
    pub(crate) fields_while_idle: bool,
    /// Whether anything is recorded; if not, only observers receive spans.
    pub(crate) records: bool,
    /// Which threads are recorded.
    pub(crate) threads: ThreadFilter,
    /// Whether new records replace the oldest ones at the limit.
    pub(crate) evicts_oldest: bool,
}

/// Buckets of span keys; also the size of a thread's cache of spans.
pub(crate) const CLOSINGS: usize = 64;

/// The ids of spans that may be entered again, and of slices that are open, sorted.
type LiveIds = Vec<u64>;

impl ProcessBuffers {
    fn new(bytes_max: u64, evicts_oldest: bool, live: &LiveHandle) -> ProcessBuffers {
        ProcessBuffers {
            pool: ChunkPool::new(bytes_max, if evicts_oldest { bytes_max / PART_LEFT_FREE } else { 0 }),
            ring: ChunkRing::new(live.clone()),
            partly_filled: ArrayQueue::new(PARTLY_FILLED),
            lanes: LaneRegistry::new(live.clone()),
            spans: SpanTable::new(),
            triggers: TriggerQueue::new(),
        }
    }

    /// Returns the ids of live spans and of open slices, to which new records may refer.
    fn live_ids(&self) -> LiveIds {
        let mut ids = LiveIds::default();
        // A thread may move a span from its frames to the table meanwhile, but not back.
        self.lanes.collect_ids(&mut ids);
        self.spans.collect_ids(&mut ids);
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl Recorder {
    pub(crate) fn new(
        bytes_max: u64,
        sites: Sites,
        observers: Observers,
        slice_extras: SliceExtras,
        settings: RecorderSettings,
    ) -> Recorder {
        Recorder {
            epoch: fork::WipedWord::new(),
            keeps_spans: AtomicBool::new(false),
            fork: AtomicU64::new(fork::generation()),
            buffers: fork::PerProcess::new(ProcessBuffers::new(bytes_max, settings.evicts_oldest, &sites.live)),
            bytes_max,
            losses: Losses::new(),
            sites,
            slices_may_overlap: AtomicBool::new(false),
            cache_generations: std::array::from_fn(|_| AtomicU32::new(0)),
            correlation_sink: fork::Own::default(),
            observers,
            listener_slot: OnceLock::new(),
            has_released_slot: AtomicBool::new(false),
            memory_wanted: AtomicBool::new(true),
            thread_selection: ThreadSelection::new(settings.threads.clone()),
            slice_extras,
            settings,
            is_spilling: AtomicBool::new(false),
            is_installed: AtomicBool::new(false),
        }
    }

    /// Returns a recorder that is never opened.
    pub(crate) fn inert() -> Recorder {
        let settings = RecorderSettings::default();
        Recorder::new(0, Sites::default(), Observers::default(), SliceExtras::default(), settings)
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Recorder {
        Recorder::with_limit(1 << 30, false)
    }

    #[cfg(test)]
    pub(crate) fn with_limit(bytes_max: u64, evicts_oldest: bool) -> Recorder {
        let (field_bytes_max, threads) = (100, ThreadFilter::All);
        let settings =
            RecorderSettings { field_bytes_max, fields_while_idle: true, records: true, threads, evicts_oldest };
        Recorder::new(
            bytes_max,
            Sites::new(crate::callsite::Rules { with_args: true, ..Default::default() }),
            Observers::default(),
            SliceExtras::default(),
            settings,
        )
    }

    /// Notes that the layer has become part of a subscriber.
    pub(crate) fn set_installed(&self) {
        self.is_installed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the layer is part of a subscriber.
    ///
    /// `Option` and `Vec` of layers do not forward `on_register_dispatch`, so a known callsite counts too.
    pub(crate) fn is_installed(&self) -> bool {
        self.is_installed.load(Ordering::Relaxed) || !self.sites.all_sites().is_empty()
    }

    /// Returns the buffers of this process; a forked child starts with empty ones.
    fn buffers(&self) -> &ProcessBuffers {
        self.buffers.get(|_| ProcessBuffers::new(self.bytes_max, self.settings.evicts_oldest, &self.sites.live))
    }

    pub(crate) fn pool(&self) -> &ChunkPool {
        &self.buffers().pool
    }

    /// Returns where the live file of the recording is found.
    pub(crate) fn live(&self) -> &LiveHandle {
        &self.sites.live
    }

    pub(crate) fn lanes(&self) -> &LaneRegistry {
        &self.buffers().lanes
    }

    /// Returns the queue of triggers.
    pub(crate) fn triggers(&self) -> &TriggerQueue {
        &self.buffers().triggers
    }

    /// Posts a trigger to the session's thread.
    pub(crate) fn post_trigger(&self, cause: TriggerCause) {
        self.triggers().post(cause);
        self.pool().start_ahead();
        self.pool().wake_helper();
    }

    /// Returns the table of live spans.
    pub(crate) fn span_table(&self) -> &SpanTable {
        &self.buffers().spans
    }

    /// Calls `access` with the span's entry, which is empty if there was none; see [`SpanTable::with_entry`].
    pub(crate) fn keep_span<R>(&self, key: u64, access: impl FnOnce(&mut SpanEntry) -> R) -> R {
        // Relaxed: the span closes after its last handle was dropped, so its close sees this.
        if !self.keeps_spans() {
            self.keeps_spans.store(true, Ordering::Relaxed);
        }
        self.span_table().with_new(key, access)
    }

    /// Returns whether a span ever had an entry in the table.
    #[inline(always)]
    pub(crate) fn keeps_spans(&self) -> bool {
        self.keeps_spans.load(Ordering::Relaxed)
    }

    /// Returns the epoch being recorded, 0 if none is.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        // Relaxed: a thread that reads the old value records into, or misses, the last nanoseconds of a session; what
        // a new epoch needs is published by the locks that a thread takes when it first meets it.
        if platform::CAN_RECORD { self.epoch.get().load(Ordering::Relaxed) } else { 0 }
    }

    /// Returns where the epoch is, for hooks. It is used while this lives.
    pub(crate) fn epoch_word(&self) -> &'static AtomicU64 {
        self.epoch.get()
    }

    /// Returns the receiver of the slice ids that threads enter, if there is one.
    pub(crate) fn correlation_sink(&self) -> Option<Arc<dyn CorrelationSink>> {
        self.correlation_sink.lock().clone()
    }

    /// Starts an epoch, in which threads push slice ids to `correlation_sink`, and returns it.
    ///
    /// All recordings that only observers receive share one epoch.
    pub(crate) fn open_epoch(&self, correlation_sink: Option<Arc<dyn CorrelationSink>>) -> u64 {
        *self.correlation_sink.lock() = correlation_sink;
        self.observers.resume();
        let epoch = if self.settings.records { NEXT_EPOCH.fetch_add(1, Ordering::Relaxed) } else { OBSERVERS_ONLY };
        self.note_window(epoch, clock::now(), None);
        self.epoch.get().store(epoch, Ordering::Release);
        self.listener()
            .filter(|_| self.settings.records && self.records_memory())
            .inspect(|listener| listener.open(epoch));
        epoch
    }

    /// Begins a recording; called before its first epoch opens.
    ///
    /// With `spills`, its oldest records are moved to disk before they are evicted.
    pub(crate) fn begin_recording(&self, spills: bool) {
        self.is_spilling.store(spills, Ordering::Relaxed);
        self.thread_selection.begin_recording();
        if spills {
            self.buffers().ring.set_saved_until(clock::now());
        }
        self.restrict_listener();
    }

    /// Returns whether the oldest records are moved to disk.
    pub(crate) fn is_spilling(&self) -> bool {
        self.is_spilling.load(Ordering::Relaxed)
    }

    /// Notes that the recording no longer includes all threads.
    pub(crate) fn restrict_threads(&self) {
        self.thread_selection.restrict_threads();
        self.restrict_listener();
    }

    fn restrict_listener(&self) {
        let recording = self.thread_selection.selective_recording();
        self.listener().inspect(|listener| listener.restrict_to(recording));
    }

    /// Returns the slot for receiving allocators' reports, until it is released.
    fn listener(&self) -> Option<&'static Listener> {
        self.listener_slot.get().copied().filter(|_| !self.has_released_slot.load(Ordering::Relaxed))
    }

    /// Claims a slot for receiving allocators' reports; returns false if all are taken.
    pub(crate) fn claim_listener_slot(self: &Arc<Self>) -> bool {
        let listener = if self.listener_slot.get().is_some() { None } else { Listener::claim_for(self) };
        listener.is_some_and(|listener| self.listener_slot.set(listener).is_ok())
    }

    /// Releases the slot for good.
    pub(crate) fn release_listener_slot(&self) {
        self.listener()
            .filter(|_| !self.has_released_slot.swap(true, Ordering::Relaxed))
            .inspect(|slot| slot.release_slot());
    }

    /// Sets whether recordings contain allocators' reports, from the next start on.
    pub(crate) fn set_records_memory(&self, on: bool) {
        self.memory_wanted.store(on, Ordering::Relaxed);
    }

    /// Returns whether recordings contain allocators' reports.
    pub(crate) fn records_memory(&self) -> bool {
        self.listener_slot.get().is_some() && self.memory_wanted.load(Ordering::Relaxed)
    }

    /// Adds the lost memory records to the other losses.
    pub(crate) fn gather_losses(&self) {
        let lost = self.listener().map(|listener| listener.losses.take_counts());
        lost.into_iter().flatten().zip(Loss::ALL).for_each(|(count, loss)| self.losses.add(*loss, count));
    }

    /// Ends the epoch. Threads that have not noticed yet write into chunks of that epoch for a moment longer.
    pub(crate) fn close_epoch(&self) {
        self.listener().inspect(|listener| listener.close());
        self.epoch.get().store(0, Ordering::Release);
    }

    /// Returns whether this process is a fork of the one that opened the epoch.
    pub(crate) fn is_forked(&self) -> bool {
        self.fork.load(Ordering::Relaxed) != fork::generation()
    }

    /// Makes a forked child the recorder's process. Whatever the parent had opened is closed here.
    pub(crate) fn adopt_fork(&self) {
        self.close_epoch();
        self.fork.store(fork::generation(), Ordering::Relaxed);
    }

    /// Notes that slices may overlap from now on.
    pub(crate) fn note_overlap(&self) {
        self.slices_may_overlap.store(true, Ordering::Relaxed);
    }

    /// Returns whether slices may overlap.
    pub(crate) fn may_overlap(&self) -> bool {
        self.slices_may_overlap.load(Ordering::Relaxed)
    }

    /// Takes everything that was recorded since the last call, without waiting for any thread.
    pub(crate) fn take_recorded(&self) -> RecordedBuffers {
        let buffers = self.buffers();
        while buffers.partly_filled.pop().is_some() {}
        buffers.ring.take_contents().with_lanes(buffers.lanes.take_rows())
    }

    /// Discards what threads have written since the last stop; some notice the stop late.
    pub(crate) fn discard_late_records(&self) {
        self.pool().give_back(self.take_recorded().parts.into_iter().filter_map(RecordedPart::into_chunk));
    }

    /// Returns everything that was recorded so far, and keeps it; with `saves_until`, what is older will be moved to disk.
    pub(crate) fn snapshot(&self, saves_until: Option<Ticks>) -> RecordedBuffers {
        let buffers = self.buffers();
        let contents = if self.settings.evicts_oldest {
            buffers.ring.newest_contents(buffers, saves_until)
        } else {
            buffers.ring.contents()
        };
        contents.with_lanes(buffers.lanes.rows())
    }

    /// Evicts until a chunk can be reused; `None` if one is ready, or none is left.
    fn evict_one(&self) -> Option<Chunk> {
        let buffers = self.buffers();
        let evicted = buffers.ring.evict_one(buffers);
        if evicted.is_some() || !buffers.pool.is_exhausted() {
            return evicted;
        }
        // The last chunks are those that ended threads have left for new ones.
        std::iter::from_fn(|| buffers.partly_filled.pop()).for_each(|(chunk, at)| buffers.ring.retire_chunk(chunk, at));
        buffers.ring.evict_one(buffers)
    }

    /// Drops the oldest records of threads and devices until there is room for new ones, and those from before `until`; does
    /// nothing unless the newest records are kept.
    pub(crate) fn evict_until(&self, until: Ticks, devices: &CollectorSet) {
        if !self.settings.evicts_oldest {
            return;
        }
        let buffers = self.buffers();
        let oldest = buffers.ring.oldest_free();
        while buffers.pool.is_low()
            && let Some(at) = devices.oldest_free_block().filter(|at| oldest.is_none_or(|oldest| *at < oldest))
        {
            buffers.ring.move_horizon(at);
            devices.drop_blocks(at);
        }
        buffers.ring.evict(buffers, until);
        if let Some(horizon) = buffers.ring.horizon() {
            devices.drop_blocks(horizon.max(until));
        }
        self.drop_ended_lanes();
    }

    /// Drops the rows of threads that ended so long ago that none of their records is kept, every few seconds.
    fn drop_ended_lanes(&self) {
        let buffers = self.buffers();
        let due = buffers.ring.horizon().and_then(|horizon| buffers.lanes.begin_drop(horizon, steady()));
        if let Some(before) = due {
            buffers.lanes.drop_ended(before, &buffers.ring.used_lanes(&buffers.pool));
        }
    }

    /// Returns the horizon, if the newest records are kept.
    pub(crate) fn horizon(&self) -> Option<Ticks> {
        self.buffers().ring.horizon()
    }

    /// Returns the epochs of all records that are kept.
    pub(crate) fn used_epochs(&self) -> HashSet<u64> {
        let buffers = self.buffers();
        buffers.ring.used_epochs(&buffers.pool)
    }

    /// Returns how many bytes of complete chunks there are.
    pub(crate) fn retired_bytes(&self) -> u64 {
        self.buffers().ring.retired_bytes()
    }

    /// Evicts what a snapshot until then has, because it is moved to disk.
    pub(crate) fn evict_saved(&self, until: Ticks) {
        let buffers = self.buffers();
        buffers.ring.evict(buffers, until);
    }

    /// Evicts for records of a device, if new records replace the oldest ones.
    pub(crate) fn evict_for_devices(&self, oldest_block: Option<Ticks>) -> Eviction {
        if !self.settings.evicts_oldest {
            return Eviction::None;
        }
        let buffers = self.buffers();
        match (oldest_block, buffers.ring.oldest_free()) {
            (Some(block), chunk) if chunk.is_none_or(|chunk| block < chunk) => {
                buffers.ring.move_horizon(block);
                Eviction::OldestBlock
            }
            (_, Some(_)) => {
                let reserved = self.evict_one().and_then(Chunk::into_reserved);
                Eviction::Elsewhere(reserved.map_or(0, ReservedBytes::into_bytes))
            }
            _ => Eviction::None,
        }
    }

    /// Returns a chunk for `epoch`; `None` at the limit.
    pub(crate) fn open_chunk(&self, epoch: u64) -> Option<Chunk> {
        let buffers = self.buffers();
        // Another thread may take what was evicted.
        let tries = if self.settings.evicts_oldest { 16 } else { 0 };
        let evicted = || self.evict_one().or_else(|| buffers.pool.take_chunk());
        let chunk = buffers.pool.take_chunk().or_else(|| (0..tries).find_map(|_| evicted()))?;
        chunk.open(reserve_ids(), epoch);
        buffers.ring.add_chunk(chunk.clone());
        Some(chunk)
    }

    /// Returns how many records a thread loses before it asks for a chunk again, after it got none.
    pub(crate) fn lost_until_retry(&self) -> u32 {
        // A chunk may be free again once a trace is dropped, if old records make room for new ones.
        if self.settings.evicts_oldest { 64 } else { u32::MAX }
    }

    /// Marks a chunk as complete: its thread writes no more.
    pub(crate) fn retire_chunk(&self, chunk: Chunk) {
        if self.settings.evicts_oldest {
            self.buffers().ring.retire_chunk(chunk, clock::now());
        }
    }

    /// Returns a partly filled chunk of an ended thread, or a new one; `None` at the limit.
    pub(crate) fn chunk_for_new_thread(&self, epoch: u64) -> Option<Chunk> {
        let mut left = std::iter::from_fn(|| self.buffers().partly_filled.pop());
        let of_epoch = left.find_map(|(chunk, at)| {
            if chunk.epoch() == epoch {
                return Some(chunk);
            }
            // Its epoch has ended, so no thread continues it.
            if self.settings.evicts_oldest {
                self.buffers().ring.retire_chunk(chunk, at);
            }
            None
        });
        of_epoch.or_else(|| self.open_chunk(epoch))
    }

    /// Keeps the chunk of an ending thread, so that the next new thread continues it.
    pub(crate) fn leave_chunk(&self, chunk: Chunk) {
        const REUSABLE_BELOW: usize = SLOTS - SLOTS / 8;
        let is_reusable = chunk.epoch() == self.epoch() && chunk.committed_len() < REUSABLE_BELOW;
        let left = (chunk, clock::now());
        let rejected = if is_reusable { self.buffers().partly_filled.push(left).err() } else { Some(left) };
        if let Some((chunk, _)) = rejected {
            self.retire_chunk(chunk);
        }
    }

    /// Keeps a payload that no chunk could hold; returns its id, `None` at the limit.
    pub(crate) fn keep_large_payload(&self, payload: &[u64]) -> Option<u64> {
        let reserve = || self.pool().reserve_bytes(size_of_val(payload) as u64);
        let reserve_again = || {
            self.pool().give_back(self.settings.evicts_oldest.then(|| self.evict_one()).flatten());
            reserve()
        };
        let reserved = reserve().or_else(reserve_again)?;
        let mut words = memory::try_vec_with_capacity(payload.len())?;
        words.extend_from_slice(payload);
        let id = reserve_ids();
        let payload = LargePayload { words: words.into(), reserved };
        self.buffers().ring.add_large_payload(id, Arc::new(payload));
        Some(id)
    }

    /// Returns the counter to compare for spans of that key: it changes when one of them closes.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bucket() is smaller than CLOSINGS")]
    pub(crate) fn close_counter(&self, key: u64) -> &AtomicU32 {
        &self.cache_generations[span_bucket(key)]
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.release_listener_slot();
    }
}

/// Reserves [`SLOTS`] consecutive ids and returns the first.
pub(crate) fn reserve_ids() -> u64 {
    NEXT_IDS.fetch_add(SLOTS as u64, Ordering::Relaxed)
}

/// Returns which of the [`CLOSINGS`] buckets a span key falls into.
#[inline(always)]
pub(crate) const fn span_bucket(key: u64) -> usize {
    // Registry keys differ in their low bits (slots of a page) and in high ones (threads, generations).
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunk_is_continued_within_its_epoch() {
        let recorder = Recorder::for_tests();
        let epoch = recorder.open_epoch(None);
        let chunk = recorder.open_chunk(epoch).unwrap();
        let first_id = chunk.first_id();
        recorder.leave_chunk(chunk);
        let continued = recorder.chunk_for_new_thread(epoch).unwrap();
        assert_eq!(continued.first_id(), first_id);
        assert_ne!(recorder.chunk_for_new_thread(epoch).unwrap().first_id(), first_id, "only one thread continues it");

        recorder.close_epoch();
        let next = recorder.open_epoch(None);
        recorder.leave_chunk(continued);
        let other = recorder.chunk_for_new_thread(next).unwrap();
        assert_eq!((other.epoch(), other.first_id() == first_id), (next, false));
    }

    #[test]
    fn memory_is_recorded_by_a_wanted_slot() {
        let recorder = Arc::new(Recorder::for_tests());
        assert!(!recorder.records_memory());
        assert!(recorder.claim_listener_slot() && recorder.records_memory());
        recorder.set_records_memory(false);
        assert!(!recorder.records_memory());
    }

    #[test]
    fn lost_memory_events_are_counted_by_cause_and_once() {
        let recorder = Arc::new(Recorder::for_tests());
        assert!(recorder.claim_listener_slot());
        for cause in [Loss::MemoryOverLimit, Loss::MemoryOwn, Loss::MemoryOwn] {
            recorder.listener().unwrap().losses.add(cause, 1);
        }
        for _ in 0..2 {
            recorder.gather_losses();
            let lost = |loss: Loss| recorder.losses.counts()[loss as usize];
            assert_eq!([Loss::MemoryOverLimit, Loss::MemoryMissed, Loss::MemoryOwn].map(lost), [1, 0, 2]);
        }
    }
}
