//! Writes arguments as debug annotations, which keep their types.

use super::fields::{Field, annotation, event};
use super::proto::Encoder;
use super::sequence::Texts;
use crate::activity::{ArgValue, Args};
use serde_json::Value;

/// Appends the arguments of an event.
pub(super) fn put_args(out: &mut Encoder, args: &dyn Args, texts: &mut Texts) {
    args.visit(&mut |key, value| put_arg(out, event::DEBUG_ANNOTATIONS, key, &value, texts));
}

/// Appends one argument.
pub(super) fn put_arg(out: &mut Encoder, field: Field, key: &str, value: &ArgValue<'_>, texts: &mut Texts) {
    out.put_message(field, |out| {
        put_name(out, key, texts);
        put_value(out, value, texts);
    });
}

fn put_name(out: &mut Encoder, key: &str, texts: &mut Texts) {
    match texts.key_id(key) {
        Some(number) => out.put_uint(annotation::NAME_ID, number),
        None => out.put_bytes(annotation::NAME, key.as_bytes()),
    }
}

/// Appends a value. Integers are signed, like the ids of other events, so that queries can join them.
fn put_value(out: &mut Encoder, value: &ArgValue<'_>, texts: &mut Texts) {
    match *value {
        ArgValue::Bool(value) => out.put_uint(annotation::BOOL, value.into()),
        ArgValue::I64(value) => out.put_int(annotation::INT, value),
        ArgValue::U64(value) => match i64::try_from(value) {
            Ok(value) => out.put_int(annotation::INT, value),
            Err(_) => out.put_uint(annotation::UINT, value),
        },
        ArgValue::F64(value) => out.put_double(annotation::DOUBLE, value),
        ArgValue::I128(value) => match i64::try_from(value) {
            Ok(value) => out.put_int(annotation::INT, value),
            Err(_) => out.put_bytes(annotation::STRING, value.to_string().as_bytes()),
        },
        ArgValue::U128(value) => match u64::try_from(value) {
            Ok(value) => put_value(out, &ArgValue::U64(value), texts),
            Err(_) => out.put_bytes(annotation::STRING, value.to_string().as_bytes()),
        },
        ArgValue::Str(value) => put_text(out, value, texts),
        ArgValue::Ints(list) => {
            list.iter()
                .for_each(|int| out.put_message(annotation::ARRAY_VALUES, |out| out.put_int(annotation::INT, *int)));
        }
        ArgValue::Strs(list) => {
            list.iter()
                .for_each(|string| out.put_message(annotation::ARRAY_VALUES, |out| put_text(out, string, texts)));
        }
        ArgValue::Json(json) => match serde_json::from_str(json) {
            Ok(value) => append_json(out, &value, texts),
            Err(_) => put_text(out, json, texts),
        },
        ArgValue::Dict(args) => {
            let before = out.len();
            args.visit(&mut |key, value| put_arg(out, annotation::DICT_ENTRIES, key, &value, texts));
            put_empty_dict(out, out.len() == before);
        }
    }
}

fn put_text(out: &mut Encoder, value: &str, texts: &mut Texts) {
    match texts.value_id(value) {
        Some(number) => out.put_uint(annotation::STRING_ID, number),
        None => out.put_bytes(annotation::STRING, value.as_bytes()),
    }
}

fn append_json(out: &mut Encoder, value: &Value, texts: &mut Texts) {
    match value {
        Value::Null => put_text(out, "null", texts),
        Value::Bool(value) => put_value(out, &ArgValue::Bool(*value), texts),
        Value::Number(number) => {
            let int = number.as_i64().map(ArgValue::I64).or(number.as_u64().map(ArgValue::U64));
            match int.or(number.as_f64().map(ArgValue::F64)) {
                Some(number) => put_value(out, &number, texts),
                None => put_text(out, &number.to_string(), texts),
            }
        }
        Value::String(value) => put_text(out, value, texts),
        Value::Array(list) => {
            let mut item = |item| out.put_message(annotation::ARRAY_VALUES, |out| append_json(out, item, texts));
            list.iter().for_each(&mut item);
        }
        Value::Object(object) => {
            for (key, value) in object {
                out.put_message(annotation::DICT_ENTRIES, |out| {
                    put_name(out, key, texts);
                    append_json(out, value, texts);
                });
            }
            put_empty_dict(out, object.is_empty());
        }
    }
}

/// Appends what tells an empty dictionary from an empty list, which has no value at all.
fn put_empty_dict(out: &mut Encoder, is_empty: bool) {
    if is_empty {
        out.put_message(annotation::NESTED, |nested| nested.put_uint(annotation::NESTED_TYPE, annotation::DICT));
    }
}
