//! Argument keys that are only known at run time: each is the only field of its own callsite.

use super::status::{CStatus, CallError};
use kineto_base::os::fork::Own;
use std::collections::HashMap;
use std::sync::OnceLock;
use tracing_core::callsite::{Callsite, Identifier};
use tracing_core::field::{Field, FieldSet};
use tracing_core::metadata::{Kind, Level};
use tracing_core::subscriber::Interest;
use tracing_core::{Metadata, field};

/// The most distinct keys, because each is kept forever.
const KEYS_MAX: usize = 4096;
const BYTES_MAX: usize = 256;
/// The prefix of fields that describe the row itself.
const RESERVED: &str = "kineto.";

/// A key as a `tracing` field.
#[derive(Clone)]
pub(super) struct ArgumentKey {
    fields: &'static FieldSet,
    field: Field,
}

struct Argument {
    metadata: OnceLock<Metadata<'static>>,
}

impl Callsite for Argument {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        // It is set before the callsite is used anywhere.
        self.metadata.get().unwrap_or(&NONE)
    }
}

static NO_ARGUMENT: Argument = Argument { metadata: OnceLock::new() };
static NONE: Metadata<'static> = argument_metadata(&[], &NO_ARGUMENT);

const fn argument_metadata(names: &'static [&'static str], callsite: &'static Argument) -> Metadata<'static> {
    let fields = FieldSet::new(names, Identifier(callsite));
    Metadata::new("argument", super::ranges::TARGET, Level::INFO, None, None, None, fields, Kind::SPAN)
}

impl ArgumentKey {
    /// Returns the key of that name.
    pub(super) fn from_name(name: &str) -> Result<ArgumentKey, CallError> {
        static KEYS: OnceLock<Own<HashMap<&'static str, ArgumentKey>>> = OnceLock::new();
        let refused = |why: String| CallError::new(CStatus::BadArgument, why);
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
            return Err(refused(format!("there are {KEYS_MAX} different keys already; put variable data into values")));
        }
        let key = ArgumentKey::new(String::leak(name.to_owned()));
        let named = key.as_ref().map(|key| key.field.name()).zip(key.clone());
        keys.extend(named);
        key.ok_or_else(|| refused(format!("{name:?} cannot be a key")))
    }

    fn new(name: &'static str) -> Option<ArgumentKey> {
        let callsite: &'static Argument = Box::leak(Box::new(Argument { metadata: OnceLock::new() }));
        let names: &'static [&'static str] = Vec::leak(vec![name]);
        let fields = callsite.metadata.get_or_init(|| argument_metadata(names, callsite)).fields();
        Some(ArgumentKey { fields, field: fields.field(name)? })
    }

    /// Calls `with` with a value set that holds `value` under this key.
    pub(super) fn with_value_set<R>(
        &self,
        value: &dyn field::Value,
        with: impl FnOnce(&field::ValueSet<'_>) -> R,
    ) -> R {
        with(&self.fields.value_set(&[(&self.field, Some(value))]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_created_once_and_limited() {
        let (first, again) = (ArgumentKey::from_name("batch").unwrap(), ArgumentKey::from_name("batch").unwrap());
        assert_eq!((first.field.name(), &first.field), ("batch", &again.field));
        assert_ne!(ArgumentKey::from_name("other").unwrap().field, first.field);
        for bad in ["", "kineto.name", &"k".repeat(BYTES_MAX + 1)] {
            assert_eq!(ArgumentKey::from_name(bad).err().unwrap().status, CStatus::BadArgument, "{bad}");
        }
        let refused = (0..=KEYS_MAX).find_map(|n| ArgumentKey::from_name(&format!("key {n}")).err()).unwrap();
        assert_eq!(refused.status, CStatus::BadArgument);
        assert!(ArgumentKey::from_name("batch").is_ok(), "existing keys stay");
    }
}
