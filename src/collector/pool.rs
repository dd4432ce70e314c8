//! The buffers that a vendor's library fills: bounded in bytes, those included that wait to be read.
#![allow(unsafe_code, reason = "the memory goes to foreign code and comes back")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Libraries ask for buffers that begin at multiples of 8.
const ALIGN: usize = 8;
/// Buffers are of this size, but so small that the limit is this many: each thread may have one of its own.
const BUFFER_BYTES: u64 = 4 << 20;
const BUFFER_BYTES_LEAST: u64 = 64 << 10;
const BUFFERS: u64 = 128;
/// Buffers that are kept ready.
const SPARE: usize = 2;

/// What a library gets that asks for a buffer where there is none: beyond the limit, or outside of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// Nothing: it drops records by itself.
    Nothing,
    /// Beyond the limit a scrap, as long as there are some; else nothing.
    Scraps(Scraps),
    /// A scrap at any time; beyond the most of them all get the same one, of which nothing is even counted.
    AlwaysScraps(Scraps),
}

/// Small buffers whose records are counted and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scraps {
    /// The size of one, with room for the longest record.
    pub(super) bytes: usize,
    /// Most at once.
    pub(super) most: usize,
}

/// A piece of memory for records.
#[derive(Debug)]
struct Buffer {
    start: NonNull<u8>,
    size: usize,
    is_scrap: bool,
    /// The number of the request that it was handed out for last.
    request: u64,
}

// SAFETY: it owns its memory alone, save while the library does, which hands it on between threads itself.
unsafe impl Send for Buffer {}

/// A buffer with records.
#[derive(Debug)]
pub(super) struct Filled {
    buffer: Buffer,
    valid: usize,
}

/// All buffers of the process for one library, which knows one place to get them from.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Debug)]
struct PoolState {
    /// The size of a buffer; 0 while nothing is recorded.
    size: usize,
    limit: usize,
    instead: Instead,
    free: Vec<Buffer>,
    /// Those that the library has.
    out: Vec<Buffer>,
    ready: Vec<Filled>,
    /// Bytes of all buffers that are not scraps, those included that are being read.
    bytes: usize,
    scraps: usize,
    /// The one that goes to all who would get nothing else, where nobody may get nothing.
    last_scrap: Option<Buffer>,
    requests: u64,
    /// The requests that came before the recording.
    earlier: u64,
    counts: PoolCounts,
}

/// What happened in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolCounts {
    /// Buffers that came back with records.
    pub(super) filled: u64,
    /// Requests that were refused, or got a scrap, since the limit was reached.
    pub(super) refused: u64,
    /// Buffers that came back and are not ours.
    pub(super) strangers: u64,
    /// Buffers that came back and whose records could not even be counted.
    pub(super) uncounted: u64,
    /// Buffers with records that were not read before the recording was over.
    pub(super) kept: u64,
}

impl Instead {
    /// The scraps that it allows while a recording runs, or while none does.
    fn scraps(self, is_recording: bool) -> Option<Scraps> {
        match self {
            Instead::Scraps(scraps) => Some(scraps).filter(|_| is_recording),
            Instead::AlwaysScraps(scraps) => Some(scraps),
            Instead::Nothing => None,
        }
    }
}

