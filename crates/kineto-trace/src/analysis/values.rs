//! Arguments as numbers, whichever way they are written.

use crate::activity::ArgValue;

/// An integer that is not negative; text may be decimal or hexadecimal ("0x1f").
pub(super) fn unsigned(value: ArgValue<'_>) -> Option<u64> {
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

/// An integer; text may be decimal or hexadecimal.
pub(super) fn signed(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::I64(value) => Some(value),
        ArgValue::Str(text) => text.parse().ok().or_else(|| unsigned(value).and_then(|value| value.try_into().ok())),
        _ => None,
    }
}

/// A number; "inf", "-inf" and "nan" are what a file has for those.
#[expect(clippy::cast_precision_loss, reason = "as every reader of JSON takes it")]
pub(super) fn float(value: ArgValue<'_>) -> Option<f64> {
    match value {
        ArgValue::F64(value) => Some(value),
        ArgValue::I64(value) => Some(value as f64),
        ArgValue::U64(value) => Some(value as f64),
        ArgValue::Str(text) => text.parse().ok(),
        _ => None,
    }
}

/// A text.
pub(super) fn text(value: ArgValue<'_>) -> Option<&str> {
    match value {
        ArgValue::Str(text) => Some(text),
        _ => None,
    }
}
