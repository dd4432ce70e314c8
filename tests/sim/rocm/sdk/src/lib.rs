//! rocprofiler-sdk for the simulated HIP: callbacks, and records in the layout of the selected version.
//!
//! HIP finds it at its first call, as the real one does by rocprofiler-register; a tool must be registered by then. Work
//! gets its record when it has ended; a separate thread delivers buffers. See README.md for the options.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

mod agents;
mod buffer;
mod calls;
mod code;
mod context;
mod layout;
mod names;
mod registration;
mod status;
mod work;
