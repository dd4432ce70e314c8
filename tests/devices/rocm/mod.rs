//! The ROCm collector with rocprofiler-sdk, on simulated libraries.

mod either;
mod faults;
mod recording;
mod telemetry;

/// The profiler library of these tests.
const PROFILER: support::amd::AmdProfiler = support::amd::AmdProfiler::Sdk;
