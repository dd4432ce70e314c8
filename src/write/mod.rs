//! Output files and sinks.

pub(crate) mod file;
pub(crate) mod sink;

pub(crate) use kineto_model::write::chrome;
#[cfg(feature = "chakra")]
pub(crate) use kineto_model::write::execution;
#[cfg(feature = "perfetto")]
pub(crate) use kineto_model::write::perfetto;
pub use sink::TraceSink;
