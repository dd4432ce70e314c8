//! torch.profiler for Rust programs.

pub mod activity;
mod error;
mod time;
#[cfg_attr(not(test), expect(dead_code, reason = "the recording side calls it"))]
mod trace;
#[cfg_attr(not(test), expect(dead_code, reason = "the recording side calls it"))]
mod write;

pub use error::{Error, ErrorKind};
pub use time::Timestamp;
pub use write::TraceSink;
