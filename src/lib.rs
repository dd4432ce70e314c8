//! torch.profiler for Rust programs.

pub mod activity;
mod config;
mod diag;
mod error;
mod time;

pub use config::{AsyncSpans, Config, DistributedInfo, Origin, Output, Overflow};
pub use diag::{LogSink, Message, Severity};
pub use error::{Error, ErrorKind};
pub use time::Timestamp;
