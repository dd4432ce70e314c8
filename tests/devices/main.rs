//! Simulated devices, plugins and the C library. Each test that uses a simulated machine has a process of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::duplicate_mod, reason = "AMD's tests run with both of its profiler libraries")]

#[cfg(all(feature = "cuda", feature = "rocm", feature = "xpu", feature = "plugins"))]
mod accelerators;
mod capi;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "rocm")]
mod rocm;
#[cfg(feature = "roctracer")]
mod roctracer;
#[cfg(feature = "xpu")]
mod xpu;
