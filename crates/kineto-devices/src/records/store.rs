//! Packs the records of a collector, within the budget.
//!
//! A record is a head and a few words, in 64 KiB blocks that are never moved once they are full. The head holds the
//! record's role, the number of words of its [`RecordLayout`], and the number of its name. Calls, work and other
//! records have separate arenas, since each is read separately.

use self::live::LiveCopy;
use super::super::threads::Threads;
use super::arena::{Arena, FullBlock};
use super::collected::{ARENAS, BLOCK_BYTES, BY_HANDLE, Collected, LAUNCHES, OF_SLICE, Role, block_entries};
use super::layout::RecordLayout;
use super::names::{Name, NameTable};
use super::pauses::Pauses;
use super::pending::move_pending;
use super::record::{
    ApiCall, CounterSample, DeviceMemory, DeviceWork, EventRecord, External, Overhead, Synchronization, Thread,
};
use kineto_base::budget::{Budget, Eviction};
use kineto_base::live::LiveFile;
use kineto_base::time::Ticks;
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, CorrelationId};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Receives the records of a collector; a cheap clone, for any thread.
///
/// Records that arrive after the end of the recording are dropped and counted.
#[derive(Clone)]
pub struct RecordSink {
    store: Arc<RecordStore>,
}

impl fmt::Debug for RecordSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSink").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct RecordStore {
    budget: Arc<dyn Budget>,
    pauses: Pauses,
    state: Mutex<StoreState>,
    /// The copy in a live file; locked after the state.
    live: LiveCopy,
}

#[derive(Clone, Debug, Default)]
struct StoreState {
    arenas: [Arena; ARENAS],
    names: NameTable,
    bytes: u64,
    shapes: Vec<&'static dyn RecordLayout>,
    contexts: Vec<(u32, i32)>,
    threads: Threads,
    losses: Vec<(Loss, u64)>,
    notes: Vec<String>,
    /// The number of device activities in dropped blocks.
    evicted_work: u64,
    /// The highest correlation id of calls from before the records: of the last dropped block, or from before the recording.
    last_call_before: u64,
    /// How many blocks of each arena were dropped.
    dropped: [u64; ARENAS],
    /// Dropped blocks that a snapshot still holds.
    held: Vec<Arc<Vec<u64>>>,
    /// With a live file: the snapshots that hold blocks.
    snapshots: Vec<live::HoldingSnapshot>,
    /// Correlation ids of launches in pauses, whose work is not kept either.
    unwanted: HashSet<u64>,
    /// The error of the collector's own clock, in nanoseconds.
    clock_error_ns: u64,
    /// The recording has not begun: records are dropped.
    is_waiting: bool,
    closed: bool,
}

/// How often room is made for a block: other threads may take it.
const TRIES: usize = 16;
/// The most contexts that are kept.
const CONTEXTS: usize = 4096;
/// The most launches in pauses that are remembered.
const UNWANTED: usize = 1 << 16;

/// Writes records to a sink, whose lock it holds.
///
/// ```
/// use tracing_kineto::ActivityType;
/// use tracing_kineto::activity::ArgValue;
/// use tracing_kineto::integration::{ApiCall, DeviceWork, RecordLayout, RecordSink, RecordView, Thread};
///
/// /// The first word is the number of bytes.
/// #[derive(Debug)]
/// struct Bytes;
///
/// impl RecordLayout for Bytes {
///     fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
///         each("bytes", ArgValue::U64(record.word(0)));
///     }
/// }
///
/// /// A call on a thread, and the copy that it put on stream 7 of device 0.
/// fn add_copy(sink: &RecordSink, thread: i64, correlation: u64, now: u64) {
///     sink.record(|batch| {
///         let (call, copy) = (batch.name("npuCopy"), batch.name("Memcpy HtoD"));
///         let call = ApiCall::new(ActivityType::PrivateUse1Runtime, call, Thread::Id(thread), (now, now + 10), &Bytes);
///         batch.call(&ApiCall { correlation, launches: true, words: &[512], ..call });
///         let copy = DeviceWork::new(ActivityType::GpuMemcpy, copy, (0, 7), (now + 20, now + 90), &Bytes);
///         batch.work(&DeviceWork { correlation, words: &[512], ..copy });
///     });
/// }
/// ```
pub struct Batch<'s> {
    budget: &'s dyn Budget,
    pauses: &'s Pauses,
    state: MutexGuard<'s, StoreState>,
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("bytes", &self.state.bytes).finish_non_exhaustive()
    }
}

