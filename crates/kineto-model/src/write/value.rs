//! Argument values as JSON.

use super::buffer::{Buffer, render_bytes};
use crate::activity::{Activity, ArgValue, Args};
use crate::fields::Datum;
use serde_json::{Map, Value};

/// The argument with the id of the slice to which an event belongs.
pub(super) const EXTERNAL_ID: &str = "External id";

/// Arguments that are preceded by an id. A program's own argument of that name is dropped.
pub(super) struct ArgsWithId<'a> {
    pub(super) key: &'static str,
    pub(super) id: Option<u64>,
    pub(super) args: &'a dyn Args,
}

impl<'a> ArgsWithId<'a> {
    /// Returns the arguments of an instant, preceded by the id of its slice.
    pub(super) fn of_instant(activity: &Activity<'a>) -> ArgsWithId<'a> {
        ArgsWithId { key: EXTERNAL_ID, id: Some(activity.linked.0).filter(|id| *id != 0), args: activity.args }
    }
}

impl Args for ArgsWithId<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(id) = self.id else { return self.args.visit(each) };
        each(self.key, ArgValue::U64(id));
        self.args.visit(&mut |key, value| {
            if key != self.key {
                each(key, value);
            }
        });
    }
}

/// The value of a counter. Readers draw only numbers, and JSON has no infinities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CounterValue {
    Int(i64),
    /// Finite.
    Float(f64),
}

impl CounterValue {
    /// Converts `value` if it is a finite number: a bool to 0 or 1, an integer beyond 63 bits to a float.
    pub(super) fn from_arg_value(value: ArgValue<'_>) -> Option<CounterValue> {
        Some(match value {
            ArgValue::Bool(value) => CounterValue::Int(i64::from(value)),
            ArgValue::I64(value) => CounterValue::Int(value),
            ArgValue::U64(value) => i64::try_from(value).map_or(CounterValue::Float(value as f64), CounterValue::Int),
            ArgValue::I128(value) => i64::try_from(value).map_or(CounterValue::Float(value as f64), CounterValue::Int),
            ArgValue::U128(value) => i64::try_from(value).map_or(CounterValue::Float(value as f64), CounterValue::Int),
            ArgValue::F64(value) if value.is_finite() => CounterValue::Float(value),
            _ => return None,
        })
    }
}

/// Returns the number that a counter shows for a value; `None` if it is not written.
pub fn counter_value(value: ArgValue<'_>) -> Option<ArgValue<'static>> {
    Some(match CounterValue::from_arg_value(value)? {
        CounterValue::Int(value) => ArgValue::I64(value),
        CounterValue::Float(value) => ArgValue::F64(value),
    })
}

/// Returns a value as its JSON text in a trace file.
pub fn json_text(value: &ArgValue<'_>) -> String {
    String::from_utf8(render_bytes(|out| out.put_value(value))).unwrap_or_default()
}

impl Buffer<'_> {
    /// Appends an argument value.
    #[inline(never)]
    pub(super) fn put_value(&mut self, value: &ArgValue<'_>) {
        match *value {
            ArgValue::Bool(true) => self.put_literal(b"true"),
            ArgValue::Bool(false) => self.put_literal(b"false"),
            ArgValue::I64(value) => self.put_int(value),
            ArgValue::U64(value) => self.put_wide_uint(value),
            ArgValue::F64(value) => self.put_float(value),
            ArgValue::I128(value) => match i64::try_from(value) {
                Ok(value) => self.put_int(value),
                Err(_) => self.put_quoted(value),
            },
            ArgValue::U128(value) => match i64::try_from(value) {
                Ok(value) => self.put_int(value),
                Err(_) => self.put_quoted(value),
            },
            ArgValue::Str(text) => self.put_string(text),
            ArgValue::Ints(list) => self.put_int_list(list),
            ArgValue::Strs(list) => self.put_string_list(list),
            ArgValue::Json(text) => self.put_json(text),
            ArgValue::Dict(args) => {
                self.put_literal(b"{");
                self.put_members(args);
                self.put_literal(b"}");
            }
        }
    }

    /// Appends a member. The first `length` bytes of `key` are the key with the comma before it and the colon after it.
    #[inline(always)]
    pub(super) fn put_datum<const N: usize>(&mut self, key: &[u8; N], length: usize, value: Datum<'_>) {
        match value {
            Datum::I64(value) => self.put_piece(|piece| {
                piece.put_block(key, length);
                piece.put_int(value);
            }),
            Datum::U64(value) => self.put_piece(|piece| {
                piece.put_block(key, length);
                piece.put_wide_uint(value);
            }),
            Datum::F64(value) => self.put_piece(|piece| {
                piece.put_block(key, length);
                piece.put_float(value);
            }),
            Datum::Text(text) => {
                self.put_piece(|piece| {
                    piece.put_block(key, length);
                    piece.put_literal(b"\"");
                });
                self.put_text(text);
                self.put_literal(b"\"");
            }
            _ => {
                self.put_piece(|piece| piece.put_block(key, length));
                self.put_value(&value.into());
            }
        }
    }

    /// Appends all of `args` as the first members of an object.
    pub(super) fn put_members(&mut self, args: &dyn Args) {
        let mut first = true;
        args.visit(&mut |key, value| {
            self.put_member(first, key, &value);
            first = false;
        });
    }

    /// Appends a member, after a comma unless it is the first of its object.
    #[inline(always)]
    pub(super) fn put_member(&mut self, first: bool, key: &str, value: &ArgValue<'_>) {
        match *value {
            ArgValue::I64(value) => self.start_of_member(first, key, |piece| piece.put_int(value)),
            ArgValue::U64(value) => self.start_of_member(first, key, |piece| piece.put_wide_uint(value)),
            _ => {
                self.put_key(first, key);
                self.put_value(value);
            }
        }
    }

    pub(super) fn put_number(&mut self, number: CounterValue) {
        match number {
            CounterValue::Int(value) => self.put_int(value),
            CounterValue::Float(value) => self.put_float(value),
        }
    }

    fn put_int_list(&mut self, list: &[i64]) {
        let mut rest = list.iter();
        self.put_piece(|piece| {
            piece.put_literal(b"[");
            rest.by_ref().take(1).for_each(|&value| piece.put_int(value));
        });
        // Four integers fit into a piece.
        for few in rest.as_slice().chunks(4) {
            self.put_piece(|piece| {
                for &value in few {
                    piece.put_literal(b",");
                    piece.put_int(value);
                }
            });
        }
        self.put_literal(b"]");
    }

    fn put_string_list(&mut self, list: &[&str]) {
        self.put_literal(b"[");
        for (at, text) in list.iter().enumerate() {
            if at > 0 {
                self.put_literal(b",");
            }
            self.put_string(text);
        }
        self.put_literal(b"]");
    }
}

