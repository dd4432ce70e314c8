//! Reads field values back.

use super::code;
use crate::activity::ArgValue;

/// One field's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'b> {
    /// The field's index in its callsite.
    pub(crate) field: usize,
    pub(crate) value: ArgValue<'b>,
}

/// Returns the values that [`Encoder`](super::Encoder) has put into words, of which `bytes` are the little-endian ones; damaged bytes end the list.
pub(crate) fn values(mut bytes: &[u8]) -> impl Iterator<Item = Value<'_>> {
    std::iter::from_fn(move || next(&mut bytes))
}

fn next<'b>(bytes: &mut &'b [u8]) -> Option<Value<'b>> {
    let [kind, field, _, _, a, b, c, d] = take(bytes)?;
    let value = match kind & !code::CUT {
        code::I64 => ArgValue::I64(i64::from_le_bytes(take(bytes)?)),
        code::U64 => ArgValue::U64(u64::from_le_bytes(take(bytes)?)),
        code::F64 => ArgValue::F64(f64::from_bits(u64::from_le_bytes(take(bytes)?))),
        code::BOOL => ArgValue::Bool(take::<8>(bytes)? != [0; 8]),
        code::I128 => ArgValue::I128(i128::from_le_bytes(take(bytes)?)),
        code::U128 => ArgValue::U128(u128::from_le_bytes(take(bytes)?)),
        code::STR | code::DEBUG => {
            let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
            let (padded, rest) = bytes.split_at_checked(length.checked_next_multiple_of(8)?)?;
            *bytes = rest;
            ArgValue::Str(std::str::from_utf8(padded.get(..length)?).ok()?)
        }
        _ => return None,
    };
    Some(Value { field: usize::from(field), value })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