impl RecordSink {
    /// Creates a sink whose records count towards a budget.
    pub fn new(budget: Arc<dyn Budget>) -> RecordSink {
        RecordSink {
            store: Arc::new(RecordStore {
                budget,
                pauses: Pauses::default(),
                state: Mutex::default(),
                live: LiveCopy::default(),
            }),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, StoreState> {
        self.store.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `write` with a batch; its records are in the trace when this returns.
    ///
    /// Other threads wait meanwhile: `write` should not block, and must not use this sink.
    pub fn record<R>(&self, write: impl FnOnce(&mut Batch<'_>) -> R) -> R {
        let mut batch = Batch { budget: &*self.store.budget, pauses: &self.store.pauses, state: self.lock_state() };
        let written = write(&mut batch);
        batch.state.copy_to_live(&self.store.live);
        written
    }

    /// Copies the records of the recording that begins to a live file, as those of that collector.
    pub fn set_live(&self, file: Arc<LiveFile>, collector: u64) {
        let mut state = self.lock_state();
        state.set_live(&self.store.live, file, collector);
    }

    /// Returns the tables, without records.
    pub(crate) fn tables(&self) -> Collected {
        self.lock_state().tables()
    }

    /// Returns the pauses of the recording.
    pub(crate) fn pauses(&self) -> &Pauses {
        &self.store.pauses
    }

    /// Counts lost records.
    pub fn lost(&self, cause: Loss, count: u64) {
        self.lock_state().count_lost(cause, count);
    }

    /// Adds a sentence for the reader of the trace, unless it is already present.
    pub fn note(&self, note: impl Into<String>) {
        let (mut state, note) = (self.lock_state(), note.into());
        if !state.notes.contains(&note) {
            state.notes.push(note);
        }
    }

    /// Reports the error of delivered timestamps against the [clock](super::super::Recording::clock), in nanoseconds. The
    /// largest reported error is added to that clock's own error against CLOCK_REALTIME.
    pub fn clock_error(&self, ns: u64) {
        let mut state = self.lock_state();
        state.clock_error_ns = state.clock_error_ns.max(ns);
    }

    /// Returns whether the recording has not begun.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lock_state().is_waiting
    }

    /// Drops records until [`discard_early_records`](RecordSink::discard_early_records): the recording has not begun.
    pub(crate) fn set_waiting(&self) {
        self.lock_state().is_waiting = true;
    }

    /// Drops the records delivered so far: the recording begins now.
    pub fn discard_early_records(&self) {
        let mut state = self.lock_state();
        let StoreState { names, shapes, contexts, bytes, notes, last_call_before, .. } = std::mem::take(&mut *state);
        state.last_call_before = last_call_before;
        // The collector caches numbers of names, so these stay; at most one name may have exceeded the budget.
        state.bytes = names.total_bytes().min(bytes);
        self.store.budget.release_bytes(bytes - state.bytes);
        (state.names, state.shapes, state.contexts, state.notes) = (names, shapes, contexts, notes);
    }

    /// Returns when the oldest block became full, of those that no snapshot holds.
    pub fn oldest_free_block(&self) -> Option<Ticks> {
        let mut state = self.lock_state();
        self.store.budget.release_bytes(state.free_held());
        state.oldest_free_block()
    }

    /// Returns how many bytes the full blocks have.
    pub fn full_bytes(&self) -> u64 {
        self.lock_state().arenas.iter().map(|arena| arena.full.len() as u64 * BLOCK_BYTES).sum()
    }

    /// Drops the blocks that were full by then.
    pub fn drop_blocks(&self, until: Ticks) {
        let mut state = self.lock_state();
        let freed = state.drop_blocks(until, &*self.store.budget);
        state.copy_to_live(&self.store.live);
        drop(state);
        self.store.budget.release_bytes(freed);
    }

    /// Returns whether records were lost to the memory limit.
    pub fn is_full(&self) -> bool {
        self.lock_state().losses.iter().any(|(cause, _)| *cause == Loss::DeviceRecordsOverLimit)
    }

    /// Returns the records. With `close`, records that arrive later are only counted.
    pub fn collect_records(&self, close: bool) -> Collected {
        let mut state = self.lock_state();
        let taken = if close {
            std::mem::replace(&mut *state, StoreState { closed: true, ..StoreState::default() })
        } else {
            state.clone()
        };
        let live_blocks = if close { state.take_live(&self.store.live) } else { Vec::new() };
        let hold = if close { None } else { state.note_snapshot(&self.store.live) };
        drop(state);
        // A snapshot copies the part-filled blocks, charged to the budget if there is room, and the names.
        let copied = taken.arenas.iter().map(|arena| size_of_val(arena.open.as_slice()) as u64).sum();
        let owned = if close {
            taken.bytes
        } else {
            Some(copied).filter(|copied| self.store.budget.reserve_bytes(*copied)).unwrap_or(0)
        };
        let mut collected = taken.into_collected(self.store.budget.clone(), owned);
        (collected.live_blocks, collected.hold) = (live_blocks, hold);
        collected
    }

    /// Moves the records out, except launches and work that wait for each other; later ones follow them.
    pub fn take_records(&self) -> Collected {
        let budget = &self.store.budget;
        let mut state = self.lock_state();
        let (mut arenas, held) = (std::mem::take(&mut state.arenas), std::mem::take(&mut state.held));
        let mut rest = StoreState { losses: Vec::new(), ..state.clone() };
        let in_held = held.len() as u64 * BLOCK_BYTES;
        // The empty name may have exceeded the budget.
        rest.bytes = rest.names.total_bytes().min(state.bytes.saturating_sub(in_held)) + in_held;
        rest.held = held;
        let left = move_pending(&mut arenas, &mut rest.arenas, rest.last_call_before) * BLOCK_BYTES;
        // What stays takes no more memory than before.
        rest.bytes = state.bytes.min(rest.bytes + left);
        let owned = state.bytes - rest.bytes;
        for (number, arena) in arenas.iter().enumerate() {
            arena.blocks().for_each(|block| rest.count_removed(number, block));
        }
        let taken = StoreState { arenas, ..std::mem::replace(&mut *state, rest) };
        let live_blocks = state.move_live(&self.store.live);
        drop(state);
        let mut collected = taken.into_collected(budget.clone(), owned);
        collected.live_blocks = live_blocks;
        collected
    }
}

impl Drop for RecordStore {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.release_bytes(state.bytes);
    }
}

impl StoreState {
    fn count_lost(&mut self, cause: Loss, count: u64) {
        match self.losses.iter_mut().find(|(known, _)| *known == cause) {
            // The count may come from the vendor.
            Some((_, lost)) => *lost = lost.saturating_add(count),
            None if count > 0 => self.losses.push((cause, count)),
            None => {}
        }
    }

    /// Remembers that a launch is not kept.
    fn remember_paused_launch(&mut self, call: &ApiCall<'_>) {
        if call.launches && call.correlation != 0 {
            if self.unwanted.len() >= UNWANTED {
                self.unwanted.clear();
            }
            self.unwanted.insert(call.correlation);
        }
    }

    #[inline]
    fn layout_number(&mut self, shape: &'static dyn RecordLayout) -> u8 {
        let known = self.shapes.iter().position(|known| std::ptr::eq(*known, shape));
        let number = known.unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        u8::try_from(number).unwrap_or(u8::MAX)
    }

    /// Returns a block with room for that many words.
    #[inline]
    fn block_with_room(&mut self, role: Role, words: usize, budget: &dyn Budget) -> Option<&mut Vec<u64>> {
        if !self.arenas.get(role.arena_index())?.has_room(words) {
            self.begin_block_or_evict(role, budget).then_some(())?;
        }
        self.arenas.get_mut(role.arena_index()).map(|arena| &mut arena.open)
    }

    /// Starts another block, in place of the oldest records if need be.
    #[cold]
    fn begin_block_or_evict(&mut self, role: Role, budget: &dyn Budget) -> bool {
        let reserve = || match role {
            Role::Work => budget.reserve_bytes(BLOCK_BYTES),
            _ => budget.reserve_non_work(BLOCK_BYTES),
        };
        for _ in 0..TRIES {
            if self.arenas.get(role.arena_index()).is_some_and(|arena| !arena.is_full()) {
                break;
            }
            let Some(freed) = self.evict_oldest(budget) else { return false };
            budget.release_bytes(freed);
        }
        if self.arenas.get(role.arena_index()).is_none_or(Arena::is_full)
            || !self.reserve_or_evict(BLOCK_BYTES, reserve, budget)
        {
            return false;
        }
        let begun = self.arenas.get_mut(role.arena_index()).is_some_and(Arena::begin_block);
        if begun {
            self.bytes += BLOCK_BYTES;
        } else {
            budget.release_bytes(BLOCK_BYTES);
        }
        begun
    }

    /// Reserves bytes by `reserve`, or takes those of the oldest records.
    fn reserve_or_evict(&mut self, bytes: u64, reserve: impl Fn() -> bool, budget: &dyn Budget) -> bool {
        for _ in 0..TRIES {
            if reserve() {
                return true;
            }
            let Some(evicted) = self.evict_oldest(budget) else { return false };
            if let Some(rest) = evicted.checked_sub(bytes) {
                budget.release_bytes(rest);
                return true;
            }
            budget.release_bytes(evicted);
        }
        false
    }

    /// Drops the oldest records, the collector's own or others; returns how many bytes they leave, still reserved, or `None` if
    /// that is not possible. Blocks that a snapshot holds would leave none.
    fn evict_oldest(&mut self, budget: &dyn Budget) -> Option<u64> {
        let freed = self.free_held();
        if freed > 0 {
            return Some(freed);
        }
        let oldest = self.oldest_free_block();
        match (budget.evict_for_collector(oldest), oldest) {
            (Eviction::OldestBlock, Some(oldest)) => Some(self.drop_blocks(oldest, budget)),
            (Eviction::Elsewhere(bytes), _) => Some(bytes),
            _ => None,
        }
    }

    /// Returns when the oldest block became full, of those that no snapshot holds.
    fn oldest_free_block(&self) -> Option<Ticks> {
        let is_free = |block: &&FullBlock| Arc::strong_count(&block.words) == 1;
        self.arenas.iter().filter_map(|arena| arena.full.iter().find(is_free)).map(|block| block.full_at).min()
    }

    /// Drops the blocks that were full by then; returns how many bytes that leaves, still reserved.
    fn drop_blocks(&mut self, until: Ticks, budget: &dyn Budget) -> u64 {
        for number in 0..ARENAS {
            while let Some(block) = self.arenas.get_mut(number).and_then(|arena| arena.take_block(until)) {
                if budget.needs_all_records() {
                    self.count_lost(Loss::NotSpilled, block_entries(number, &block).count() as u64);
                }
                self.count_removed(number, &block);
                if let Some(dropped) = self.dropped.get_mut(number) {
                    *dropped += 1;
                }
                self.held.push(block);
            }
        }
        self.free_held()
    }

    /// Counts the records of a block that leaves its arena.
    fn count_removed(&mut self, arena: usize, block: &[u64]) {
        if arena == Role::Work.arena_index() {
            self.evicted_work += block_entries(arena, block).count() as u64;
        } else if arena == Role::Call.arena_index() {
            // Not the highest of all blocks: ids may wrap around.
            let last = block_entries(arena, block).map(|call| call.correlation_id()).max();
            self.last_call_before = last.unwrap_or(self.last_call_before);
        }
    }

    /// Makes the records of a recording, which release that many bytes when they are dropped.
    fn into_collected(self, budget: Arc<dyn Budget>, bytes: u64) -> Collected {
        let arenas = self.arenas.map(|Arena { full, open }| {
            full.into_iter().map(|block| block.words).chain(std::iter::once(Arc::new(open))).collect::<Vec<_>>()
        });
        Collected {
            arenas,
            names: self.names,
            shapes: self.shapes,
            contexts: self.contexts,
            threads: self.threads,
            losses: self.losses,
            evicted_work: self.evicted_work,
            last_call_before: self.last_call_before,
            notes: self.notes,
            devices: Vec::new(),
            renumbered: Vec::new(),
            unwanted: self.unwanted,
            clock_error_ns: self.clock_error_ns,
            owned: Some((budget, bytes)),
            live_blocks: Vec::new(),
            hold: None,
        }
    }

    /// Frees the dropped blocks that no snapshot holds any more; returns how many bytes that leaves, still reserved.
    fn free_held(&mut self) -> u64 {
        let before = self.held.len();
        self.held.retain(|block| Arc::strong_count(block) > 1);
        let freed = (before - self.held.len()) as u64 * BLOCK_BYTES;
        self.bytes -= freed;
        freed
    }

    /// Counts a record outside of the recording.
    #[cold]
    fn count_late(&mut self) {
        if !self.is_waiting {
            self.count_lost(Loss::Late, 1);
        }
    }
}

/// The parts of a head except the number of words.
struct PackedHead {
    role: Role,
    flags: u8,
    kind: ActivityType,
    name: Name,
    shape: Option<&'static dyn RecordLayout>,
}

impl PackedHead {
    /// Makes a head without flags.
    #[inline]
    fn new(role: Role, kind: ActivityType, name: Name, shape: Option<&'static dyn RecordLayout>) -> PackedHead {
        PackedHead { role, flags: 0, kind, name, shape }
    }
}

impl Batch<'_> {
    /// Returns whether the whole period lies in a pause of the recording: such records are not kept. An end of 0
    /// means that it has not ended.
    #[inline]
    pub fn is_paused(&self, start: u64, end: u64) -> bool {
        self.pauses.covers(start, end)
    }

    /// Returns whether some of the period lies in a pause of the recording: work launched in it may lack a record.
    #[inline]
    pub(crate) fn overlaps_pause(&self, start: u64, end: u64) -> bool {
        self.pauses.overlaps(start, end)
    }

    /// Counts lost records.
    pub(crate) fn count_lost(&mut self, cause: Loss, count: u64) {
        self.state.count_lost(cause, count);
    }

    /// Returns the number of a name; that of the empty name if the budget has no room.
    pub fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.state.names.find(text) {
            return name;
        }
        let bytes = NameTable::name_bytes(text);
        let budget = self.budget;
        if self.state.reserve_or_evict(bytes, || budget.reserve_bytes(bytes), budget) {
            self.state.bytes += bytes;
            return self.state.names.add(text);
        }
        self.state.count_lost(Loss::DeviceRecordsOverLimit, 1);
        self.state.names.find("").unwrap_or_else(|| self.state.names.add(""))
    }

