//! JSON text of strings and numbers, put together in pieces of fixed size.
//!
//! Each of these writes to the start of an array and returns how many bytes of it count; what it leaves behind them is
//! of no account. So the bounds of a piece are checked once, and copies are stores, not calls.

/// The greatest integer that every reader takes as one: Perfetto and SQLite lose what is above.
pub(super) const MAX_INTEGER: u64 = i64::MAX.unsigned_abs();

/// What the longest number takes, and some more.
pub(super) const NUMBER: usize = 40;

/// The longest text that [`short_text`] takes.
pub(super) const SHORT: usize = 32;

const E8: u64 = 100_000_000;

/// Writes `value`.
#[inline]
pub(super) fn uint(room: &mut [u8; NUMBER], value: u64) -> usize {
    if value < E8 {
        let digits = spread(value);
        let zeros = leading_zeros(digits).min(7);
        store(room, 0, (ascii(digits) >> (zeros * 8)).to_le_bytes());
        8 - zeros
    } else if value < E8 * E8 {
        let (high, low) = (spread(value / E8), spread(value % E8));
        let zeros = leading_zeros(high);
        let digits = u128::from(ascii(high)) | (u128::from(ascii(low)) << 64);
        store(room, 0, (digits >> (zeros * 8)).to_le_bytes());
        16 - zeros
    } else {
        let high = spread(value / (E8 * E8));
        let zeros = leading_zeros(high);
        store(room, 0, (ascii(high) >> (zeros * 8)).to_le_bytes());
        store(room, 8 - zeros, ascii(spread(value / E8 % E8)).to_le_bytes());
        store(room, 16 - zeros, ascii(spread(value % E8)).to_le_bytes());
        24 - zeros
    }
}

/// Writes `ns` nanoseconds as microseconds with three decimals.
#[inline]
pub(super) fn micros(room: &mut [u8; NUMBER], ns: u64) -> usize {
    let (us, rest) = (ns / 1000, ns % 1000);
    let length = uint(room, us);
    store(room, length, [b'.', digit(rest / 100), digit(rest / 10 % 10), digit(rest % 10)]);
    length + 4
}

/// Writes `value` in lower-case hexadecimal digits.
pub(super) fn hex(room: &mut [u8; NUMBER], value: u64) -> usize {
    let mut length = 0;
    for at in (0..=value.checked_ilog2().unwrap_or(0) / 4).rev() {
        store(room, length, [hex_digit((value >> (at * 4)) & 0xf)]);
        length += 1;
    }
    length
}

/// Writes `text` as it stands and says whether that was right, that is, whether nothing in it needs an escape.
///
/// `text` is not longer than [`SHORT`].
#[inline]
pub(super) fn short_text(room: &mut [u8; SHORT], text: &[u8]) -> bool {
    let mut marks = 0;
    let (words, _) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        marks |= marked(*word);
        store(room, at * 8, *word);
    }
    // The last word overlaps the one before it, which is cheaper than a copy whose length is not known.
    if let Some(last) = text.last_chunk::<8>() {
        marks |= marked(*last);
        store(room, text.len() - 8, *last);
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let ([a, b, c, d], [e, f, g, h]) = (*first, *last);
        marks |= marked([a, b, c, d, e, f, g, h]);
        store(room, 0, *first);
        store(room, text.len() - 4, *last);
    } else {
        for (at, &byte) in text.iter().enumerate() {
            marks |= u64::from(needs_escape(byte));
            store(room, at, [byte]);
        }
    }
    marks == 0
}

/// Says whether nothing in `block` needs an escape.
#[inline]
pub(super) fn is_clean(block: &[u8; SHORT]) -> bool {
    let (words, _) = block.as_chunks::<8>();
    words.iter().fold(0, |marks, word| marks | marked(*word)) == 0
}

/// Writes one byte of a text, escaped if it must be.
///
/// Escaped are the quote, the backslash and U+0000 to U+001F; everything else stays as it is, in UTF-8.
pub(super) fn escaped(room: &mut [u8; 6], byte: u8) -> usize {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        0..0x20 => {
            *room = [b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), hex_digit(u64::from(byte & 0xf))];
            return 6;
        }
        _ => {
            store(room, 0, [byte]);
            return 1;
        }
    };
    store(room, 0, [b'\\', short]);
    2
}

