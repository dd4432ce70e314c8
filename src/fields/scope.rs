//! Determines the scope of a span by its fields.

use super::{Word, decode_values};
use crate::callsite::{EachField, ScopeFields, Site};
use crate::text::Bounded;
use kineto_model::activity::{ActivityType, ArgValue, RecordScope};
use std::fmt::Debug;
use tracing_core::field::Visit;

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

    fn apply(&mut self, field: usize, value: ArgValue<'_>) {
        match value {
            ArgValue::U64(number) => self.apply_number(field, number),
            ArgValue::I64(number) => self.apply_number(field, u64::try_from(number).unwrap_or(u64::MAX)),
            ArgValue::Str(text) => self.apply_text(field, text),
            _ => {}
        }
    }

    fn apply_debug(&mut self, field: usize, value: &dyn Debug) {
        // Other fields are not formatted here.
        if self.fields.contains_field(field) || self.kind_field == Some(field) {
            const LONGEST: usize = 32;
            self.apply_text(field, &Bounded::from_debug(value, LONGEST).text);
        }
    }
}

impl Site {
    /// Returns the decision for a span of this callsite: the callsite's own, unless its fields, passed by `record`, set a
    /// scope that is not recorded.
    #[inline]
    pub(crate) fn of_span(&'static self, record: impl FnOnce(&mut dyn Visit)) -> &'static Site {
        self.of_values(|values| {
            record(&mut EachField(|field, value| match value {
                Ok(value) => values.apply(field.index(), value),
                Err(value) => values.apply_debug(field.index(), value),
            }));
        })
    }

    /// Like [`of_span`](Site::of_span), for encoded fields.
    pub(crate) fn of_encoded(&'static self, payload: &[u64]) -> &'static Site {
        self.of_values(|values| {
            let words: Vec<Word> = payload.iter().map(|word| word.to_le_bytes()).collect();
            decode_values(&words).for_each(|value| values.apply(value.field, value.datum.into()));
        })
    }

    #[inline]
    fn of_values(&'static self, pass: impl FnOnce(&mut ScopeValues)) -> &'static Site {
        let Some(scopes) = &self.scopes else { return self };
        let (fields, kind_field) = (scopes.fields, self.kind_field);
        let mut values = ScopeValues { fields, kind_field, scope: None, is_backward: false, kind: None };
        pass(&mut values);
        self.of_scope(values.scope.or(values.is_backward.then_some(RecordScope::BackwardFunction)), values.kind)
    }
}
