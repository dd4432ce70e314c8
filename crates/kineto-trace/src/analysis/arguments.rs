//! The arguments of events, encoded one behind the other.

use super::read::{Json, JsonValue};
use super::strings::{Strings, Text};
use crate::activity::{ArgValue, Args};
use crate::write::json_text;
use std::borrow::Cow;

/// The arguments of all events of a trace.
///
/// A value is what a file would say: it is the same whether it comes from there or from the recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    entries: Vec<ArgumentEntry>,
    /// Texts that come but once, such as addresses and lists.
    texts: String,
    /// For each key the entry that had it last, counted from 1.
    last: Vec<u32>,
}

/// Which of them are one event's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    first: u32,
    count: u32,
}

impl Span {
    pub(super) fn is_empty(self) -> bool {
        self.count == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct ArgumentEntry {
    key: Text,
    value: Stored,
}

#[derive(Clone, Copy, Debug)]
enum Stored {
    Bool(bool),
    I64(i64),
    U64(u64),
    F64(f64),
    /// A part of `texts`: where it begins, and its length.
    Text(u64, u32),
    /// The same; it is valid JSON.
    Json(u64, u32),
}

/// What was wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repairs {
    /// Its name was there already.
    pub(super) duplicate: bool,
    /// It has text that is no UTF-8.
    pub(super) invalid: bool,
}

impl Arguments {
    /// Takes all arguments of one event.
    pub(crate) fn push(&mut self, args: &dyn Args, keys: &mut Strings) -> Span {
        let first = self.start();
        args.visit(&mut |key, value| {
            let value = self.stored(value);
            self.put(first, keys.intern(key), value);
        });
        self.since(first)
    }

    /// Returns where the arguments of the next event begin.
    pub(super) fn start(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Returns the arguments from there on as one event's.
    pub(super) fn since(&self, first: u32) -> Span {
        Span { first, count: self.start() - first }
    }

    /// Whether there is room for no more.
    pub(super) fn is_full(&self) -> bool {
        self.start() > u32::MAX - (1 << 26)
    }

    /// Takes an argument of a file, of the event whose first is `first`.
    pub(super) fn read(&mut self, first: u32, key: Text, value: JsonValue<'_>) -> Repairs {
        let (value, invalid) = self.parsed(value);
        Repairs { duplicate: self.put(first, key, value), invalid }
    }

    /// Forgets all from `first` on.
    pub(super) fn truncate(&mut self, first: u32) {
        self.entries.truncate(first as usize);
    }

    /// Takes an argument away from the last event.
    pub(super) fn remove(&mut self, span: &mut Span, key: Text) {
        if let Some(at) = self.of(*span).iter().position(|entry| entry.key == key) {
            self.entries.remove(span.first as usize + at);
            span.count -= 1;
        }
    }

    /// Makes one list of two, in which a name of the second takes the first one's place.
    pub(super) fn join(&mut self, a: Span, b: Span) -> Span {
        let first = self.start();
        let both: Vec<ArgumentEntry> = self.of(a).iter().chain(self.of(b)).copied().collect();
        for entry in both {
            self.put(first, entry.key, entry.value);
        }
        self.since(first)
    }

    /// Adds a value, and says whether it takes the place of another.
    fn put(&mut self, first: u32, key: Text, value: Stored) -> bool {
        let next = self.start() + 1;
        let number = key.number();
        if self.last.len() <= number {
            self.last.resize(number + 1, 0);
        }
        let Some(last) = self.last.get_mut(number) else { return false };
        let before = last.checked_sub(1).filter(|at| *at >= first).and_then(|at| self.entries.get_mut(at as usize));
        match before.filter(|entry| entry.key == key) {
            Some(entry) => {
                entry.value = value;
                true
            }
            None => {
                *last = next;
                self.entries.push(ArgumentEntry { key, value });
                false
            }
        }
    }

    fn stored(&mut self, value: ArgValue<'_>) -> Stored {
        match value {
            ArgValue::Bool(value) => Stored::Bool(value),
            ArgValue::I64(value) => Stored::I64(value),
            ArgValue::F64(value) if value.is_finite() && value.fract() != 0.0 => Stored::F64(value),
            ArgValue::Str(text) => self.text(text),
            // The writer changes no JSON without a backslash.
            ArgValue::Json(json) if !json.contains('\\') => self.reread(json),
            other => self.reread(&json_text(&other)),
        }
    }

    /// What a file would say that has this value.
    fn reread(&mut self, json: &str) -> Stored {
        match Json::new(json.as_bytes(), 0).value() {
            Ok(value) => self.parsed(value).0,
            Err(_) => self.json(json),
        }
    }

    /// Also says whether there was text that is no UTF-8.
    fn parsed(&mut self, value: JsonValue<'_>) -> (Stored, bool) {
        match value {
            JsonValue::Null => (self.json("null"), false),
            JsonValue::Bool(value) => (Stored::Bool(value), false),
            JsonValue::Number(text) => (self.number(text), false),
            JsonValue::NotFinite(value) => (self.reread(&json_text(&ArgValue::F64(value))), false),
            JsonValue::Text(text) => {
                let (text, whole) = text.get();
                (self.text(&text), !whole)
            }
            JsonValue::Nested(json) => {
                let text = String::from_utf8_lossy(json);
                (self.json(&text), matches!(text, Cow::Owned(_)))
            }
        }
    }

    fn number(&mut self, text: &str) -> Stored {
        if let (Ok(value), false) = (text.parse(), text == "-0") {
            return Stored::I64(value);
        }
        if let Ok(value) = text.parse() {
            return Stored::U64(value);
        }
        let is_float = text == "-0" || text.contains(['.', 'e', 'E']);
        match text.parse() {
            Ok(value) if is_float && f64::is_finite(value) => Stored::F64(value),
            _ => self.json(text),
        }
    }

    fn text(&mut self, text: &str) -> Stored {
        let (at, length) = self.keep(text);
        Stored::Text(at, length)
    }

    fn json(&mut self, text: &str) -> Stored {
        let (at, length) = self.keep(text);
        Stored::Json(at, length)
    }

    fn keep(&mut self, text: &str) -> (u64, u32) {
        let at = self.texts.len() as u64;
        self.texts.push_str(text);
        (at, u32::try_from(text.len()).unwrap_or(u32::MAX))
    }

    /// Calls `each` with the arguments of one event, in their order.
    pub(crate) fn visit(&self, span: Span, keys: &Strings, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.of(span).iter().for_each(|entry| each(keys.get(entry.key), self.value(entry.value)));
    }

    /// Returns one argument of one event.
    pub(crate) fn get(&self, span: Span, key: Text) -> Option<ArgValue<'_>> {
        self.of(span).iter().find(|entry| entry.key == key).map(|entry| self.value(entry.value))
    }

