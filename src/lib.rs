//! torch.profiler for Rust programs.

pub mod activity;
mod error;
mod time;

pub use error::{Error, ErrorKind};
pub use time::Timestamp;