    /// Adds a call.
    #[inline]
    pub fn call(&mut self, call: &ApiCall<'_>) {
        self.state.threads.add(call.thread);
        let (flag, thread) = match call.thread {
            Thread::Handle(handle) => (BY_HANDLE, u64::from(handle)),
            Thread::Id(id) => (0, id.cast_unsigned()),
        };
        if self.is_paused(call.start, call.end) {
            self.state.remember_paused_launch(call);
            return self.count_paused();
        }
        if self.state.is_waiting {
            self.state.last_call_before = self.state.last_call_before.max(call.correlation);
        }
        if !self.state.unwanted.is_empty() {
            // A correlation id may be used again.
            self.state.unwanted.remove(&call.correlation);
        }
        let flags = flag | if call.launches { LAUNCHES } else { 0 };
        let head = PackedHead { role: Role::Call, flags, kind: call.kind, name: call.name, shape: Some(call.shape) };
        self.put_record(&head, [call.start, call.end, call.correlation, thread, call.external], call.words);
    }

    /// Adds device work.
    #[inline]
    pub fn work(&mut self, work: &DeviceWork<'_>) {
        // Work launched in a pause is not kept, whenever it ran. Work whose record precedes its launch is removed at
        // the end.
        if !self.state.unwanted.is_empty() && self.state.unwanted.contains(&work.correlation) {
            return self.count_paused();
        }
        self.put_work(0, work.correlation, work);
    }

