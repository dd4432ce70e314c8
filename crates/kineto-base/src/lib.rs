//! What the packages of `tracing-kineto` share: the operating system, the clock, messages, and values as bytes.
//!
//! This crate is for those packages alone. Its API follows their needs and changes without notice, so each of them requires
//! exactly its version.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, missing_docs, reason = "stand-ins for what only Linux has")
)]

pub mod budget;
pub mod channel;
pub mod clock;
pub mod diag;
#[cfg(feature = "segments")]
pub mod encoding;
#[cfg(not(feature = "segments"))]
#[path = "encoding/no_encoding.rs"]
pub mod encoding;
pub mod fallible;
pub mod hash;
#[cfg(feature = "segments")]
pub mod live;
#[cfg(not(feature = "segments"))]
#[path = "live/no_live.rs"]
pub mod live;
pub mod os;
pub mod sorted;
pub mod sorting;
pub mod text;
pub mod time;
pub mod wait;

/// Compiles the code in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
