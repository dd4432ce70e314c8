//! An observer's view of a span or an event.

use crate::callsite::{EachField, NAME_FIELD, Site, has_field};
use crate::text::{Bounded, floor_char_boundary};
use kineto_model::activity::{ActivityType, ArgValue, Args};
use kineto_model::write::OwnedValue;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_core::Metadata;
use tracing_core::field::Visit;

/// A span or an event as observers see it: its name, its class, and the fields set so far.
///
/// Fields are its [`Args`], under their own names.
#[derive(Clone)]
pub struct ObservedSpan {
    metadata: &'static Metadata<'static>,
    kind: ActivityType,
    number: u64,
    name: Option<Box<str>>,
    fields: Vec<(&'static str, OwnedValue)>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl ObservedSpan {
    /// Creates a span of that callsite without fields.
    pub(crate) fn new(site: &Site) -> ObservedSpan {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        ObservedSpan { metadata: site.metadata, kind: site.class(), number, name: None, fields: Vec::new() }
    }

    /// Returns a visitor that captures the values of its fields; texts are cut after `bytes_max`.
    pub(crate) fn capture_fields(&mut self, site: &Site, bytes_max: usize) -> impl Visit {
        let recorded = site.fields;
        EachField(move |field, value| {
            if has_field(recorded, field.index()) {
                self.put_field(field.name(), owned_value(value, bytes_max));
            }
        })
    }

    fn put_field(&mut self, field: &'static str, value: OwnedValue) {
        match value {
            OwnedValue::Text(text) if field == NAME_FIELD => self.name = Some(text),
            value => match self.fields.iter_mut().find(|(name, _)| *name == field) {
                Some((_, known)) => *known = value,
                None => self.fields.push((field, value)),
            },
        }
    }

    /// Returns its name: that of its field `kineto.name`, else its callsite's.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.metadata.name())
    }

    /// Returns the activity type that the layer would record.
    pub fn kind(&self) -> ActivityType {
        self.kind
    }

    /// Returns its callsite.
    pub fn metadata(&self) -> &'static Metadata<'static> {
        self.metadata
    }

    /// Returns its id: unique in the process, the same each time the span is entered.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<ArgValue<'_>> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_arg_value())
    }
}

impl Args for ObservedSpan {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.fields.iter().for_each(|(field, value)| each(field, value.as_arg_value()));
    }
}

impl fmt::Debug for ObservedSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: &dyn Args = self;
        f.debug_struct("ObservedSpan").field("name", &self.name()).field("fields", &fields).finish_non_exhaustive()
    }
}

/// Copies a value; a text is cut after `bytes_max`.
fn owned_value(value: Result<ArgValue<'_>, &dyn fmt::Debug>, bytes_max: usize) -> OwnedValue {
    match value {
        // User code runs here, and may panic or open spans; nothing is borrowed.
        Err(value) => OwnedValue::Text(Bounded::from_debug(value, bytes_max).text.into()),
        Ok(ArgValue::Str(text)) => {
            OwnedValue::Text(text.get(..floor_char_boundary(text, bytes_max)).unwrap_or_default().into())
        }
        Ok(value) => OwnedValue::from_arg_value(value),
    }
}
