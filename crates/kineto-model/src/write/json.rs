//! JSON text of strings and numbers, assembled in pieces of fixed size.
//!
//! The compiler knows the size of a piece, so it checks most bounds at compile time, and copies become stores instead
//! of calls.

use std::io;

use serde_json::ser::{CompactFormatter, Formatter};

/// The capacity of a piece in bytes; callers must not exceed it.
pub(super) const PIECE: usize = 256;

/// The maximum number of bytes stored at once; not all of them need count.
const BLOCK: usize = 80;

/// The memory of a piece, with space for a block that begins at its end.
pub(super) type PieceBuffer = [u8; PIECE + BLOCK];

/// The longest text that [`Piece::short_text`] takes.
pub(super) const SHORT: usize = 32;

/// A tenth of a second, in nanoseconds.
pub(super) const TENTH: u64 = E8;

const E8: u64 = 100_000_000;

/// A piece of text being written.
#[derive(Debug)]
pub(super) struct Piece<'b> {
    bytes: &'b mut PieceBuffer,
    length: usize,
}

impl<'b> Piece<'b> {
    /// Returns an empty piece in `bytes`, whose content does not matter.
    #[inline]
    pub(super) fn new(bytes: &'b mut PieceBuffer) -> Self {
        Piece { bytes, length: 0 }
    }

    /// Returns the number of bytes written.
    #[inline]
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Writes a literal.
    #[inline(always)]
    pub(super) fn put_literal<const N: usize>(&mut self, text: &[u8; N]) {
        self.store_bytes(*text);
        self.length += N;
    }

    /// Writes the first `length` bytes of `block`.
    #[inline(always)]
    pub(super) fn put_block<const N: usize>(&mut self, block: &[u8; N], length: usize) {
        self.store_bytes(*block);
        self.length += length;
    }

    #[inline(always)]
    pub(super) fn put_uint(&mut self, value: u64) {
        if value < 10 {
            self.put_literal(&[ascii_digit(value)]);
        } else if value < E8 {
            self.put_short_uint(value);
        } else {
            self.long_uint(value);
        }
    }

    #[inline(never)]
    fn long_uint(&mut self, value: u64) {
        if value < E8 * E8 {
            self.put_short_uint(value / E8);
        } else {
            self.put_short_uint(value / (E8 * E8));
            self.put_literal(&eight_digits(value / E8 % E8).to_le_bytes());
        }
        self.put_literal(&eight_digits(value % E8).to_le_bytes());
    }

    #[inline(always)]
    pub(super) fn put_int(&mut self, value: i64) {
        if value < 0 {
            self.put_literal(b"-");
        }
        self.put_uint(value.unsigned_abs());
    }

    /// Writes `value`, as a string if it is above 2^63-1, because Perfetto and others cannot read such integers.
    #[inline(always)]
    pub(super) fn put_wide_uint(&mut self, value: u64) {
        if value <= i64::MAX.unsigned_abs() {
            self.put_uint(value);
        } else {
            self.put_literal(b"\"");
            self.long_uint(value);
            self.put_literal(b"\"");
        }
    }

    /// Writes `value`, which is below 100, as two digits.
    #[inline(always)]
    pub(super) fn two_digits(&mut self, value: u64) {
        let tens = (value * 103) >> 10;
        self.put_literal(&[ascii_digit(tens), ascii_digit(value - tens * 10)]);
    }

    /// Writes `ns` nanoseconds as microseconds with three decimals.
    #[inline(always)]
    pub(super) fn put_micros(&mut self, ns: u64) {
        if ns < TENTH {
            let digits = eight_digits(ns);
            let length = decimal_length(ns).saturating_sub(3).max(1);
            self.store_bytes((digits >> ((40 - 8 * length) & 63)).to_le_bytes());
            self.length += length;
            self.put_decimals(digits);
        } else {
            self.put_uint(ns / TENTH);
            self.micros_of_tenth(ns % TENTH);
        }
    }

    /// Writes the digits that [`put_micros`](Piece::put_micros) puts after nonzero tenths of a second; `ns` is below a
    /// [`TENTH`].
    #[inline(always)]
    pub(super) fn micros_of_tenth(&mut self, ns: u64) {
        let digits = eight_digits(ns);
        self.store_bytes(digits.to_le_bytes());
        self.length += 5;
        self.put_decimals(digits);
    }

    /// Writes a point and the last three of eight digits.
    #[inline(always)]
    fn put_decimals(&mut self, digits: u64) {
        let [.., a, b, c] = digits.to_le_bytes();
        self.put_literal(&[b'.', a, b, c]);
    }

