//! Argument values that own what they are made of.

use crate::write::json_text;
use kineto_trace::activity::ArgValue;

/// A value of its own.
#[derive(Debug)]
pub(super) enum Value {
    Bool(bool),
    I64(i64),
    U64(u64),
    F64(f64),
    Text(Box<str>),
    /// Anything else, as the file has it.
    Json(Box<str>),
}

impl Value {
    pub(super) fn of(value: ArgValue<'_>) -> Value {
        match value {
            ArgValue::Bool(value) => Value::Bool(value),
            ArgValue::I64(value) => Value::I64(value),
            ArgValue::U64(value) => Value::U64(value),
            ArgValue::F64(value) => Value::F64(value),
            ArgValue::Str(text) => Value::Text(text.into()),
            other => Value::Json(json_text(&other).into()),
        }
    }

    pub(super) fn show(&self) -> ArgValue<'_> {
        match self {
            Value::Bool(value) => ArgValue::Bool(*value),
            Value::I64(value) => ArgValue::I64(*value),
            Value::U64(value) => ArgValue::U64(*value),
            Value::F64(value) => ArgValue::F64(*value),
            Value::Text(text) => ArgValue::Str(text),
            Value::Json(json) => ArgValue::Json(json),
        }
    }

    /// Returns how many bytes it takes beside itself.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Value::Text(text) | Value::Json(text) => text.len(),
            _ => 0,
        }
    }
}
