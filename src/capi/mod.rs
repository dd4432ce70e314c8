//! The functions of `include/tracing_kineto.h`: the profiler for the C and C++ in a program.
//!
//! Ranges are spans: they go through `tracing`'s dispatcher as those of a Rust program do, so whatever listens there sees
//! them, and what is launched inside is linked to them. The workspace's member `capi` makes libraries of these functions;
//! a program in Rust that has this crate already has them by the feature `capi`.

mod control;
mod exports;
mod injection;
mod keys;
mod ranges;
mod status;
