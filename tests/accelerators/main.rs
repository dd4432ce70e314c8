//! All vendors in one binary, and plugins.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod marks;
mod plugins;
#[cfg(feature = "gzip")]
mod replay;
mod vendors;
