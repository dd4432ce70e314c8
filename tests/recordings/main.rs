//! What is recorded, and what is written of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod files;
mod sessions;
mod spans;
