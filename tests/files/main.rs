//! Files: their contents, and reading them back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod averages;
mod diff;
mod execution_trace;
mod hostile;
mod json_features;
mod path;
mod read;
mod related;
mod summary;
