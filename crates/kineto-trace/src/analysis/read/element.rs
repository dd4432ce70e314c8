//! One element of a file's list of events.

use super::time::{micros_text_to_ns, micros_to_ns};
use crate::analysis::events::{ArgumentMark, ArgumentRange, Builder, Note, StringId, Strings, TrackId};
use crate::analysis::json_reader::{Json, JsonText, JsonValue, Result};
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
    /// The id of an arrow or an asynchronous slice.
    id: Option<JsonValue<'a>>,
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

/// Predicts the next key from the category and the key before it. Writers keep one order, so most keys match and are not parsed.
#[derive(Debug)]
pub(super) struct KeyOrder([ExpectedKey; 256]);

#[derive(Debug, Default)]
struct ExpectedKey {
    /// The key in its quotes and the colon after it, as they are in the file.
    text: Vec<u8>,
    id: StringId,
    is_whole: bool,
}

impl Default for KeyOrder {
    fn default() -> KeyOrder {
        KeyOrder(std::array::from_fn(|_| ExpectedKey::default()))
    }
}

impl KeyOrder {
    /// Reads a key and the colon after it; `category` and `before`, the key before it, tell which one to expect. Also returns
    /// whether the key was valid.
    #[inline]
    fn read_key(
        &mut self,
        (category, before): (StringId, StringId),
        json: &mut Json<'_>,
        strings: &mut Strings,
    ) -> Result<(StringId, bool)> {
        #[expect(clippy::indexing_slicing, reason = "there are 256")]
        // A collision only costs a parse.
        let expected = &mut self.0[(category.index() * 37 + before.index()) % 256];
        if json.take_bytes(&expected.text) {
            return Ok((expected.id, expected.is_whole));
        }
        let start = json.position();
        (expected.id, expected.is_whole) = intern_json_text(json.read_key()?, strings);
        expected.text.clear();
        expected.text.extend_from_slice(json.whole_text().get(start..json.position()).unwrap_or_default());
        Ok((expected.id, expected.is_whole))
    }
}

/// A member of an element.
#[derive(Clone, Copy, Debug)]
enum Member {
    Phase,
    Category,
    Name,
    Process,
    Thread,
    Time,
    Duration,
    Id,
    ScopedId,
    Arguments,
    Other,
}

impl Member {
    fn from_key(key: &str) -> Member {
        match key {
            "ph" => Member::Phase,
            "cat" => Member::Category,
            "name" => Member::Name,
            "pid" => Member::Process,
            "tid" => Member::Thread,
            "ts" => Member::Time,
            "dur" => Member::Duration,
            "id" => Member::Id,
            "id2" => Member::ScopedId,
            "args" => Member::Arguments,
            _ => Member::Other,
        }
    }
}

impl<'a> Element<'a> {
    /// Reads an element, which is an object. If it is truncated, nothing of it is stored.
    pub(super) fn read(json: &mut Json<'a>, keys: &mut KeyOrder, builder: &mut Builder) -> Result<Element<'a>> {
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
        let mut before = StringId::EMPTY;
        let read = json.read_members(|json| {
            let strings = &mut builder.events.strings;
            before = keys.read_key((element.category.unwrap_or_default(), before), json, strings)?.0;
            element.read_member(Member::from_key(strings.get(before)), json, keys, builder)
        });
        if let Err(fault) = read {
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

    fn read_member(
        &mut self,
        member: Member,
        json: &mut Json<'a>,
        keys: &mut KeyOrder,
        builder: &mut Builder,
    ) -> Result<()> {
        let strings = &mut builder.events.strings;
        match member {
            Member::Phase => self.phase = self.read_text(json.read_value()?).and_then(|text| text.chars().next()),
            Member::Category => self.category = self.intern_text(json.read_value()?, strings),
            Member::Name => self.name = self.intern_text(json.read_value()?, strings).unwrap_or(StringId::EMPTY),
            Member::Process => self.process = self.read_track_id(json.read_value()?),
            Member::Thread => self.thread = self.read_track_id(json.read_value()?),
            Member::Time => self.time = time_from_json(json.read_value()?),
            Member::Duration => self.duration = time_from_json(json.read_value()?),
            Member::Id => self.id = Some(json.read_value()?),
            Member::ScopedId if json.is_object() => json.read_object(|key, json| {
                let value = json.read_value()?;
                match value {
                    JsonValue::Text(id) if key.is_word("local") => self.local_id = Some(id),
                    _ if key.is_word("global") => self.id = Some(value),
                    _ => {}
                }
                Ok(())
            })?,
            Member::Arguments => self.read_args(json, keys, builder)?,
            Member::ScopedId | Member::Other => json.skip_value()?,
        }
        Ok(())
    }

    fn read_args(&mut self, json: &mut Json<'a>, keys: &mut KeyOrder, builder: &mut Builder) -> Result<()> {
        if !json.is_object() {
            if json.read_value()? != JsonValue::Null {
                self.repairs.malformed_arguments += 1;
            }
            return Ok(());
        }
        let events = &mut builder.events;
        let (category, mut key) = (self.category.unwrap_or_default(), StringId::EMPTY);
        json.read_members(|json| {
            let (next, is_whole) = keys.read_key((category, key), json, &mut events.strings)?;
            key = next;
            let value = json.read_value()?;
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
        scalar_text(self.metadata_text?)
    }

    /// Returns the id of an arrow.
    pub(super) fn arrow_id(&self) -> Option<u64> {
        scalar_text(self.id?)?.parse().ok()
    }

    /// Returns the id that begin and end of an asynchronous slice share.
    pub(super) fn async_id(&self) -> Option<Cow<'a, str>> {
        scalar_text(self.id.or(self.local_id.map(JsonValue::Text))?)
    }

    /// Returns the number of an async track, in this crate's notation.
    pub(super) fn local_id(&self) -> Option<u64> {
        u64::from_str_radix(self.local_id?.as_plain_str()?.strip_prefix("0x")?, 16).ok()
    }
}

/// Returns a string, or a number as a string.
fn scalar_text(value: JsonValue<'_>) -> Option<Cow<'_, str>> {
    match value {
        JsonValue::Text(text) => Some(text.decode_text().0),
        JsonValue::Number(number) => Some(Cow::Borrowed(number.as_str())),
        _ => None,
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
        JsonValue::Number(number) => micros_to_ns(number),
        JsonValue::Text(text) => micros_text_to_ns(text.as_plain_str()?),
        _ => None,
    }
}
