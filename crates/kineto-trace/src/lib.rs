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

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "files", feature = "reports")),
    allow(dead_code, unused_imports, reason = "files and reports need more of the events than averages do")
)]

pub mod analysis;

#[cfg(feature = "reports")]
pub use analysis::check;
#[cfg(feature = "files")]
#[doc(inline)]
pub use kineto_model::write::file::Format;
#[doc(inline)]
pub use kineto_model::{Error, ErrorKind, Loss, Timestamp, activity, memory};

use kineto_base::{hash, sorting, text, time};
use kineto_model::{first_fit, layout, rows, write};

/// Compiles the code in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
