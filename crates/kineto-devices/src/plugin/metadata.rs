//! The metadata of a plugin's events: keys with JSON values.

use crate::Batch;
use crate::records::pairs::{PAIRS_MAX, pack_pair};
use kineto_model::activity::ArgValue;
use serde_json::Value;

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
    let mut pack = |key: &str, value: ArgValue<'_>| words.extend(pack_pair(key, value, |text| batch.name(text)));
    for (key, value) in pairs.iter().take(PAIRS_MAX) {
        match value {
            Value::Null => {}
            Value::Bool(value) => pack(key, ArgValue::Bool(*value)),
            Value::String(text) => pack(key, ArgValue::Str(text)),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => pack(key, ArgValue::I64(value)),
                (_, Some(value), _) => pack(key, ArgValue::U64(value)),
                (_, _, Some(value)) if value.is_finite() => pack(key, ArgValue::F64(value)),
                _ => pack(key, ArgValue::Json(&number.to_string())),
            },
            other => pack(key, ArgValue::Json(&other.to_string())),
        }
    }
    words
}
