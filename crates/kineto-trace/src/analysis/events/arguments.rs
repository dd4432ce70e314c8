//! The arguments of all events, in one list.

use super::strings::{StringId, Strings};
use crate::activity::{ArgValue, Args};
use crate::analysis::json_reader::{Json, JsonNumber, JsonValue};
use crate::write::json_text;
use std::borrow::Cow;

/// The arguments of all events of a trace.
///
/// Values are normalized to their form in a file, so a recorded trace and the same trace read back compare equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    entries: Vec<StoredArgument>,
    /// Strings that are not interned, such as addresses and lists.
    texts: String,
    /// By key: the index of the last entry with that key, plus 1.
    last: Vec<u32>,
}

/// The range of one event's arguments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArgumentRange {
    first: u32,
    count: u32,
}

/// A position between two events' arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArgumentMark {
    pub(crate) entry: u32,
    text: usize,
}

/// The number of arguments up to which a further event fits: one has at most 64 MiB of JSON.
const MAX_ENTRIES: usize = (u32::MAX - (1 << 26)) as usize;

impl ArgumentRange {
    pub(super) fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Returns the same arguments after their list was appended behind `first` others.
    pub(super) fn moved_by(self, first: u32) -> ArgumentRange {
        ArgumentRange { first: self.first.saturating_add(first), ..self }
    }
}

#[derive(Clone, Copy, Debug)]
struct StoredArgument {
    key: StringId,
    value: StoredValue,
}

#[derive(Clone, Copy, Debug)]
enum StoredValue {
    Bool(bool),
    I64(i64),
    U64(u64),
    F64(f64),
    /// An offset into `texts`, and a length.
    Text(u64, u32),
    /// The same, for valid JSON.
    Json(u64, u32),
}

/// What had to be repaired in an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentDefects {
    /// The event already had an argument of this name.
    pub(crate) duplicate: bool,
    /// The text was not valid UTF-8.
    pub(crate) invalid: bool,
}

impl Arguments {
    /// Stores all arguments of one event.
    pub(crate) fn store_all(&mut self, args: &dyn Args, keys: &mut Strings) -> ArgumentRange {
        let first = self.next_index();
        args.visit(&mut |key, value| {
            let value = self.store_value(value);
            self.insert_or_replace(first, keys.intern(key), value);
        });
        self.range_from(first)
    }

    /// Returns the current end, which [`rewind_to`](Arguments::rewind_to) can restore.
    pub(crate) fn current_mark(&self) -> ArgumentMark {
        ArgumentMark { entry: self.next_index(), text: self.texts.len() }
    }

    /// Discards all arguments behind a mark.
    pub(crate) fn rewind_to(&mut self, mark: ArgumentMark) {
        self.entries.truncate(mark.entry as usize);
        self.texts.truncate(mark.text);
    }

    /// Returns where the arguments of the next event begin.
    pub(super) fn next_index(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Returns the range from `first` to the last argument stored.
    pub(crate) fn range_from(&self, first: u32) -> ArgumentRange {
        ArgumentRange { first, count: self.next_index() - first }
    }

    /// Returns whether no further event fits.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() > MAX_ENTRIES
    }

    /// Returns whether further events fit after `part` is appended.
    pub(super) fn can_append(&self, part: &Arguments) -> bool {
        self.entries.len() + part.entries.len() <= MAX_ENTRIES
    }

    /// Appends the arguments of further events, whose keys have new ids. Returns how many arguments there were before.
    pub(super) fn append(&mut self, part: &Arguments, keys: &[StringId]) -> u32 {
        let (first, text) = (self.next_index(), self.texts.len() as u64);
        let new_key = |key: StringId| keys.get(key.index()).copied().unwrap_or(StringId::EMPTY);
        self.texts.push_str(&part.texts);
        self.entries.extend(part.entries.iter().map(|entry| StoredArgument {
            key: new_key(entry.key),
            value: match entry.value {
                StoredValue::Text(at, length) => StoredValue::Text(at + text, length),
                StoredValue::Json(at, length) => StoredValue::Json(at + text, length),
                value => value,
            },
        }));
        for (key, last) in keys.iter().zip(&part.last).filter(|(_, last)| **last != 0) {
            self.set_last(*key, last.saturating_add(first));
        }
        first
    }

    fn set_last(&mut self, key: StringId, last: u32) {
        if self.last.len() <= key.index() {
            self.last.resize(key.index() + 1, 0);
        }
        if let Some(slot) = self.last.get_mut(key.index()) {
            *slot = last;
        }
    }

