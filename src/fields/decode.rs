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

/// Returns the values that [`Encoder`](super::Encoder) has put into `bytes`; damaged bytes end the list.
pub(crate) fn values(mut bytes: &[u8]) -> impl Iterator<Item = Value<'_>> {
    std::iter::from_fn(move || next(&mut bytes))
}

fn next<'b>(bytes: &mut &'b [u8]) -> Option<Value<'b>> {
    let [field, kind] = take(bytes)?;
    let value = match kind & !code::CUT {
        code::I64 => ArgValue::I64(i64::from_le_bytes(take(bytes)?)),
        code::U64 => ArgValue::U64(u64::from_le_bytes(take(bytes)?)),
        code::F64 => ArgValue::F64(f64::from_bits(u64::from_le_bytes(take(bytes)?))),
        code::BOOL => ArgValue::Bool(take::<1>(bytes)? != [0]),
        code::I128 => ArgValue::I128(i128::from_le_bytes(take(bytes)?)),
        code::U128 => ArgValue::U128(u128::from_le_bytes(take(bytes)?)),
        code::STR | code::DEBUG => {
            let length = length(bytes)?;
            let (text, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            ArgValue::Str(std::str::from_utf8(text).ok()?)
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

fn length(bytes: &mut &[u8]) -> Option<usize> {
    let mut length = 0usize;
    for shift in (0..35).step_by(7) {
        let [byte] = take(bytes)?;
        length |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}
