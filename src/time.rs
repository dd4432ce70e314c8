//! The two representations of time: ticks on the span path, nanoseconds elsewhere.

pub use kineto_trace::Timestamp;
pub(crate) use kineto_trace::time::{UtcTime, base_time};

/// A reading of the tick counter, which only the clock can convert to nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Ticks(pub(crate) u64);
