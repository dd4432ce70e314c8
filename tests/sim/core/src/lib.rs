//! The parts that the simulated GPUs of all vendors share.
//!
//! Each simulated library links its own copy, so every static here exists once in each library. Two libraries of a vendor
//! share state only through the table of functions that one hands to the other.
#![cfg(target_os = "linux")]

pub mod buffer;
pub mod clock;
pub mod counters;
pub mod delivery;
pub mod device;
pub mod engine;
pub mod external;
pub mod faults;
pub mod ffi;
pub mod handles;
pub mod ids;
pub mod kernel;
pub mod loader;
pub mod machine;
pub mod memory;
pub mod options;
pub mod planted;
pub mod record;

// The clock of the program under test, and waits by it. Compiled here too: a library that links `kineto-base` counts as one that
// records by itself.
#[path = "../../../../crates/kineto-base/src/channel.rs"]
pub mod channel;
#[allow(dead_code, reason = "the devices use a part of it")]
#[path = "../../../../crates/kineto-base/src/wait.rs"]
mod wait;
