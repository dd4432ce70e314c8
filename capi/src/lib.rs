//! The functions of `include/tracing_kineto.h`: the profiler for the C and C++ code of a program.
//!
//! Ranges are spans: they go through `tracing`'s dispatcher like those of Rust code, so all its layers receive them, and
//! device work launched inside is linked to them. The package builds a shared and a static library; a Rust program with C or
//! C++ code depends on it and refers to it once:
//!
//! ```
//! use tracing_kineto_capi as _;
//! ```
//!
//! The features are those of `tracing-kineto`.

mod control;
mod exports;
mod injection;
mod keys;
mod ranges;
mod status;
