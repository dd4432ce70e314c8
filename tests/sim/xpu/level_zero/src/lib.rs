//! Level Zero and the SYCL runtime without a GPU: kernels compute nothing, and time passes in simulated queues.
//!
//! It has the loader's functions that query devices, and `sim*` functions that act as a program on SYCL or Level Zero.
//! By `simMachine` a simulated PTI becomes the tracer. See README.md for the options (`SIM_XPU`, `simConfigure`) and
//! the counters (`simCount`).
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
