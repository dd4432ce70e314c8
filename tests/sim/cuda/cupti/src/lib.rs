//! CUPTI for the simulated CUDA driver: activity records in the layout of the selected version.
//!
//! It finds the driver (`libcuda.so.1`) at the first call and registers as its tracer. Host records go to one buffer, and
//! the records of each context to another; a device record takes its place at the launch.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

mod activity;
mod api;
mod attributes;
mod client;
mod code;
mod delivery;
mod external;
mod layout;
mod link;
mod nvtx;
mod pm;
mod pool;
mod record;
mod selected_fields;
mod shared_api;
mod subscriber;
mod walker;
mod writer;
