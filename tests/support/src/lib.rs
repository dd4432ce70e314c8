//! Support for the tests: recordings read back, clients of the simulated GPUs, child processes.
//!
//! The crate's root records a closure and formats the written file as text to compare. Each simulated library and each
//! kind of child process has a module.

mod recording;

pub mod child;
pub mod harness;
#[cfg(unix)]
pub mod simulator;

#[cfg(target_os = "linux")]
pub mod amd;
#[cfg(target_os = "linux")]
pub mod cuda;
#[cfg(target_os = "linux")]
pub mod cupti_client;
#[cfg(target_os = "linux")]
pub mod daemon;
#[cfg(target_os = "linux")]
pub mod faults;
#[cfg(target_os = "linux")]
pub mod gpu;
#[cfg(target_os = "linux")]
pub mod intel;
#[cfg(target_os = "linux")]
pub mod nvml;
#[cfg(unix)]
pub mod plugins;
#[cfg(target_os = "linux")]
pub mod program;
#[cfg(target_os = "linux")]
pub mod pti_client;
#[cfg(target_os = "linux")]
pub mod ranges;
#[cfg(target_os = "linux")]
pub mod rocm;
#[cfg(target_os = "linux")]
pub mod telemetry;
#[cfg(target_os = "linux")]
pub mod traced;
pub mod traces;
#[cfg(target_os = "linux")]
pub mod xpu;

pub use recording::*;
pub use test_base::{
    CLOCK_VARIABLE, Clock, PROCESS_VARIABLE, name_of, own_process, poll_until, virtual_time, wait, wait_for_rest,
};
pub use test_macros::{own_process, virtual_time};

use std::path::{Path, PathBuf};

/// Returns the keys that disable vendors' collectors, and plugins, from the table of settings.
pub fn disabling_keys() -> Vec<String> {
    let table = tracing_kineto::KinetoLayerBuilder::reference();
    let names = table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    names.filter(|name| name.starts_with("DISABLE_")).map(str::to_owned).collect()
}

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the build's target folder, where tests leave tables and traces for inspection.
pub fn target() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // target/<profile>/deps/<binary>
    own.ancestors().nth(3).unwrap().to_owned()
}
