//! The buffers that CUPTI fills: bounded in bytes, those included that wait to be read.
#![allow(unsafe_code, reason = "the memory goes to foreign code and comes back")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// NVIDIA asks for buffers that begin at multiples of 8.
const ALIGN: usize = 8;
/// What is handed out beyond the limit to versions that may not be refused: its records are counted and dropped.
const SCRAP_BYTES: usize = 64 * 1024;
/// Most scraps at once; then even those versions are refused.
const SCRAPS: usize = 32;
/// Buffers that are kept ready.
const SPARE: usize = 2;

/// A piece of memory for records.
#[derive(Debug)]
pub(super) struct Buffer {
    start: NonNull<u8>,
    size: usize,
    is_scrap: bool,
    /// The number of the request that it was handed out for last.
    request: u64,
}

// SAFETY: it owns its memory alone, save while CUPTI does, which hands it on between threads itself.
unsafe impl Send for Buffer {}

/// A buffer with records.
#[derive(Debug)]
pub(super) struct Filled {
    buffer: Buffer,
    valid: usize,
}

/// All buffers of the process: CUPTI knows one place to get them from.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The size of a buffer; 0 while nothing is recorded.
    size: usize,
    limit: usize,
    may_refuse: bool,
    free: Vec<Buffer>,
    /// Those that CUPTI has.
    out: Vec<Buffer>,
    ready: Vec<Filled>,
    /// Bytes of all buffers that are not scraps, those included that are being read.
    bytes: usize,
    scraps: usize,
    requests: u64,
    counts: Counts,
}

/// What happened in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Buffers that came back with records.
    pub(super) filled: u64,
    /// Requests that were refused, or got a scrap, since the limit was reached.
    pub(super) refused: u64,
    /// Buffers that came back and are not ours.
    pub(super) strangers: u64,
}

impl Buffer {
    fn new(size: usize, is_scrap: bool) -> Option<Buffer> {
        let layout = Layout::from_size_align(size, ALIGN).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer { start, size, is_scrap, request: 0 })
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

    /// The first four bytes, which CUPTI may be writing: a record's kind.
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
        // SAFETY: all of the buffer was written, by us if not by CUPTI, and it is ours again.
        unsafe { std::slice::from_raw_parts(self.buffer.start.as_ptr(), self.valid.min(self.buffer.size)) }
    }

    /// Whether it was handed out beyond the limit.
    pub(super) fn is_scrap(&self) -> bool {
        self.buffer.is_scrap
    }
}

