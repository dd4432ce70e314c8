//! Determines the scope of a span by its fields.

use super::{Datum, Word, decode_values};
use crate::callsite::{ScopeFields, Site};
use crate::text::Bounded;
use kineto_model::activity::{ActivityType, RecordScope};
use std::fmt;
use tracing_core::field::{Field, Visit};

/// The fields of a span that determine its scope.
struct ScopeValues {
    fields: ScopeFields,
    /// The field that decides the class of the callsite, if any.
    kind_field: Option<usize>,
    scope: Option<RecordScope>,
    is_backward: bool,
    kind: Option<ActivityType>,
}

impl ScopeValues {
    fn new(fields: ScopeFields, kind_field: Option<usize>) -> ScopeValues {
        ScopeValues { fields, kind_field, scope: None, is_backward: false, kind: None }
    }

    fn apply_number(&mut self, field: usize, number: u64) {
        if self.fields.scope == Some(field) {
            self.scope = u8::try_from(number).ok().and_then(RecordScope::from_number);
        }
        self.is_backward |= self.fields.forward_thread == Some(field) && number != 0;
    }

    fn apply_text(&mut self, field: usize, text: &str) {
        if self.kind_field == Some(field) {
            self.kind = text.parse().ok();
        }
        match text.parse() {
            Ok(number) => self.apply_number(field, number),
            Err(_) if self.fields.scope == Some(field) => self.scope = text.trim_matches('"').parse().ok(),
            Err(_) => {}
        }
    }

    fn select_site(self, site: &'static Site) -> &'static Site {
        let scope = self.scope.or(self.is_backward.then_some(RecordScope::BackwardFunction));
        site.of_scope_or_kind(scope, self.kind)
    }
}

impl Visit for ScopeValues {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Other fields are not formatted here.
        if self.fields.contains_field(field.index()) || self.kind_field == Some(field.index()) {
            const LONGEST: usize = 32;
            self.apply_text(field.index(), &Bounded::from_debug(value, LONGEST).text);
        }
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.apply_text(field.index(), value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.apply_number(field.index(), value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.apply_number(field.index(), u64::try_from(value).unwrap_or(u64::MAX));
    }
}

impl Site {
    /// Returns the decision for a span of this callsite: the callsite's own, unless its fields, passed by `record`, set a
    /// scope that is not recorded.
    #[inline]
    pub(crate) fn of_span(&'static self, record: impl FnOnce(&mut dyn Visit)) -> &'static Site {
        let Some(scopes) = &self.scopes else { return self };
        let mut scope_values = ScopeValues::new(scopes.fields, self.kind_field);
        record(&mut scope_values);
        scope_values.select_site(self)
    }

    /// Like [`of_span`](Site::of_span), for encoded fields.
    pub(crate) fn of_encoded(&'static self, payload: &[u64]) -> &'static Site {
        let Some(scopes) = &self.scopes else { return self };
        let mut scope_values = ScopeValues::new(scopes.fields, self.kind_field);
        let words: Vec<Word> = payload.iter().map(|word| word.to_le_bytes()).collect();
        for value in decode_values(&words) {
            match value.datum {
                Datum::U64(number) => scope_values.apply_number(value.field, number),
                Datum::I64(number) => scope_values.apply_number(value.field, u64::try_from(number).unwrap_or(u64::MAX)),
                Datum::Text(text) => scope_values.apply_text(value.field, str::from_utf8(text).unwrap_or_default()),
                _ => {}
            }
        }
        scope_values.select_site(self)
    }
}
