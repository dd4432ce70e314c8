//! One element of a file's list of events.

use super::json::{Json, JsonText, JsonValue, Result};
use super::time::micros_to_ns;
use crate::analysis::events::{ArgumentMark, ArgumentRange, Builder, Note, StringId, Strings, TrackId};
use std::borrow::Cow;

/// The members of an element; its arguments are already stored.
#[derive(Debug)]
pub(super) struct Element<'a> {
    pub(super) phase: Option<char>,
    pub(super) category: Option<StringId>,
    pub(super) name: StringId,
    pub(super) process: TrackId,
    pub(super) thread: TrackId,
    /// In nanoseconds.
    pub(super) time: Option<i64>,
    pub(super) duration: Option<i64>,
    pub(super) id: Option<u64>,
    /// The id that is unique only in its process.
    local_id: Option<JsonText<'a>>,
    pub(super) mark: ArgumentMark,
    pub(super) arguments: ArgumentRange,
    /// The argument `name` or `labels`.
    metadata_text: Option<JsonValue<'a>>,
    repairs: ElementDefects,
}

/// How often parts of an element were repaired.
#[derive(Clone, Copy, Debug, Default)]
struct ElementDefects {
    invalid_texts: u64,
    duplicate_arguments: u64,
    malformed_arguments: u64,
}

impl<'a> Element<'a> {
    /// Reads an element, which is an object. If it is truncated, nothing of it is stored.
    pub(super) fn read(json: &mut Json<'a>, builder: &mut Builder) -> Result<Element<'a>> {
        let mark = builder.events.arguments.current_mark();
        let mut element = Element {
            phase: None,
            category: None,
            name: StringId::EMPTY,
            process: TrackId::Id(0),
            thread: TrackId::Id(0),
            time: None,
            duration: None,
            id: None,
            local_id: None,
            mark,
            arguments: ArgumentRange::default(),
            metadata_text: None,
            repairs: ElementDefects::default(),
        };
        if let Err(fault) = json.read_object(|key, json| element.read_member(key, json, builder)) {
            builder.events.arguments.rewind_to(mark);
            return Err(fault);
        }
        element.arguments = builder.events.arguments.range_from(mark.entry);
        let notes = &mut builder.events.notes;
        notes.add(Note::InvalidText, element.repairs.invalid_texts);
        notes.add(Note::DuplicateArgument, element.repairs.duplicate_arguments);
        notes.add(Note::MalformedArguments, element.repairs.malformed_arguments);
        Ok(element)
    }

    fn read_member(&mut self, key: JsonText<'a>, json: &mut Json<'a>, builder: &mut Builder) -> Result<()> {
        let strings = &mut builder.events.strings;
        let escaped;
        let key = match key.as_plain_bytes() {
            Some(bytes) => bytes,
            None => {
                escaped = key.decode_text().0;
                escaped.as_bytes()
            }
        };
        match key {
            b"ph" => self.phase = self.read_text(json.read_value()?).and_then(|text| text.chars().next()),
            b"cat" => self.category = self.intern_text(json.read_value()?, strings),
            b"name" => self.name = self.intern_text(json.read_value()?, strings).unwrap_or(StringId::EMPTY),
            b"pid" => self.process = self.read_track_id(json.read_value()?),
            b"tid" => self.thread = self.read_track_id(json.read_value()?),
            b"ts" => self.time = time_from_json(json.read_value()?),
            b"dur" => self.duration = time_from_json(json.read_value()?),
            b"id" => self.id = self.read_text(json.read_value()?).and_then(|id| id.parse().ok()),
            b"id2" if json.is_object() => json.read_object(|key, json| {
                let value = json.read_value()?;
                if let (true, JsonValue::Text(id)) = (key.is_word("local"), value) {
                    self.local_id = Some(id);
                }
                Ok(())
            })?,
            b"args" => self.read_args(json, builder)?,
            _ => json.skip_value()?,
        }
        Ok(())
    }

    fn read_args(&mut self, json: &mut Json<'a>, builder: &mut Builder) -> Result<()> {
        if !json.is_object() {
            if json.read_value()? != JsonValue::Null {
                self.repairs.malformed_arguments += 1;
            }
            return Ok(());
        }
        let events = &mut builder.events;
        json.read_object(|key, json| {
            let value = json.read_value()?;
            let (key, is_whole) = intern_json_text(key, &mut events.strings);
            if key == StringId::NAME || key == StringId::LABELS {
                self.metadata_text = Some(value);
            }
            let repairs = events.arguments.store_parsed_arg(self.mark.entry, key, value);
            self.repairs.duplicate_arguments += u64::from(repairs.duplicate);
            self.repairs.invalid_texts += u64::from(repairs.invalid || !is_whole);
            Ok(())
        })
    }

    /// Returns a string, or a number as a string.
    fn read_text(&mut self, value: JsonValue<'a>) -> Option<Cow<'a, str>> {
        match value {
            JsonValue::Text(text) => {
                let (text, is_whole) = text.decode_text();
                self.repairs.invalid_texts += u64::from(!is_whole);
                Some(text)
            }
            JsonValue::Number(number) => Some(Cow::Borrowed(number.as_str())),
            _ => None,
        }
    }

    /// Interns a string, or a number as a string.
    fn intern_text(&mut self, value: JsonValue<'a>, strings: &mut Strings) -> Option<StringId> {
        match value {
            JsonValue::Text(text) => {
                let (id, is_whole) = intern_json_text(text, strings);
                self.repairs.invalid_texts += u64::from(!is_whole);
                Some(id)
            }
            value => self.read_text(value).map(|text| strings.intern(&text)),
        }
    }

    fn read_track_id(&mut self, value: JsonValue<'a>) -> TrackId {
        let number = match value {
            JsonValue::Number(number) => number.as_integer(),
            JsonValue::Null => Some(0),
            _ => None,
        };
        number.map_or_else(|| TrackId::Name(self.read_text(value).unwrap_or_default().into_owned()), TrackId::Id)
    }

    /// Returns the name that a metadata row gives.
    pub(super) fn display_name(&self) -> Option<Cow<'a, str>> {
        match self.metadata_text? {
            JsonValue::Text(text) => Some(text.decode_text().0),
            JsonValue::Number(number) => Some(Cow::Borrowed(number.as_str())),
            _ => None,
        }
    }

    /// Returns the number of an async track, in this crate's notation.
    pub(super) fn local_id(&self) -> Option<u64> {
        u64::from_str_radix(self.local_id?.as_plain_str()?.strip_prefix("0x")?, 16).ok()
    }
}

/// Interns a string; also returns whether it was valid. A string that is known already is not decoded again.
fn intern_json_text(text: JsonText<'_>, strings: &mut Strings) -> (StringId, bool) {
    if let Some(known) = text.as_plain_bytes().and_then(|bytes| strings.find(bytes)) {
        return (known, true);
    }
    let (text, is_whole) = text.decode_text();
    (strings.intern(&text), is_whole)
}

/// Returns the nanoseconds of a number of microseconds, or of a string that may be one.
fn time_from_json(value: JsonValue<'_>) -> Option<i64> {
    match value {
        JsonValue::Number(number) => micros_to_ns(number.as_str()),
        JsonValue::Text(text) => micros_to_ns(text.as_plain_str()?),
        _ => None,
    }
}
