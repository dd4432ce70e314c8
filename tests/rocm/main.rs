//! The ROCm collector with rocprofiler-sdk, on simulated libraries.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod either;
mod faults;
mod recording;
mod telemetry;

/// The profiler library of these tests.
const PROFILER: support::amd::AmdProfiler = support::amd::AmdProfiler::Sdk;
