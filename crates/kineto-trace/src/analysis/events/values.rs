//! Conversions of arguments to numbers and text.

use crate::activity::ArgValue;
use crate::write::json_text;

/// Returns a non-negative integer; text may be decimal or hexadecimal ("0x1f").
pub(super) fn as_unsigned(value: ArgValue<'_>) -> Option<u64> {
    match value {
        ArgValue::I64(value) => u64::try_from(value).ok(),
        ArgValue::U64(value) => Some(value),
        ArgValue::Str(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    }
}

/// Returns an integer; text may be decimal or hexadecimal.
pub(crate) fn as_signed(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::I64(value) => Some(value),
        ArgValue::Str(text) => text.parse().ok().or_else(|| as_unsigned(value).and_then(|value| value.try_into().ok())),
        _ => None,
    }
}

/// Returns a number; files spell special values "inf", "-inf" and "nan".
pub(crate) fn as_float(value: ArgValue<'_>) -> Option<f64> {
    match value {
        ArgValue::F64(value) => Some(value),
        ArgValue::I64(value) => Some(value as f64),
        ArgValue::U64(value) => Some(value as f64),
        ArgValue::Str(text) => text.parse().ok(),
        _ => None,
    }
}

/// Returns a value as shown to a user: a text without quotes, others as JSON.
pub(crate) fn shown_text(value: ArgValue<'_>) -> String {
    match value {
        ArgValue::Str(text) => text.to_owned(),
        other => json_text(&other),
    }
}

pub(crate) fn as_text(value: ArgValue<'_>) -> Option<&str> {
    match value {
        ArgValue::Str(text) => Some(text),
        _ => None,
    }
}