    /// Adds device work of a slice whose launch is unknown. It belongs to that slice, and takes its name if its own
    /// is empty. Its correlation id is ignored.
    pub(crate) fn work_of(&mut self, slice: CorrelationId, work: &DeviceWork<'_>) {
        self.put_work(OF_SLICE, slice.0, work);
    }

    #[inline]
    fn put_work(&mut self, flags: u8, cause: u64, work: &DeviceWork<'_>) {
        let head = PackedHead { role: Role::Work, flags, kind: work.kind, name: work.name, shape: Some(work.shape) };
        let place = u64::from(work.device.cast_unsigned()) << 32 | u64::from(work.stream);
        self.put_record(&head, [work.start, work.end, cause, place], work.words);
    }

    /// Adds a wait.
    pub fn synchronization(&mut self, sync: &Synchronization<'_>) {
        if self.is_paused(sync.start, sync.end) {
            return self.count_paused();
        }
        let head = PackedHead::new(Role::Sync, sync.kind, sync.name, Some(sync.shape));
        let place = u64::from(sync.context) << 32 | u64::from(sync.stream);
        self.put_record(&head, [sync.start, sync.end, sync.correlation, place, sync.event.into()], sync.words);
    }

    /// Adds an event that was recorded.
    pub fn event(&mut self, event: &EventRecord<'_>) {
        if event.at != 0 && self.is_paused(event.at, event.at) {
            return self.count_paused();
        }
        let head = PackedHead::new(Role::Event, event.kind, event.name, Some(event.shape));
        let place = u64::from(event.context) << 32 | u64::from(event.stream);
        self.put_record(&head, [event.at, event.at, event.correlation, place, event.event.into()], event.words);
    }

