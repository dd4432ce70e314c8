//! Passes the field values of a span or an event to a function.

use kineto_model::activity::ArgValue;
use std::fmt::Debug;
use tracing_core::field::{Field, Visit};

/// A field's value; `Err` if it has only a `Debug` form, which user code formats.
pub(crate) type FieldValue<'v> = Result<ArgValue<'v>, &'v dyn Debug>;

/// A visitor that calls a function with each field and its value.
pub(crate) struct EachField<F: FnMut(&Field, FieldValue<'_>)>(pub(crate) F);

impl<F: FnMut(&Field, FieldValue<'_>)> Visit for EachField<F> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        (self.0)(field, Err(value));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        (self.0)(field, Ok(ArgValue::Str(value)));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        (self.0)(field, Ok(ArgValue::Bool(value)));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        (self.0)(field, Ok(ArgValue::I64(value)));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        (self.0)(field, Ok(ArgValue::U64(value)));
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        (self.0)(field, Ok(ArgValue::F64(value)));
    }
    fn record_i128(&mut self, field: &Field, value: i128) {
        (self.0)(field, Ok(ArgValue::I128(value)));
    }
    fn record_u128(&mut self, field: &Field, value: u128) {
        (self.0)(field, Ok(ArgValue::U128(value)));
    }
}
