//! Owned argument values.

use crate::write::json_text;
use kineto_trace::activity::ArgValue;

/// An owned argument value.
#[derive(Debug)]
pub(super) enum OwnedValue {
    Bool(bool),
    I64(i64),
    U64(u64),
    F64(f64),
    Text(Box<str>),
    /// Any other value, as JSON.
    Json(Box<str>),
}

impl OwnedValue {
    pub(super) fn of(value: ArgValue<'_>) -> OwnedValue {
        match value {
            ArgValue::Bool(value) => OwnedValue::Bool(value),
            ArgValue::I64(value) => OwnedValue::I64(value),
            ArgValue::U64(value) => OwnedValue::U64(value),
            ArgValue::F64(value) => OwnedValue::F64(value),
            ArgValue::Str(text) => OwnedValue::Text(text.into()),
            other => OwnedValue::Json(json_text(&other).into()),
        }
    }

    pub(super) fn show(&self) -> ArgValue<'_> {
        match self {
            OwnedValue::Bool(value) => ArgValue::Bool(*value),
            OwnedValue::I64(value) => ArgValue::I64(*value),
            OwnedValue::U64(value) => ArgValue::U64(*value),
            OwnedValue::F64(value) => ArgValue::F64(*value),
            OwnedValue::Text(text) => ArgValue::Str(text),
            OwnedValue::Json(json) => ArgValue::Json(json),
        }
    }

    /// Returns the size of its heap memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            OwnedValue::Text(text) | OwnedValue::Json(text) => text.len(),
            _ => 0,
        }
    }
}
