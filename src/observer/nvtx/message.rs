//! The text of a range, as torch's `emit_nvtx` writes it.

use crate::observer::ObservedSpan;
use kineto_model::activity::ArgValue;
use std::fmt::Write as _;

/// Returns `name, seq = N, op_id = I, sizes = [[a, b], []]`; `seq` and `sizes` only if the span has them.
///
/// torch's `input_op_ids` are left out: a span does not name the operations that produced its inputs.
pub(super) fn range_text(span: &ObservedSpan) -> String {
    let mut text = span.name().to_owned();
    let sequence = span.field("seq").or_else(|| span.field("Sequence number"));
    let sequence = match sequence {
        Some(ArgValue::I64(number)) => u64::try_from(number).ok(),
        Some(ArgValue::U64(number)) => Some(number),
        _ => None,
    };
    // Writing to a string does not fail.
    if let Some(number) = sequence {
        let _ = write!(text, ", seq = {number}");
    }
    let _ = write!(text, ", op_id = {}", span.number());
    if let Some(ArgValue::Str(sizes)) = span.field("dims").or_else(|| span.field("Input Dims")) {
        let _ = write!(text, ", sizes = {sizes}");
    }
    text
}
