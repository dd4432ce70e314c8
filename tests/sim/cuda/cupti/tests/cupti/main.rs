//! What programs and profilers get from the simulated driver and CUPTI.
#![cfg(target_os = "linux")]

mod alone;
mod delivery;
mod driver;
mod faults;
mod records;
