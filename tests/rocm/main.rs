//! AMD's GPUs by rocprofiler-sdk, on the simulated ones.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod either;
mod faults;
mod recording;

/// The profiler that these tests have.
const WAY: support::amd::Way = support::amd::Way::Sdk;
