//! PTI for the simulated Level Zero: view records in the layout of the selected version, and metrics of kernels.
//!
//! It finds the loader (`libze_loader.so.1`) at the first call, and registers as its tracer. With an unusable loader it
//! fails or aborts the process, as the real library does.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

mod api;
mod code;
mod courier;
mod external;
mod layout;
mod link;
mod pool;
mod record;
mod scope;
mod stamps;
mod texts;
mod views;
mod walker;
mod writer;
