//! Packs what a collector hands over, within the budget.
//!
//! A record is a head and a few words, in blocks of 64 KiB that are never moved once they are full. The head says what
//! the record is, how many words its [`RecordLayout`] has, and the number of its name. Calls, work and the rest lie apart, since
//! each is asked for by itself.

use super::collected::{BLOCK, BLOCK_BYTES, BY_HANDLE, Collected, LAUNCHES, OF_SLICE, Role, SHELF_WORDS, SHELVES};
use super::names::{Name, NameTable};
use super::pauses::Pauses;
use super::record::{
    ApiCall, CounterSample, DeviceMemory, DeviceWork, EventRecord, External, Overhead, Synchronization, Thread,
};
use super::shape::RecordLayout;
use super::threads::Threads;
use crate::buffer::Loss;
use crate::os::memory;
use kineto_trace::activity::{ActivityType, CorrelationId};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the memory for records comes from.
pub(crate) trait Budget: fmt::Debug + Send + Sync {
    /// Sets that many bytes aside; `false` if they are not left.
    fn reserve(&self, bytes: u64) -> bool;
    /// Does the same for what is not work of a device, and so may not have the last share, which is kept for that.
    fn reserve_beside_work(&self, bytes: u64) -> bool;
    /// Gives that many bytes back.
    fn release(&self, bytes: u64);
}

/// Takes the records of a collector; a cheap clone, for any thread.
///
/// What comes after the recording was handed out is dropped and counted.
#[derive(Clone)]
pub struct RecordSink {
    store: Arc<Store>,
}

impl fmt::Debug for RecordSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSink").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Store {
    budget: Arc<dyn Budget>,
    pauses: Pauses,
    held: Mutex<Held>,
}

#[derive(Clone, Debug, Default)]
struct Held {
    shelves: [Shelf; SHELVES],
    names: NameTable,
    bytes: u64,
    shapes: Vec<&'static dyn RecordLayout>,
    contexts: Vec<(u32, i32)>,
    threads: Threads,
    losses: Vec<(Loss, u64)>,
    notes: Vec<String>,
    /// Correlation ids of launches in pauses, which are not kept; neither is their work.
    unwanted: HashSet<u64>,
    /// How far times may be wrong by the collector's own clock, in nanoseconds.
    clock_error_ns: u64,
    /// The recording has not begun: what comes is none of it.
    waits: bool,
    closed: bool,
}

/// The blocks of one group of roles.
#[derive(Clone, Debug, Default)]
struct Shelf {
    full: Vec<Arc<Vec<u64>>>,
    open: Vec<u64>,
}

/// How many contexts are kept.
const CONTEXTS: usize = 4096;
/// How many launches of pauses are remembered.
const UNWANTED: usize = 1 << 16;

/// Some records on their way in.
pub struct Batch<'s> {
    budget: &'s dyn Budget,
    pauses: &'s Pauses,
    held: MutexGuard<'s, Held>,
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("bytes", &self.held.bytes).finish_non_exhaustive()
    }
}

