//! Field values between the span path and the trace: typed and flat.
//!
//! A value is a header word with its type (8 bits), its field's index (8 bits) and, for a text, the length in bytes (32
//! bits). The words of the value itself follow, padded with zeros.

mod encode;
mod scope;
mod words;

pub(crate) use encode::{Encoder, PlainEncoder, encode_fields};
use kineto_model::fields::code;
pub(crate) use kineto_model::fields::{Datum, Value, Word, decode_values};
use words::{Sink, Words};
