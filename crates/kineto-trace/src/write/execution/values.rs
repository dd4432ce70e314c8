//! Lists of values: read out of arguments, cut as torch cuts them.

use serde_json::Value;

use crate::activity::ArgValue;
use crate::text::boundary;
use crate::write::json_text;

/// Torch's limits: what a list has beyond so many elements, and a text beyond so many bytes, is not written.
const ELEMENTS: usize = 4096;
const BYTES: usize = 8192;

/// Returns the elements of a list, cut; none if the value is no list and no text that is one in JSON.
pub(super) fn as_list(value: &ArgValue<'_>) -> Vec<Value> {
    let parsed = match *value {
        ArgValue::Str(text) | ArgValue::Json(text) => serde_json::from_str(text),
        _ => serde_json::from_str(&json_text(value)),
    };
    let Ok(Value::Array(mut list)) = parsed else { return Vec::new() };
    cut_list(&mut list);
    list
}

/// Returns what a text of "Concrete Inputs" stands for: a number, a truth value, a list of such, else the text.
pub(super) fn as_value(text: Value) -> Value {
    let parsed = text.as_str().and_then(|text| match text {
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        _ => serde_json::from_str(text).ok().filter(|value: &Value| !value.is_object() && !value.is_string()),
    });
    parsed.map_or(text, |mut value| {
        cut(&mut value);
        value
    })
}

/// Returns a text, cut.
pub(super) fn shortened(text: &str) -> &str {
    text.get(..boundary(text, BYTES)).unwrap_or_default()
}

/// Makes a list that long.
pub(super) fn pad(list: &mut Vec<Value>, length: usize, empty: impl FnMut() -> Value) {
    if list.len() < length {
        list.resize_with(length, empty);
    }
}

/// Returns a list as JSON.
pub(super) fn to_json(list: &[Value]) -> String {
    // Values have no keys that are no texts, so this does not fail.
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

fn cut(value: &mut Value) {
    match value {
        Value::Array(list) => cut_list(list),
        Value::String(text) => text.truncate(boundary(text, BYTES)),
        Value::Object(members) => members.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn cut_list(list: &mut Vec<Value>) {
    list.truncate(ELEMENTS);
    list.iter_mut().for_each(cut);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_texts_are_cut_where_torch_cuts_them() {
        let long = "é".repeat(BYTES);
        let list = json!([vec![1; ELEMENTS + 1], long, {"k": long}]).to_string();
        let cut = as_list(&ArgValue::Json(&list));
        assert_eq!(cut[0].as_array().unwrap().len(), ELEMENTS);
        assert_eq!((cut[1].as_str().unwrap().len(), cut[2]["k"].as_str().unwrap().len()), (BYTES, BYTES));
        assert_eq!(shortened(&format!("x{long}")).len(), BYTES - 1);
        assert_eq!(as_list(&ArgValue::Ints(&vec![7; ELEMENTS + 9])).len(), ELEMENTS);
    }

    #[test]
    fn what_is_no_list_has_no_elements() {
        for value in [ArgValue::Str("[1"), ArgValue::Str("{}"), ArgValue::I64(3), ArgValue::Json("7")] {
            assert!(as_list(&value).is_empty());
        }
    }

    #[test]
    fn texts_of_inputs_become_the_values_that_they_show() {
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
