//! The functions of `include/tracing_kineto.h`: the profiler for the C and C++ code of a program.
//!
//! Ranges are spans: they go through `tracing`'s dispatcher like those of Rust code, so all its layers receive them, and
//! device work launched inside is linked to them. The workspace member `capi` builds libraries of these functions; a Rust
//! program with this crate gets them through the feature `capi`.

mod control;
mod exports;
mod injection;
mod keys;
mod ranges;
mod status;
