//! The buffers that a vendor's library fills, with a limit on their bytes that includes unread buffers.
#![allow(unsafe_code, reason = "foreign code writes to the memory")]

use crate::library::lease::OwningProcess;
use kineto_base::wait::Condvar;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Libraries require buffers aligned to 8 bytes.
const ALIGN: usize = 8;
/// The largest buffer. Buffers are smaller if the limit would allow fewer than `BUFFERS`: each thread may fill its
/// own.
const BUFFER_BYTES: u64 = 4 << 20;
const BUFFER_BYTES_LEAST: u64 = 64 << 10;
const BUFFERS: u64 = 128;
/// Free buffers kept ready.
const SPARE: usize = 2;

/// What a library gets when no buffer is free: beyond the limit, or outside of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowBuffers {
    /// Nothing: the library itself drops records.
    None,
    /// Beyond the limit: a scrap buffer, up to a number at a time; then nothing.
    Limited(ScrapLimits),
    /// Beyond the limit: a scrap buffer. When all are in use, requests share one buffer whose records are not counted.
    Always(ScrapLimits),
}

/// Limits on scrap buffers: small buffers whose records are counted and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrapLimits {
    /// The size of a scrap buffer, which fits the longest record.
    pub(crate) bytes: usize,
    /// The most that may be out at once.
    pub(crate) most: usize,
}

/// Memory for records.
#[derive(Debug)]
struct PoolBuffer {
    start: NonNull<u8>,
    size: usize,
    is_scrap: bool,
    /// The number of the request that it was last handed out for.
    request: u64,
}

// SAFETY: it owns its memory; while the library has it, the library synchronizes its own threads.
unsafe impl Send for PoolBuffer {}

/// A buffer with records.
#[derive(Debug)]
pub(crate) struct FilledBuffer {
    buffer: PoolBuffer,
    valid: usize,
}

/// All buffers of the process for a library, whose buffer callback is process-wide.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Debug)]
struct PoolState {
    /// The size of a buffer; 0 while nothing is recorded.
    size: usize,
    limit: usize,
    overflow: OverflowBuffers,
    free: Vec<PoolBuffer>,
    /// Buffers that the library has.
    out: Vec<PoolBuffer>,
    ready: Vec<FilledBuffer>,
    /// Bytes of all buffers except scrap buffers, including those being read.
    bytes: usize,
    scraps: usize,
    /// The shared buffer for requests beyond the limit, where none may be refused.
    last_scrap: Option<PoolBuffer>,
    requests: u64,
    counts: PoolCounts,
}

/// What happened in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCounts {
    /// Buffers that came back with records.
    pub(crate) filled: u64,
    /// Requests beyond the limit, refused or given a scrap buffer.
    pub(crate) refused: u64,
    /// Buffers that came back and are not in this pool.
    pub(crate) unknown: u64,
    /// Buffers that came back and whose records could not be counted.
    pub(crate) uncounted: u64,
    /// Buffers with records that were not read before the recording ended.
    pub(crate) kept: u64,
}

impl OverflowBuffers {
    /// Returns the limits on scrap buffers while a recording runs, or while none does.
    fn scrap_limits(self, is_recording: bool) -> Option<ScrapLimits> {
        match self {
            OverflowBuffers::Limited(scraps) => Some(scraps).filter(|_| is_recording),
            OverflowBuffers::Always(scraps) => Some(scraps),
            OverflowBuffers::None => None,
        }
    }
}

impl PoolBuffer {
    fn new(size: usize, is_scrap: bool) -> Option<PoolBuffer> {
        let layout = Layout::from_size_align(size, ALIGN).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(PoolBuffer { start, size, is_scrap, request: 0 })
    }

    /// Returns its address and size.
    fn address_and_size(&self) -> (NonNull<u8>, usize) {
        (self.start, self.size)
    }

    /// Touches every page, so that the first write does not wait for a page fault.
    fn touch_pages(&self) {
        const PAGE: usize = 4096;
        for at in (0..self.size).step_by(PAGE) {
            let place = self.start.as_ptr().wrapping_add(at);
            // SAFETY: the offset lies within the buffer, which the pool owns.
            unsafe { place.write_volatile(0) };
        }
    }

