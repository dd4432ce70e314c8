//! PTI for the simulated Level Zero: view records with the layout of the version asked for, and metrics of kernels.
//!
//! It looks for the loader (`libze_loader.so.1`) at the first call, and has itself told of all that happens there. What
//! the real library does with a loader that it cannot use, this one does too: it answers nothing, or ends the process.
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
