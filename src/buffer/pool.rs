//! Supplies empty chunks, keeps some ready, and enforces the buffer limit.

use super::budget::{BufferBudget, ReservedBytes};
use super::chunk::Chunk;
use crate::live::SlotFile;
use crate::os::memory;
use crate::wait::unpark;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

/// The number of chunks kept ready: 1 MiB, a few milliseconds of the fastest span path.
const READY: usize = 16;

/// Empty chunks and the budget for full ones.
pub(crate) struct ChunkPool {
    ready: ArrayQueue<Chunk>,
    budget: Arc<BufferBudget>,
    /// The bytes that are left free for threads, while no trace holds any.
    left_free: u64,
    /// The bytes of chunks that only traces hold.
    held: AtomicU64,
    /// Starts the helper.
    starter: OnceLock<Box<Starter>>,
    starting: AtomicBool,
    /// Whether the helper was started, or cannot be: the caller may be an allocator, which must not start a thread.
    is_started: AtomicBool,
    /// The thread that prepares chunks ahead of need.
    helper: OnceLock<Thread>,
    /// The file in which chunks lie, if there is one.
    file: Mutex<Option<&'static SlotFile>>,
    has_file: AtomicBool,
    /// Whether the system had no memory for the chunk that was wanted last, although the budget had room.
    is_starved: AtomicBool,
}

/// Starts the thread that calls [`ChunkPool::refill`] whenever it is unparked, to prepare chunks ahead of need. Called when the
/// first chunk is taken, and again for each further chunk while there is no such thread.
pub(crate) type Starter = dyn Fn() -> Option<Thread> + Send + Sync;

impl ChunkPool {
    /// Creates a pool of at most `bytes_max` bytes, those in traces included. Of these, [`refill`](ChunkPool::refill) leaves
    /// `left_free` to threads that find no chunk ready.
    pub(crate) fn new(bytes_max: u64, left_free: u64) -> ChunkPool {
        let fitting = usize::try_from(left_free / Chunk::BYTES).unwrap_or(READY).clamp(1, READY);
        let ready = ArrayQueue::new(if left_free == 0 { READY } else { fitting });
        let budget = Arc::new(BufferBudget::new(bytes_max));
        let (starter, starting, helper) = (OnceLock::new(), AtomicBool::new(false), OnceLock::new());
        ChunkPool {
            ready,
            budget,
            left_free,
            held: AtomicU64::new(0),
            starter,
            starting,
            is_started: AtomicBool::new(false),
            helper,
            file: Mutex::new(None),
            has_file: AtomicBool::new(false),
            is_starved: AtomicBool::new(false),
        }
    }

    /// Sets the starter of the helper thread; the first caller wins.
    pub(crate) fn set_starter(&self, starter: Box<Starter>) {
        let _ = self.starter.set(starter);
    }

    /// Sets the file in which further chunks lie; drops those that are ready elsewhere.
    pub(crate) fn set_file(&self, file: Option<&'static SlotFile>) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        self.has_file.store(file.is_some(), Ordering::Release);
        (0..self.ready.capacity()).filter_map(|_| self.ready.pop()).for_each(|chunk| self.keep_ready(chunk));
    }

