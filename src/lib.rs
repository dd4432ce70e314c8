//! torch.profiler for Rust programs.

pub mod activity;
mod error;
mod time;
#[allow(dead_code, unused_imports, reason = "the recording side calls it")]
mod trace;
#[allow(dead_code, unused_imports, reason = "the recording side calls it")]
mod write;

pub use error::{Error, ErrorKind};
pub use time::Timestamp;
pub use write::TraceSink;
