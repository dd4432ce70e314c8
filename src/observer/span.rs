//! An observer's view of a span or an event.

use crate::callsite::{NAME_FIELD, Site, has_field};
use crate::text::{Bounded, floor_char_boundary};
use kineto_model::activity::{ActivityType, ArgValue, Args};
use kineto_model::write::OwnedValue;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_core::Metadata;
use tracing_core::field::{Field, Visit};

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

/// Captures the values of the fields that the layer records.
pub(crate) struct Capture<'s> {
    span: &'s mut ObservedSpan,
    fields: u64,
    bytes_max: usize,
}

static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl ObservedSpan {
    /// Creates a span of that callsite without fields.
    pub(crate) fn new(site: &Site) -> ObservedSpan {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        ObservedSpan { metadata: site.metadata, kind: site.class(), number, name: None, fields: Vec::new() }
    }

    /// Returns a visitor that captures the values of its fields; texts are cut after `bytes_max`.
    pub(crate) fn capture_fields(&mut self, site: &Site, bytes_max: usize) -> Capture<'_> {
        Capture { span: self, fields: site.fields, bytes_max }
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

impl Capture<'_> {
    fn put_field(&mut self, field: &Field, value: OwnedValue) {
        if !has_field(self.fields, field.index()) {
            return;
        }
        match value {
            OwnedValue::Text(text) if field.name() == NAME_FIELD => self.span.name = Some(text),
            value => match self.span.fields.iter_mut().find(|(name, _)| *name == field.name()) {
                Some((_, known)) => *known = value,
                None => self.span.fields.push((field.name(), value)),
            },
        }
    }

    fn cut_text(&self, text: &str) -> OwnedValue {
        OwnedValue::Text(text.get(..floor_char_boundary(text, self.bytes_max)).unwrap_or_default().into())
    }
}

impl Visit for Capture<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // User code runs here, and may panic or open spans; nothing is borrowed.
        if has_field(self.fields, field.index()) {
            let text = Bounded::from_debug(value, self.bytes_max).text;
            self.put_field(field, OwnedValue::Text(text.into()));
        }
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = self.cut_text(value);
        self.put_field(field, text);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put_field(field, OwnedValue::from_arg_value(ArgValue::Bool(value)));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put_field(field, OwnedValue::from_arg_value(ArgValue::I64(value)));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put_field(field, OwnedValue::from_arg_value(ArgValue::U64(value)));
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put_field(field, OwnedValue::from_arg_value(ArgValue::F64(value)));
    }
    fn record_i128(&mut self, field: &Field, value: i128) {
        self.put_field(field, OwnedValue::from_arg_value(ArgValue::I128(value)));
    }
    fn record_u128(&mut self, field: &Field, value: u128) {
        self.put_field(field, OwnedValue::from_arg_value(ArgValue::U128(value)));
    }
}