    /// Writes `value` in lower-case hexadecimal digits.
    pub(super) fn put_hex(&mut self, value: u64) {
        for at in (0..=value.checked_ilog2().unwrap_or(0) / 4).rev() {
            self.put_literal(&[hex_digit((value >> (at * 4)) & 0xf)]);
        }
    }

    /// Writes `value` in the fewest digits that read back as the same value, without ".0" except for -0.0.
    ///
    /// Values that are not finite become "inf", "-inf" or "nan", quoted, as in libkineto's args.
    #[inline]
    pub(super) fn put_float(&mut self, value: f64) {
        if !self.short_float(value) {
            self.long_float(value);
        }
    }

    /// Writes `value` if it is below 10^9 and has at most six decimals; returns whether it did.
    ///
    /// The result has at most 15 digits and reads back as the same value. The digits and the power of ten are both
    /// exact, so their quotient is the double closest to the written number. No two numbers of so few digits are the
    /// same double, so no shorter one exists.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and checked to be the same")]
    fn short_float(&mut self, value: f64) -> bool {
        const MILLION: u64 = 1_000_000;

        let magnitude = value.abs();
        // False for infinities and NaN.
        let is_small = magnitude < 1e9;
        let millionths = if is_small { (magnitude * MILLION as f64 + 0.5) as u64 } else { 0 };
        // Values below a ten thousandth may need an exponent.
        let is_tiny = (1..100).contains(&millionths);
        if !is_small || is_tiny || millionths as f64 / MILLION as f64 != magnitude {
            return false;
        }
        if value.is_sign_negative() {
            self.put_literal(b"-");
            // Python reads `-0` as the integer 0.
            if millionths == 0 {
                self.put_literal(b"0.0");
                return true;
            }
        }
        self.put_uint(millionths / MILLION);
        let decimals = millionths % MILLION;
        if decimals != 0 {
            let digits = eight_digits(decimals) >> 16;
            let zeros = (digits ^ (ZEROS >> 16)).leading_zeros() / 8;
            self.store_bytes(((digits << 8) | u64::from(b'.')).to_le_bytes());
            self.length += 9 - zeros as usize;
        }
        true
    }

    #[inline(never)]
    fn long_float(&mut self, value: f64) {
        if value.is_finite() {
            let mut rest = self.bytes.get_mut(self.length..).unwrap_or_default();
            let room = rest.len();
            // A double takes at most 24 bytes.
            let _: io::Result<()> = CompactFormatter.write_f64(&mut rest, value);
            self.length += room - rest.len();
            if self.bytes.get(..self.length).is_some_and(|text| text.ends_with(b".0")) {
                self.length -= 2;
            }
        } else if value.is_nan() {
            self.put_literal(b"\"nan\"");
        } else if value > 0.0 {
            self.put_literal(b"\"inf\"");
        } else {
            self.put_literal(b"\"-inf\"");
        }
    }

    /// Writes `text` unchanged; returns whether that is valid, because nothing in it needs an escape.
    ///
    /// `text` is at most [`SHORT`] long. Two overlapping blocks are cheaper than a copy of unknown length.
    #[inline(always)]
    pub(super) fn short_text(&mut self, text: &[u8]) -> bool {
        let end = self.length + text.len();
        let marks = if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
            self.store_bytes(*first);
            self.store_at(end - 16, *last);
            marks_of_block(*first) | marks_of_block(*last)
        } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
            self.store_bytes(*first);
            self.store_at(end - 8, *last);
            escape_marks(*first) | escape_marks(*last)
        } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
            self.store_bytes(*first);
            self.store_at(end - 4, *last);
            let ([a, b, c, d], [e, f, g, h]) = (*first, *last);
            escape_marks([a, b, c, d, e, f, g, h])
        } else {
            // Assembled in a register: loading a word from bytes that were just stored would stall.
            let word = match *text {
                [] => [b' '; 8],
                [a] => [a, b' ', b' ', b' ', b' ', b' ', b' ', b' '],
                [a, b] => [a, b, b' ', b' ', b' ', b' ', b' ', b' '],
                [a, b, c, ..] => [a, b, c, b' ', b' ', b' ', b' ', b' '],
            };
            self.store_bytes(word);
            escape_marks(word)
        };
        self.length = end;
        marks & HIGH == 0
    }

    /// Writes one byte of a text, escaped if necessary.
    ///
    /// Only the quote, the backslash and U+0000 to U+001F are escaped.
    pub(super) fn put_escaped_byte(&mut self, byte: u8) {
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            0..0x20 => {
                let low = hex_digit(u64::from(byte & 0xf));
                return self.put_literal(&[b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), low]);
            }
            _ => return self.put_literal(&[byte]),
        };
        self.put_literal(&[b'\\', short]);
    }

    /// Writes `value`, which is below 10^8 and not 0, without leading zeros.
    ///
    /// The number of digits is computed independently of the digits, so that the next write depends only on it.
    #[inline(always)]
    fn put_short_uint(&mut self, value: u64) {
        let length = decimal_length(value);
        self.store_bytes((eight_digits(value) >> ((64 - 8 * length) & 63)).to_le_bytes());
        self.length += length;
    }

    /// Stores `bytes` after the text written so far.
    #[inline(always)]
    fn store_bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        self.store_at(self.length, bytes);
    }

    /// Stores `bytes` at `at`, which lies in the piece; the mask proves that to the compiler.
    #[inline(always)]
    fn store_at<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        const { assert!(PIECE.is_power_of_two() && N <= BLOCK) };
        debug_assert!(at < PIECE, "a piece is too long");
        if let Some(place) = self.bytes.get_mut(at & (PIECE - 1)..).and_then(<[u8]>::first_chunk_mut) {
            *place = bytes;
        }
    }
}

