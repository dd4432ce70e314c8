//! The ROCm collector with roctracer, on simulated libraries: HIP accepts one profiler in a process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../rocm/either.rs"]
mod either;
#[cfg(feature = "gzip")]
mod real;
mod recording;
#[path = "../rocm/telemetry.rs"]
mod telemetry;

/// The profiler library of these tests.
const PROFILER: support::amd::AmdProfiler = support::amd::AmdProfiler::Tracer;
