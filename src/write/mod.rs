//! Writers of trace files: the only place, beside the reader, that knows a file format.
//!
//! A writer implements [`Rows`](crate::trace::rows::Rows) and streams: what it holds in memory does not grow with the
//! trace.

mod buffer;
pub(crate) mod chrome;
pub(crate) mod execution;
#[cfg(feature = "gzip")]
mod fast_gzip;
pub(crate) mod file;
#[cfg(test)]
mod golden;
#[cfg(feature = "gzip")]
mod gzip;
mod json;
mod picture;
pub(crate) mod sink;
pub(crate) mod timeline;
mod value;

pub use sink::TraceSink;
pub(crate) use value::{counter_value, json_text};
