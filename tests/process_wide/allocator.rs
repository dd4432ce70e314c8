//! The allocator of these tests: counts each thread's allocations, and traces them on threads that enable it.
#![allow(unsafe_code, reason = "a global allocator has no safe form")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tracing::info_span;

thread_local! {
    /// The number of this thread's allocations.
    pub(crate) static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread's calls are traced. Off while a thread starts and ends, when the registry holds its locks.
    pub(crate) static ON: Cell<bool> = const { Cell::new(false) };
    /// The number of this thread's traced calls.
    pub(crate) static TRACED: Cell<u64> = const { Cell::new(0) };
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct CountingAndTracing;

/// Traces a call of the allocator, except calls during tracing.
pub(crate) fn trace(bytes: usize) {
    if !ON.try_with(Cell::get).unwrap_or(false) || INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true) {
        return;
    }
    info_span!("alloc", bytes).in_scope(|| tracing::error!(bytes, "allocated"));
    let _ = TRACED.try_with(|traced| traced.set(traced.get() + 1));
    let _ = INSIDE.try_with(|inside| inside.set(false));
}

// SAFETY: every call is forwarded to the system's allocator. The counter neither allocates nor unwinds, and calls made
// while one is traced are not traced.
unsafe impl GlobalAlloc for CountingAndTracing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        trace(layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(pointer, layout) };
        trace(0);
    }
}

#[global_allocator]
static ALLOCATOR: CountingAndTracing = CountingAndTracing;
