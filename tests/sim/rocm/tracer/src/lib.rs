//! roctracer for the simulated HIP: callbacks with the data of HIP's API, and activity records of 64 bytes.
//!
//! Unlike its successor it may attach at any time. Work gets its record when it has ended; a separate thread delivers
//! buffers. See README.md for the options.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

mod activity;
mod callback;
mod data;
mod names;
mod pool;
mod status;