    /// Returns the first four bytes, the kind of the first record, which the library may be writing.
    fn first_word(&self) -> &AtomicU32 {
        let first = self.start.cast::<AtomicU32>();
        // SAFETY: it lies within the buffer, which is aligned to 8, and this process only accesses it as an atomic
        // here.
        unsafe { first.as_ref() }
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        if let Ok(layout) = Layout::from_size_align(self.size, ALIGN) {
            // SAFETY: it was allocated with this layout, and the library has given it back.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

impl FilledBuffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: all of the buffer is initialized, and the library has given it back.
        unsafe { std::slice::from_raw_parts(self.buffer.start.as_ptr(), self.valid.min(self.buffer.size)) }
    }

    /// Returns whether it is a scrap buffer.
    pub(crate) fn is_scrap(&self) -> bool {
        self.buffer.is_scrap
    }
}

impl Pool {
    pub(crate) const fn new() -> Pool {
        let counts = PoolCounts { filled: 0, refused: 0, unknown: 0, uncounted: 0, kept: 0 };
        let state = PoolState {
            size: 0,
            limit: 0,
            overflow: OverflowBuffers::None,
            free: Vec::new(),
            out: Vec::new(),
            ready: Vec::new(),
            bytes: 0,
            scraps: 0,
            last_scrap: None,
            requests: 0,
            counts,
        };
        Pool { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock_state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to hand out buffers of at most `limit` bytes in all. Returns `false` if the shared scrap buffer cannot
    /// be allocated.
    pub(crate) fn open(&self, limit: u64, overflow: OverflowBuffers) -> bool {
        let size = (limit / BUFFERS).clamp(BUFFER_BYTES_LEAST, BUFFER_BYTES) & !4095;
        let [size, limit] = [size, limit.max(size)].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut state = self.lock_state();
        (state.size, state.limit, state.overflow) = (size, limit, overflow);
        state.counts = PoolCounts::default();
        state.drop_free();
        if let OverflowBuffers::Always(scraps) = overflow
            && state.last_scrap.is_none()
        {
            state.last_scrap = PoolBuffer::new(scraps.bytes, true);
        }
        // Reserve the capacity here, so that callbacks do not allocate.
        let scraps = overflow.scrap_limits(true).map_or(0, |scraps| scraps.most);
        let most = limit / size + scraps + 1;
        state.out.reserve(most);
        state.ready.reserve(most);
        state.free.reserve(most);
        state.last_scrap.is_some() || !matches!(overflow, OverflowBuffers::Always(_))
    }

    /// Stops to hand out buffers. Those that the library still has are freed when they come back.
    pub(crate) fn close(&self) -> PoolCounts {
        let mut state = self.lock_state();
        if state.size > 0 {
            state.counts.kept = (state.ready.len() + state.buffers_with_records(u64::MAX).count()) as u64;
        }
        state.size = 0;
        let waiting = std::mem::take(&mut state.ready);
        waiting.into_iter().for_each(|filled| state.recycle(filled.buffer));
        state.drop_free();
        state.counts
    }

    /// Returns whether the library has buffers.
    pub(crate) fn has_buffers_out(&self) -> bool {
        !self.lock_state().out.is_empty()
    }

    /// Leaks the buffers that the library has, which it may still write to but never returns.
    pub(crate) fn abandon_buffers(&self) {
        let mut state = self.lock_state();
        let abandoned: usize = state.out.iter().map(|buffer| buffer.size).sum();
        state.bytes = state.bytes.saturating_sub(abandoned);
        state.out.drain(..).for_each(std::mem::forget);
    }

    /// Returns the address and size of an empty buffer; `None` to refuse.
    fn request_buffer(&self) -> Option<(NonNull<u8>, usize)> {
        let mut state = self.lock_state();
        let Some(mut buffer) = state.take_empty() else {
            return state.last_scrap.as_ref().map(PoolBuffer::address_and_size);
        };
        state.requests += 1;
        buffer.request = state.requests;
        buffer.first_word().store(0, Ordering::Relaxed);
        let place = buffer.address_and_size();
        state.out.push(buffer);
        Some(place)
    }

    /// Answers a library's request for an empty buffer: writes its address and size, or null and 0. Returns `false` if a place
    /// is null.
    ///
    /// In a process forked from the `owner`, another thread's lock may be held for ever, and old versions accept no refusal: the
    /// library gets a buffer that is never freed.
    ///
    /// # Safety
    /// The places are null or valid.
    pub(crate) unsafe fn answer_request(
        &self,
        owner: &OwningProcess,
        scraps: ScrapLimits,
        (buffer, size): (*mut *mut u8, *mut usize),
    ) -> bool {
        if buffer.is_null() || size.is_null() {
            return false;
        }
        let place = if owner.is_inherited() { leak_buffer(scraps.bytes) } else { self.request_buffer() };
        let (start, length) = place.map_or((std::ptr::null_mut(), 0), |(start, size)| (start.as_ptr(), size));
        // SAFETY: the caller promises a valid place for the buffer's address.
        unsafe { buffer.write(start) };
        // SAFETY: the caller promises a valid place for the buffer's size.
        unsafe { size.write(length) };
        true
    }

    /// Takes a buffer back, unless the process is a fork of the `owner`, which has no reader.
    pub(crate) fn accept_buffer(&self, owner: &OwningProcess, start: *mut u8, valid: usize) {
        if !owner.is_inherited() {
            self.complete_buffer(start, valid);
        }
    }

    /// Takes a buffer back, of which `valid` bytes are records.
    fn complete_buffer(&self, start: *mut u8, valid: usize) {
        let mut state = self.lock_state();
        match state.out.iter().position(|buffer| buffer.start.as_ptr() == start) {
            Some(place) => {
                let buffer = state.out.swap_remove(place);
                if valid == 0 || state.size == 0 {
                    state.recycle(buffer);
                } else {
                    state.counts.filled += 1;
                    state.ready.push(FilledBuffer { buffer, valid });
                }
            }
            None if state.last_scrap.as_ref().is_some_and(|last| last.start.as_ptr() == start) => {
                state.counts.uncounted += u64::from(valid > 0);
            }
            // Its owner is unknown, so it cannot be freed.
            None => state.counts.unknown += 1,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes all unread buffers. If there is none, waits until `until` for the first, or until `wanted` returns true.
    pub(crate) fn take_filled(&self, until: Instant, wanted: impl Fn() -> bool) -> Vec<FilledBuffer> {
        let mut state = self.lock_state();
        state = self.changed.wait_while_until(&self.state, state, until, |state| state.ready.is_empty() && !wanted());
        // Keep the capacity, so that callbacks do not allocate.
        state.ready.drain(..).collect()
    }

    /// Makes the waiting thread check `wanted` again.
    pub(crate) fn wake_reader(&self) {
        drop(self.lock_state());
        self.changed.notify_all();
    }

    /// Takes back a buffer that has been read.
    pub(crate) fn give_back(&self, filled: FilledBuffer) {
        self.lock_state().recycle(filled.buffer);
    }

    /// Allocates buffers ahead of need, outside of callbacks.
    pub(crate) fn preallocate(&self) {
        loop {
            let mut state = self.lock_state();
            if state.size == 0 || state.free.len() >= SPARE || state.bytes + state.size > state.limit {
                return;
            }
            let size = state.size;
            state.bytes += size;
            drop(state);
            let made = PoolBuffer::new(size, false);
            if let Some(buffer) = &made {
                buffer.touch_pages();
            }
            let mut state = self.lock_state();
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
    pub(crate) fn request_count(&self) -> u64 {
        self.lock_state().requests
    }

    /// Returns whether the library has written records into a buffer, up to that request, and not returned it.
    pub(crate) fn holds_records(&self, requests: u64) -> bool {
        self.lock_state().buffers_with_records(requests).next().is_some()
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        self.lock_state().counts
    }
}

/// Returns memory that is never freed, for a forked child, in which the pool's lock may be held for ever.
fn leak_buffer(bytes: usize) -> Option<(NonNull<u8>, usize)> {
    PoolBuffer::new(bytes, true).map(|scrap| ManuallyDrop::new(scrap).address_and_size())
}

impl PoolState {
    /// Returns the buffers, up to that request, that the library has and has written to.
    ///
    /// Those of an earlier recording are among them: the library may continue a buffer that it has not returned.
    fn buffers_with_records(&self, requests: u64) -> impl Iterator<Item = &PoolBuffer> {
        let requested = self.out.iter().filter(move |buffer| buffer.request <= requests);
        requested.filter(|buffer| buffer.first_word().load(Ordering::Relaxed) != 0)
    }

    fn take_empty(&mut self) -> Option<PoolBuffer> {
        let is_recording = self.size > 0;
        if is_recording {
            if let Some(buffer) = self.free.pop() {
                return Some(buffer);
            }
            if self.bytes + self.size <= self.limit
                && let Some(buffer) = PoolBuffer::new(self.size, false)
            {
                self.bytes += self.size;
                return Some(buffer);
            }
            self.counts.refused += 1;
        }
        let scraps = self.overflow.scrap_limits(is_recording).filter(|scraps| self.scraps < scraps.most)?;
        let scrap = PoolBuffer::new(scraps.bytes, true)?;
        self.scraps += 1;
        Some(scrap)
    }

    fn recycle(&mut self, buffer: PoolBuffer) {
        if buffer.is_scrap {
            self.scraps = self.scraps.saturating_sub(1);
        } else if buffer.size == self.size && self.bytes <= self.limit {
            self.free.push(buffer);
        } else {
            self.bytes = self.bytes.saturating_sub(buffer.size);
        }
    }

    fn drop_free(&mut self) {
        let freed: usize = self.free.drain(..).map(|buffer| buffer.size).sum();
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SIZE: usize = 64 << 10;
    const SCRAPS: ScrapLimits = ScrapLimits { bytes: 16 << 10, most: 5 };

    /// Makes a pool of that many buffers.
    fn pool(buffers: u64, overflow: OverflowBuffers) -> Pool {
        let pool = Pool::new();
        assert!(pool.open(buffers * BUFFER_BYTES_LEAST, overflow));
        pool
    }

    fn fill(start: NonNull<u8>, bytes: &[u8]) {
        // SAFETY: the test's buffers are longer than the bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
    }

    fn soon() -> Instant {
        Instant::now()
    }

    #[test]
    fn buffer_is_reused_after_it_was_read() {
        assert!(Pool::new().request_buffer().is_none(), "closed");
        let pool = pool(4, OverflowBuffers::None);
        let (start, size) = pool.request_buffer().unwrap();
        assert_eq!((size, start.as_ptr().addr() % ALIGN), (SIZE, 0));
        assert!(!pool.holds_records(u64::MAX));
        fill(start, b"records!");
        assert!(pool.holds_records(1) && !pool.holds_records(0));
        pool.complete_buffer(start.as_ptr(), 8);
        assert!(!pool.holds_records(u64::MAX));
        let filled = pool.take_filled(soon(), || false).pop().unwrap();
        assert_eq!((filled.bytes(), filled.is_scrap()), (&b"records!"[..], false));
        pool.give_back(filled);
        assert_eq!(pool.request_buffer().unwrap().0, start);
        assert!(!pool.holds_records(u64::MAX), "the first word is zero again");
        pool.complete_buffer(start.as_ptr(), 0);
        assert!(pool.take_filled(soon(), || false).is_empty(), "an empty buffer is not read");
        assert_eq!(pool.close(), PoolCounts { filled: 1, ..PoolCounts::default() });
    }

    #[test]
    fn small_limit_gives_many_small_buffers() {
        for (limit, expected) in [(0, SIZE), (128 << 20, 1 << 20), (1 << 40, 4 << 20)] {
            let pool = Pool::new();
            pool.open(limit, OverflowBuffers::None);
            assert_eq!(pool.request_buffer().unwrap().1, expected, "{limit}");
        }
    }

    #[test]
    fn unread_buffers_count_towards_the_limit() {
        let pool = pool(2, OverflowBuffers::None);
        for _ in 0..2 {
            let (start, _) = pool.request_buffer().unwrap();
            pool.complete_buffer(start.as_ptr(), SIZE);
        }
        assert!(pool.request_buffer().is_none());
        let read = pool.take_filled(soon(), || false);
        assert!(pool.request_buffer().is_none(), "they are being read");
        read.into_iter().for_each(|filled| pool.give_back(filled));
        assert!(pool.request_buffer().is_some());
        assert_eq!(pool.counts().refused, 2);
    }

    #[test]
    fn requests_beyond_the_limit_get_scrap_buffers() {
        let pool = pool(1, OverflowBuffers::Limited(SCRAPS));
        pool.request_buffer().unwrap();
        let (scrap, size) = pool.request_buffer().unwrap();
        assert_eq!(size, SCRAPS.bytes);
        pool.complete_buffer(scrap.as_ptr(), usize::MAX);
        let filled = pool.take_filled(soon(), || false).pop().unwrap();
        assert_eq!((filled.is_scrap(), filled.bytes().len()), (true, SCRAPS.bytes));
        pool.give_back(filled);
        let all: Vec<_> = std::iter::from_fn(|| pool.request_buffer()).collect();
        assert_eq!(all.len(), SCRAPS.most);
        all.iter().for_each(|(start, _)| pool.complete_buffer(start.as_ptr(), 0));
        pool.close();
        assert!(pool.request_buffer().is_none());
    }

    #[test]
    fn requests_share_a_buffer_when_none_is_refused() {
        let pool = pool(1, OverflowBuffers::Always(SCRAPS));
        let (whole, size) = pool.request_buffer().unwrap();
        assert_eq!(size, SIZE);
        let all: Vec<_> = (0..SCRAPS.most + 3).filter_map(|_| pool.request_buffer()).collect();
        assert_eq!(all.len(), SCRAPS.most + 3);
        let last = all[SCRAPS.most].0;
        assert!(all[SCRAPS.most..].iter().all(|(start, _)| *start == last));
        all.iter().for_each(|(start, _)| pool.complete_buffer(start.as_ptr(), 24));
        let scraps = pool.take_filled(soon(), || false);
        assert!(scraps.len() == SCRAPS.most && scraps.iter().all(FilledBuffer::is_scrap));
        scraps.into_iter().for_each(|scrap| pool.give_back(scrap));
        pool.complete_buffer(whole.as_ptr(), 0);
        let counts = pool.close();
        assert_eq!((counts.refused, counts.uncounted, counts.unknown), (SCRAPS.most as u64 + 3, 3, 0));
    }

    #[test]
    fn unknown_and_late_buffers_are_tolerated() {
        for (overflow, after) in [(OverflowBuffers::None, None), (OverflowBuffers::Always(SCRAPS), Some(SCRAPS.bytes))]
        {
            let pool = pool(1, overflow);
            let (late, _) = pool.request_buffer().unwrap();
            let mut foreign = [0u8; 64];
            pool.complete_buffer(foreign.as_mut_ptr(), 64);
            pool.complete_buffer(std::ptr::null_mut(), 0);
            assert_eq!(pool.close().unknown, 2);
            pool.complete_buffer(late.as_ptr(), SIZE);
            let scrap = pool.request_buffer();
            assert_eq!(scrap.map(|(_, size)| size), after);
            scrap.inspect(|(start, _)| pool.complete_buffer(start.as_ptr(), 24));
            assert!(pool.take_filled(soon(), || false).is_empty());
            let state = pool.lock_state();
            assert_eq!((state.bytes, state.scraps, state.out.len()), (0, 0, 0));
        }
    }

    #[test]
    fn spare_buffers_are_preallocated_within_the_limit() {
        for (buffers, free) in [(10, SPARE), (1, 1)] {
            let pool = pool(buffers, OverflowBuffers::None);
            pool.preallocate();
            let state = pool.lock_state();
            assert_eq!((state.free.len(), state.bytes), (free, free * SIZE));
        }
    }

    #[test]
    fn waiting_reader_is_woken() {
        let pool = pool(1, OverflowBuffers::None);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.take_filled(Instant::now() + Duration::from_secs(60), || false).len());
            let (start, _) = pool.request_buffer().unwrap();
            pool.complete_buffer(start.as_ptr(), 8);
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert!(pool.take_filled(Instant::now() + Duration::from_secs(60), || true).is_empty());
    }
}