    /// Adds the slice of a call.
    pub fn external(&mut self, external: External) {
        let kind = ActivityType::ExternalCorrelation;
        let head = PackedHead::new(Role::External, kind, Name(0), None);
        self.put_record(&head, [external.correlation, external.id, 0, 0, 0], &[]);
    }

    /// Adds overhead of the vendor's library.
    pub fn overhead(&mut self, overhead: &Overhead) {
        self.put_overhead(overhead, None, &[]);
    }

    /// Does the same with further values, of which the first is not 0.
    pub(crate) fn overhead_with(&mut self, overhead: &Overhead, shape: &'static dyn RecordLayout, words: &[u64]) {
        self.put_overhead(overhead, Some(shape), words);
    }

    fn put_overhead(&mut self, overhead: &Overhead, shape: Option<&'static dyn RecordLayout>, words: &[u64]) {
        if self.is_paused(overhead.start, overhead.end) {
            return self.count_paused();
        }
        let head = PackedHead::new(Role::Overhead, ActivityType::Overhead, overhead.name, shape);
        self.put_record(&head, [overhead.start, overhead.end, 0, 0, 0], words);
    }

    /// Adds values of counters.
    pub fn counters(&mut self, sample: &CounterSample<'_>) {
        if self.is_paused(sample.at, sample.at) {
            return self.count_paused();
        }
        let head = PackedHead::new(Role::Counter, sample.kind, sample.name, Some(sample.shape));
        let place = u64::from(sample.device.cast_unsigned()) << 32 | u64::from(sample.stream);
        self.put_record(&head, [sample.at, sample.at, 0, place, 0], sample.words);
    }

