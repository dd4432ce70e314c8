//! Reads, writes and analyses the traces of PyTorch's profiler (Kineto).
//!
//! [`Events`](analysis::Events) holds the content of a trace file. From it this crate computes
//! [`KeyAverages`](analysis::KeyAverages), trees, folded stacks and FLOPs, by the definitions of `torch.profiler` and
//! libkineto.
//!
//! ```
//! use kineto_trace::analysis::Events;
//!
//! let trace = br#"{"traceEvents": [
//!     {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5.5, "args": {}}
//! ]}"#;
//! let events = Events::from_reader(trace.as_slice())?;
//! println!("{}", events.key_averages().table());
//! # assert_eq!(events.key_averages().ops()[0].name(), "aten::mm");
//! # Ok::<(), kineto_trace::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod activity;
#[cfg(feature = "analysis")]
pub mod analysis;
#[doc(hidden)]
pub mod crc32;
mod error;
#[doc(hidden)]
pub mod fallible;
#[doc(hidden)]
pub mod fields;
#[doc(hidden)]
pub mod first_fit;
mod hash;
#[doc(hidden)]
pub mod keys;
#[doc(hidden)]
pub mod layout;
mod loss;
pub mod memory;
#[doc(hidden)]
pub mod rows;
#[doc(hidden)]
pub mod sorting;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod time;
#[doc(hidden)]
pub mod write;

/// Compiles the code in README.md.
#[cfg(all(doctest, feature = "analysis"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "analysis")]
pub use analysis::check;
pub use error::{Error, ErrorKind};
pub use loss::Loss;
pub use time::Timestamp;
