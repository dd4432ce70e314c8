//! The arguments of host rows, read out of the records when they are asked for.

use super::index::Index;
use super::keys::Keys;
use super::recorded::Recorded;
use super::rows::SiteRow;
use crate::activity::{ArgValue, Args};
use crate::buffer::Record;
use crate::fields::values;
use std::cell::RefCell;

/// What all rows of a trace read their arguments from.
pub(crate) struct Source<'t> {
    pub(crate) recorded: &'t Recorded,
    pub(crate) index: &'t Index,
    pub(crate) keys: &'t [Keys],
    pub(crate) sites: &'t [SiteRow],
    /// Payloads are put together here; two, since a value may have to be compared with later ones.
    pub(crate) bytes: RefCell<Vec<u8>>,
    pub(crate) later: RefCell<Vec<u8>>,
}

/// What the program says of a span: its fields, and the error that happened in a slice.
pub(crate) struct FieldArgs<'t> {
    pub(crate) source: &'t Source<'t>,
    pub(crate) site: u32,
    pub(crate) span: u64,
    /// The span's own record, if it has one.
    pub(crate) definition: Option<&'t Record<'t>>,
    /// The slice, 0 for a track.
    pub(crate) slice: u64,
}

/// The arguments of an event: its fields.
pub(crate) struct EventArgs<'t> {
    pub(crate) source: &'t Source<'t>,
    pub(crate) record: Record<'t>,
    pub(crate) span: u64,
    /// Only what a counter can show.
    pub(crate) numbers_only: bool,
}

impl<'t> Source<'t> {
    fn keys(&self, site: u32) -> Option<&'t Keys> {
        self.keys.get(site as usize)
    }

    /// Returns the text that a record has in that field.
    pub(crate) fn name<'b>(&self, record: &Record<'_>, bytes: &'b mut Vec<u8>, field: usize) -> Option<&'b str> {
        self.recorded.payload(record, bytes);
        values(bytes).find(|value| value.field == field).and_then(|value| match value.value {
            ArgValue::Str(text) => Some(text),
            _ => None,
        })
    }

    /// Returns the name that a span's fields give it, the one recorded last.
    pub(crate) fn span_name<'b>(&self, span: u64, site: u32, bytes: &'b mut Vec<u8>) -> Option<&'b str> {
        let field = self.keys(site)?.name?;
        let candidates = self.index.values.of(span).rev().chain([span]);
        let mut records = candidates.filter_map(|id| self.recorded.record(id));
        records.find(|record| record.head.site == site && self.name(record, bytes, field).is_some())?;
        values(bytes).find(|value| value.field == field).and_then(|value| match value.value {
            ArgValue::Str(text) => Some(text),
            _ => None,
        })
    }

    /// Shows the fields of a span: those it was made with, and those recorded later in place of them.
    fn show_fields(&self, args: &FieldArgs<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(keys) = self.keys(args.site).filter(|keys| keys.has_fields()) else { return };
        let mut bytes = self.bytes.take();
        let mut shown = 0u64;
        let mut show = |record: &Record<'_>| {
            if record.head.site != args.site {
                return;
            }
            self.recorded.payload(record, &mut bytes);
            for value in values(&bytes) {
                let bit = 1u64 << value.field.min(63);
                if shown & bit == 0 {
                    keys.show(value.field, &value.value, each);
                }
                shown |= bit;
            }
        };
        // The last value of a field is the one that counts; the order is that of the latest record first.
        if !self.index.values.is_empty() {
            let later = self.index.values.of(args.span).rev();
            later.filter_map(|id| self.recorded.record(id)).for_each(|record| show(&record));
        }
        args.definition.into_iter().for_each(show);
        self.bytes.replace(bytes);
    }

    /// The text of the error events that happened in a slice, the first one.
    fn show_error(&self, slice: u64, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(record) = self.index.errors.of(slice).next().and_then(|id| self.recorded.record(id)) else { return };
        let Some(metadata) = self.recorded.sites.get(record.head.site as usize).map(|site| site.metadata) else {
            return;
        };
        let mut bytes = self.later.take();
        self.recorded.payload(&record, &mut bytes);
        let field = |name| metadata.fields().field(name).map(|field| field.index());
        // `#[instrument(err)]` puts the error into the field `error`; messages are what people write by hand.
        let wanted = [field("error"), field("message")];
        let text = wanted.iter().flatten().find_map(|wanted| values(&bytes).find(|value| value.field == *wanted));
        match text.or_else(|| values(&bytes).next()) {
            Some(value) => each("error", value.value),
            None => each("error", ArgValue::Str(metadata.name())),
        }
        self.later.replace(bytes);
    }
}

impl Args for FieldArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if self.slice == 0 || self.source.index.errors.is_empty() {
            return self.source.show_fields(self, each);
        }
        let mut has_error = false;
        self.source.show_fields(self, &mut |key, value| {
            has_error |= key == "error";
            each(key, value);
        });
        if !has_error {
            self.source.show_error(self.slice, each);
        }
    }
}

impl Args for EventArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(keys) = self.source.keys(self.record.head.site) else { return };
        let mut bytes = self.source.bytes.take();
        self.source.recorded.payload(&self.record, &mut bytes);
        for value in values(&bytes) {
            match value.value {
                ArgValue::Bool(on) if self.numbers_only => keys.show(value.field, &ArgValue::I64(on.into()), each),
                ArgValue::Str(_) if self.numbers_only => {}
                _ => keys.show(value.field, &value.value, each),
            }
        }
        self.source.bytes.replace(bytes);
        if !self.numbers_only {
            if self.span != 0 {
                each("span id", ArgValue::U64(self.span));
            }
            if let Some(site) = self.source.recorded.sites.get(self.record.head.site as usize) {
                each("level", ArgValue::Str(site.metadata.level().as_str()));
            }
            if let Some(site) = self.source.sites.get(self.record.head.site as usize) {
                site.visit(each);
            }
        }
    }
}
