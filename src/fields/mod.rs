//! Field values between the span path and the trace: written typed and flat, read back one by one.
//!
//! A value is a word with its type (8 bits), its field's index (8 bits) and, of a text, the length in bytes (32 bits), and
//! then the words of the value itself. What is shorter than a word is padded with zeros.

mod encode;
mod scope;
mod words;

pub(crate) use encode::{Encoder, PlainEncoder};
use kineto_trace::fields::code;
pub(crate) use kineto_trace::fields::{Datum, Value, Word, values};
pub(crate) use words::{Sink, Words};
