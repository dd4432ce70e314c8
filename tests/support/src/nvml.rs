//! A client of the simulated NVML: its controls.

use crate::simulator::{self, open};
use crate::telemetry::wait_until;
use libloading::Library;
use std::sync::OnceLock;

/// Returns NVML, which stays loaded.
pub fn library() -> &'static Library {
    static NVML: OnceLock<Library> = OnceLock::new();
    NVML.get_or_init(|| open("sim_nvml"))
}

/// Sets the simulator's options ("key=value,key=value"), and all others to their defaults.
pub fn configure(settings: &str) {
    assert!(simulator::configure(library(), settings), "{settings}");
}

/// Returns how often a value of a GPU was read, such as "0:sm_clock".
pub fn count(what: &str) -> u64 {
    simulator::count(library(), what)
}

/// Waits until a value was read that many more times.
pub fn wait_for(what: &str, more: u64) {
    wait_until(what, count(what) + more, count);
}
