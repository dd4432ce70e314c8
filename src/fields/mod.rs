//! Field values between the span path and the trace: written typed and flat, read back one by one.
//!
//! A value is a word with its type (8 bits), its field's index (8 bits) and, of a text, the length in bytes (32 bits), and
//! then the words of the value itself. What is shorter than a word is padded with zeros.

mod decode;
mod encode;
mod scope;
mod words;

#[cfg(test)]
pub(crate) use decode::words;
pub(crate) use decode::{Datum, Value, Word, values};
pub(crate) use encode::{Encoder, PlainEncoder};
pub(crate) use words::{Sink, Words};

/// The types of encoded values.
mod code {
    pub(super) const I64: u8 = 1;
    pub(super) const U64: u8 = 2;
    pub(super) const F64: u8 = 3;
    pub(super) const BOOL: u8 = 4;
    pub(super) const I128: u8 = 5;
    pub(super) const U128: u8 = 6;
    /// A text that was given as one.
    pub(super) const STR: u8 = 7;
    /// A text made by Debug or Display.
    pub(super) const DEBUG: u8 = 8;
}
