//! What a trace of PyTorch's profiler (Kineto) consists of, and its file formats.
//!
//! [`activity`] is Kineto's model, [`rows`] passes a trace to a writer row by row, and [`write`](mod@write) has the writers: Kineto's JSON,
//! Perfetto's format and execution traces.
//!
//! This crate is for `kineto-trace` and `tracing-kineto`, which re-export what their users need. The rest of its API follows their
//! needs and changes without notice, so both require exactly its version.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod activity;
#[cfg(feature = "segments")]
mod encoded;
mod error;
pub mod fields;
pub mod first_fit;
pub mod keys;
pub mod layout;
mod loss;
pub mod memory;
mod named_values;
pub mod rows;
pub mod write;

pub use error::{Error, ErrorKind};
#[doc(inline)]
pub use kineto_base::time::Timestamp;
pub use loss::Loss;

/// Compiles the code in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
