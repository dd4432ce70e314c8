//! Lists of values, parsed from arguments and truncated as torch does.

use serde_json::Value;

use crate::activity::ArgValue;
use crate::write::json_text;
use kineto_base::text::floor_char_boundary;

/// torch's limits: elements of a list, and bytes of a text.
const MAX_ELEMENTS: usize = 4096;
const MAX_BYTES: usize = 8192;

/// Returns the elements of a list, truncated; empty if the value is neither a list nor the JSON text of one.
pub(super) fn as_list(value: &ArgValue<'_>) -> Vec<Value> {
    let parsed = match *value {
        ArgValue::Str(text) | ArgValue::Json(text) => serde_json::from_str(text),
        _ => serde_json::from_str(&json_text(value)),
    };
    let Ok(Value::Array(mut list)) = parsed else { return Vec::new() };
    truncate_list(&mut list);
    list
}

/// Parses a text of "Concrete Inputs" as a number, a bool, or a list of them; other texts are returned unchanged.
pub(super) fn as_value(text: Value) -> Value {
    let parsed = text.as_str().and_then(|text| match text {
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        _ => serde_json::from_str(text).ok().filter(|value: &Value| !value.is_object() && !value.is_string()),
    });
    parsed.map_or(text, |mut value| {
        truncate_value(&mut value);
        value
    })
}

/// Returns a truncated text.
pub(super) fn truncate_text(text: &str) -> &str {
    text.get(..floor_char_boundary(text, MAX_BYTES)).unwrap_or_default()
}

/// Pads a list to `length`.
pub(super) fn pad_list(list: &mut Vec<Value>, length: usize, empty: impl FnMut() -> Value) {
    if list.len() < length {
        list.resize_with(length, empty);
    }
}

/// Returns a list as JSON.
pub(super) fn to_json(list: &[Value]) -> String {
    // Keys of these values are always strings, so this does not fail.
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

fn truncate_value(value: &mut Value) {
    match value {
        Value::Array(list) => truncate_list(list),
        Value::String(text) => text.truncate(floor_char_boundary(text, MAX_BYTES)),
        Value::Object(members) => members.values_mut().for_each(truncate_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn truncate_list(list: &mut Vec<Value>) {
    list.truncate(MAX_ELEMENTS);
    list.iter_mut().for_each(truncate_value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_texts_are_truncated_as_in_torch() {
        let long = "é".repeat(MAX_BYTES);
        let list = json!([vec![1; MAX_ELEMENTS + 1], long, {"k": long}]).to_string();
        let truncate = as_list(&ArgValue::Json(&list));
        assert_eq!(truncate[0].as_array().unwrap().len(), MAX_ELEMENTS);
        assert_eq!(
            (truncate[1].as_str().unwrap().len(), truncate[2]["k"].as_str().unwrap().len()),
            (MAX_BYTES, MAX_BYTES)
        );
        assert_eq!(truncate_text(&format!("x{long}")).len(), MAX_BYTES - 1);
        assert_eq!(as_list(&ArgValue::Ints(&vec![7; MAX_ELEMENTS + 9])).len(), MAX_ELEMENTS);
    }

    #[test]
    fn value_that_is_no_list_has_no_elements() {
        for value in [ArgValue::Str("[1"), ArgValue::Str("{}"), ArgValue::I64(3), ArgValue::Json("7")] {
            assert!(as_list(&value).is_empty());
        }
    }

    #[test]
    fn texts_of_inputs_are_parsed_to_values() {
        let cases =
            [("", json!("")), ("2", json!(2)), ("0.5", json!(0.5)), ("True", json!(true)), ("None", json!("None"))];
        for (text, value) in cases {
            assert_eq!(as_value(text.into()), value);
        }
        assert_eq!(as_value("[1, 2]".into()), json!([1, 2]));
        assert_eq!(as_value("\"x\"".into()), json!("\"x\""));
        assert_eq!(as_value("{}".into()), json!("{}"));
    }
}
