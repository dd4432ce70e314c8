//! The two kinds of time: ticks as the span path reads them, nanoseconds as all other code does.

pub use kineto_trace::Timestamp;
pub(crate) use kineto_trace::time::{UtcTime, base_time};

/// A reading of the tick counter; what it means in nanoseconds, only the clock knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Ticks(pub(crate) u64);
