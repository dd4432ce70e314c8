//! Types of argument values in the catalogue.

use serde_json::Value;

use super::ArgValue;
use crate::named_values;

named_values! {
    /// The type of an argument's value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ValueKind {
        /// A boolean.
        Bool => "true or false",
        /// An integer from -2^63 to 2^63-1; Perfetto misreads others.
        Int => "an integer",
        /// An integer from 0 to 2^63-1.
        Uint => "an integer that is not negative",
        /// A non-negative integer, or a hexadecimal string, as Intel's collector writes it. An integer beyond 2^63-1 is
        /// written as a string.
        Handle => "an integer that is not negative, or a text",
        /// A number.
        Float => "a number",
        /// A string.
        Str => "a text",
        /// A list of integers.
        Ints => "a list of integers",
        /// A list with a list of integers for each input, or, for an input that is a list of tensors, a list of such lists.
        NestedInts => "a list of lists of integers",
        /// A list of strings.
        Strs => "a list of texts",
        /// An object, whose members are in the catalogue too.
        Dict => "an object",
    }

    /// Returns a description of the type, for documentation and messages.
    pub const fn as_str;
}

impl ValueKind {
    /// Returns whether a value has this type, without conversion.
    pub fn accepts(self, value: ArgValue<'_>) -> bool {
        match value {
            ArgValue::Bool(_) => self == ValueKind::Bool,
            ArgValue::I64(number) => self.accepts_integer(number.into()),
            ArgValue::U64(number) => self.accepts_integer(number.into()),
            ArgValue::I128(number) => self.accepts_integer(number),
            ArgValue::U128(number) => self.accepts_integer(i128::try_from(number).unwrap_or(i128::MAX)),
            ArgValue::F64(_) => self == ValueKind::Float,
            ArgValue::Str(_) => matches!(self, ValueKind::Str | ValueKind::Handle),
            ArgValue::Ints(_) => self == ValueKind::Ints,
            ArgValue::Strs(_) => self == ValueKind::Strs,
            ArgValue::Dict(_) => self == ValueKind::Dict,
            ArgValue::Json(text) => self.accepts_json(text),
        }
    }

    /// Returns whether a text is JSON of this type.
    pub fn accepts_json(self, text: &str) -> bool {
        serde_json::from_str::<Value>(text).is_ok_and(|value| self.accepts_value(&value))
    }

    fn accepts_integer(self, number: i128) -> bool {
        let is_read = i64::try_from(number).is_ok();
        match self {
            ValueKind::Int | ValueKind::Float => is_read,
            ValueKind::Uint => is_read && number >= 0,
            ValueKind::Handle => number >= 0,
            _ => false,
        }
    }

    fn accepts_value(self, value: &Value) -> bool {
        let all = |each: fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().all(each));
        match self {
            ValueKind::Bool => value.is_boolean(),
            ValueKind::Int => is_integer(value),
            ValueKind::Uint => value.as_i64().is_some_and(|number| number >= 0),
            ValueKind::Handle => value.is_u64() || value.is_string(),
            // The string that the writer uses for a float that JSON cannot represent.
            ValueKind::Float => value.is_number() || matches!(value.as_str(), Some("inf" | "-inf" | "nan")),
            ValueKind::Str => value.is_string(),
            ValueKind::Ints => all(is_integer),
            ValueKind::NestedInts => all(is_shape),
            ValueKind::Strs => all(Value::is_string),
            ValueKind::Dict => value.is_object(),
        }
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64()
}

/// Returns whether the value is the shape of a tensor, or a list of shapes.
fn is_shape(value: &Value) -> bool {
    let is_list_of = |each: fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().all(each));
    is_list_of(is_integer) || is_list_of(is_shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_accepted_by_type() {
        let examples = [
            (ValueKind::Bool, "true", "1"),
            (ValueKind::Int, "-1", "1.5"),
            (ValueKind::Int, "-9223372036854775808", "9223372036854775808"),
            (ValueKind::Uint, "9223372036854775807", "-1"),
            (ValueKind::Uint, "0", "9223372036854775808"),
            (ValueKind::Handle, "\"0x1f\"", "[1]"),
            (ValueKind::Float, "\"nan\"", "\"12\""),
            (ValueKind::Str, "\"a\"", "null"),
            (ValueKind::Ints, "[1, -2]", "[[1]]"),
            (ValueKind::NestedInts, "[[1], [[2], []]]", "[1]"),
            (ValueKind::Strs, "[\"a\"]", "[\"a\", 1]"),
            (ValueKind::Dict, "{\"a\": 1}", "[]"),
        ];
        for (kind, good, bad) in examples {
            assert!(kind.accepts(ArgValue::Json(good)), "{} is {}", good, kind.as_str());
            assert!(!kind.accepts(ArgValue::Json(bad)), "{} is not {}", bad, kind.as_str());
        }
    }
}
