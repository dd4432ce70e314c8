//! Owned argument values.

use super::json_text;
use crate::activity::ArgValue;

/// An owned argument value. Its 24 bytes count against memory limits, so wide integers are stored as bytes.
#[derive(Clone, Debug)]
pub enum OwnedValue {
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A number with a fraction.
    F64(f64),
    /// A signed integer, as its bytes in memory.
    I128([u8; 16]),
    /// An unsigned integer, as its bytes in memory.
    U128([u8; 16]),
    /// A text.
    Text(Box<str>),
    /// A list or an object, as JSON.
    Json(Box<str>),
}

impl OwnedValue {
    /// Copies a value.
    pub fn from_arg_value(value: ArgValue<'_>) -> OwnedValue {
        match value {
            ArgValue::Bool(value) => OwnedValue::Bool(value),
            ArgValue::I64(value) => OwnedValue::I64(value),
            ArgValue::U64(value) => OwnedValue::U64(value),
            ArgValue::F64(value) => OwnedValue::F64(value),
            ArgValue::I128(value) => OwnedValue::I128(value.to_ne_bytes()),
            ArgValue::U128(value) => OwnedValue::U128(value.to_ne_bytes()),
            ArgValue::Str(text) => OwnedValue::Text(text.into()),
            other => OwnedValue::Json(json_text(&other).into()),
        }
    }

    /// Returns the value.
    pub fn as_arg_value(&self) -> ArgValue<'_> {
        match self {
            OwnedValue::Bool(value) => ArgValue::Bool(*value),
            OwnedValue::I64(value) => ArgValue::I64(*value),
            OwnedValue::U64(value) => ArgValue::U64(*value),
            OwnedValue::F64(value) => ArgValue::F64(*value),
            OwnedValue::I128(value) => ArgValue::I128(i128::from_ne_bytes(*value)),
            OwnedValue::U128(value) => ArgValue::U128(u128::from_ne_bytes(*value)),
            OwnedValue::Text(text) => ArgValue::Str(text),
            OwnedValue::Json(json) => ArgValue::Json(json),
        }
    }

    /// Returns the size of its heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            OwnedValue::Text(text) | OwnedValue::Json(text) => text.len(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_values_are_small_and_show_what_they_were_made_of() {
        assert_eq!(size_of::<OwnedValue>(), 24);
        let values = [
            (ArgValue::Bool(true), "true", 0),
            (ArgValue::I128(i128::MIN), "-170141183460469231731687303715884105728", 0),
            (ArgValue::U128(u128::MAX), "340282366920938463463374607431768211455", 0),
            (ArgValue::Str("a"), "\"a\"", 1),
            (ArgValue::Ints(&[1, 2]), "[1,2]", 5),
        ];
        for (value, shown, bytes) in values {
            let owned = OwnedValue::from_arg_value(value);
            assert_eq!((format!("{:?}", owned.as_arg_value()).as_str(), owned.heap_bytes()), (shown, bytes));
        }
    }
}
