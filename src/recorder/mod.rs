//! What the layer's threads and the session share: which epoch is recorded, chunks, rows, callsites, losses.
//!
//! Threads come here only when they start, need a chunk or meet a span that another thread knows; the one thing read
//! on every hook is [`Recorder::epoch`].

mod companions;
mod frames;
mod lanes;
pub(crate) mod listeners;
mod reach;
mod span_table;

pub use companions::CounterReport;
pub(crate) use companions::{Companions, no_stacks};
pub(crate) use frames::{BEYOND, Frame, Frames, SpanState, state};
pub(crate) use lanes::{LaneRow, Lanes};
pub(crate) use reach::Reach;
pub use reach::ThreadFilter;
pub(crate) use span_table::{Origin, SpanEntry, SpanTable, StoredState};

use crate::buffer::{Chunk, Losses, Pool, SLOTS};
use crate::callsite::Sites;
use crate::correlation::CorrelationSink;
use crate::observer::Observers;
use crate::os::{fork, memory};
use crossbeam_queue::{ArrayQueue, SegQueue};
use listeners::Seat;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Process-wide: ids, of which chunks take [`SLOTS`] in a row, and epochs. 0 is none.
static NEXT_IDS: AtomicU64 = AtomicU64::new(SLOTS as u64);
static NEXT_EPOCH: AtomicU64 = AtomicU64::new(1);

/// The epoch of recordings that record nothing; lanes never have it.
pub(crate) const OBSERVED: u64 = u64::MAX - 1;

/// Chunks of ended threads that are kept for new ones.
const PARTLY_FILLED: usize = 64;

/// The shared part of one layer.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The epoch being recorded, 0 while nothing is; unique in the process, so that it also tells recorders apart.
    epoch: AtomicU64,
    /// A span ever had an entry in the table; read by each close while nothing is recorded.
    keeps_spans: AtomicBool,
    /// The process in which this recorder records.
    fork: AtomicU64,
    shelf: fork::PerProcess<Shelf>,
    bytes_max: u64,
    pub(crate) losses: Losses,
    pub(crate) sites: Sites,
    /// Slices may overlap: a span was exited out of order or by another thread.
    disorder: AtomicBool,
    /// Bumped when a span closes that threads may have cached; see `layer::home`.
    closings: [AtomicU32; CLOSINGS],
    /// Whom threads tell which slice they are in; read once by each thread in an epoch.
    street: fork::Own<Option<&'static dyn CorrelationSink>>,
    /// Who is told of spans beside.
    pub(crate) observers: Observers,
    /// Where allocators find it, if it records what they do.
    seat: OnceLock<Seat>,
    /// The recording that goes on, or is the next, has what allocators report.
    hears: AtomicBool,
    /// Which threads are recorded.
    pub(crate) reach: Reach,
    /// What slices have beside their times.
    pub(crate) companions: Companions,
    pub(crate) settings: Settings,
    /// The layer was part of a subscriber.
    is_installed: AtomicBool,
}

/// A payload too large for a chunk. In a box, as an `Arc` of a slice cannot report that there is no memory.
pub(crate) type Block = Arc<Box<[u64]>>;

/// What threads share.
#[derive(Debug)]
struct Shelf {
    pool: Pool,
    /// Every chunk that was opened since the session began.
    in_service: SegQueue<Chunk>,
    partly_filled: ArrayQueue<Chunk>,
    lanes: Lanes,
    spans: SpanTable,
    /// Payloads too large for a chunk, by the id that stands in their place.
    blocks: SegQueue<(u64, Block)>,
}

/// What the span path has to know of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The longest field value, in bytes.
    pub(crate) field_bytes_max: usize,
    /// Whether the fields of spans made while nothing is recorded are kept.
    pub(crate) fields_while_idle: bool,
    /// Whether anything is recorded; if not, observers alone are told.
    pub(crate) records: bool,
    /// Which threads are recorded.
    pub(crate) threads: ThreadFilter,
}

/// Buckets of span keys; also the size of a thread's cache of spans.
pub(crate) const CLOSINGS: usize = 64;

/// What a session gets when it ends.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Each chunk with the length that was committed when it was taken, in the order in which they were opened.
    pub(crate) chunks: Vec<(Chunk, usize)>,
    pub(crate) lanes: Vec<LaneRow>,
    pub(crate) blocks: Vec<(u64, Block)>,
}

impl Shelf {
    fn new(bytes_max: u64) -> Shelf {
        Shelf {
            pool: Pool::new(bytes_max),
            in_service: SegQueue::new(),
            partly_filled: ArrayQueue::new(PARTLY_FILLED),
            lanes: Lanes::default(),
            spans: SpanTable::new(),
            blocks: SegQueue::new(),
        }
    }
}

