//! Which event is inside which, which launched which, and which counts as part of which.

mod attribution;
mod forest;
mod nesting;

pub use attribution::{Attribution, AttributionCounts};
pub(super) use forest::Forest;
pub(super) use nesting::{Nesting, OpenSlices, Threads};
