//! The buffers that PTI fills: bounded in bytes, those included that wait to be read.
//!
//! Up to 0.17, PTI writes into whatever it is given, even if that is nothing. So it is refused nothing: beyond the
//! limit, and after a recording, it gets scraps, of which nothing is kept.
#![allow(unsafe_code, reason = "the memory goes to foreign code and comes back")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const ALIGN: usize = 8;
/// What is handed out beyond the limit: its records are counted and dropped. PTI wants room for its longest record.
const SCRAP_BYTES: usize = 16 * 1024;
/// Most scraps at once; then all get the same one, of which nothing is even counted. PTI writes under one lock.
const SCRAPS: usize = 256;
/// Buffers that are kept ready.
const SPARE: usize = 2;

/// A piece of memory for records.
#[derive(Debug)]
struct Buffer {
    start: NonNull<u8>,
    size: usize,
    is_scrap: bool,
}

// SAFETY: it owns its memory alone, save while PTI does, which hands it on between threads itself.
unsafe impl Send for Buffer {}

/// A buffer with records.
#[derive(Debug)]
pub(super) struct Filled {
    buffer: Buffer,
    valid: usize,
}

/// All buffers of the process: PTI knows one place to get them from.
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
    free: Vec<Buffer>,
    /// Those that PTI has.
    out: Vec<Buffer>,
    ready: Vec<Filled>,
    /// Bytes of all buffers that are not scraps, those included that are being read.
    bytes: usize,
    scraps: usize,
    last_scrap: Option<Buffer>,
    counts: Counts,
}

/// What happened in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Buffers that came back with records.
    pub(super) filled: u64,
    /// Requests that got a scrap.
    pub(super) refused: u64,
    /// Buffers that came back and are not ours.
    pub(super) strangers: u64,
    /// Buffers that came back and whose records could not even be counted.
    pub(super) uncounted: u64,
}

impl Buffer {
    fn new(size: usize, is_scrap: bool) -> Option<Buffer> {
        let layout = Layout::from_size_align(size, ALIGN).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer { start, size, is_scrap })
    }

    /// The first four bytes, which PTI may be writing: a record's view.
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
        // SAFETY: all of the buffer was written, by us if not by PTI, and it is ours again.
        unsafe { std::slice::from_raw_parts(self.buffer.start.as_ptr(), self.valid.min(self.buffer.size)) }
    }

    /// Whether it was handed out beyond the limit.
    pub(super) fn is_scrap(&self) -> bool {
        self.buffer.is_scrap
    }
}