/// Writes `bytes` at `at`; where they do not fit, which callers see to, nothing.
#[inline]
pub(super) fn store<const N: usize>(room: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = room.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

/// The digit `value`, which is below 10, in ASCII.
#[inline]
fn digit(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    b'0' | low
}

/// The hexadecimal digit `value`, which is below 16, in ASCII.
fn hex_digit(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    if low < 10 { b'0' + low } else { b'a' + low - 10 }
}

#[inline]
fn ascii(digits: u64) -> u64 {
    digits | 0x3030_3030_3030_3030
}

/// How many of eight digits are leading zeros.
#[inline]
fn leading_zeros(digits: u64) -> usize {
    (digits.trailing_zeros() / 8) as usize
}

/// Spreads the eight digits of `value`, which is below 10^8, over the bytes of a word, the first in the lowest.
///
/// Halves the groups of digits three times, each time all groups of the word at once; dividing by 100 and by 10 is
/// multiplying by 10486 / 2^20 and by 103 / 2^10, exact in these ranges.
#[inline]
fn spread(value: u64) -> u64 {
    let by4 = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((by4 * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let by2 = hundreds | ((by4 - 100 * hundreds) << 16);
    let tens = ((by2 * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((by2 - 10 * tens) << 8)
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Not 0 if a byte of `word` needs an escape, 0 if none does.
///
/// The high bit of `(x - n) & !x` tells in each byte whether it is below n; a borrow only reaches a byte above one
/// that is marked itself.
#[inline]
fn marked(word: [u8; 8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(word);
    let quote = word ^ (ONES * 0x22);
    let backslash = word ^ (ONES * 0x5c);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = quote.wrapping_sub(ONES) & !quote;
    let backslash = backslash.wrapping_sub(ONES) & !backslash;
    (control | quote | backslash) & (ONES * 0x80)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut [u8; NUMBER]) -> usize) -> String {
        let mut room = [b'~'; NUMBER];
        let length = write(&mut room);
        String::from_utf8(room[..length].to_vec()).unwrap()
    }

    #[test]
    fn integers_at_every_power_of_ten() {
        for power in 0..20 {
            let edge = 10_u64.pow(power);
            for value in [edge - 1, edge, edge + 1, edge.wrapping_mul(7), u64::MAX - edge] {
                assert_eq!(text(|room| uint(room, value)), value.to_string());
            }
        }
    }

    #[test]
    fn microseconds_have_three_decimals() {
        let cases = [(0, "0.000"), (7, "0.007"), (1000, "1.000"), (9_997_999, "9997.999"), (120, "0.120")];
        for (ns, expected) in cases {
            assert_eq!(text(|room| micros(room, ns)), expected);
        }
        assert_eq!(text(|room| micros(room, u64::MAX)), "18446744073709551.615");
    }

    #[test]
    fn what_needs_an_escape_is_seen_at_every_place_of_a_short_text() {
        for byte in 0..=255_u8 {
            for length in 1..=SHORT {
                for at in 0..length {
                    let mut bytes = [b'x'; SHORT];
                    bytes[at] = byte;
                    let mut room = [b'~'; SHORT];
                    let clean = short_text(&mut room, &bytes[..length]);
                    assert_eq!(clean, !needs_escape(byte), "{byte} at {at} of {length}");
                    assert_eq!(&room[..length], &bytes[..length]);
                    assert_eq!(is_clean(&bytes), clean);
                }
            }
        }
    }

    #[test]
    fn escapes_are_the_shortest() {
        let escape = |byte: u8| {
            let mut room = [b'~'; 6];
            let length = escaped(&mut room, byte);
            String::from_utf8(room[..length].to_vec()).unwrap()
        };
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
            prop_assert_eq!(text(|room| uint(room, value)), value.to_string());
            prop_assert_eq!(text(|room| hex(room, value)), format!("{value:x}"));
        }

        #[test]
        fn any_time_comes_back(ns in any::<u64>(), shift in 0..64_u32) {
            let ns = ns >> shift;
            let printed = text(|room| micros(room, ns));
            let (us, rest) = printed.split_once('.').unwrap();
            prop_assert_eq!(rest.len(), 3);
            prop_assert_eq!(us.parse::<u128>().unwrap() * 1000 + rest.parse::<u128>().unwrap(), u128::from(ns));
        }
    }
}
