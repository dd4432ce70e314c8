//! All vendors in one binary, and plugins.

mod marks;
mod plugins;
#[cfg(feature = "gzip")]
mod replay;
mod vendors;
