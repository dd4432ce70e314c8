//! The simulated driver and CUPTI as used by programs and profilers.
#![cfg(target_os = "linux")]

mod alone;
mod driver;
mod records;
