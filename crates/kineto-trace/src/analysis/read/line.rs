//! One element of a file's list of events.

use super::json::{Json, JsonText, JsonValue, Result};
use crate::analysis::arguments::ArgumentRange;
use crate::analysis::builder::Builder;
use crate::analysis::events::TrackId;
use crate::analysis::notes::Note;
use std::borrow::Cow;

/// The members of an element; its arguments are already stored.
#[derive(Debug)]
pub(super) struct Element<'a> {
    pub(super) phase: Option<char>,
    pub(super) category: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    pub(super) process: TrackId,
    pub(super) thread: TrackId,
    /// In microseconds, as written in the file.
    pub(super) time: Option<&'a str>,
    pub(super) duration: Option<&'a str>,
    pub(super) id: Option<u64>,
    /// The id that is unique only in its process.
    local_id: Option<Cow<'a, str>>,
    pub(super) first_argument: u32,
    pub(super) arguments: ArgumentRange,
    /// The value of the argument `name` or `labels`.
    pub(super) display_name: Option<Cow<'a, str>>,
}

impl<'a> Element<'a> {
    /// Reads an element, which is an object.
    pub(super) fn read(json: &mut Json<'a>, builder: &mut Builder) -> Result<Element<'a>> {
        let mut line = Element {
            phase: None,
            category: None,
            name: Cow::Borrowed(""),
            process: TrackId::Id(0),
            thread: TrackId::Id(0),
            time: None,
            duration: None,
            id: None,
            local_id: None,
            first_argument: builder.events.arguments.start(),
            arguments: ArgumentRange::default(),
            display_name: None,
        };
        json.object(|key, json| line.member(key, json, builder))?;
        line.arguments = builder.events.arguments.since(line.first_argument);
        Ok(line)
    }

    fn member(&mut self, key: JsonText<'a>, json: &mut Json<'a>, builder: &mut Builder) -> Result<()> {
        let mut text = |value| text_of(value, builder);
        match key.get().0.as_ref() {
            "ph" => self.phase = text(json.value()?).and_then(|text| text.chars().next()),
            "cat" => self.category = text(json.value()?),
            "name" => self.name = text(json.value()?).unwrap_or_default(),
            "pid" => self.process = track_id(json.value()?, builder),
            "tid" => self.thread = track_id(json.value()?, builder),
            "ts" => self.time = decimal(json.value()?),
            "dur" => self.duration = decimal(json.value()?),
            "id" => self.id = text(json.value()?).and_then(|id| id.parse().ok()),
            "id2" if json.is_object() => json.object(|key, json| {
                let value = json.value()?;
                if key.is("local") {
                    self.local_id = text_of(value, builder);
                }
                Ok(())
            })?,
            "args" => self.args(json, builder)?,
            _ => json.skip()?,
        }
        Ok(())
    }

    fn args(&mut self, json: &mut Json<'a>, builder: &mut Builder) -> Result<()> {
        if !json.is_object() {
            if json.value()? != JsonValue::Null {
                builder.events.notes.add(Note::MalformedArguments, 1);
            }
            return Ok(());
        }
        json.object(|key, json| {
            let (value, (name, whole)) = (json.value()?, key.get());
            if matches!(name.as_ref(), "name" | "labels") {
                self.display_name = text_of(value, builder);
            }
            let events = &mut builder.events;
            let repairs = events.arguments.read(self.first_argument, events.strings.intern(&name), value);
            events.notes.add(Note::DuplicateArgument, repairs.duplicate.into());
            events.notes.add(Note::InvalidText, (repairs.invalid || !whole).into());
            Ok(())
        })
    }

    /// Returns the number of an async track, in this crate's notation.
    pub(super) fn local_id(&self) -> Option<u64> {
        u64::from_str_radix(self.local_id.as_deref()?.strip_prefix("0x")?, 16).ok()
    }
}

/// Returns a string, or a number as a string.
fn text_of<'a>(value: JsonValue<'a>, builder: &mut Builder) -> Option<Cow<'a, str>> {
    match value {
        JsonValue::Text(text) => {
            let (text, whole) = text.get();
            builder.events.notes.add(Note::InvalidText, (!whole).into());
            Some(text)
        }
        JsonValue::Number(text) => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

/// Returns the text of a number, or a string that may be one.
fn decimal(value: JsonValue<'_>) -> Option<&str> {
    match value {
        JsonValue::Number(text) => Some(text),
        JsonValue::Text(text) => text.plain(),
        _ => None,
    }
}

fn track_id(value: JsonValue<'_>, builder: &mut Builder) -> TrackId {
    let number = match value {
        JsonValue::Number(text) => text.parse().ok(),
        JsonValue::Null => Some(0),
        _ => None,
    };
    number.map_or_else(|| TrackId::Name(text_of(value, builder).unwrap_or_default().into_owned()), TrackId::Id)
}