/// Parses a JSON text. Packages that call this do not compile the parser again.
///
/// # Errors
/// If it is not valid JSON.
pub fn parse_json(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text)
}

/// Returns an object with these members. Packages that call this, instead of `json!`, do not compile the map again.
pub fn json_object(members: Vec<(&str, Value)>) -> Value {
    let mut object = Map::new();
    for (key, value) in members {
        object.insert(key.to_owned(), value);
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::NO_ARGS;

    fn text(value: ArgValue<'_>) -> String {
        let mut bytes = Vec::new();
        let mut buffer = Buffer::new(&mut bytes);
        buffer.put_value(&value);
        buffer.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn number(value: ArgValue<'_>) -> Option<String> {
        let mut bytes = Vec::new();
        let mut buffer = Buffer::new(&mut bytes);
        buffer.put_number(CounterValue::from_arg_value(value)?);
        buffer.finish().unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn every_kind_of_value_is_written() {
        let inner: [(&str, ArgValue<'_>); 2] = [("a\"b", ArgValue::I64(-1)), ("none", ArgValue::Dict(NO_ARGS))];
        let dict: [(&str, ArgValue<'_>); 2] = [("x", ArgValue::Dict(&inner)), ("", ArgValue::Bool(true))];
        let cases = [
            (ArgValue::Bool(false), "false"),
            (ArgValue::I64(i64::MIN), "-9223372036854775808"),
            (ArgValue::U64(u64::MAX), "\"18446744073709551615\""),
            (ArgValue::U64(7), "7"),
            (ArgValue::F64(0.5), "0.5"),
            (ArgValue::F64(f64::NAN), "\"nan\""),
            (ArgValue::I128(-7), "-7"),
            (ArgValue::I128(i128::MIN), "\"-170141183460469231731687303715884105728\""),
            (ArgValue::U128(7), "7"),
            (ArgValue::U128(1 << 63), "\"9223372036854775808\""),
            (ArgValue::Str("a\n\"b\""), "\"a\\n\\\"b\\\"\""),
            (ArgValue::Ints(&[]), "[]"),
            (ArgValue::Ints(&[1, -2, 3]), "[1,-2,3]"),
            (ArgValue::Strs(&["a", "\\"]), r#"["a","\u005c"]"#),
            (ArgValue::Json("[[1, 2], []]"), "[[1, 2], []]"),
            (ArgValue::Dict(&dict), "{\"x\":{\"a\\\"b\":-1,\"none\":{}},\"\":true}"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn counters_accept_only_numbers() {
        let cases = [
            (ArgValue::Bool(true), Some("1")),
            (ArgValue::I64(-3), Some("-3")),
            (ArgValue::U64(3), Some("3")),
            (ArgValue::F64(2.0), Some("2")),
            (ArgValue::I128(5), Some("5")),
            (ArgValue::U128(5), Some("5")),
            (ArgValue::F64(f64::NAN), None),
            (ArgValue::F64(f64::INFINITY), None),
            (ArgValue::Str("3"), None),
            (ArgValue::Ints(&[3]), None),
            (ArgValue::Json("3"), None),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value).as_deref(), expected);
        }
        for value in [ArgValue::U64(u64::MAX), ArgValue::I128(i128::MIN), ArgValue::U128(u128::MAX)] {
            let printed = number(value).unwrap();
            assert!(printed.parse::<f64>().unwrap().abs() > 1e18 && !printed.contains('"'), "{printed}");
        }
    }

    #[test]
    fn long_lists_are_written_in_pieces() {
        let ints: Vec<i64> = (0..500_000).map(|i| i * 1_000_003).collect();
        let texts = vec!["\u{1}\u{1}\u{1}\u{1}"; 100_000];
        assert_eq!(serde_json::from_str::<Vec<i64>>(&text(ArgValue::Ints(&ints))).unwrap(), ints);
        assert_eq!(serde_json::from_str::<Vec<String>>(&text(ArgValue::Strs(&texts))).unwrap(), texts);
    }
}
