//! Writers of trace files. Only they and the reader in `analysis` know a file format.
//!
//! A writer implements [`Rows`](crate::rows::Rows) and streams: its memory use does not grow with the trace.

mod buffer;
pub mod chrome;
#[cfg(feature = "chakra")]
pub mod execution;
pub mod file;
#[cfg(test)]
mod golden;
#[cfg(feature = "gzip")]
mod gzip;
mod json;
mod owned;
#[cfg(feature = "perfetto")]
pub mod perfetto;
mod picture;
pub mod timeline;
mod value;

pub use owned::OwnedValue;
pub use value::{counter_value, json_object, json_text, parse_json};
