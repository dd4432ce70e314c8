//! What the simulated HIP and the two simulated profilers must agree on; each library compiles its own copy.
#![allow(dead_code, reason = "each library uses a part of it")]

pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod courier;
pub(crate) mod link;
#[path = "../../shared/loader.rs"]
pub(crate) mod loader;
pub(crate) mod options;
pub(crate) mod tracer;
