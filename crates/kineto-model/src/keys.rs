//! Keys under which a callsite's fields are written: their own names, or Kineto's if the catalogue contains them.

use crate::activity::ArgValue;
use crate::activity::catalogue::Entry;
use crate::activity::field_names;
use crate::fields::Value;
use std::fmt;

/// The field whose value replaces the span's name.
pub const NAME_FIELD: &str = "kineto.name";

/// The keys of a callsite's fields.
pub struct Keys {
    fields: Vec<Key>,
    /// The field whose value replaces the name.
    pub name: Option<usize>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Key {
    /// The key if the field or its value does not match an argument of the catalogue.
    field_key: String,
    entry: Option<&'static Entry>,
}

impl Keys {
    /// Returns the keys for fields with these names.
    pub fn new(names: &[&str]) -> Keys {
        Keys::with(names, field_names::argument_for_field, field_names::name_in_file)
    }

    /// Returns the keys of a counter's fields, which are the unchanged names: a counter has only series.
    pub fn of_series(names: &[&str]) -> Keys {
        Keys::with(names, |_| None, str::to_owned)
    }

    fn with(names: &[&str], argument: fn(&str) -> Option<&'static Entry>, own_name: fn(&str) -> String) -> Keys {
        let mut used: Vec<String> = Vec::new();
        let key = |field: &str| {
            let known = argument(field).filter(|entry| !used.iter().any(|used| used == entry.key));
            let own = make_unique(own_name(field), &used);
            used.extend(known.map(|entry| entry.key.to_owned()));
            used.push(own.clone());
            Key { field_key: own, entry: known }
        };
        Keys {
            name: names.iter().position(|name| *name == NAME_FIELD),
            fields: names.iter().copied().map(key).collect(),
        }
    }

    /// Returns for each field the key that it has for any value; `None` if the key depends on the value, or the field
    /// is not written.
    pub fn own_keys(&self) -> impl Iterator<Item = Option<&str>> {
        let own = |(field, key): &(usize, &Key)| key.entry.is_none() && self.name != Some(*field);
        self.fields.iter().enumerate().map(move |at| own(&at).then_some(at.1.field_key.as_str()))
    }

    /// Returns whether a field may be written under this key of the catalogue.
    pub fn has_argument(&self, key: &str) -> bool {
        self.fields.iter().any(|field| field.entry.is_some_and(|entry| entry.key == key))
    }

    /// Returns the index of the field with this key.
    pub fn field_index(&self, key: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.field_key == key)
    }

    /// Returns whether a field may be written under this key.
    pub fn has_key(&self, key: &str) -> bool {
        self.fields.iter().any(|field| field.field_key == key || field.entry.is_some_and(|entry| entry.key == key))
    }

    /// Returns whether the callsite's spans are collective operations, which have a field for the collective's name.
    pub fn is_collective(&self) -> bool {
        self.has_argument("Collective name")
    }

    /// Calls `each` with a field's key and value: Kineto's key and type if the value fits, else its own key.
    pub fn visit_value(&self, value: Value<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(key) = self.fields.get(value.field).filter(|_| self.name != Some(value.field)) else { return };
        let value = ArgValue::from(value.datum);
        match key.entry.and_then(|entry| Some((entry.key, entry.typed_value(value)?))) {
            Some((name, value)) => each(name, value),
            None => each(&key.field_key, value),
        }
    }
}

/// The fields written so far: a key is written once, with its first value.
#[derive(Debug, Default)]
pub struct WrittenFields(u64);

impl WrittenFields {
    /// Records a field, and returns whether it is the first occurrence.
    #[inline(always)]
    pub fn is_first(&mut self, field: usize) -> bool {
        let bit = 1 << field.min(63);
        let is_first = self.0 & bit == 0;
        self.0 |= bit;
        is_first
    }
}

/// Makes a key unique: two fields of a callsite may have the same name, or map to the same argument.
fn make_unique(name: String, used: &[String]) -> String {
    let numbered = (2..).map(|n| format!("{name} ({n})"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !used.contains(name)).unwrap_or_default()
}
