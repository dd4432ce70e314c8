//! Reads debug annotations as arguments; nested ones become JSON.

use super::sequence::{PacketSequence, intern_bytes};
use super::wire::{ProtoMessage, ProtoValue};
use crate::activity::ArgValue;
use crate::analysis::events::{Events, Note, Notes, StringId, Strings};
use crate::analysis::fault::{Cause, Fault};
use crate::analysis::json_reader::{DEPTH, Result};
use crate::analysis::json_reader::{Json, JsonValue};
use crate::write::json_text;
use crate::write::perfetto::fields::{annotation, interned};
use std::borrow::Cow;
use std::fmt::Write as _;

/// An annotation, whose value is not yet decoded.
struct Annotation<'a> {
    name: StringId,
    value: AnnotationValue<'a>,
}

#[derive(Clone, Copy)]
enum AnnotationValue<'a> {
    Plain(ArgValue<'a>),
    Text(&'a [u8]),
    /// The id of an interned string.
    TextId(u64),
    Json(&'a [u8]),
    /// The message has entries, items or nothing.
    Nested {
        is_dict: bool,
    },
    /// The notation of Chrome.
    NestedValue(ProtoMessage<'a>),
}

/// Stores an annotation as an argument of the event whose arguments begin at `first`.
pub(super) fn store_annotation(
    message: ProtoMessage<'_>,
    first: u32,
    sequence: &PacketSequence,
    events: &mut Events,
) -> Result<()> {
    let Events { strings, arguments, notes, .. } = events;
    let read = read_annotation(message, sequence, strings, notes)?;
    let known;
    let nested;
    let value = match read.value {
        AnnotationValue::Plain(value) => value,
        AnnotationValue::Text(bytes) => {
            known = decode_text(bytes, notes);
            ArgValue::Str(&known)
        }
        AnnotationValue::TextId(id) => {
            ArgValue::Str(strings.get(sequence.text(interned::ANNOTATION_STRINGS, id, notes)))
        }
        _ => {
            let mut json = String::new();
            write_value(&mut json, message, read.value, &mut JsonNesting { sequence, strings, notes, depth: 0 })?;
            nested = json;
            ArgValue::Json(&nested)
        }
    };
    if arguments.store_arg(first, read.name, value) {
        notes.add(Note::DuplicateArgument, 1);
    }
    Ok(())
}

/// Returns the name of an annotation, and its value as JSON.
pub(super) fn annotation_as_json(
    message: ProtoMessage<'_>,
    sequence: &PacketSequence,
    events: &mut Events,
) -> Result<(StringId, String)> {
    let Events { strings, notes, .. } = events;
    let read = read_annotation(message, sequence, strings, notes)?;
    let mut json = String::new();
    write_value(&mut json, message, read.value, &mut JsonNesting { sequence, strings, notes, depth: 0 })?;
    Ok((read.name, json))
}

fn read_annotation<'a>(
    mut message: ProtoMessage<'a>,
    sequence: &PacketSequence,
    strings: &mut Strings,
    notes: &mut Notes,
) -> Result<Annotation<'a>> {
    let (mut name, mut found) = (StringId::EMPTY, AnnotationValue::Nested { is_dict: false });
    while let Some((field, value)) = message.next_field()? {
        found = match field {
            annotation::NAME_ID => {
                name = sequence.text(interned::ANNOTATION_NAMES, value.number(), notes);
                continue;
            }
            annotation::NAME => {
                name = intern_bytes(value.bytes(), strings, notes);
                continue;
            }
            _ => match annotation_value(field, value) {
                Some(value) => value,
                None => continue,
            },
        };
    }
    Ok(Annotation { name, value: found })
}

fn annotation_value(field: u32, value: ProtoValue<'_>) -> Option<AnnotationValue<'_>> {
    Some(match field {
        annotation::BOOL => AnnotationValue::Plain(ArgValue::Bool(value.number() != 0)),
        annotation::INT => AnnotationValue::Plain(ArgValue::I64(value.signed())),
        annotation::UINT | annotation::POINTER => AnnotationValue::Plain(ArgValue::U64(value.number())),
        annotation::DOUBLE => AnnotationValue::Plain(ArgValue::F64(value.double())),
        annotation::STRING => AnnotationValue::Text(value.bytes()),
        annotation::STRING_ID => AnnotationValue::TextId(value.number()),
        annotation::JSON => AnnotationValue::Json(value.bytes()),
        annotation::NESTED => AnnotationValue::NestedValue(value.message()),
        annotation::DICT_ENTRIES => AnnotationValue::Nested { is_dict: true },
        annotation::ARRAY_VALUES => AnnotationValue::Nested { is_dict: false },
        _ => return None,
    })
}

fn decode_text<'a>(bytes: &'a [u8], notes: &mut Notes) -> Cow<'a, str> {
    let text = String::from_utf8_lossy(bytes);
    notes.add(Note::InvalidText, u64::from(matches!(text, Cow::Owned(_))));
    text
}