    fn of(&self, span: Span) -> &[ArgumentEntry] {
        let (first, count) = (span.first as usize, span.count as usize);
        self.entries.get(first..first + count).unwrap_or(&[])
    }

    fn value(&self, value: Stored) -> ArgValue<'_> {
        let text = |at: u64, length: u32| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            self.texts.get(at..at.saturating_add(length as usize)).unwrap_or("")
        };
        match value {
            Stored::Bool(value) => ArgValue::Bool(value),
            Stored::I64(value) => ArgValue::I64(value),
            Stored::U64(value) => ArgValue::U64(value),
            Stored::F64(value) => ArgValue::F64(value),
            Stored::Text(at, length) => ArgValue::Str(text(at, length)),
            Stored::Json(at, length) => ArgValue::Json(text(at, length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::NO_ARGS;
    use proptest::prelude::*;

    /// A value as it is kept, and as it is kept when it comes from a file.
    fn kept(value: ArgValue<'_>) -> (String, String) {
        let (mut arguments, mut keys) = (Arguments::default(), Strings::default());
        let span = arguments.push(&[("a", value)], &mut keys);
        let first = arguments.start();
        let json = json_text(&value);
        arguments.read(first, keys.intern("a"), Json::new(json.as_bytes(), 0).value().unwrap());
        let shown = |span| format!("{:?}", arguments.get(span, keys.find("a").unwrap()).unwrap());
        (shown(span), shown(arguments.since(first)))
    }

    #[test]
    fn a_value_is_what_a_file_would_say() {
        let inner: [(&str, ArgValue<'_>); 1] = [("x", ArgValue::F64(0.5))];
        for (value, expected) in [
            (ArgValue::Bool(true), "true"),
            (ArgValue::I64(i64::MIN), "-9223372036854775808"),
            (ArgValue::U64(7), "7"),
            (ArgValue::U64(u64::MAX), "\"18446744073709551615\""),
            (ArgValue::F64(2.0), "2"),
            (ArgValue::F64(-0.0), "-0.0"),
            (ArgValue::F64(1e300), "1e300"),
            (ArgValue::F64(f64::NAN), "\"nan\""),
            (ArgValue::I128(-7), "-7"),
            (ArgValue::U128(u128::MAX), "\"340282366920938463463374607431768211455\""),
            (ArgValue::Str("a\n"), "\"a\\n\""),
            (ArgValue::Ints(&[1, 2]), "[1,2]"),
            (ArgValue::Strs(&["a"]), "[\"a\"]"),
            (ArgValue::Json(" [1, 2] "), "[1, 2]"),
            (ArgValue::Json("3"), "3"),
            (ArgValue::Json(r#"["a\\"]"#), r#"["a\u005c"]"#),
            (ArgValue::Json("null"), "null"),
            (ArgValue::Dict(&inner), "{\"x\":0.5}"),
            (ArgValue::Dict(NO_ARGS), "{}"),
        ] {
            let (recorded, read) = kept(value);
            assert_eq!((recorded.as_str(), read.as_str()), (expected, expected));
        }
    }

    #[test]
    fn of_two_arguments_of_one_name_the_later_one_counts() {
        let (mut arguments, mut keys) = (Arguments::default(), Strings::default());
        let (a, b) = (keys.intern("a"), keys.intern("b"));
        let one = arguments.push(&[("a", ArgValue::I64(1)), ("b", ArgValue::I64(2))], &mut keys);
        let first = arguments.start();
        let read = |arguments: &mut Arguments, key, text| arguments.read(first, key, JsonValue::Number(text)).duplicate;
        assert_eq!([("3", b), ("4", b), ("5", a)].map(|(n, key)| read(&mut arguments, key, n)), [false, true, false]);
        let mut two = arguments.since(first);
        let all = |arguments: &Arguments, span| {
            let mut all = String::new();
            arguments.visit(span, &keys, &mut |key, value| all += &format!("{key}{value:?} "));
            all
        };
        assert_eq!((all(&arguments, one), all(&arguments, two)), ("a1 b2 ".to_owned(), "b4 a5 ".to_owned()));
        arguments.remove(&mut two, b);
        assert_eq!(all(&arguments, two), "a5 ");
        let joined = arguments.join(one, two);
        assert_eq!(all(&arguments, joined), "a5 b2 ");
    }

    proptest! {
        #[test]
        fn numbers_are_the_same_from_a_file(float in any::<f64>(), wide in any::<u128>(), integer in any::<u64>()) {
            for value in [ArgValue::F64(float), ArgValue::F64(float.trunc()), ArgValue::U128(wide), ArgValue::U64(integer)] {
                let (recorded, read) = kept(value);
                prop_assert_eq!(recorded, read);
            }
        }
    }
}
