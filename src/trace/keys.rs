//! Under which keys the fields of a callsite are shown: their own names, or Kineto's where the catalogue knows them.

use crate::activity::{ArgValue, ValueKind, lookup};
use crate::callsite::{NAME_FIELD, Site};

/// The keys of a callsite's fields.
#[derive(Debug)]
pub(crate) struct Keys {
    fields: Vec<Key>,
    /// The field whose value is shown as the name.
    pub(crate) name: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    text: &'static str,
    kind: Option<ValueKind>,
}

impl Keys {
    pub(crate) fn of(site: &Site) -> Keys {
        let fields = site.metadata.fields();
        let key = |name| match lookup(name) {
            Some(entry) => Key { text: entry.key, kind: Some(entry.kind) },
            None => Key { text: name, kind: None },
        };
        Keys { fields: fields.iter().map(|f| key(f.name())).collect(), name: fields.field(NAME_FIELD).map(|f| f.index()) }
    }

    /// Calls `each` with a field's key and its value in the type that the catalogue wants.
    ///
    /// A text where Kineto has a list or a number is taken for what it spells, if it does: `dims = ?shape` becomes
    /// nested lists.
    pub(crate) fn show(&self, field: usize, value: ArgValue<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(key) = self.fields.get(field) else { return };
        if self.name == Some(field) {
            return;
        }
        let (Some(kind), ArgValue::Str(text)) = (key.kind, value) else { return each(key.text, value) };
        match kind {
            ValueKind::Int | ValueKind::Uint if text.parse::<i64>().is_ok() => {
                each(key.text, ArgValue::I64(text.parse().unwrap_or_default()));
            }
            ValueKind::Ints | ValueKind::NestedInts | ValueKind::Strs | ValueKind::Dict => {
                match serde_json::from_str::<serde_json::Value>(text) {
                    Ok(list @ (serde_json::Value::Array(_) | serde_json::Value::Object(_))) => {
                        each(key.text, ArgValue::Json(&list.to_string()));
                    }
                    _ => each(key.text, value),
                }
            }
            _ => each(key.text, value),
        }
    }
}
