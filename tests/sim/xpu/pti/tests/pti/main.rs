//! What programs and profilers get from the simulated Level Zero and PTI.
#![cfg(target_os = "linux")]

mod alone;
mod program;
mod records;
mod scopes;