impl Recorder {
    pub(crate) fn new(
        bytes_max: u64,
        sites: Sites,
        observers: Observers,
        companions: Companions,
        settings: Settings,
    ) -> Recorder {
        Recorder {
            epoch: AtomicU64::new(0),
            keeps_spans: AtomicBool::new(false),
            fork: AtomicU64::new(fork::generation()),
            shelf: fork::PerProcess::new(Shelf::new(bytes_max)),
            bytes_max,
            losses: Losses::default(),
            sites,
            disorder: AtomicBool::new(false),
            closings: std::array::from_fn(|_| AtomicU32::new(0)),
            street: fork::Own::default(),
            observers,
            seat: OnceLock::new(),
            hears: AtomicBool::new(true),
            reach: Reach::new(settings.threads.clone()),
            companions,
            settings,
            is_installed: AtomicBool::new(false),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Recorder {
        use crate::callsite::Rules;

        let (field_bytes_max, threads) = (100, ThreadFilter::All);
        let settings = Settings { field_bytes_max, fields_while_idle: true, records: true, threads };
        Recorder::new(
            1 << 30,
            Sites::new(Rules { with_args: true, ..Rules::default() }),
            Observers::default(),
            Companions::default(),
            settings,
        )
    }

    /// The layer has become part of a subscriber.
    pub(crate) fn set_installed(&self) {
        self.is_installed.store(true, Ordering::Relaxed);
    }

    /// Whether the layer is part of a subscriber: an `Option` or a `Vec` of layers does not say so, but spans reach it.
    pub(crate) fn is_installed(&self) -> bool {
        self.is_installed.load(Ordering::Relaxed) || !self.sites.all().is_empty()
    }

    /// Returns the shelf of this process.
    fn shelf(&self) -> &Shelf {
        self.shelf.get(|_| Shelf::new(self.bytes_max))
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.shelf().pool
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.shelf().lanes
    }

    /// Returns what every thread finds of live spans.
    pub(crate) fn spans(&self) -> &SpanTable {
        &self.shelf().spans
    }

    /// Calls `access` with the span's entry, which is empty if there was none; see [`SpanTable::with`].
    pub(crate) fn keep_span<R>(&self, key: u64, access: impl FnOnce(&mut SpanEntry) -> R) -> R {
        // Relaxed: the span closes after its last handle was dropped, so its close sees this.
        if !self.keeps_spans() {
            self.keeps_spans.store(true, Ordering::Relaxed);
        }
        self.spans().with_new(key, access)
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
        self.epoch.load(Ordering::Relaxed)
    }

    /// Returns whom threads tell which slice they are in.
    pub(crate) fn street(&self) -> Option<&'static dyn CorrelationSink> {
        *self.street.lock()
    }

    /// Starts an epoch, in which threads tell `street` which slice they are in, and returns it. Of those in which nothing
    /// is recorded there is but one.
    pub(crate) fn open(&self, street: Option<&'static dyn CorrelationSink>) -> u64 {
        *self.street.lock() = street;
        self.observers.go_on();
        let epoch = if self.settings.records { NEXT_EPOCH.fetch_add(1, Ordering::Relaxed) } else { OBSERVED };
        self.epoch.store(epoch, Ordering::Release);
        self.seat.get().filter(|_| self.settings.records && self.listens()).inspect(|seat| seat.open(epoch));
        epoch
    }

    /// A recording begins, before its first epoch.
    pub(crate) fn begin(&self) {
        self.reach.begin();
        self.seat.get().inspect(|seat| seat.restrict(self.reach.selective()));
    }

    /// The recording no longer reaches all threads.
    pub(crate) fn restrict(&self) {
        self.reach.restrict();
        self.seat.get().inspect(|seat| seat.restrict(self.reach.selective()));
    }

    /// Records from now on what allocators report; `false` if too many do already.
    pub(crate) fn listen(self: &Arc<Self>) -> bool {
        let seat = Seat::take(self);
        seat.is_some_and(|seat| self.seat.set(seat).is_ok())
    }

    /// Leaves its place among those who record what allocators report, for good.
    pub(crate) fn stop_listening(&self) {
        self.seat.get().inspect(|seat| seat.leave());
    }

    /// Has what allocators report recorded from the next start on, or not.
    pub(crate) fn hear(&self, on: bool) {
        self.hears.store(on, Ordering::Relaxed);
    }

    /// Returns whether it records what allocators report.
    pub(crate) fn listens(&self) -> bool {
        self.seat.get().is_some() && self.hears.load(Ordering::Relaxed)
    }

    /// Adds what the allocators' records have lost to the other losses.
    pub(crate) fn gather_losses(&self) {
        let lost = self.seat.get().map(Seat::take_losses);
        lost.into_iter().flatten().for_each(|(loss, count)| self.losses.add(loss, count));
    }

    /// Ends the epoch: threads that have not noticed yet write into chunks of that epoch for a moment longer.
    pub(crate) fn close(&self) {
        self.seat.get().inspect(|seat| seat.close());
        self.epoch.store(0, Ordering::Release);
    }

    /// Returns whether this process is a fork of the one that opened the epoch.
    pub(crate) fn is_forked(&self) -> bool {
        self.fork.load(Ordering::Relaxed) != fork::generation()
    }

    /// What was opened before a fork is the parent's: this process begins with nothing open.
    pub(crate) fn adopt(&self) {
        self.close();
        self.fork.store(fork::generation(), Ordering::Relaxed);
    }

    /// Notes that slices may overlap from now on.
    pub(crate) fn note_disorder(&self) {
        self.disorder.store(true, Ordering::Relaxed);
    }

    /// Returns whether slices may overlap.
    pub(crate) fn has_disorder(&self) -> bool {
        self.disorder.load(Ordering::Relaxed)
    }

    /// Takes everything that was recorded since the last time, without waiting for any thread.
    pub(crate) fn take(&self) -> Taken {
        let shelf = self.shelf();
        while shelf.partly_filled.pop().is_some() {}
        let chunks = std::iter::from_fn(|| shelf.in_service.pop()).collect();
        Taken {
            chunks: Recorder::committed(chunks),
            lanes: shelf.lanes.take(),
            blocks: std::iter::from_fn(|| shelf.blocks.pop()).collect(),
        }
    }

    /// Throws away what threads have opened since the last time, as those do that notice an end late.
    pub(crate) fn discard(&self) {
        let Taken { chunks, blocks, .. } = self.take();
        self.pool().give_back(chunks.into_iter().map(|(chunk, _)| chunk));
        self.pool().release(blocks.iter().map(|(_, block)| size_of_val(&***block) as u64).sum());
    }

    /// Looks at everything that was recorded so far, and leaves it.
    pub(crate) fn look(&self) -> Taken {
        let shelf = self.shelf();
        let chunks: Vec<_> = std::iter::from_fn(|| shelf.in_service.pop()).collect();
        chunks.iter().for_each(|chunk| shelf.in_service.push(chunk.clone()));
        let blocks: Vec<_> = std::iter::from_fn(|| shelf.blocks.pop()).collect();
        blocks.iter().for_each(|block| shelf.blocks.push(block.clone()));
        Taken { chunks: Recorder::committed(chunks), lanes: shelf.lanes.rows(), blocks }
    }

    fn committed(mut chunks: Vec<Chunk>) -> Vec<(Chunk, usize)> {
        chunks.sort_unstable_by_key(Chunk::first_id);
        chunks.into_iter().map(|chunk| (chunk.committed(), chunk)).map(|(length, chunk)| (chunk, length)).collect()
    }

    /// Returns a chunk for `epoch`; `None` at the limit.
    pub(crate) fn open_chunk(&self, epoch: u64) -> Option<Chunk> {
        let shelf = self.shelf();
        let chunk = shelf.pool.take()?;
        chunk.open(ids(), epoch);
        shelf.in_service.push(chunk.clone());
        Some(chunk)
    }

    /// Returns a chunk that an ended thread has left with room in it, or a new one.
    pub(crate) fn chunk_for_new_thread(&self, epoch: u64) -> Option<Chunk> {
        let left = std::iter::from_fn(|| self.shelf().partly_filled.pop()).find(|chunk| chunk.epoch() == epoch);
        left.or_else(|| self.open_chunk(epoch))
    }

    /// Takes the chunk of an ending thread, so that the next thread goes on in it.
    pub(crate) fn leave_chunk(&self, chunk: Chunk) {
        const WORTH_IT: usize = SLOTS - SLOTS / 8;
        if chunk.epoch() == self.epoch() && chunk.committed() < WORTH_IT {
            let _ = self.shelf().partly_filled.push(chunk);
        }
    }

    /// Keeps a payload that no chunk could hold; returns its id, `None` at the limit.
    pub(crate) fn keep_block(&self, payload: &[u64]) -> Option<u64> {
        let bytes = size_of_val(payload) as u64;
        if !self.pool().reserve_for_use(bytes, 0) {
            return None;
        }
        let Some(mut words) = memory::list(payload.len()) else {
            self.pool().release(bytes);
            return None;
        };
        words.extend_from_slice(payload);
        let id = ids();
        self.shelf().blocks.push((id, Arc::new(words.into())));
        Some(id)
    }

    /// Returns the counter to compare for spans of that key: it changes when one of them closes.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "bucket() is smaller than CLOSINGS")]
    pub(crate) fn closings(&self, key: u64) -> &AtomicU32 {
        &self.closings[bucket(key)]
    }
}

/// Sets [`SLOTS`] ids in a row aside and returns the first.
pub(crate) fn ids() -> u64 {
    NEXT_IDS.fetch_add(SLOTS as u64, Ordering::Relaxed)
}

/// Returns which of the [`CLOSINGS`] buckets a span key falls into.
#[inline(always)]
pub(crate) const fn bucket(key: u64) -> usize {
    // Registry keys differ in their low bits (slots of a page) and in high ones (threads, generations).
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}