impl Pool {
    pub(super) const fn new() -> Pool {
        let counts = Counts { filled: 0, refused: 0, strangers: 0, uncounted: 0 };
        let state = State {
            size: 0,
            limit: 0,
            free: Vec::new(),
            out: Vec::new(),
            ready: Vec::new(),
            bytes: 0,
            scraps: 0,
            last_scrap: None,
            counts,
        };
        Pool { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out buffers from now on: of `size` bytes, and together, in use and waiting, no more than `limit`. `false`
    /// if there is no memory at all.
    pub(super) fn open(&self, size: usize, limit: usize) -> bool {
        let mut state = self.state();
        (state.size, state.limit) = (size, limit.max(size));
        state.counts = Counts::default();
        state.forget_free();
        if state.last_scrap.is_none() {
            state.last_scrap = Buffer::new(SCRAP_BYTES, true);
        }
        // What the callbacks add finds room.
        let most = state.limit / size.max(1) + SCRAPS + 1;
        state.out.reserve(most);
        state.ready.reserve(most);
        state.free.reserve(most);
        state.last_scrap.is_some()
    }

    /// Hands out no more buffers. Those that PTI has still are freed when they come back.
    pub(super) fn close(&self) -> Counts {
        let mut state = self.state();
        state.size = 0;
        let waiting = std::mem::take(&mut state.ready);
        waiting.into_iter().for_each(|filled| state.recycle(filled.buffer));
        state.forget_free();
        state.counts
    }

    /// Returns an empty buffer: where it is and how large. `None` only before the first recording.
    pub(super) fn request(&self) -> Option<(NonNull<u8>, usize)> {
        let mut state = self.state();
        let Some(buffer) = state.empty() else {
            return state.last_scrap.as_ref().map(|last| (last.start, last.size));
        };
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
            None if state.last_scrap.as_ref().is_some_and(|last| last.start.as_ptr() == start) => {
                state.counts.uncounted += u64::from(valid > 0);
            }
            // It is not known who may free it.
            None => state.counts.strangers += 1,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes all buffers that wait to be read; if there is none, waits for one until `until`, or until `wanted` says
    /// that there is something else to do.
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

    /// Whether PTI has a buffer that it has written records into.
    pub(super) fn holds_records(&self) -> bool {
        self.state().out.iter().any(|buffer| buffer.first().load(Ordering::Relaxed) != 0)
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
}

/// Returns a place to write to that nobody takes back, for a forked child: the pool may be locked for ever there.
pub(super) fn leaked() -> Option<(NonNull<u8>, usize)> {
    Buffer::new(SCRAP_BYTES, true).map(|scrap| (std::mem::ManuallyDrop::new(scrap).start, SCRAP_BYTES))
}

impl State {
    fn empty(&mut self) -> Option<Buffer> {
        if self.size > 0 {
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
        if self.scraps >= SCRAPS {
            return None;
        }
        let scrap = Buffer::new(SCRAP_BYTES, true)?;
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

    fn soon() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_buffer_goes_out_comes_back_is_read_and_goes_out_again() {
        let pool = Pool::new();
        assert!(pool.request().is_some_and(|(_, size)| size == SCRAP_BYTES), "before any recording");
        assert!(pool.open(SIZE, 4 * SIZE));
        let (start, size) = pool.request().unwrap();
        assert_eq!((size, start.as_ptr().addr() % ALIGN), (SIZE, 0));
        // SAFETY: the buffer is longer.
        unsafe { std::ptr::copy_nonoverlapping(b"records!".as_ptr(), start.as_ptr(), 8) };
        assert!(pool.holds_records());
        pool.complete(start.as_ptr(), 8);
        let filled = pool.take(soon(), || false).pop().unwrap();
        assert_eq!((filled.bytes(), filled.is_scrap()), (&b"records!"[..], false));
        pool.give_back(filled);
        assert_eq!(pool.request().unwrap().0, start);
        assert!(!pool.holds_records(), "the first word is zero again");
        pool.complete(start.as_ptr(), 0);
        assert!(pool.take(soon(), || false).is_empty(), "an empty buffer is not read");
        assert_eq!(pool.close(), Counts { filled: 1, ..Counts::default() });
    }

    #[test]
    fn nothing_is_ever_refused_and_the_limit_holds() {
        let pool = Pool::new();
        pool.open(1 << 20, 1 << 20);
        let (whole, size) = pool.request().unwrap();
        assert_eq!(size, 1 << 20);
        let (scrap, size) = pool.request().unwrap();
        assert_eq!(size, SCRAP_BYTES);
        pool.complete(scrap.as_ptr(), usize::MAX);
        let filled = pool.take(soon(), || false).pop().unwrap();
        assert_eq!((filled.is_scrap(), filled.bytes().len()), (true, SCRAP_BYTES));
        pool.give_back(filled);
        let all: Vec<_> = (0..SCRAPS + 3).filter_map(|_| pool.request()).collect();
        assert_eq!(all.len(), SCRAPS + 3);
        let last = all[SCRAPS].0;
        assert!(all[SCRAPS..].iter().all(|(start, _)| *start == last), "the last ones share one");
        all.iter().for_each(|(start, _)| pool.complete(start.as_ptr(), 24));
        assert_eq!(pool.take(soon(), || false).len(), SCRAPS);
        pool.complete(whole.as_ptr(), 0);
        let counts = pool.close();
        assert_eq!((counts.refused, counts.uncounted, counts.strangers), (SCRAPS as u64 + 4, 3, 0));
    }

    #[test]
    fn strangers_and_late_buffers_do_no_harm() {
        let pool = Pool::new();
        pool.open(SIZE, SIZE);
        let (late, _) = pool.request().unwrap();
        let mut foreign = [0u8; 64];
        pool.complete(foreign.as_mut_ptr(), 64);
        pool.complete(std::ptr::null_mut(), 0);
        assert_eq!(pool.close().strangers, 2);
        pool.complete(late.as_ptr(), SIZE);
        let (after, size) = pool.request().unwrap();
        assert_eq!(size, SCRAP_BYTES, "PTI must have a place to write to, always");
        pool.complete(after.as_ptr(), 24);
        assert!(pool.take(soon(), || false).is_empty());
        let state = pool.state();
        assert_eq!((state.bytes, state.scraps, state.out.len()), (0, 0, 0));
    }

    #[test]
    fn spare_buffers_are_made_ahead_within_the_limit() {
        let pool = Pool::new();
        pool.open(SIZE, 10 * SIZE);
        pool.make_ready();
        assert_eq!(pool.state().free.len(), SPARE);
        pool.open(SIZE, SIZE);
        pool.make_ready();
        let state = pool.state();
        assert_eq!((state.free.len(), state.bytes), (1, SIZE));
    }

    #[test]
    fn whoever_waits_is_woken() {
        let pool = Pool::new();
        pool.open(SIZE, SIZE);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.take(Instant::now() + Duration::from_secs(60), || false).len());
            let (start, _) = pool.request().unwrap();
            pool.complete(start.as_ptr(), 8);
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert!(pool.take(Instant::now() + Duration::from_secs(60), || true).is_empty());
    }
}
