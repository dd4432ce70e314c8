//! A layout that needs no explanation: the words are keys and values.

use super::layout::{RecordLayout, RecordView};
use super::names::Name;
use kineto_model::activity::ArgValue;
use kineto_model::write::json_text;

/// Keys and values, a pair of words for each: the key's name and the type of the value, then the value.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum PairLayout {
    Pairs = 1,
}

pub(crate) static PAIRS: PairLayout = PairLayout::Pairs;

/// The most pairs in a record.
pub(crate) const PAIRS_MAX: usize = 127;

// From 1: a record drops trailing zeros, which would be a `false` of the first name.
const BOOL: u64 = 1;
const I64: u64 = 2;
const U64: u64 = 3;
const F64: u64 = 4;
const TEXT: u64 = 5;
const JSON: u64 = 6;

/// Returns the words of a key and a value; `name` interns texts.
pub(crate) fn pack_pair(key: &str, value: ArgValue<'_>, mut name: impl FnMut(&str) -> Name) -> [u64; 2] {
    let (kind, word) = match value {
        ArgValue::Bool(value) => (BOOL, u64::from(value)),
        ArgValue::I64(value) => (I64, value.cast_unsigned()),
        ArgValue::U64(value) => (U64, value),
        ArgValue::F64(value) => (F64, value.to_bits()),
        ArgValue::Str(text) => (TEXT, name(text).0.into()),
        ArgValue::Json(json) => (JSON, name(json).0.into()),
        other => (JSON, name(&json_text(&other)).0.into()),
    };
    [u64::from(name(key).0) | kind << 32, word]
}

impl RecordLayout for PairLayout {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        for at in (0..record.words.len()).step_by(2) {
            let value = record.word(at + 1);
            let value = match u64::from(record.high(at)) {
                BOOL => ArgValue::Bool(value != 0),
                I64 => ArgValue::I64(value.cast_signed()),
                U64 => ArgValue::U64(value),
                F64 => ArgValue::F64(f64::from_bits(value)),
                TEXT => ArgValue::Str(record.text(at + 1)),
                _ => ArgValue::Json(record.text(at + 1)),
            };
            each(record.text(at), value);
        }
    }
}
