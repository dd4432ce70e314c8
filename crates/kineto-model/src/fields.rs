//! Decodes field values.
//!
//! A value consists of a header word and the words of the value. The header contains the type (8 bits), the field's
//! index (8 bits) and, for a string, its length in bytes (32 bits). Values are padded to whole words with zeros.

use crate::activity::ArgValue;

/// The types of encoded values.
pub mod code {
    /// A signed integer.
    pub const I64: u8 = 1;
    /// An unsigned integer.
    pub const U64: u8 = 2;
    /// A number with a fraction.
    pub const F64: u8 = 3;
    /// A truth value.
    pub const BOOL: u8 = 4;
    /// A signed integer of two words.
    pub const I128: u8 = 5;
    /// An unsigned integer of two words.
    pub const U128: u8 = 6;
    /// A string.
    pub const STR: u8 = 7;
    /// A string produced by `Debug` or `Display`.
    pub const DEBUG: u8 = 8;
}

/// A word of a payload in little-endian order, so strings are stored unchanged.
pub type Word = [u8; 8];

/// One field's value.
#[derive(Clone, Copy, Debug)]
pub struct Value<'w> {
    /// The field's index in its callsite.
    pub field: usize,
    /// The value.
    pub datum: Datum<'w>,
}

/// A decoded value.
#[derive(Clone, Copy, Debug)]
pub enum Datum<'w> {
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A number with a fraction.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// A signed integer of two words.
    I128(i128),
    /// An unsigned integer of two words.
    U128(u128),
    /// Valid UTF-8, as bytes; a conversion to `str` would check it again.
    Text(&'w [u8]),
}

/// Returns the encoded values; a damaged one ends the list.
#[inline(always)]
pub fn decode_values(mut words: &[Word]) -> impl Iterator<Item = Value<'_>> {
    std::iter::from_fn(move || decode_next(&mut words))
}

#[inline(always)]
fn decode_next<'w>(words: &mut &'w [Word]) -> Option<Value<'w>> {
    let ([kind, field, _, _, length @ ..], rest) = words.split_first()?;
    *words = rest;
    let datum = match *kind {
        code::I64 => Datum::I64(i64::from_le_bytes(take_word(words)?)),
        code::U64 => Datum::U64(u64::from_le_bytes(take_word(words)?)),
        code::F64 => Datum::F64(f64::from_bits(u64::from_le_bytes(take_word(words)?))),
        code::BOOL => Datum::Bool(take_word(words)? != [0; 8]),
        code::I128 => Datum::I128(take_u128(words)?.cast_signed()),
        code::U128 => Datum::U128(take_u128(words)?),
        code::STR | code::DEBUG => {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (text, rest) = words.split_at_checked(length.div_ceil(8))?;
            *words = rest;
            Datum::Text(checked_utf8(text, length)?)
        }
        _ => return None,
    };
    Some(Value { field: usize::from(*field), datum })
}

#[inline(always)]
fn take_word(words: &mut &[Word]) -> Option<Word> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    Some(*first)
}

fn take_u128(words: &mut &[Word]) -> Option<u128> {
    let (low, high) = (u64::from_le_bytes(take_word(words)?), u64::from_le_bytes(take_word(words)?));
    Some(u128::from(low) | u128::from(high) << 64)
}

/// Returns the first `length` bytes of `words` if they are valid UTF-8.
#[inline(always)]
fn checked_utf8(words: &[Word], length: usize) -> Option<&[u8]> {
    const HIGH: u64 = 0x8080_8080_8080_8080;

    let text = words.as_flattened().get(..length)?;
    // The padding consists of zeros.
    let is_ascii = words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word)) & HIGH == 0;
    (is_ascii || std::str::from_utf8(text).is_ok()).then_some(text)
}

impl<'w> From<Datum<'w>> for ArgValue<'w> {
    #[inline]
    fn from(datum: Datum<'w>) -> ArgValue<'w> {
        match datum {
            Datum::I64(value) => ArgValue::I64(value),
            Datum::U64(value) => ArgValue::U64(value),
            Datum::F64(value) => ArgValue::F64(value),
            Datum::Bool(value) => ArgValue::Bool(value),
            Datum::I128(value) => ArgValue::I128(value),
            Datum::U128(value) => ArgValue::U128(value),
            Datum::Text(text) => ArgValue::Str(std::str::from_utf8(text).unwrap_or_default()),
        }
    }
}

/// Encodes values as the recorder does.
pub fn encode_values(values: &[(u8, Datum<'_>)]) -> Vec<Word> {
    let mut words = Vec::new();
    for (field, datum) in values {
        let (code, value, length) = match datum {
            Datum::I64(value) => (code::I64, value.to_le_bytes().to_vec(), 0),
            Datum::U64(value) => (code::U64, value.to_le_bytes().to_vec(), 0),
            Datum::F64(value) => (code::F64, value.to_le_bytes().to_vec(), 0),
            Datum::Bool(value) => (code::BOOL, u64::from(*value).to_le_bytes().to_vec(), 0),
            Datum::I128(value) => (code::I128, value.to_le_bytes().to_vec(), 0),
            Datum::U128(value) => (code::U128, value.to_le_bytes().to_vec(), 0),
            Datum::Text(text) => (code::STR, text.to_vec(), u32::try_from(text.len()).unwrap_or(u32::MAX)),
        };
        let [a, b, c, d] = length.to_le_bytes();
        words.push([code, *field, 0, 0, a, b, c, d]);
        words.extend(value.chunks(8).map(|bytes| std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(words: &[Word]) -> Vec<(usize, String)> {
        decode_values(words).map(|value| (value.field, format!("{:?}", ArgValue::from(value.datum)))).collect()
    }

    proptest! {
        #[test]
        fn damaged_words_end_the_list(mut words in prop::collection::vec(any::<Word>(), 0..20)) {
            words.iter_mut().for_each(|[code, .., c, d]| (*code, *c, *d) = (*code % 10, 0, 0));
            prop_assert!(read(&words).len() <= words.len());
        }

        #[test]
        fn any_text_round_trips(expected in any::<String>()) {
            let words = encode_values(&[(3, Datum::Text(expected.as_bytes()))]);
            prop_assert_eq!(read(&words), [(3, format!("{expected:?}"))]);
        }
    }

    #[test]
    fn invalid_text_ends_the_list() {
        let texts = encode_values(&[(0, Datum::Text(b"good")), (1, Datum::Text(b"\xff")), (2, Datum::Text(b"good"))]);
        assert_eq!(read(&texts), [(0, "\"good\"".to_owned())]);
        let mut truncated = encode_values(&[(0, Datum::Text(b"longer than a word"))]);
        truncated.pop();
        assert_eq!(read(&truncated), [], "its end is missing");
    }
}