    /// Stores an argument of the event whose arguments begin at `first`; returns whether it replaced another.
    pub(crate) fn store_arg(&mut self, first: u32, key: StringId, value: ArgValue<'_>) -> bool {
        let value = self.store_value(value);
        self.insert_or_replace(first, key, value)
    }

    /// Stores an argument that was read from a file; `first` is the index of its event's first argument.
    pub(crate) fn store_parsed_arg(&mut self, first: u32, key: StringId, value: JsonValue<'_>) -> ArgumentDefects {
        let (value, invalid) = self.store_parsed(value);
        ArgumentDefects { duplicate: self.insert_or_replace(first, key, value), invalid }
    }

    /// Removes an argument of the last event.
    pub(super) fn remove(&mut self, span: &mut ArgumentRange, key: StringId) {
        if let Some(at) = self.range_entries(*span).iter().position(|entry| entry.key == key) {
            self.entries.remove(span.first as usize + at);
            span.count -= 1;
        }
    }

    /// Merges the arguments of two events; on equal names the value of `b` wins.
    pub(super) fn merge_args(&mut self, a: ArgumentRange, b: ArgumentRange) -> ArgumentRange {
        let first = self.next_index();
        let both: Vec<StoredArgument> = self.range_entries(a).iter().chain(self.range_entries(b)).copied().collect();
        for entry in both {
            self.insert_or_replace(first, entry.key, entry.value);
        }
        self.range_from(first)
    }

