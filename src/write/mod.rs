//! Output files and sinks.

pub(crate) mod file;
pub(crate) mod sink;

pub(crate) use kineto_model::write::{chrome, execution, perfetto};
pub use sink::TraceSink;
