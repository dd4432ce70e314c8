//! What the simulated Level Zero and the simulated PTI must agree on; each of the libraries compiles its own copy.
#![allow(dead_code, unused_imports, reason = "each library uses a part of it")]

pub(crate) mod apis;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod devices;
pub(crate) mod options;
pub(crate) mod tracer;
