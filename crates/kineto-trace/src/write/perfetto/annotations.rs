//! Writes arguments as debug annotations, which keep their types.

use super::proto::{Encoder, Field, annotation, event};
use super::sequence::Texts;
use crate::activity::{ArgValue, Args};
use serde_json::Value;

/// Appends the arguments of an event.
pub(super) fn annotate(out: &mut Encoder, args: &dyn Args, texts: &mut Texts) {
    args.visit(&mut |key, value| annotation(out, event::DEBUG_ANNOTATIONS, key, &value, texts));
}

/// Appends one argument.
pub(super) fn annotation(out: &mut Encoder, field: Field, key: &str, value: &ArgValue<'_>, texts: &mut Texts) {
    out.message(field, |out| {
        name(out, key, texts);
        append(out, value, texts);
    });
}

fn name(out: &mut Encoder, key: &str, texts: &mut Texts) {
    match texts.key(key) {
        Some(number) => out.uint(annotation::NAME_ID, number),
        None => out.bytes(annotation::NAME, key.as_bytes()),
    }
}

/// Appends a value. Integers are signed, like the ids of other events, so that queries can join them.
fn append(out: &mut Encoder, value: &ArgValue<'_>, texts: &mut Texts) {
    match *value {
        ArgValue::Bool(value) => out.uint(annotation::BOOL, value.into()),
        ArgValue::I64(value) => out.int(annotation::INT, value),
        ArgValue::U64(value) => match i64::try_from(value) {
            Ok(value) => out.int(annotation::INT, value),
            Err(_) => out.uint(annotation::UINT, value),
        },
        ArgValue::F64(value) => out.double(annotation::DOUBLE, value),
        ArgValue::I128(value) => match i64::try_from(value) {
            Ok(value) => out.int(annotation::INT, value),
            Err(_) => out.bytes(annotation::STRING, value.to_string().as_bytes()),
        },
        ArgValue::U128(value) => match u64::try_from(value) {
            Ok(value) => append(out, &ArgValue::U64(value), texts),
            Err(_) => out.bytes(annotation::STRING, value.to_string().as_bytes()),
        },
        ArgValue::Str(value) => text(out, value, texts),
        ArgValue::Ints(list) => {
            list.iter().for_each(|int| out.message(annotation::ARRAY_VALUES, |out| out.int(annotation::INT, *int)));
        }
        ArgValue::Strs(list) => {
            list.iter().for_each(|string| out.message(annotation::ARRAY_VALUES, |out| text(out, string, texts)));
        }
        ArgValue::Json(json) => match serde_json::from_str(json) {
            Ok(value) => append_json(out, &value, texts),
            Err(_) => text(out, json, texts),
        },
        ArgValue::Dict(args) => {
            args.visit(&mut |key, value| annotation(out, annotation::DICT_ENTRIES, key, &value, texts));
        }
    }
}

fn text(out: &mut Encoder, value: &str, texts: &mut Texts) {
    match texts.value(value) {
        Some(number) => out.uint(annotation::STRING_ID, number),
        None => out.bytes(annotation::STRING, value.as_bytes()),
    }
}

fn append_json(out: &mut Encoder, value: &Value, texts: &mut Texts) {
    match value {
        Value::Null => text(out, "null", texts),
        Value::Bool(value) => append(out, &ArgValue::Bool(*value), texts),
        Value::Number(number) => {
            let int = number.as_i64().map(ArgValue::I64).or(number.as_u64().map(ArgValue::U64));
            match int.or(number.as_f64().map(ArgValue::F64)) {
                Some(number) => append(out, &number, texts),
                None => text(out, &number.to_string(), texts),
            }
        }
        Value::String(value) => text(out, value, texts),
        Value::Array(list) => {
            let mut item = |item| out.message(annotation::ARRAY_VALUES, |out| append_json(out, item, texts));
            list.iter().for_each(&mut item);
        }
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            out.message(annotation::DICT_ENTRIES, |out| {
                name(out, key, texts);
                append_json(out, value, texts);
            });
        }),
    }
}
