//! Output files and sinks.

pub(crate) mod file;
pub(crate) mod sink;

pub(crate) use kineto_trace::write::{chrome, execution, json_text, perfetto};
pub use sink::TraceSink;