/// Returns whether nothing in `block` needs an escape.
#[inline]
pub(super) fn is_clean(block: &[u8; SHORT]) -> bool {
    let (words, _) = block.as_chunks::<8>();
    words.iter().fold(0, |all, word| all | escape_marks(*word)) & HIGH == 0
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte.
const HIGH: u64 = ONES * 0x80;

/// Marks the first byte of `word` that needs an escape by its [`HIGH`] bit. All later bits and all other bits are
/// undefined.
///
/// The high bit of `(x - n) & !x` marks bytes below n. A borrow can mark further bytes wrongly, but only after one that
/// is marked correctly.
#[inline]
fn escape_marks(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let control = word.wrapping_sub(ONES * 0x20);
    let quote = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    (control | quote | backslash) & !word
}

/// Returns the [`escape_marks`] of both words of a block.
#[inline]
fn marks_of_block(block: [u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, rest @ ..] = block;
    escape_marks([a, b, c, d, e, f, g, h]) | escape_marks(rest)
}

/// Returns the ASCII digit of `value`, which is below 10.
#[inline]
fn ascii_digit(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    b'0' | low
}

/// Returns the ASCII hexadecimal digit of `value`, which is below 16.
fn hex_digit(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    if low < 10 { b'0' + low } else { b'a' + low - 10 }
}

/// Eight ASCII zeros.
const ZEROS: u64 = ONES * b'0' as u64;

/// Returns the number of digits of `value`, which is below 10^8.
#[inline]
fn decimal_length(value: u64) -> usize {
    const BY_BITS: [u64; 32] = lengths_by_bits();

    let bits = (value | 1).ilog2() as usize;
    ((value + BY_BITS.get(bits).copied().unwrap_or(0)) >> 32) as usize
}

/// By number of bits: a summand that makes the upper half of the sum the number of digits.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn lengths_by_bits() -> [u64; 32] {
    let mut table = [0; 32];
    let (mut bits, mut length, mut power) = (0, 1, 10);
    while bits < table.len() {
        let largest = (2 << bits) - 1;
        if largest < power {
            table[bits] = length << 32;
        } else {
            // The largest numbers with this many bits have one digit more than the smallest.
            length += 1;
            table[bits] = (length << 32) - power;
            power *= 10;
        }
        bits += 1;
    }
    table
}

