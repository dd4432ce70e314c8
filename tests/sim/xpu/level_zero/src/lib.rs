//! Level Zero and the SYCL runtime without a GPU: kernels compute nothing, and time passes in simulated queues.
//!
//! It has the functions of the loader that ask for devices, and `sim*` functions that do what a program on SYCL or on
//! Level Zero itself does. With `simSetTracer` a simulated PTI is told of all that happens. See README.md for the
//! options (`SIM_XPU`, `simConfigure`) and the counts (`simCount`).
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

mod control;
mod device;
mod engine;
mod properties;
mod sysman;
mod trace;

mod program;