    /// Inserts or replaces a value; returns whether it replaced another.
    fn insert_or_replace(&mut self, first: u32, key: StringId, value: StoredValue) -> bool {
        let next = self.next_index() + 1;
        let number = key.index();
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
                self.entries.push(StoredArgument { key, value });
                false
            }
        }
    }

    fn store_value(&mut self, value: ArgValue<'_>) -> StoredValue {
        match value {
            ArgValue::Bool(value) => StoredValue::Bool(value),
            ArgValue::I64(value) => StoredValue::I64(value),
            ArgValue::F64(value) if value.is_finite() && value.fract() != 0.0 => StoredValue::F64(value),
            ArgValue::Str(text) => self.store_text(text, StoredValue::Text),
            // The writer leaves JSON without a backslash unchanged.
            ArgValue::Json(json) if !json.contains('\\') => self.parse_and_store(json),
            other => self.parse_and_store(&json_text(&other)),
        }
    }

    /// Stores a value in the form in which it would be read from a file.
    fn parse_and_store(&mut self, json: &str) -> StoredValue {
        match Json::new(json.as_bytes(), 0).read_value() {
            Ok(value) => self.store_parsed(value).0,
            Err(_) => self.store_text(json, StoredValue::Json),
        }
    }

    /// Also returns whether the text was not valid UTF-8.
    fn store_parsed(&mut self, value: JsonValue<'_>) -> (StoredValue, bool) {
        match value {
            JsonValue::Null => (self.store_text("null", StoredValue::Json), false),
            JsonValue::Bool(value) => (StoredValue::Bool(value), false),
            JsonValue::Number(number) => (self.store_number(number), false),
            JsonValue::NotFinite(value) => (self.parse_and_store(&json_text(&ArgValue::F64(value))), false),
            JsonValue::Text(text) => {
                let (text, whole) = text.decode_text();
                (self.store_text(&text, StoredValue::Text), !whole)
            }
            JsonValue::Nested(json) => {
                let text = String::from_utf8_lossy(json);
                (self.store_text(&text, StoredValue::Json), matches!(text, Cow::Owned(_)))
            }
        }
    }

    fn store_number(&mut self, number: JsonNumber<'_>) -> StoredValue {
        if let Some(value) = number.as_integer() {
            return StoredValue::I64(value);
        }
        let text = number.as_str();
        if let Ok(value) = text.parse() {
            return StoredValue::U64(value);
        }
        let is_float = text == "-0" || text.contains(['.', 'e', 'E']);
        match text.parse() {
            Ok(value) if is_float && f64::is_finite(value) => StoredValue::F64(value),
            _ => self.store_text(text, StoredValue::Json),
        }
    }

    fn store_text(&mut self, text: &str, stored: fn(u64, u32) -> StoredValue) -> StoredValue {
        let at = self.texts.len() as u64;
        self.texts.push_str(text);
        stored(at, u32::try_from(text.len()).unwrap_or(u32::MAX))
    }

    /// Calls `each` with the arguments of one event, in order.
    pub(crate) fn visit(&self, span: ArgumentRange, keys: &Strings, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.range_entries(span).iter().for_each(|entry| each(keys.get(entry.key), self.load_value(entry.value)));
    }

    /// Returns whether any event may have an argument of this key.
    pub(crate) fn has_key(&self, key: StringId) -> bool {
        self.last.get(key.index()).is_some_and(|last| *last != 0)
    }

    /// Returns one argument of one event.
    pub(crate) fn get(&self, span: ArgumentRange, key: StringId) -> Option<ArgValue<'_>> {
        self.range_entries(span).iter().find(|entry| entry.key == key).map(|entry| self.load_value(entry.value))
    }

    fn range_entries(&self, span: ArgumentRange) -> &[StoredArgument] {
        let (first, count) = (span.first as usize, span.count as usize);
        self.entries.get(first..first + count).unwrap_or(&[])
    }

    fn load_value(&self, value: StoredValue) -> ArgValue<'_> {
        let text = |at: u64, length: u32| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            self.texts.get(at..at.saturating_add(length as usize)).unwrap_or("")
        };
        match value {
            StoredValue::Bool(value) => ArgValue::Bool(value),
            StoredValue::I64(value) => ArgValue::I64(value),
            StoredValue::U64(value) => ArgValue::U64(value),
            StoredValue::F64(value) => ArgValue::F64(value),
            StoredValue::Text(at, length) => ArgValue::Str(text(at, length)),
            StoredValue::Json(at, length) => ArgValue::Json(text(at, length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::NO_ARGS;
    use proptest::prelude::*;

    /// Returns a value as stored when recorded, and as stored when read from a file.
    fn recorded_and_read(value: ArgValue<'_>) -> (String, String) {
        let (mut arguments, mut keys) = (Arguments::default(), Strings::default());
        let span = arguments.store_all(&[("a", value)], &mut keys);
        let first = arguments.next_index();
        let json = json_text(&value);
        arguments.store_parsed_arg(first, keys.intern("a"), Json::new(json.as_bytes(), 0).read_value().unwrap());
        let shown = |span| format!("{:?}", arguments.get(span, keys.find(b"a").unwrap()).unwrap());
        (shown(span), shown(arguments.range_from(first)))
    }

    #[test]
    fn recorded_value_equals_value_read_back() {
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
            let (recorded, read) = recorded_and_read(value);
            assert_eq!((recorded.as_str(), read.as_str()), (expected, expected));
        }
    }

    #[test]
    fn later_argument_replaces_earlier_of_same_name() {
        let (mut arguments, mut keys) = (Arguments::default(), Strings::default());
        let (a, b) = (keys.intern("a"), keys.intern("b"));
        let one = arguments.store_all(&[("a", ArgValue::I64(1)), ("b", ArgValue::I64(2))], &mut keys);
        let first = arguments.next_index();
        let read = |arguments: &mut Arguments, key, text: &'static str| {
            arguments.store_parsed_arg(first, key, Json::new(text.as_bytes(), 0).read_value().unwrap()).duplicate
        };
        assert_eq!([("3", b), ("4", b), ("5", a)].map(|(n, key)| read(&mut arguments, key, n)), [false, true, false]);
        let mut two = arguments.range_from(first);
        let all = |arguments: &Arguments, span| {
            let mut all = String::new();
            arguments.visit(span, &keys, &mut |key, value| all += &format!("{key}{value:?} "));
            all
        };
        assert_eq!((all(&arguments, one), all(&arguments, two)), ("a1 b2 ".to_owned(), "b4 a5 ".to_owned()));
        arguments.remove(&mut two, b);
        assert_eq!(all(&arguments, two), "a5 ");
        let joined = arguments.merge_args(one, two);
        assert_eq!(all(&arguments, joined), "a5 b2 ");
    }

    proptest! {
        #[test]
        fn recorded_numbers_equal_numbers_read_back(float in any::<f64>(), wide in any::<u128>(), integer in any::<u64>()) {
            for value in [ArgValue::F64(float), ArgValue::F64(float.trunc()), ArgValue::U128(wide), ArgValue::U64(integer)] {
                let (recorded, read) = recorded_and_read(value);
                prop_assert_eq!(recorded, read);
            }
        }
    }
}
