//! The metadata of a plugin's events: keys with values, in the words of a record.

use crate::collector::{Batch, RecordLayout, RecordView};
use kineto_trace::activity::ArgValue;
use serde_json::Value;

/// Keys and values, a pair of words for each: the key's name and the type of the value, then the value.
#[derive(Debug)]
pub(super) struct MetadataLayout;

/// The most pairs in a record.
pub(super) const PAIRS: usize = 127;

// From 1: a record drops trailing zeros, which would be a `false` of the first name.
const BOOL: u64 = 1;
const I64: u64 = 2;
const U64: u64 = 3;
const F64: u64 = 4;
const TEXT: u64 = 5;
const JSON: u64 = 6;

/// Parses a value, which is JSON; null counts as no value.
pub(super) fn parse_value(json: &str) -> Option<Value> {
    serde_json::from_str(json).ok()
}

/// Returns a value as an id, if possible.
pub(super) fn value_as_id(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns the words of keys and values. Lists and objects are stored as text.
pub(super) fn pack_pairs(pairs: &[(String, Value)], batch: &mut Batch<'_>) -> Vec<u64> {
    let mut words = Vec::with_capacity(pairs.len() * 2);
    for (key, value) in pairs.iter().take(PAIRS) {
        let (kind, word) = match value {
            Value::Null => continue,
            Value::Bool(value) => (BOOL, u64::from(*value)),
            Value::String(text) => (TEXT, batch.name(text).0.into()),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => (I64, value.cast_unsigned()),
                (_, Some(value), _) => (U64, value),
                (_, _, Some(value)) if value.is_finite() => (F64, value.to_bits()),
                _ => (JSON, batch.name(&number.to_string()).0.into()),
            },
            other => (JSON, batch.name(&other.to_string()).0.into()),
        };
        words.extend([u64::from(batch.name(key).0) | kind << 32, word]);
    }
    words
}

impl RecordLayout for MetadataLayout {
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
