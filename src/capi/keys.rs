//! Keys of arguments that are known at run time alone: each is the one field of a callsite of its own.

use super::status::{Fault, Status};
use crate::os::fork::Own;
use std::collections::HashMap;
use std::sync::OnceLock;
use tracing_core::callsite::{Callsite, Identifier};
use tracing_core::field::{Field, FieldSet};
use tracing_core::metadata::{Kind, Level};
use tracing_core::subscriber::Interest;
use tracing_core::{Metadata, field};

/// So many different keys there may be, as each is kept for ever.
const KEYS_MAX: usize = 4096;
const BYTES_MAX: usize = 256;
/// Fields of that name say what a row is.
const RESERVED: &str = "kineto.";

/// A key as `tracing` knows it.
#[derive(Clone)]
pub(super) struct Key {
    fields: &'static FieldSet,
    field: Field,
}

struct Argument {
    metadata: OnceLock<Metadata<'static>>,
}

impl Callsite for Argument {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        // It is set before anybody knows of the callsite.
        self.metadata.get().unwrap_or(&NONE)
    }
}

static NOBODY: Argument = Argument { metadata: OnceLock::new() };
static NONE: Metadata<'static> = metadata(&[], &NOBODY);

const fn metadata(names: &'static [&'static str], callsite: &'static Argument) -> Metadata<'static> {
    let fields = FieldSet::new(names, Identifier(callsite));
    Metadata::new("argument", super::ranges::TARGET, Level::INFO, None, None, None, fields, Kind::SPAN)
}

impl Key {
    /// Returns the key of that name.
    pub(super) fn of(name: &str) -> Result<Key, Fault> {
        static KEYS: OnceLock<Own<HashMap<&'static str, Key>>> = OnceLock::new();
        let refused = |why: String| Fault::new(Status::BadArgument, why);
        let mut keys = KEYS.get_or_init(Own::default).lock();
        if let Some(key) = keys.get(name) {
            return Ok(key.clone());
        }
        if name.is_empty() || name.len() > BYTES_MAX || name.starts_with(RESERVED) {
            let why =
                format!("a key has 1 to {BYTES_MAX} bytes and does not begin with \"{RESERVED}\", unlike {name:?}");
            return Err(refused(why));
        }
        if keys.len() == KEYS_MAX {
            return Err(refused(format!("there are {KEYS_MAX} different keys already; put into values what varies")));
        }
        let key = Key::new(String::leak(name.to_owned()));
        let named = key.as_ref().map(|key| key.field.name()).zip(key.clone());
        keys.extend(named);
        key.ok_or_else(|| refused(format!("{name:?} cannot be a key")))
    }

    fn new(name: &'static str) -> Option<Key> {
        let callsite: &'static Argument = Box::leak(Box::new(Argument { metadata: OnceLock::new() }));
        let names: &'static [&'static str] = Vec::leak(vec![name]);
        let fields = callsite.metadata.get_or_init(|| metadata(names, callsite)).fields();
        Some(Key { fields, field: fields.field(name)? })
    }

    /// Calls `with` with the one value that belongs to the key.
    pub(super) fn with<R>(&self, value: &dyn field::Value, with: impl FnOnce(&field::ValueSet<'_>) -> R) -> R {
        with(&self.fields.value_set(&[(&self.field, Some(value))]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_their_number_is_bounded() {
        let (first, again) = (Key::of("batch").unwrap(), Key::of("batch").unwrap());
        assert_eq!((first.field.name(), &first.field), ("batch", &again.field));
        assert_ne!(Key::of("other").unwrap().field, first.field);
        for bad in ["", "kineto.name", &"k".repeat(BYTES_MAX + 1)] {
            assert_eq!(Key::of(bad).err().unwrap().status, Status::BadArgument, "{bad}");
        }
        let refused = (0..=KEYS_MAX).find_map(|n| Key::of(&format!("key {n}")).err()).unwrap();
        assert_eq!(refused.status, Status::BadArgument);
        assert!(Key::of("batch").is_ok(), "those that are there stay");
    }
}
