//! The arguments of host rows, decoded from the records on demand.

use crate::buffer::{CommittedRecord, Tag};
use crate::fields::{Datum, Value, Word, decode_values};
use crate::trace::index::Index;
use crate::trace::walk::Walk;
use kineto_base::fallible::List;
use kineto_model::activity::{ArgValue, Args};
use kineto_model::keys::WrittenFields;
use kineto_model::rows::SiteRow;

/// The arguments that a program gives a span: its fields, and the error that happened in a slice.
pub(crate) struct FieldArgs<'t> {
    pub(crate) walk: &'t Walk<'t>,
    pub(crate) site: u32,
    pub(crate) span: u64,
    /// The span's own record, if it has one.
    pub(crate) definition: Option<&'t CommittedRecord<'t>>,
    /// The slice, 0 for a track.
    pub(crate) slice: u64,
}

/// The arguments of an event: its fields.
pub(crate) struct EventArgs<'t> {
    pub(crate) walk: &'t Walk<'t>,
    pub(crate) record: CommittedRecord<'t>,
    pub(crate) span: u64,
    /// Whether to show only values that a counter can show.
    pub(crate) numbers_only: bool,
}

impl Walk<'_> {
    /// Returns the text of that field in a record.
    pub(crate) fn field_text<'b>(
        &self,
        record: &CommittedRecord<'_>,
        words: &'b mut List<Word>,
        field: usize,
    ) -> Option<&'b str> {
        self.recorded.read_payload(record, words);
        text_of(words, field)
    }

    /// Returns the name in a span's fields, the one recorded last.
    pub(crate) fn span_name<'b>(&self, span: u64, site: u32, words: &'b mut List<Word>) -> Option<&'b str> {
        self.span_text(span, site, self.sites.get(site as usize)?.keys.name?, words)
    }

    /// Returns the text of a field of a span of that callsite, the one recorded last.
    pub(crate) fn span_text<'b>(
        &self,
        span: u64,
        site: u32,
        field: usize,
        words: &'b mut List<Word>,
    ) -> Option<&'b str> {
        let candidates = self.index.values.paired_with(span).rev().chain([span]);
        let mut records = candidates.filter_map(|id| self.recorded.find_record(id));
        records.find(|record| record.head.site == site && self.field_text(record, words, field).is_some())?;
        text_of(words, field)
    }

    /// Returns whether a slice may have more arguments than those at the span's creation.
    #[inline]
    pub(crate) fn has_more(&self, span: u64) -> bool {
        let Index { values, errors, .. } = self.index;
        !errors.is_empty() || !values.is_empty() && values.paired_with(span).next().is_some()
    }

    /// Shows the fields of a span: those at its creation, replaced by later ones.
    pub(crate) fn show_fields(&self, args: &FieldArgs<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(site) = self.sites.get(args.site as usize) else { return };
        let mut words = self.words.take();
        let (mut shown, mut added) = (WrittenFields::default(), Vec::new());
        let mut show = |record: &CommittedRecord<'_>| {
            if record.head.site == args.site {
                self.recorded.read_payload(record, &mut words);
                let values = decode_values(&words).filter(|value| shown.is_first(value.field));
                values.for_each(|value| site.keys.visit_value(value, each));
            } else if let Some(other) =
                self.sites.get(record.head.site as usize).filter(|_| record.head.tag == Tag::Values)
            {
                self.recorded.read_payload(record, &mut words);
                decode_values(&words)
                    .for_each(|value| other.keys.visit_value(value, &mut only_new_fields(site, &mut added, each)));
            }
        };
        // The last value of a field wins, so iterate from the latest record.
        let later = self.index.values.paired_with(args.span).rev();
        later.filter_map(|id| self.recorded.find_record(id)).for_each(|record| show(&record));
        args.definition.into_iter().for_each(show);
        self.words.replace(words);
    }

    /// Shows the text of the first error event in a slice.
    fn show_error(&self, slice: u64, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(record) = self.index.errors.paired_with(slice).next().and_then(|id| self.recorded.find_record(id))
        else {
            return;
        };
        let Some(site) = self.recorded.sites.get(record.head.site as usize) else { return };
        let mut words = List::new();
        self.recorded.read_payload(&record, &mut words);
        // `#[instrument(err)]` puts the error into the field `error`; hand-written events use the message.
        let wanted = ["error", "message"].map(|name| site.field_index(name));
        let text =
            wanted.iter().flatten().find_map(|wanted| decode_values(&words).find(|value| value.field == *wanted));
        match text.or_else(|| decode_values(&words).next()) {
            Some(value) => each("error", value.datum.into()),
            None => each("error", ArgValue::Str(&site.name)),
        }
    }
}

impl Args for FieldArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if self.slice == 0 || self.walk.index.errors.is_empty() {
            return self.walk.show_fields(self, each);
        }
        let mut has_error = false;
        self.walk.show_fields(self, &mut |key, value| {
            has_error |= key == "error";
            each(key, value);
        });
        if !has_error {
            self.walk.show_error(self.slice, each);
        }
    }
}

impl Args for EventArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(site) = self.walk.sites.get(self.record.head.site as usize) else { return };
        let mut words = self.walk.words.take();
        self.walk.recorded.read_payload(&self.record, &mut words);
        for value in decode_values(&words) {
            match value.datum {
                Datum::Bool(on) if self.numbers_only => {
                    site.keys.visit_value(Value { datum: Datum::I64(on.into()), ..value }, each);
                }
                Datum::Text(_) if self.numbers_only => {}
                _ => site.keys.visit_value(value, each),
            }
        }
        self.walk.words.replace(words);
        if !self.numbers_only {
            if self.span != 0 {
                each("span id", ArgValue::U64(self.span));
            }
            if let Some(site) = self.walk.recorded.sites.get(self.record.head.site as usize) {
                each("level", ArgValue::Str(&site.level));
            }
            site.visit(each);
        }
    }
}

/// Shows fields that other callsites recorded for a span, except those shown before; `added` holds the keys shown.
fn only_new_fields<'a>(
    site: &'a SiteRow,
    added: &'a mut Vec<String>,
    each: &'a mut dyn FnMut(&str, ArgValue<'_>),
) -> impl FnMut(&str, ArgValue<'_>) + 'a {
    move |key, value| {
        if !site.keys.has_key(key) && !added.iter().any(|known| known == key) {
            added.push(key.to_owned());
            each(key, value);
        }
    }
}

/// Returns the text of that field in `words`.
fn text_of(words: &[Word], field: usize) -> Option<&str> {
    match decode_values(words).find(|value| value.field == field)?.datum.into() {
        ArgValue::Str(text) => Some(text),
        _ => None,
    }
}
