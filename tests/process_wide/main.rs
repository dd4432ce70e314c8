//! What is installed for the whole process: allocators and a global subscriber.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod allocations;
mod allocator;
mod global_default;
mod reentrant;
