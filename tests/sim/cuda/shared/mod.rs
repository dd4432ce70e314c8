//! What the simulated driver and the simulated CUPTI must agree on; each of the two libraries compiles its own copy.
#![allow(dead_code, unused_imports, reason = "each library uses a part of it")]

pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod options;
pub(crate) mod tracer;
