//! Reads Rust sources as tokens: for the rules of the architecture, the sizes of the sources, and the record of what is public.

pub mod api;
pub mod files;
pub mod lexer;
pub mod stats;
