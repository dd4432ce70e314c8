//! Writers of trace files: the only place, beside the reader, that knows a file format.
//!
//! A writer implements [`Rows`](crate::rows::Rows) and streams: what it holds in memory does not grow with the
//! trace.

mod buffer;
pub mod chrome;
pub mod execution;
#[cfg(feature = "gzip")]
mod fast_gzip;
pub mod file;
#[cfg(test)]
mod golden;
#[cfg(feature = "gzip")]
mod gzip;
mod json;
pub mod perfetto;
mod picture;
pub mod timeline;
mod value;

pub use value::{counter_value, json_text};
