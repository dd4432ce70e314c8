//! The arguments of events, encoded one behind the other.

use super::strings::{Strings, Text};
use crate::activity::{ArgValue, Args};
use crate::write::json_text;

/// The arguments of all events of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    entries: Vec<Entry>,
    /// Texts that come but once, such as addresses and lists.
    texts: String,
}

/// Which of them are one event's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    first: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
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

impl Arguments {
    /// Takes all arguments of one event.
    pub(crate) fn push(&mut self, args: &dyn Args, keys: &mut Strings) -> Span {
        let first = self.entries.len();
        args.visit(&mut |key, value| {
            let value = self.store(value);
            self.entries.push(Entry { key: keys.intern(key), value });
        });
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span { first: number(first), count: number(self.entries.len() - first) }
    }

    fn store(&mut self, value: ArgValue<'_>) -> Stored {
        match value {
            ArgValue::Bool(value) => Stored::Bool(value),
            ArgValue::I64(value) => Stored::I64(value),
            ArgValue::U64(value) => Stored::U64(value),
            ArgValue::F64(value) => Stored::F64(value),
            ArgValue::Str(text) => {
                let (at, length) = self.text(text);
                Stored::Text(at, length)
            }
            other => {
                let json = json_text(&other);
                let (at, length) = self.text(&json);
                Stored::Json(at, length)
            }
        }
    }

    fn text(&mut self, text: &str) -> (u64, u32) {
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

    fn of(&self, span: Span) -> &[Entry] {
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
