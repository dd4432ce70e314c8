//! AMD's GPUs by roctracer, on the simulated ones: HIP takes one profiler in a process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../rocm/either.rs"]
mod either;
#[cfg(feature = "gzip")]
mod real;
mod recording;

/// The profiler that these tests have.
const WAY: support::amd::Way = support::amd::Way::Tracer;
