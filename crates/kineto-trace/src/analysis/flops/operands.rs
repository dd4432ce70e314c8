//! The inputs of an operation, as formulas see them.

use crate::analysis::events::values::shown_text;
use crate::analysis::events::{Event, Shape};
use std::fmt;

/// The inputs of one operation.
///
/// They come from the arguments `Input Dims` and `Concrete Inputs`, which a span's fields `dims` and `concrete_inputs`
/// become.
pub struct Operands<'e> {
    event: &'e Event<'e>,
    shapes: Vec<Shape>,
    values: Vec<String>,
}

impl fmt::Debug for Operands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operands").field("event", self.event).finish_non_exhaustive()
    }
}

impl<'e> Operands<'e> {
    pub(super) fn new(event: &'e Event<'e>) -> Operands<'e> {
        let (shapes, values) = (event.input_dims().unwrap_or_default(), event.concrete_inputs().unwrap_or_default());
        Operands { event, shapes, values }
    }

    /// Returns the event, for its other arguments.
    pub fn event(&self) -> &Event<'e> {
        self.event
    }

    /// Returns the shape of an input, counted from 0; `None` if it is not a tensor or its shape is unknown.
    pub fn shape(&self, input: usize) -> Option<Vec<u64>> {
        match self.shapes.get(input)? {
            Shape::Tensor(dims) if !dims.is_empty() => dims.iter().map(|size| u64::try_from(*size).ok()).collect(),
            _ => None,
        }
    }

    /// Returns the number of elements of an input.
    pub fn numel(&self, input: usize) -> Option<u64> {
        checked_product(&self.shape(input)?)
    }

    /// Returns an input that is not a tensor, as text: the `input`th of `Concrete Inputs`, else the argument `name`.
    pub fn value(&self, input: usize, name: &str) -> Option<String> {
        let concrete = self.values.get(input).filter(|value| !value.is_empty()).cloned();
        concrete.or_else(|| self.event.arg(name).map(shown_text))
    }

    /// Returns the integers of an input, a single number or a list in brackets; `None` for anything else.
    pub fn integers(&self, input: usize, name: &str) -> Option<Vec<u64>> {
        let value = self.value(input, name)?;
        let list = value.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
        list.split(',').map(|number| number.trim().parse().ok()).collect()
    }
}

/// Returns the product; `None` if it overflows.
pub(super) fn checked_product(numbers: &[u64]) -> Option<u64> {
    numbers.iter().try_fold(1u64, |product, number| product.checked_mul(*number))
}