impl Buffer {
    fn new(size: usize, is_scrap: bool) -> Option<Buffer> {
        let layout = Layout::from_size_align(size, ALIGN).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer { start, size, is_scrap, request: 0 })
    }

    /// Where it is and how large.
    fn place(&self) -> (NonNull<u8>, usize) {
        (self.start, self.size)
    }

    /// Takes the memory from the operating system, so that whoever writes to it first need not wait.
    fn touch(&self) {
        const PAGE: usize = 4096;
        for at in (0..self.size).step_by(PAGE) {
            let place = self.start.as_ptr().wrapping_add(at);
            // SAFETY: it lies within the buffer, which is ours.
            unsafe { place.write_volatile(0) };
        }
    }

    /// The first four bytes, which the library may be writing: what kind of record comes first.
    fn first(&self) -> &AtomicU32 {
        let first = self.start.cast::<AtomicU32>();
        // SAFETY: it lies within the buffer, which is aligned to 8, and is only looked at as an atomic from here.
        unsafe { first.as_ref() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(layout) = Layout::from_size_align(self.size, ALIGN) {
            // SAFETY: it was allocated with this layout, and nobody has it any more.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

impl Filled {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: all of the buffer was written, by us if not by the library, and it is ours again.
        unsafe { std::slice::from_raw_parts(self.buffer.start.as_ptr(), self.valid.min(self.buffer.size)) }
    }

    /// Whether it was handed out in place of a buffer.
    pub(super) fn is_scrap(&self) -> bool {
        self.buffer.is_scrap
    }
}

impl Pool {
    pub(super) const fn new() -> Pool {
        let counts = PoolCounts { filled: 0, refused: 0, strangers: 0, uncounted: 0, kept: 0 };
        let state = PoolState {
            size: 0,
            limit: 0,
            instead: Instead::Nothing,
            free: Vec::new(),
            out: Vec::new(),
            ready: Vec::new(),
            bytes: 0,
            scraps: 0,
            last_scrap: None,
            requests: 0,
            earlier: 0,
            counts,
        };
        Pool { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out buffers from now on: together, in use and waiting, no more than `limit` bytes. `false` if there is no
    /// memory for what is to be had at any time.
    pub(super) fn open(&self, limit: u64, instead: Instead) -> bool {
        let size = (limit / BUFFERS).clamp(BUFFER_BYTES_LEAST, BUFFER_BYTES) & !4095;
        let [size, limit] = [size, limit.max(size)].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut state = self.state();
        (state.size, state.limit, state.instead) = (size, limit, instead);
        state.counts = PoolCounts::default();
        state.earlier = state.requests;
        state.forget_free();
        if let Instead::AlwaysScraps(scraps) = instead
            && state.last_scrap.is_none()
        {
            state.last_scrap = Buffer::new(scraps.bytes, true);
        }
        // What the callbacks add finds room.
        let scraps = instead.scraps(true).map_or(0, |scraps| scraps.most);
        let most = limit / size + scraps + 1;
        state.out.reserve(most);
        state.ready.reserve(most);
        state.free.reserve(most);
        state.last_scrap.is_some() || !matches!(instead, Instead::AlwaysScraps(_))
    }

    /// Hands out no more buffers. Those that the library has still are freed when they come back.
    pub(super) fn close(&self) -> PoolCounts {
        let mut state = self.state();
        if state.size > 0 {
            state.counts.kept = (state.ready.len() + state.with_records(u64::MAX).count()) as u64;
        }
        state.size = 0;
        let waiting = std::mem::take(&mut state.ready);
        waiting.into_iter().for_each(|filled| state.recycle(filled.buffer));
        state.forget_free();
        state.counts
    }

    /// Returns an empty buffer: where it is and how large; `None` to refuse.
    pub(super) fn request(&self) -> Option<(NonNull<u8>, usize)> {
        let mut state = self.state();
        let Some(mut buffer) = state.empty() else { return state.last_scrap.as_ref().map(Buffer::place) };
        state.requests += 1;
        buffer.request = state.requests;
        buffer.first().store(0, Ordering::Relaxed);
        let place = buffer.place();
        state.out.push(buffer);
        Some(place)
    }

    /// Takes a buffer back, of which `valid` bytes are records.
    pub(super) fn complete(&self, start: *mut u8, valid: usize) {
        let mut state = self.state();
        match state.out.iter().position(|buffer| buffer.start.as_ptr() == start) {
            Some(place) => {
                let buffer = state.out.swap_remove(place);
                if valid == 0 || state.size == 0 {
                    state.recycle(buffer);
                } else {
                    state.counts.filled += 1;
                    state.ready.push(Filled { buffer, valid });
                }
            }
            None if state.last_scrap.as_ref().is_some_and(|last| last.start.as_ptr() == start) => {
                state.counts.uncounted += u64::from(valid > 0);
            }
            // It is not known who may free it.
            None => state.counts.strangers += 1,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes all buffers that wait to be read; if there is none, waits for one until `until`, or until `wanted` says that
    /// there is something else to do.
    pub(super) fn take(&self, until: Instant, wanted: impl Fn() -> bool) -> Vec<Filled> {
        let mut state = self.state();
        while state.ready.is_empty() && !wanted() {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        // The vector stays, since the callbacks should not have to make one.
        state.ready.drain(..).collect()
    }

    /// Has whoever waits look again at what is wanted of it.
    pub(super) fn wake(&self) {
        drop(self.state());
        self.changed.notify_all();
    }

    /// A buffer has been read, and is empty again.
    pub(super) fn give_back(&self, filled: Filled) {
        self.state().recycle(filled.buffer);
    }

    /// Makes buffers ahead of need, outside of callbacks.
    pub(super) fn make_ready(&self) {
        loop {
            let mut state = self.state();
            if state.size == 0 || state.free.len() >= SPARE || state.bytes + state.size > state.limit {
                return;
            }
            let size = state.size;
            state.bytes += size;
            drop(state);
            let made = Buffer::new(size, false);
            if let Some(buffer) = &made {
                buffer.touch();
            }
            let mut state = self.state();
            match made {
                Some(buffer) => state.recycle(buffer),
                None => {
                    state.bytes -= size;
                    return;
                }
            }
        }
    }

    /// Returns how many buffers have been handed out.
    pub(super) fn requests(&self) -> u64 {
        self.state().requests
    }

    /// Whether the library has written records into one of the recording's buffers up to that request, and not handed it
    /// over.
    pub(super) fn holds_records(&self, requests: u64) -> bool {
        self.state().with_records(requests).next().is_some()
    }

    pub(super) fn counts(&self) -> PoolCounts {
        self.state().counts
    }
}

/// Returns a place to write to that nobody takes back, for a forked child: the pool may be locked for ever there.
pub(super) fn leaked(bytes: usize) -> Option<(NonNull<u8>, usize)> {
    Buffer::new(bytes, true).map(|scrap| ManuallyDrop::new(scrap).place())
}

impl PoolState {
    /// The recording's buffers up to that request that the library has, with records in them.
    fn with_records(&self, requests: u64) -> impl Iterator<Item = &Buffer> {
        let of_recording =
            self.out.iter().filter(move |buffer| buffer.request > self.earlier && buffer.request <= requests);
        of_recording.filter(|buffer| buffer.first().load(Ordering::Relaxed) != 0)
    }

    fn empty(&mut self) -> Option<Buffer> {
        let is_recording = self.size > 0;
        if is_recording {
            if let Some(buffer) = self.free.pop() {
                return Some(buffer);
            }
            if self.bytes + self.size <= self.limit
                && let Some(buffer) = Buffer::new(self.size, false)
            {
                self.bytes += self.size;
                return Some(buffer);
            }
            self.counts.refused += 1;
        }
        let scraps = self.instead.scraps(is_recording).filter(|scraps| self.scraps < scraps.most)?;
        let scrap = Buffer::new(scraps.bytes, true)?;
        self.scraps += 1;
        Some(scrap)
    }

    fn recycle(&mut self, buffer: Buffer) {
        if buffer.is_scrap {
            self.scraps = self.scraps.saturating_sub(1);
        } else if buffer.size == self.size && self.bytes <= self.limit {
            self.free.push(buffer);
        } else {
            self.bytes = self.bytes.saturating_sub(buffer.size);
        }
    }

    fn forget_free(&mut self) {
        let freed: usize = self.free.drain(..).map(|buffer| buffer.size).sum();
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 64 << 10;
    const SCRAPS: Scraps = Scraps { bytes: 16 << 10, most: 5 };

    /// A pool of that many buffers.
    fn pool(buffers: u64, instead: Instead) -> Pool {
        let pool = Pool::new();
        assert!(pool.open(buffers * BUFFER_BYTES_LEAST, instead));
        pool
    }

    fn fill(start: NonNull<u8>, bytes: &[u8]) {
        // SAFETY: the test's buffers are longer than what it writes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
    }

    fn soon() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_buffer_goes_out_comes_back_is_read_and_goes_out_again() {
        assert!(Pool::new().request().is_none(), "closed");
        let pool = pool(4, Instead::Nothing);
        let (start, size) = pool.request().unwrap();
        assert_eq!((size, start.as_ptr().addr() % ALIGN), (SIZE, 0));
        assert!(!pool.holds_records(u64::MAX));
        fill(start, b"records!");
        assert!(pool.holds_records(1) && !pool.holds_records(0));
        pool.complete(start.as_ptr(), 8);
        assert!(!pool.holds_records(u64::MAX));
        let filled = pool.take(soon(), || false).pop().unwrap();
        assert_eq!((filled.bytes(), filled.is_scrap()), (&b"records!"[..], false));
        pool.give_back(filled);
        assert_eq!(pool.request().unwrap().0, start);
        assert!(!pool.holds_records(u64::MAX), "the first word is zero again");
        pool.complete(start.as_ptr(), 0);
        assert!(pool.take(soon(), || false).is_empty(), "an empty buffer is not read");
        assert_eq!(pool.close(), PoolCounts { filled: 1, ..PoolCounts::default() });
    }

    #[test]
    fn buffers_are_many_before_they_are_large() {
        for (limit, expected) in [(0, SIZE), (128 << 20, 1 << 20), (1 << 40, 4 << 20)] {
            let pool = Pool::new();
            pool.open(limit, Instead::Nothing);
            assert_eq!(pool.request().unwrap().1, expected, "{limit}");
        }
    }

    #[test]
    fn buffers_that_wait_to_be_read_count_too() {
        let pool = pool(2, Instead::Nothing);
        for _ in 0..2 {
            let (start, _) = pool.request().unwrap();
            pool.complete(start.as_ptr(), SIZE);
        }
        assert!(pool.request().is_none());
        let read = pool.take(soon(), || false);
        assert!(pool.request().is_none(), "they are being read");
        read.into_iter().for_each(|filled| pool.give_back(filled));
        assert!(pool.request().is_some());
        assert_eq!(pool.counts().refused, 2);
    }

    #[test]
    fn beyond_the_limit_there_are_scraps() {
        let pool = pool(1, Instead::Scraps(SCRAPS));
        pool.request().unwrap();
        let (scrap, size) = pool.request().unwrap();
        assert_eq!(size, SCRAPS.bytes);
        pool.complete(scrap.as_ptr(), usize::MAX);
        let filled = pool.take(soon(), || false).pop().unwrap();
        assert_eq!((filled.is_scrap(), filled.bytes().len()), (true, SCRAPS.bytes));
        pool.give_back(filled);
        let all: Vec<_> = std::iter::from_fn(|| pool.request()).collect();
        assert_eq!(all.len(), SCRAPS.most);
        all.iter().for_each(|(start, _)| pool.complete(start.as_ptr(), 0));
        pool.close();
        assert!(pool.request().is_none());
    }

    #[test]
    fn where_nothing_may_be_refused_the_last_share_one() {
        let pool = pool(1, Instead::AlwaysScraps(SCRAPS));
        let (whole, size) = pool.request().unwrap();
        assert_eq!(size, SIZE);
        let all: Vec<_> = (0..SCRAPS.most + 3).filter_map(|_| pool.request()).collect();
        assert_eq!(all.len(), SCRAPS.most + 3);
        let last = all[SCRAPS.most].0;
        assert!(all[SCRAPS.most..].iter().all(|(start, _)| *start == last));
        all.iter().for_each(|(start, _)| pool.complete(start.as_ptr(), 24));
        let scraps = pool.take(soon(), || false);
        assert!(scraps.len() == SCRAPS.most && scraps.iter().all(Filled::is_scrap));
        scraps.into_iter().for_each(|scrap| pool.give_back(scrap));
        pool.complete(whole.as_ptr(), 0);
        let counts = pool.close();
        assert_eq!((counts.refused, counts.uncounted, counts.strangers), (SCRAPS.most as u64 + 3, 3, 0));
    }

    #[test]
    fn strangers_and_late_buffers_do_no_harm() {
        for (instead, after) in [(Instead::Nothing, None), (Instead::AlwaysScraps(SCRAPS), Some(SCRAPS.bytes))] {
            let pool = pool(1, instead);
            let (late, _) = pool.request().unwrap();
            let mut foreign = [0u8; 64];
            pool.complete(foreign.as_mut_ptr(), 64);
            pool.complete(std::ptr::null_mut(), 0);
            assert_eq!(pool.close().strangers, 2);
            pool.complete(late.as_ptr(), SIZE);
            let scrap = pool.request();
            assert_eq!(scrap.map(|(_, size)| size), after);
            scrap.inspect(|(start, _)| pool.complete(start.as_ptr(), 24));
            assert!(pool.take(soon(), || false).is_empty());
            let state = pool.state();
            assert_eq!((state.bytes, state.scraps, state.out.len()), (0, 0, 0));
        }
    }

    #[test]
    fn spare_buffers_are_made_ahead_within_the_limit() {
        for (buffers, free) in [(10, SPARE), (1, 1)] {
            let pool = pool(buffers, Instead::Nothing);
            pool.make_ready();
            let state = pool.state();
            assert_eq!((state.free.len(), state.bytes), (free, free * SIZE));
        }
    }

    #[test]
    fn whoever_waits_is_woken() {
        let pool = pool(1, Instead::Nothing);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.take(Instant::now() + Duration::from_secs(60), || false).len());
            let (start, _) = pool.request().unwrap();
            pool.complete(start.as_ptr(), 8);
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert!(pool.take(Instant::now() + Duration::from_secs(60), || true).is_empty());
    }
}
