//! Field values between the span path and the trace: written typed and flat, read back one by one.
//!
//! A value is its field's index, its type, and its bytes; texts are preceded by their length.

mod bytes;
mod decode;
mod encode;

pub(crate) use bytes::Bytes;
pub(crate) use decode::values;
pub(crate) use encode::Encoder;

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
    /// The text was longer.
    pub(super) const CUT: u8 = 0x80;
}