/// Returns the eight ASCII digits of `value`, which is below 10^8, the first in the lowest byte.
///
/// It splits groups of digits in half three times, all groups of the word at once. Division by 100 and by 10 is
/// multiplication by 10486 / 2^20 and by 103 / 2^10, which is exact in these ranges.
#[inline]
fn eight_digits(value: u64) -> u64 {
    let by4 = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((by4 * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let by2 = hundreds | ((by4 - 100 * hundreds) << 16);
    let tens = ((by2 * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | ((by2 - 10 * tens) << 8);
    digits | ZEROS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Piece<'_>)) -> String {
        let mut bytes = [b'~'; PIECE + BLOCK];
        let mut piece = Piece::new(&mut bytes);
        piece.put_literal(b"<");
        write(&mut piece);
        let length = piece.length();
        String::from_utf8(bytes[1..length].to_vec()).unwrap()
    }

    #[test]
    fn integers_at_every_power_of_ten() {
        for power in 0..20 {
            let edge = 10_u64.pow(power);
            for value in [edge - 1, edge, edge + 1, edge.wrapping_mul(7), u64::MAX - edge] {
                assert_eq!(text(|piece| piece.put_uint(value)), value.to_string());
            }
        }
    }

    #[test]
    fn microseconds_have_three_decimals() {
        let cases = [(0, "0.000"), (7, "0.007"), (1000, "1.000"), (9_997_999, "9997.999"), (120, "0.120")];
        for (ns, expected) in cases {
            assert_eq!(text(|piece| piece.put_micros(ns)), expected);
        }
        assert_eq!(text(|piece| piece.put_micros(u64::MAX)), "18446744073709551.615");
    }

    #[test]
    fn floats_by_hand() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0.0"),
            (1.0, "1"),
            (1.25, "1.25"),
            (-1e15, "-1000000000000000"),
            (100.0, "100"),
            (f64::INFINITY, "\"inf\""),
            (f64::NEG_INFINITY, "\"-inf\""),
            (f64::NAN, "\"nan\""),
        ];
        for (value, expected) in cases {
            assert_eq!(text(|piece| piece.put_float(value)), expected);
        }
        for (value, exponent) in [(1e20, "20"), (5e-324, "-324"), (f64::MAX, "308")] {
            let printed = text(|piece| piece.put_float(value));
            assert!(printed.contains('e') && printed.ends_with(exponent) && printed.len() <= 25, "{printed}");
        }
    }

    proptest! {
        #[test]
        fn float_is_printed_as_by_serde_json(
            digits in -2_000_000_000_000_000..2_000_000_000_000_000_i64,
            power in 0..12,
            (any, few) in (any::<f64>(), -2000..2000_i32),
        ) {
            for value in [digits as f64 / 10_f64.powi(power), any, f64::from(few) / 10_f64.powi(power), f64::from(few)] {
                let printed = serde_json::to_string(&value).unwrap();
                let expected = printed.strip_suffix(".0").filter(|text| *text != "-0").unwrap_or(&printed);
                if value.is_finite() {
                    prop_assert_eq!(text(|piece| piece.put_float(value)), expected);
                }
            }
        }
    }

    #[test]
    fn escapes_are_detected_at_every_place_of_short_text() {
        for byte in 0..=255_u8 {
            for length in 1..=SHORT {
                for at in 0..length {
                    let mut bytes = [b'x'; SHORT];
                    bytes[at] = byte;
                    let mut room = [b'~'; PIECE + BLOCK];
                    let mut piece = Piece::new(&mut room);
                    piece.put_literal(b"<\"");
                    let clean = piece.short_text(&bytes[..length]);
                    assert_eq!(piece.length(), length + 2);
                    assert_eq!(clean, (byte >= 0x20 && byte != b'"' && byte != b'\\'), "{byte} at {at} of {length}");
                    assert_eq!(&room[2..2 + length], &bytes[..length]);
                    assert_eq!(is_clean(&bytes), clean);
                }
            }
        }
    }

    #[test]
    fn escapes_are_the_shortest() {
        let escape = |byte: u8| text(|piece| piece.put_escaped_byte(byte));
        assert_eq!(b"a\"\\\n\r\t\x08\x0c\0\x1f\x7f".map(escape).concat(), "a\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001f\x7f");
        for byte in 0..128 {
            let printed = format!("\"{}\"", escape(byte));
            assert_eq!(serde_json::from_str::<String>(&printed).unwrap().as_bytes(), [byte]);
            assert_eq!(printed, serde_json::to_string(&char::from(byte).to_string()).unwrap());
        }
    }

    proptest! {
        #[test]
        fn any_integer_is_printed_as_rust_prints_it(value in any::<u64>(), shift in 0..64_u32) {
            let value = value >> shift;
            prop_assert_eq!(text(|piece| piece.put_uint(value)), value.to_string());
            prop_assert_eq!(text(|piece| piece.put_hex(value)), format!("{value:x}"));
        }

        #[test]
        fn any_time_round_trips(ns in any::<u64>(), shift in 0..64_u32) {
            let ns = ns >> shift;
            let printed = text(|piece| piece.put_micros(ns));
            let (us, rest) = printed.split_once('.').unwrap();
            prop_assert_eq!(rest.len(), 3);
            prop_assert_eq!(us.parse::<u128>().unwrap() * 1000 + rest.parse::<u128>().unwrap(), u128::from(ns));
        }

        #[test]
        fn any_float_round_trips(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let printed = text(|piece| piece.put_float(value));
            prop_assert_eq!(printed.parse::<f64>().unwrap().to_bits(), bits);
            prop_assert!(serde_json::from_str::<serde_json::Number>(&printed).is_ok());
            prop_assert!((!printed.ends_with(".0") || value == 0.0) && printed.len() <= 25, "{}", printed);
        }
    }
}