    /// Adds a device allocation or free.
    pub fn memory(&mut self, memory: &DeviceMemory) {
        if self.is_paused(memory.at, memory.at) {
            return self.count_paused();
        }
        let head = PackedHead::new(Role::Memory, ActivityType::CpuInstantEvent, Name(0), None);
        let place = u64::from(memory.device.cast_unsigned()) << 32 | u64::from(memory.kind.number());
        let bytes = memory.bytes.cast_unsigned();
        self.put_record(&head, [memory.at, memory.address, memory.correlation, place, bytes], &[]);
    }

    /// Sets the device of a context.
    pub fn context(&mut self, context: u32, device: i32) {
        let contexts = &self.state.contexts;
        // More contexts can only come from corrupt records.
        if contexts.len() < CONTEXTS && !contexts.iter().any(|(known, _)| *known == context) {
            self.state.contexts.push((context, device));
        }
    }

    /// Counts a record that is not kept because of a pause.
    #[cold]
    fn count_paused(&mut self) {
        if !self.state.is_waiting && !self.state.closed {
            self.state.count_lost(Loss::OutOfWindow, 1);
        }
    }

    #[inline]
    fn put_record<const N: usize>(&mut self, head: &PackedHead, own: [u64; N], words: &[u64]) {
        let state = &mut *self.state;
        if state.is_waiting || state.closed {
            return state.count_late();
        }
        let words = words.get(..usize::from(u8::MAX)).unwrap_or(words);
        let zeros = words.iter().rev().take_while(|word| **word == 0).count();
        let shape = head.shape.map_or(0, |shape| state.layout_number(shape));
        let (role, tag) = (head.role, head.role as u8 | head.flags);
        let bytes = [tag, head.kind.number(), shape, u8::try_from(words.len() - zeros).unwrap_or(u8::MAX)];
        let head = u64::from(head.name.0) << 32 | u64::from(u32::from_le_bytes(bytes));
        let Some(open) = state.block_with_room(role, 1 + N + words.len(), self.budget) else {
            return state.count_lost(Loss::DeviceRecordsOverLimit, 1);
        };
        open.push(head);
        open.extend_from_slice(&own);
        // The number of words is mostly a compile-time constant here, but the number of trailing zeros is not.
        open.extend_from_slice(words);
        open.truncate(open.len() - zeros);
    }
}

#[cfg(feature = "segments")]
mod live;
#[cfg(not(feature = "segments"))]
#[path = "store/no_live.rs"]
mod live;
#[cfg(test)]
mod tests;
