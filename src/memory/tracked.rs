//! A global allocator that counts and reports the program's allocations.
#![allow(unsafe_code, reason = "a global allocator has no safe form")]

use super::{Device, live, report_event};
use crate::buffer::flag;
use crate::clock;
use crate::recorder::memory_listeners;
use crate::time::Ticks;
use std::alloc::{GlobalAlloc, Layout, System};

/// A global allocator that wraps another allocator and reports to the layers that record memory.
///
/// ```
/// use tracing_kineto::memory::Tracked;
///
/// #[global_allocator]
/// static ALLOCATOR: Tracked = Tracked::system();
/// # fn main() {}
/// ```
///
/// While no layer records memory, it adds to a counter of the thread ([`usage`](super::usage)). While one does, every
/// allocation and every free is a record of 64 bytes, without sampling. This crate's own allocations are counted but not
/// recorded. It may run before `main`, in destructors of threads, in forked children and in panics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracked<A = System> {
    inner: A,
}

impl Tracked {
    /// Wraps the system's allocator.
    pub const fn system() -> Tracked {
        Tracked::new(System)
    }
}

impl<A> Tracked<A> {
    /// Wraps `inner`.
    pub const fn new(inner: A) -> Tracked<A> {
        Tracked { inner }
    }
}

// SAFETY: every pointer comes from `inner` and goes back to it, with the caller's layout. The reporting neither unwinds nor
// recurses without end: the allocations that it makes itself are skipped.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Tracked<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`.
        let pointer = unsafe { self.inner.alloc(layout) };
        report_alloc(pointer, layout.size());
        pointer
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        let pointer = unsafe { self.inner.alloc_zeroed(layout) };
        report_alloc(pointer, layout.size());
        pointer
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Before another thread can get the same memory.
        if memory_listeners::is_open() {
            report_free(clock::now(), pointer, layout.size())
        } else {
            live::add_bytes(-signed_size(layout.size()))
        }
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { self.inner.dealloc(pointer, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let before = memory_listeners::is_open().then(clock::now);
        // SAFETY: the caller upholds the contract of `realloc`.
        let moved = unsafe { self.inner.realloc(pointer, layout, new_size) };
        match before {
            _ if moved.is_null() => report_failure(new_size),
            Some(before) => {
                report_free(before, pointer, layout.size());
                report_alloc(moved, new_size);
            }
            None => live::add_bytes(signed_size(new_size) - signed_size(layout.size())),
        }
        moved
    }
}

/// Returns a layout's size, which never exceeds `isize::MAX`.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "a layout's size is at most isize::MAX")]
const fn signed_size(size: usize) -> i64 {
    size as i64
}

#[inline(always)]
fn report_alloc(pointer: *mut u8, size: usize) {
    if pointer.is_null() {
        report_failure(size);
    } else if memory_listeners::is_open() {
        report_one(clock::now(), pointer, signed_size(size));
    } else {
        live::add_bytes(signed_size(size));
    }
}

#[cold]
fn report_free(time: Ticks, pointer: *mut u8, size: usize) {
    report_one(time, pointer, -signed_size(size));
}

#[cold]
fn report_one(time: Ticks, pointer: *mut u8, bytes: i64) {
    let total = live::add_to_total(bytes);
    if !report_event(time, pointer.addr() as u64, bytes, [total, 0], Device::CPU, 0) {
        live::note_unrecorded(bytes);
    }
}

#[cold]
fn report_failure(size: usize) {
    if memory_listeners::is_open() {
        report_event(
            clock::now(),
            0,
            signed_size(size),
            [live::usage().live_bytes, 0],
            Device::CPU,
            flag::OUT_OF_MEMORY,
        );
    }
}
