//! What is installed for the whole process: allocators and a global subscriber.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod allocations;
mod allocator;
mod global_default;
mod reentrant;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps other tests of this binary waiting: while one has a scoped subscriber, `tracing` passes over what a `Debug` does
/// under the global one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