impl Pool {
    pub(super) const fn new() -> Pool {
        let counts = Counts { filled: 0, refused: 0, strangers: 0 };
        let state = State {
            size: 0,
            limit: 0,
            may_refuse: false,
            free: Vec::new(),
            out: Vec::new(),
            ready: Vec::new(),
            bytes: 0,
            scraps: 0,
            requests: 0,
            counts,
        };
        Pool { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out buffers from now on: of `size` bytes, and together, in use and waiting, no more than `limit`.
    pub(super) fn open(&self, size: usize, limit: usize, may_refuse: bool) {
        let mut state = self.state();
        (state.size, state.limit, state.may_refuse) = (size, limit.max(size), may_refuse);
        state.counts = Counts::default();
        state.forget_free();
        // What the callbacks add finds room.
        let most = state.limit / size.max(1) + SCRAPS + 1;
        state.out.reserve(most);
        state.ready.reserve(most);
        state.free.reserve(most);
    }

    /// Hands out no more buffers. Those that CUPTI has still are freed when they come back.
    pub(super) fn close(&self) -> Counts {
        let mut state = self.state();
        state.size = 0;
        let waiting = std::mem::take(&mut state.ready);
        waiting.into_iter().for_each(|filled| state.recycle(filled.buffer));
        state.forget_free();
        state.counts
    }

    /// Returns an empty buffer: where it is and how large; `None` to refuse.
    pub(super) fn request(&self) -> Option<(NonNull<u8>, usize)> {
        let mut state = self.state();
        let mut buffer = state.empty()?;
        state.requests += 1;
        buffer.request = state.requests;
        buffer.first().store(0, Ordering::Relaxed);
        let place = (buffer.start, buffer.size);
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

    /// Whether CUPTI has written records into one of the first `requests` buffers that has not come back.
    pub(super) fn holds_records(&self, requests: u64) -> bool {
        let state = self.state();
        let mut out = state.out.iter().filter(|buffer| buffer.request <= requests);
        out.any(|buffer| buffer.first().load(Ordering::Relaxed) != 0)
    }

    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }
}

impl State {
    fn empty(&mut self) -> Option<Buffer> {
        if self.size == 0 {
            return None;
        }
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
        if self.may_refuse || self.scraps >= SCRAPS {
            return None;
        }
        let scrap = Buffer::new(SCRAP_BYTES.min(self.size), true)?;
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

    const SIZE: usize = 4096;

    fn fill(start: NonNull<u8>, bytes: &[u8]) {
        // SAFETY: the test's buffers are longer than what it writes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
    }

    fn soon() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_buffer_goes_out_comes_back_is_read_and_goes_out_again() {
        let pool = Pool::new();
        assert!(pool.request().is_none(), "closed");
        pool.open(SIZE, 4 * SIZE, true);
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
        assert_eq!(pool.close(), Counts { filled: 1, refused: 0, strangers: 0 });
    }

    #[test]
    fn buffers_that_wait_to_be_read_count_too() {
        let pool = Pool::new();
        pool.open(SIZE, 2 * SIZE, true);
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
    fn versions_that_may_not_be_refused_get_a_scrap() {
        let pool = Pool::new();
        pool.open(1 << 20, 1 << 20, false);
        pool.request().unwrap();
        let (scrap, size) = pool.request().unwrap();
        assert_eq!(size, SCRAP_BYTES);
        pool.complete(scrap.as_ptr(), usize::MAX);
        let filled = pool.take(soon(), || false).pop().unwrap();
        assert_eq!((filled.is_scrap(), filled.bytes().len()), (true, SCRAP_BYTES));
        pool.give_back(filled);
        let all: Vec<_> = std::iter::from_fn(|| pool.request()).collect();
        assert_eq!(all.len(), SCRAPS);
        all.iter().for_each(|(start, _)| pool.complete(start.as_ptr(), 0));
    }

    #[test]
    fn strangers_and_late_buffers_do_no_harm() {
        let pool = Pool::new();
        pool.open(SIZE, SIZE, true);
        let (late, _) = pool.request().unwrap();
        let mut foreign = [0u8; 64];
        pool.complete(foreign.as_mut_ptr(), 64);
        pool.complete(std::ptr::null_mut(), 0);
        assert_eq!(pool.close().strangers, 2);
        pool.complete(late.as_ptr(), SIZE);
        assert!(pool.take(soon(), || false).is_empty());
        assert_eq!(pool.state().bytes, 0);
    }

    #[test]
    fn spare_buffers_are_made_ahead_within_the_limit() {
        let pool = Pool::new();
        pool.open(SIZE, 10 * SIZE, true);
        pool.make_ready();
        assert_eq!(pool.state().free.len(), SPARE);
        pool.open(SIZE, SIZE, true);
        pool.make_ready();
        let state = pool.state();
        assert_eq!((state.free.len(), state.bytes), (1, SIZE));
    }

    #[test]
    fn whoever_waits_is_woken() {
        let pool = Pool::new();
        pool.open(SIZE, SIZE, true);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.take(Instant::now() + Duration::from_secs(60), || false).len());
            let (start, _) = pool.request().unwrap();
            pool.complete(start.as_ptr(), 8);
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert!(pool.take(Instant::now() + Duration::from_secs(60), || true).is_empty());
    }
}
