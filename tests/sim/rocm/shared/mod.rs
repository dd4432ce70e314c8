//! Definitions shared by the simulated HIP and profilers; each library compiles its own copy.
#![allow(dead_code, unused_imports, reason = "each library uses a part of it")]

pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod courier;
pub(crate) mod link;
pub(crate) mod options;
pub(crate) mod tracer;
