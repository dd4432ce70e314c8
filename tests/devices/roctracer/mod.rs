//! The ROCm collector with roctracer, on simulated libraries: HIP accepts one profiler in a process.

#[path = "../rocm/either.rs"]
mod either;
#[cfg(feature = "gzip")]
mod real;
mod recording;
#[path = "../rocm/telemetry.rs"]
mod telemetry;

/// The profiler library of these tests.
const PROFILER: support::amd::AmdProfiler = support::amd::AmdProfiler::Tracer;