impl RecordSink {
    pub(crate) fn new(budget: Arc<dyn Budget>) -> RecordSink {
        RecordSink { store: Arc::new(Store { budget, pauses: Pauses::default(), held: Mutex::default() }) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.store.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `write` with a batch; what it writes is in the trace when it returns.
    ///
    /// Others wait meanwhile: `write` should not block, and must not come back to this sink.
    pub fn record<R>(&self, write: impl FnOnce(&mut Batch<'_>) -> R) -> R {
        write(&mut Batch { budget: &*self.store.budget, pauses: &self.store.pauses, held: self.held() })
    }

    /// When the recording was paused.
    pub(super) fn pauses(&self) -> &Pauses {
        &self.store.pauses
    }

    /// Counts what is not there.
    pub fn lost(&self, cause: Loss, count: u64) {
        self.held().lost(cause, count);
    }

    /// Leaves a sentence for the reader of the trace, unless it is there already.
    pub fn note(&self, note: impl Into<String>) {
        let (mut held, note) = (self.held(), note.into());
        if !held.notes.contains(&note) {
            held.notes.push(note);
        }
    }

    /// Says how far times that were handed over may be from the [clock](super::Collector::clock) that they are said to be by,
    /// in nanoseconds; the most that was said is added to how far that is from CLOCK_REALTIME.
    pub fn clock_error(&self, ns: u64) {
        let mut held = self.held();
        held.clock_error_ns = held.clock_error_ns.max(ns);
    }

    /// Whether the recording has not begun.
    pub(super) fn waits(&self) -> bool {
        self.held().waits
    }

    /// Takes no records until [`discard`](RecordSink::discard): the recording has not begun, and may not for long.
    pub(crate) fn wait(&self) {
        self.held().waits = true;
    }

    /// Throws away what has come so far: it was before the recording, which begins now.
    pub(crate) fn discard(&self) {
        let mut held = self.held();
        let Held { names, shapes, contexts, bytes, notes, .. } = std::mem::take(&mut *held);
        // What the collector has been given numbers of stays; one name may have had no room.
        held.bytes = names.bytes_in_all().min(bytes);
        self.store.budget.release(bytes - held.bytes);
        (held.names, held.shapes, held.contexts, held.notes) = (names, shapes, contexts, notes);
    }

    /// Whether records were lost for want of room.
    pub(crate) fn is_full(&self) -> bool {
        self.held().losses.iter().any(|(cause, _)| *cause == Loss::DeviceRecordsOverLimit)
    }

    /// Hands out what has come; with `close`, for good, and what comes later is counted.
    pub(crate) fn collect(&self, close: bool) -> Collected {
        let mut held = self.held();
        let taken = match close {
            true => std::mem::replace(&mut *held, Held { closed: true, ..Held::default() }),
            false => held.clone(),
        };
        drop(held);
        let shelves = taken.shelves.map(|Shelf { full: mut blocks, open }| {
            blocks.push(Arc::new(open));
            blocks
        });
        // A look has the part-filled blocks twice, in the budget if there is room, and the names.
        let copied =
            shelves.iter().filter_map(|blocks| blocks.last()).map(|open| size_of_val(open.as_slice()) as u64).sum();
        let owned = match close {
            true => taken.bytes,
            false => Some(copied).filter(|copied| self.store.budget.reserve(*copied)).unwrap_or(0),
        };
        Collected {
            shelves,
            names: taken.names,
            shapes: taken.shapes,
            contexts: taken.contexts,
            threads: taken.threads,
            losses: taken.losses,
            notes: taken.notes,
            devices: Vec::new(),
            renumbered: Vec::new(),
            unwanted: taken.unwanted,
            clock_error_ns: taken.clock_error_ns,
            owned: Some((self.store.budget.clone(), owned)),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.release(held.bytes);
    }
}

impl Held {
    fn lost(&mut self, cause: Loss, count: u64) {
        match self.losses.iter_mut().find(|(known, _)| *known == cause) {
            // It may be a vendor's number.
            Some((_, lost)) => *lost = lost.saturating_add(count),
            None if count > 0 => self.losses.push((cause, count)),
            None => {}
        }
    }

    /// Remembers that a launch is not kept.
    fn refuse(&mut self, call: &ApiCall<'_>) {
        if call.launches && call.correlation != 0 {
            if self.unwanted.len() >= UNWANTED {
                self.unwanted.clear();
            }
            self.unwanted.insert(call.correlation);
        }
    }

    #[inline]
    fn shape(&mut self, shape: &'static dyn RecordLayout) -> u8 {
        let known = self.shapes.iter().position(|known| std::ptr::eq(*known, shape));
        let number = known.unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        u8::try_from(number).unwrap_or(u8::MAX)
    }

    /// Returns a block with room for that many words.
    #[inline]
    fn open(&mut self, role: Role, words: usize, budget: &dyn Budget) -> Option<&mut Vec<u64>> {
        let shelf = self.shelves.get_mut(role.shelf())?;
        if shelf.open.capacity() - shelf.open.len() < words {
            self.bytes += shelf.begin(role, budget).then_some(BLOCK_BYTES)?;
        }
        Some(&mut shelf.open)
    }

    /// What is none of a recording.
    #[cold]
    fn turn_away(&mut self) {
        if !self.waits {
            self.lost(Loss::Late, 1);
        }
    }
}

impl Shelf {
    /// Begins another block, if there is room for one.
    #[cold]
    fn begin(&mut self, role: Role, budget: &dyn Budget) -> bool {
        let is_full = self.full.len() >= SHELF_WORDS / BLOCK - 1;
        let is_left = || match role {
            Role::Work => budget.reserve(BLOCK_BYTES),
            _ => budget.reserve_beside_work(BLOCK_BYTES),
        };
        if is_full || !is_left() {
            return false;
        }
        let Some(open) = memory::list(BLOCK) else {
            budget.release(BLOCK_BYTES);
            return false;
        };
        let full = std::mem::replace(&mut self.open, open);
        memory::populate_spare(&mut self.open);
        if full.capacity() > 0 {
            self.full.push(Arc::new(full));
        }
        true
    }
}

/// What a head says beside the record's role and flags.
struct PackedHead {
    tag: u8,
    kind: ActivityType,
    name: Name,
    shape: Option<&'static dyn RecordLayout>,
}

impl Batch<'_> {
    /// Whether all of that lay in a pause of the recording: such records are not kept. An end of 0 is none.
    #[inline]
    pub fn is_paused(&self, start: u64, end: u64) -> bool {
        self.pauses.cover(start, end)
    }

    /// Whether some of that lay in a pause of the recording: what it launched may have no record.
    #[inline]
    pub(crate) fn meets_pause(&self, start: u64, end: u64) -> bool {
        self.pauses.meet(start, end)
    }

    /// Counts what is not there.
    pub(crate) fn lost(&mut self, cause: Loss, count: u64) {
        self.held.lost(cause, count);
    }

    /// Returns the number of a name; that of the empty one if it finds no room.
    pub fn name(&mut self, text: &str) -> Name {
        if let Some(name) = self.held.names.find(text) {
            return name;
        }
        let bytes = NameTable::bytes(text);
        if self.budget.reserve(bytes) {
            self.held.bytes += bytes;
            return self.held.names.add(text);
        }
        self.held.lost(Loss::DeviceRecordsOverLimit, 1);
        self.held.names.find("").unwrap_or_else(|| self.held.names.add(""))
    }

    /// Adds a call.
    #[inline]
    pub fn call(&mut self, call: &ApiCall<'_>) {
        self.held.threads.add(call.thread);
        let (flag, thread) = match call.thread {
            Thread::Handle(handle) => (BY_HANDLE, u64::from(handle)),
            Thread::Id(id) => (0, id.cast_unsigned()),
        };
        if self.is_paused(call.start, call.end) {
            self.held.refuse(call);
            return self.skip();
        }
        if !self.held.unwanted.is_empty() {
            // An id may come again.
            self.held.unwanted.remove(&call.correlation);
        }
        let tag = Role::Call as u8 | flag | if call.launches { LAUNCHES } else { 0 };
        let head = PackedHead { tag, kind: call.kind, name: call.name, shape: Some(call.shape) };
        self.put(Role::Call, &head, [call.start, call.end, call.correlation, thread, call.external], call.words);
    }

    /// Adds what a device did.
    #[inline]
    pub fn work(&mut self, work: &DeviceWork<'_>) {
        // What was launched in a pause is not kept, whenever it ran; what came before its launch is left out in the end.
        if !self.held.unwanted.is_empty() && self.held.unwanted.contains(&work.correlation) {
            return self.skip();
        }
        self.put_work(0, work.correlation, work);
    }

    /// Adds what a device did for a slice as a whole, where no call is known: it belongs to that slice, and has its name if it
    /// has none of its own. Its correlation id is not looked at.
    pub fn work_of(&mut self, slice: CorrelationId, work: &DeviceWork<'_>) {
        self.put_work(OF_SLICE, slice.0, work);
    }

    #[inline]
    fn put_work(&mut self, flag: u8, cause: u64, work: &DeviceWork<'_>) {
        let head =
            PackedHead { tag: Role::Work as u8 | flag, kind: work.kind, name: work.name, shape: Some(work.shape) };
        let place = u64::from(work.device.cast_unsigned()) << 32 | u64::from(work.stream);
        self.put(Role::Work, &head, [work.start, work.end, cause, place], work.words);
    }

    /// Adds a wait.
    pub fn synchronization(&mut self, sync: &Synchronization<'_>) {
        if self.is_paused(sync.start, sync.end) {
            return self.skip();
        }
        let head = PackedHead { tag: Role::Sync as u8, kind: sync.kind, name: sync.name, shape: Some(sync.shape) };
        let place = u64::from(sync.context) << 32 | u64::from(sync.stream);
        self.put(Role::Sync, &head, [sync.start, sync.end, sync.correlation, place, sync.event.into()], sync.words);
    }

    /// Adds an event that was recorded.
    pub fn event(&mut self, event: &EventRecord<'_>) {
        if event.at != 0 && self.is_paused(event.at, event.at) {
            return self.skip();
        }
        let head = PackedHead { tag: Role::Event as u8, kind: event.kind, name: event.name, shape: Some(event.shape) };
        let place = u64::from(event.context) << 32 | u64::from(event.stream);
        self.put(Role::Event, &head, [event.at, event.at, event.correlation, place, event.event.into()], event.words);
    }

    /// Adds the slice that a call belongs to.
    pub fn external(&mut self, external: External) {
        let kind = ActivityType::ExternalCorrelation;
        let head = PackedHead { tag: Role::External as u8, kind, name: Name(0), shape: None };
        self.put(Role::External, &head, [external.correlation, external.id, 0, 0, 0], &[]);
    }

    /// Adds time that the vendor's library took.
    pub fn overhead(&mut self, overhead: &Overhead) {
        self.put_overhead(overhead, None, &[]);
    }

    /// The same, with what else is known of it: words of which the first is not 0.
    pub(crate) fn overhead_with(&mut self, overhead: &Overhead, shape: &'static dyn RecordLayout, words: &[u64]) {
        self.put_overhead(overhead, Some(shape), words);
    }

    fn put_overhead(&mut self, overhead: &Overhead, shape: Option<&'static dyn RecordLayout>, words: &[u64]) {
        if self.is_paused(overhead.start, overhead.end) {
            return self.skip();
        }
        let head = PackedHead { tag: Role::Overhead as u8, kind: ActivityType::Overhead, name: overhead.name, shape };
        self.put(Role::Overhead, &head, [overhead.start, overhead.end, 0, 0, 0], words);
    }

    /// Adds values of counters.
    pub fn counters(&mut self, sample: &CounterSample<'_>) {
        if self.is_paused(sample.at, sample.at) {
            return self.skip();
        }
        let head =
            PackedHead { tag: Role::Counter as u8, kind: sample.kind, name: sample.name, shape: Some(sample.shape) };
        let place = u64::from(sample.device.cast_unsigned()) << 32 | u64::from(sample.stream);
        self.put(Role::Counter, &head, [sample.at, sample.at, 0, place, 0], sample.words);
    }

    /// Adds memory that was allocated or given back.
    pub fn memory(&mut self, memory: &DeviceMemory) {
        if self.is_paused(memory.at, memory.at) {
            return self.skip();
        }
        let head =
            PackedHead { tag: Role::Memory as u8, kind: ActivityType::CpuInstantEvent, name: Name(0), shape: None };
        let place = u64::from(memory.device.cast_unsigned()) << 32 | u64::from(memory.kind.number());
        self.put(
            Role::Memory,
            &head,
            [memory.at, memory.address, memory.correlation, place, memory.bytes.cast_unsigned()],
            &[],
        );
    }

    /// Says on which device a context is.
    pub fn context(&mut self, context: u32, device: i32) {
        let contexts = &self.held.contexts;
        // More can only be garbage.
        if contexts.len() < CONTEXTS && !contexts.iter().any(|(known, _)| *known == context) {
            self.held.contexts.push((context, device));
        }
    }

    /// Counts what is not kept, since the recording was paused.
    #[cold]
    fn skip(&mut self) {
        if !self.held.waits && !self.held.closed {
            self.held.lost(Loss::OutOfWindow, 1);
        }
    }

    #[inline]
    fn put<const N: usize>(&mut self, role: Role, head: &PackedHead, own: [u64; N], words: &[u64]) {
        let held = &mut *self.held;
        if held.waits || held.closed {
            return held.turn_away();
        }
        let words = words.get(..usize::from(u8::MAX)).unwrap_or(words);
        let zeros = words.iter().rev().take_while(|word| **word == 0).count();
        let shape = head.shape.map_or(0, |shape| held.shape(shape));
        let bytes = [head.tag, head.kind.number(), shape, u8::try_from(words.len() - zeros).unwrap_or(u8::MAX)];
        let head = u64::from(head.name.0) << 32 | u64::from(u32::from_le_bytes(bytes));
        let Some(open) = held.open(role, 1 + N + words.len(), self.budget) else {
            return held.lost(Loss::DeviceRecordsOverLimit, 1);
        };
        open.push(head);
        open.extend_from_slice(&own);
        // How many they are is mostly known here, and how many of them are zeros is not.
        open.extend_from_slice(words);
        open.truncate(open.len() - zeros);
    }
}

#[cfg(test)]
mod tests;