/// What a nested value needs to be written.
struct JsonNesting<'n> {
    sequence: &'n PacketSequence,
    strings: &'n mut Strings,
    notes: &'n mut Notes,
    depth: usize,
}

/// Appends a value of `message` as JSON.
fn write_value(
    json: &mut String,
    message: ProtoMessage<'_>,
    value: AnnotationValue<'_>,
    nesting: &mut JsonNesting<'_>,
) -> Result<()> {
    match value {
        AnnotationValue::Plain(value) => json.push_str(&json_text(&value)),
        AnnotationValue::Text(bytes) => json.push_str(&json_text(&ArgValue::Str(&decode_text(bytes, nesting.notes)))),
        AnnotationValue::TextId(id) => {
            let text = nesting.sequence.text(interned::ANNOTATION_STRINGS, id, nesting.notes);
            json.push_str(&json_text(&ArgValue::Str(nesting.strings.get(text))));
        }
        AnnotationValue::Json(bytes) => {
            let mut parsed = Json::new(bytes, 0);
            match (parsed.read_value(), std::str::from_utf8(bytes)) {
                (Ok(value), Ok(text)) if !matches!(value, JsonValue::NotFinite(_)) && parsed.expect_end().is_ok() => {
                    json.push_str(text);
                }
                _ => json.push_str(&json_text(&ArgValue::Str(&decode_text(bytes, nesting.notes)))),
            }
        }
        AnnotationValue::Nested { is_dict } => write_nested(json, message, is_dict, nesting)?,
        AnnotationValue::NestedValue(value) => write_chrome_value(json, value, nesting)?,
    }
    Ok(())
}

/// Appends the entries or items of an annotation.
fn write_nested(
    json: &mut String,
    mut message: ProtoMessage<'_>,
    is_dict: bool,
    nesting: &mut JsonNesting<'_>,
) -> Result<()> {
    nesting.enter(message)?;
    json.push(if is_dict { '{' } else { '[' });
    let mut is_first = true;
    while let Some((field, value)) = message.next_field()? {
        if field != (if is_dict { annotation::DICT_ENTRIES } else { annotation::ARRAY_VALUES }) {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            json.push(',');
        }
        let item = read_annotation(value.message(), nesting.sequence, nesting.strings, nesting.notes)?;
        if is_dict {
            // Writing to a String does not fail.
            let _ = write!(json, "{}:", json_text(&ArgValue::Str(nesting.strings.get(item.name))));
        }
        write_value(json, value.message(), item.value, nesting)?;
    }
    json.push(if is_dict { '}' } else { ']' });
    nesting.depth -= 1;
    Ok(())
}

/// Appends a value in the notation of Chrome.
fn write_chrome_value(json: &mut String, message: ProtoMessage<'_>, nesting: &mut JsonNesting<'_>) -> Result<()> {
    nesting.enter(message)?;
    let (mut keys, mut values, mut kind, mut plain) = (Vec::new(), Vec::new(), 0, None);
    let mut fields = message;
    while let Some((field, value)) = fields.next_field()? {
        match field {
            annotation::NESTED_TYPE => kind = value.number(),
            annotation::NESTED_KEYS => keys.push(decode_text(value.bytes(), nesting.notes)),
            annotation::NESTED_VALUES | annotation::NESTED_ITEMS => values.push(value.message()),
            annotation::NESTED_INT => plain = Some(ArgValue::I64(value.signed())),
            annotation::NESTED_DOUBLE => plain = Some(ArgValue::F64(value.double())),
            annotation::NESTED_BOOL => plain = Some(ArgValue::Bool(value.number() != 0)),
            annotation::NESTED_STRING => {
                json.push_str(&json_text(&ArgValue::Str(&decode_text(value.bytes(), nesting.notes))));
                nesting.depth -= 1;
                return Ok(());
            }
            _ => {}
        }
    }
    match (plain, kind) {
        (Some(plain), _) => json.push_str(&json_text(&plain)),
        (None, annotation::DICT | annotation::ARRAY) => {
            let is_dict = kind == annotation::DICT;
            json.push(if is_dict { '{' } else { '[' });
            let mut keys = keys.iter();
            for (at, value) in values.into_iter().enumerate() {
                json.push_str(if at > 0 { "," } else { "" });
                if is_dict {
                    let key = keys.next().map_or("", |key| key.as_ref());
                    let _ = write!(json, "{}:", json_text(&ArgValue::Str(key)));
                }
                write_chrome_value(json, value, nesting)?;
            }
            json.push(if is_dict { '}' } else { ']' });
        }
        (None, _) => json.push_str("null"),
    }
    nesting.depth -= 1;
    Ok(())
}

impl JsonNesting<'_> {
    /// Counts a level; `message` is at it.
    fn enter(&mut self, message: ProtoMessage<'_>) -> Result<()> {
        if self.depth == DEPTH {
            let cause = Cause::TooLarge("values are nested more than 128 levels deep");
            return Err(Fault::new(cause, message.position()));
        }
        self.depth += 1;
        Ok(())
    }
}
