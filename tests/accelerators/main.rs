//! All vendors by one binary, plugins, and what the command says of them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[cfg(feature = "cli")]
mod cli;
mod plugins;
#[cfg(feature = "gzip")]
mod replay;
mod vendors;
