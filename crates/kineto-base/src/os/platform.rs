//! The platform services that a recording needs, and their replacements in WebAssembly.
//!
//! There, the standard library panics if a program reads the time, its process id or its environment, and it cannot start
//! threads. [`CAN_RECORD`] is checked wherever a recording could begin, so that the code behind it neither runs nor is
//! linked. Code that works without a recording, such as a trace of a program's own records, takes time and process id from
//! here.

use crate::wait::wall;
use std::time::{Duration, UNIX_EPOCH};

/// Whether the platform has the clocks, threads and files that a recording needs.
pub const CAN_RECORD: bool = !cfg!(target_family = "wasm");

/// Why nothing is recorded where [`CAN_RECORD`] is false.
pub const LACKING: &str = "nothing can be recorded: WebAssembly lacks clocks, threads and files";

/// The advice that goes with [`LACKING`].
pub const REMEDY: &str = "record a native build of the program";

/// Returns the time since the Unix epoch, 0 in WebAssembly.
pub fn unix_time() -> Duration {
    if CAN_RECORD { wall().duration_since(UNIX_EPOCH).unwrap_or_default() } else { Duration::ZERO }
}

/// Returns the id of this process, 0 in WebAssembly.
pub fn process_id() -> u32 {
    if CAN_RECORD { std::process::id() } else { 0 }
}