    fn file(&self) -> Option<&'static SlotFile> {
        if !self.has_file.load(Ordering::Acquire) {
            return None;
        }
        let file = *self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Chunks of a file that is kept stay in it.
        file.filter(|file| file.is_open())
    }

    /// Makes an empty chunk ready, unless it lies in another file.
    fn keep_ready(&self, chunk: Chunk) {
        // One that lies outside of the file, which had no room for it, is not used again.
        if chunk.is_of_file(self.file()) && !chunk.is_outside_file() {
            chunk.clear();
            let _ = self.ready.push(chunk);
        }
    }

    /// Unparks the helper, if there is one yet.
    pub(crate) fn wake_helper(&self) {
        if let Some(helper) = self.helper.get() {
            unpark(helper);
        }
    }

    /// Starts the helper now, so that no thread that takes a chunk has to.
    pub(crate) fn start_ahead(&self) {
        if self.helper.get().is_none() {
            self.start_helper();
        }
        self.is_started.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn start_helper(&self) {
        let Some(spawn_helper) = self.starter.get() else { return };
        // Not a lock: an allocator that creates spans re-enters this function while the thread is being started.
        if !self.starting.swap(true, Ordering::Acquire) {
            if let Some(helper) = spawn_helper() {
                // Unpark it in case a chunk was taken before its handle was stored.
                unpark(self.helper.get_or_init(|| helper));
            }
            self.starting.store(false, Ordering::Release);
        }
    }

    /// Returns a ready chunk.
    pub(crate) fn take_ready(&self) -> Option<Chunk> {
        // A chunk may have become ready while the file was replaced.
        std::iter::from_fn(|| self.ready.pop()).find(|chunk| chunk.is_of_file(self.file()))
    }

    /// Returns an empty chunk: a ready one, else a new one; `None` at the limit, or if the system has no memory left.
    pub(crate) fn take_chunk(&self) -> Option<Chunk> {
        // Reserve before waking the helper, which may use up the rest of the budget for ready chunks; then pop one of those.
        let made = || {
            let made = self.budget.reserve_leaving(Chunk::BYTES, 0).then(|| self.new_chunk())?;
            if made.is_none() {
                self.release_bytes(Chunk::BYTES);
            }
            made.map(|chunk| chunk.with_budget(&self.budget))
        };
        let taken = self.take_ready().or_else(made).or_else(|| self.take_ready());
        if self.ready.len() <= self.ready.capacity() / 2 {
            match self.helper.get() {
                Some(helper) => unpark(helper),
                None if self.is_started.load(Ordering::Relaxed) => {}
                None => self.start_helper(),
            }
        }
        taken
    }

    /// Prepares chunks until enough are ready or the limit is reached; called off the span path.
    pub(crate) fn refill(&self) {
        while !self.ready.is_full() && self.budget.has_room(Chunk::BYTES + self.bytes_for_threads()) {
            // Reserve and push back to back: a thread that takes a chunk in between would find neither budget nor chunk.
            let Some(chunk) = self.new_chunk() else { return };
            if self.budget.reserve_leaving(Chunk::BYTES, 0) {
                let _ = self.ready.push(chunk.with_budget(&self.budget));
            }
        }
    }

    fn new_chunk(&self) -> Option<Chunk> {
        let made = Chunk::new_in(self.file());
        self.is_starved.store(made.is_none(), Ordering::Relaxed);
        made
    }

    /// Returns whether the system had no memory for the chunk that was wanted last.
    pub(crate) fn is_starved(&self) -> bool {
        self.is_starved.load(Ordering::Relaxed)
    }

    /// Returns whether so many bytes are free, of the budget and of the system's memory.
    fn has_room(&self, bytes: u64) -> bool {
        self.budget.has_room(bytes) && !self.is_starved()
    }

    /// Returns how many bytes are to be left free for threads now: of the budget without what traces hold, the same part as
    /// `left_free` is of the whole.
    fn bytes_for_threads(&self) -> u64 {
        let held = self.held.load(Ordering::Relaxed);
        if held == 0 || self.left_free == 0 {
            return self.left_free;
        }
        let parts = self.budget.bytes_max / self.left_free;
        self.budget.bytes_max.saturating_sub(held) / parts.max(1)
    }

    /// Sets how many bytes of chunks only traces hold.
    pub(crate) fn set_held(&self, bytes: u64) {
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// Reserves `bytes` even if the limit is exceeded.
    pub(crate) fn reserve_beyond_limit(&self, bytes: u64) -> ReservedBytes {
        self.budget.reserve_beyond_limit(bytes);
        ReservedBytes::new(&self.budget, bytes)
    }

    /// Returns whether too few chunks are ready, or too few bytes are free.
    pub(crate) fn is_low(&self) -> bool {
        let wanted = if self.ready.is_full() { 0 } else { Chunk::BYTES };
        !self.has_room(wanted + self.bytes_for_threads())
    }

    /// Returns whether threads have used half of what is left free for them.
    pub(crate) fn is_half_used(&self) -> bool {
        !self.has_room(Chunk::BYTES + self.bytes_for_threads() / 2)
    }

    /// Returns whether a thread would find no chunk now.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.ready.is_empty() && !self.has_room(Chunk::BYTES)
    }

    /// Takes chunks back: those without another handle become ready again, the others are dropped.
    pub(crate) fn give_back(&self, chunks: impl IntoIterator<Item = Chunk>) {
        chunks.into_iter().filter(Chunk::is_unique).for_each(|chunk| self.keep_ready(chunk));
    }

    /// Reserves `bytes` of the budget for data other than chunks, dropping ready chunks if needed; `false` unless at least
    /// `left` bytes stay free.
    pub(crate) fn reserve_for_use(&self, bytes: u64, left: u64) -> bool {
        if !memory::has_headroom() {
            return false;
        }
        while !self.budget.reserve_leaving(bytes, left) {
            if self.ready.pop().is_none() {
                return false;
            }
        }
        if self.left_free > 0 && !self.budget.has_room(self.bytes_for_threads()) {
            self.wake_helper();
        }
        true
    }

    /// Reserves `bytes`, dropping ready chunks if needed; dropping the value releases them.
    pub(crate) fn reserve_bytes(&self, bytes: u64) -> Option<ReservedBytes> {
        self.reserve_for_use(bytes, 0).then(|| ReservedBytes::new(&self.budget, bytes))
    }

    /// Returns `bytes` to the budget.
    pub(crate) fn release_bytes(&self, bytes: u64) {
        self.budget.release(bytes);
    }

    /// Returns the budget in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.budget.bytes_max
    }

    /// Returns how many bytes are reserved now.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.budget.bytes()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    #[cfg(all(target_os = "linux", not(miri)))]
    use crate::live::LiveFile;

    #[test]
    fn pool_never_exceeds_its_limit() {
        let pool = ChunkPool::new(3 * Chunk::BYTES, 0);
        pool.refill();
        assert_eq!(pool.bytes(), 3 * Chunk::BYTES);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take_chunk()).collect();
        assert_eq!((taken.len(), pool.reserve_for_use(1, 0)), (3, false));
        pool.give_back(taken);
        assert!(pool.take_chunk().is_some());
    }

    #[test]
    fn helper_does_not_take_the_callers_budget() {
        let pool = Arc::new(ChunkPool::new(3 * Chunk::BYTES, 0));
        let weak = Arc::downgrade(&pool);
        pool.set_starter(Box::new(move || {
            weak.upgrade()?.refill();
            None
        }));
        let taken: Vec<_> = std::iter::from_fn(|| pool.take_chunk()).collect();
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn ready_chunks_make_way_for_other_data() {
        let pool = ChunkPool::new(3 * Chunk::BYTES, 0);
        pool.refill();
        assert!(!pool.reserve_for_use(2 * Chunk::BYTES - 5, 2 * Chunk::BYTES), "some is to be left");
        assert!(pool.reserve_for_use(2 * Chunk::BYTES - 5, Chunk::BYTES));
        let taken = pool.take_chunk();
        assert!(taken.is_some() && pool.take_chunk().is_none());
        assert!(pool.reserve_for_use(5, 0) && !pool.reserve_for_use(1, 0));
    }

    #[test]
    fn chunk_with_another_handle_is_not_reused() {
        let pool = ChunkPool::new(10 * Chunk::BYTES, 0);
        let chunk = pool.take_chunk().unwrap();
        chunk.open(2048, 1);
        let held = chunk.clone();
        pool.give_back([chunk]);
        pool.take_chunk().unwrap().open(4096, 2);
        assert_eq!(held.first_id(), 2048);
    }

    #[test]
    fn chunk_takes_its_bytes_until_the_last_handle_is_dropped() {
        let pool = ChunkPool::new(Chunk::BYTES, 0);
        let chunk = pool.take_chunk().unwrap();
        let held = chunk.clone();
        pool.give_back([chunk]);
        assert!(pool.bytes() == Chunk::BYTES && pool.take_chunk().is_none());
        drop(held);
        assert!(pool.bytes() == 0 && pool.take_chunk().is_some());
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[expect(clippy::unwrap_used, reason = "a test")]
    fn create_live_file(bytes_max: u64) -> (tempfile::TempDir, Arc<LiveFile>) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = LiveFile::create(folder.path(), bytes_max).unwrap();
        (folder, file)
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn chunks_stay_with_their_file() {
        let ((_one, first), (_other, second)) = (create_live_file(1 << 20), create_live_file(1 << 20));
        let pool = ChunkPool::new(1 << 20, 0);
        pool.refill();
        pool.set_file(Some(first.slot_file()));
        pool.refill();
        let of_first = pool.take_chunk().unwrap();
        assert!(of_first.is_of_file(Some(first.slot_file())));
        pool.set_file(Some(second.slot_file()));
        pool.give_back([of_first]);
        let mut taken = Vec::new();
        for _ in 0..(1 << 20) / Chunk::BYTES {
            let chunk = pool.take_chunk().unwrap();
            assert!(chunk.is_of_file(Some(second.slot_file())));
            taken.push(chunk);
        }
        assert!(pool.take_chunk().is_none());
        // When nothing uses it, the first mapping shows another file.
        let (slots, path) = (first.slot_file(), first.path().to_owned());
        drop(first);
        assert!(!path.exists());
        // Other tests use mappings too: one may have this at first, and there may be other free ones before it.
        let mut others = Vec::new();
        let third = std::iter::repeat_with(|| create_live_file(1 << 20)).find_map(|(folder, file)| {
            if std::ptr::eq(file.slot_file(), slots) {
                return Some((folder, file));
            }
            others.push((folder, file));
            if others.len() == 16 {
                others.clear();
                std::thread::yield_now();
            }
            None
        });
        assert!(third.is_some_and(|(_folder, third)| third.path().exists()));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn chunks_outside_a_full_file_are_not_reused() {
        let (_folder, file) = create_live_file(1 << 20);
        let pool = ChunkPool::new(1 << 20, 0);
        pool.set_file(Some(file.slot_file()));
        // The file is full.
        let slots: Vec<_> = std::iter::from_fn(|| file.slot_file().take_slot()).collect();
        file.slot_file().take_refused();
        let outside = pool.take_chunk().unwrap();
        assert!(outside.is_outside_file() && file.slot_file().take_refused() > 0);
        pool.refill();
        slots.into_iter().for_each(|(slot, _)| file.slot_file().free_slot(slot));
        pool.give_back([outside]);
        while pool.take_chunk().is_some_and(|chunk| chunk.is_outside_file()) {}
        assert!(pool.take_chunk().is_some_and(|chunk| !chunk.is_outside_file()));
    }
}
