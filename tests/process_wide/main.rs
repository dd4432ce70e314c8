//! Process-wide state: global allocators and a global subscriber.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod allocations;
mod allocator;
mod global_default;
mod handles;
mod reentrant;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks other tests of this binary: while a scoped subscriber exists, `tracing` ignores spans that a `Debug` makes under
/// the global one.
fn lock_subscriber() -> MutexGuard<'static, ()> {
    static SUBSCRIBER_LOCK: Mutex<()> = Mutex::new(());
    SUBSCRIBER_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
