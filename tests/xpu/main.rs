//! The XPU collector on the simulated Level Zero and PTI.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod faults;
mod pauses;
mod recording;
mod sessions;
mod telemetry;
mod versions;
