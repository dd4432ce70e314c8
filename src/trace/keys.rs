//! Under which keys the fields of a callsite are shown: their own names, or Kineto's where the catalogue knows them.

use crate::activity::ArgValue;
use crate::activity::catalogue::{Entry, Owner, lookup};
use crate::callsite::{NAME_FIELD, Site};

/// The keys of a callsite's fields.
#[derive(Debug)]
pub(crate) struct Keys {
    fields: Vec<Key>,
    /// The field whose value is shown as the name.
    pub(crate) name: Option<usize>,
}

#[derive(Debug)]
struct Key {
    /// The field's own name, or what stands in its place.
    own: String,
    known: Option<&'static Entry>,
}

impl Keys {
    pub(crate) fn of(site: &Site) -> Keys {
        let fields = site.metadata.fields();
        // What the writer says itself, no field may say.
        let known = |field| lookup(field).filter(|entry| entry.owner != Owner::Writer);
        let mut used: Vec<String> = Vec::new();
        let mut key = |field: &'static str| {
            let known = known(field).filter(|entry| !used.iter().any(|used| used == entry.key));
            let own = unused(own_name(field), &used);
            used.extend(known.map(|entry| entry.key.to_owned()));
            used.push(own.clone());
            Key { own, known }
        };
        Keys {
            fields: fields.iter().map(|field| key(field.name())).collect(),
            name: fields.field(NAME_FIELD).map(|f| f.index()),
        }
    }

    /// Returns whether there are any.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }

    /// Calls `each` with a field's key and value: Kineto's key and type where the value fits, else its own.
    pub(crate) fn show(&self, field: usize, value: &ArgValue<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(key) = self.fields.get(field) else { return };
        if self.name == Some(field) {
            return;
        }
        match key.known.and_then(|entry| Some((entry.key, entry.typed(*value)?))) {
            Some((name, value)) => each(name, value),
            None => each(&key.own, *value),
        }
    }
}

/// Two fields of a callsite may have one name, or two names for one argument of the catalogue.
fn unused(name: &str, used: &[String]) -> String {
    let numbered = (2..).map(|n| format!("{name} ({n})"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !used.contains(name)).unwrap_or_default()
}

/// A field may not take the place of what a row says itself: a key comes once.
fn own_name(field: &'static str) -> &'static str {
    match field {
        "External id" => "External id (field)",
        "span id" => "span id (field)",
        "parent id" => "parent id (field)",
        "finished" => "finished (field)",
        "clipped" => "clipped (field)",
        "target" => "target (field)",
        "location" => "location (field)",
        "level" => "level (field)",
        "thread id" => "thread id (field)",
        "polls" => "polls (field)",
        "busy us" => "busy us (field)",
        "wall us" => "wall us (field)",
        other => other,
    }
}
