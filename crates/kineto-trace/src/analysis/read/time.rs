//! Converts decimal microseconds to whole nanoseconds.

use crate::analysis::json_reader::JsonNumber;

/// Converts a number of microseconds to nanoseconds; `None` if they exceed 64 bits.
///
/// It works on the digits, never on a float. Digits after the third decimal are rounded half to even.
pub(super) fn micros_to_ns(number: JsonNumber<'_>) -> Option<i64> {
    number.scaled(3).or_else(|| micros_text_to_ns(number.as_str()))
}

/// As [`micros_to_ns`], for text; `None` if it is not a number.
pub(super) fn micros_text_to_ns(number: &str) -> Option<i64> {
    scale_and_round(number, 3)
}

/// Rounds a JSON number to a whole number; `None` if it exceeds 64 bits.
pub(super) fn round_to_integer(number: &str) -> Option<i64> {
    scale_and_round(number, 0)
}

/// Returns `number` times 10 to the power of `power`, rounded.
fn scale_and_round(number: &str, power: i64) -> Option<i64> {
    let (negative, number) = number.strip_prefix('-').map_or((false, number), |number| (true, number));
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
        None => (number, 0),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // The number of digits before the result's decimal point.
    let point = i64::try_from(whole.len()).ok()?.saturating_add(exponent).saturating_add(power);
    let mut rounding = Rounding { value: 0, digits_left: point, first_dropped: 0, has_nonzero_rest: false };
    for digit in whole.bytes().chain(decimals.bytes()) {
        rounding.push_digit(digit)?;
    }
    let value = i64::try_from(rounding.finish()?).ok()?;
    Some(if negative { -value } else { value })
}

/// A number being rounded, digit by digit.
struct Rounding {
    value: u64,
    /// The number of digits left before the point; if negative, the digits already seen after it.
    digits_left: i64,
    /// The first digit after the point.
    first_dropped: u8,
    /// Whether any digit after that is nonzero.
    has_nonzero_rest: bool,
}

impl Rounding {
    fn push_digit(&mut self, digit: u8) -> Option<()> {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        match self.digits_left {
            1.. => self.value = self.value.checked_mul(10)?.checked_add(digit.into())?,
            0 => self.first_dropped = digit,
            _ => self.has_nonzero_rest |= digit != 0,
        }
        self.digits_left -= 1;
        Some(())
    }

    fn finish(mut self) -> Option<u64> {
        while self.digits_left > 0 && self.value != 0 {
            self.value = self.value.checked_mul(10)?;
            self.digits_left -= 1;
        }
        let up = match self.first_dropped {
            5 => self.has_nonzero_rest || self.value % 2 == 1,
            first => first > 5,
        };
        self.value.checked_add(up.into())
    }
}

/// Returns an exponent, clamped: beyond some thousands its value makes no difference.
fn exponent_of(digits: &str) -> Option<i64> {
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    // The digits may exceed any integer type.
    let size = digits
        .chars()
        .try_fold(0_i64, |size, digit| Some((size * 10 + i64::from(digit.to_digit(10)?)).min(1 << 40)))?;
    Some(if negative { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::json_reader::{Json, JsonValue};
    use proptest::prelude::*;

    /// Returns the nanoseconds of a text, in both ways if it is a JSON number.
    fn nanos(text: &str) -> Option<i64> {
        let ns = micros_text_to_ns(text);
        let mut json = Json::new(text.as_bytes(), 0);
        if let (Ok(JsonValue::Number(number)), true) = (json.read_value(), json.is_at_end()) {
            assert_eq!(micros_to_ns(number), ns, "{text}");
        }
        ns
    }

    #[test]
    fn decimal_microseconds_become_whole_nanoseconds() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("4458676416788.066", Some(4_458_676_416_788_066)),
            ("1695835543008415", Some(1_695_835_543_008_415_000)),
            ("0.0005", Some(0)),
            ("0.0015", Some(2)),
            ("0.0025", Some(2)),
            ("0.00250000000000000000000000000000001", Some(3)),
            ("0.0004999999999999999999999999", Some(0)),
            ("-0.0015", Some(-2)),
            ("-12.5", Some(-12_500)),
            ("1.5e3", Some(1_500_000)),
            ("1500E-3", Some(1500)),
            ("25e-4", Some(2)),
            ("35e-4", Some(4)),
            ("5e-5", Some(0)),
            ("1e-99999999999999999999", Some(0)),
            ("0e99999999999999999999", Some(0)),
            ("1e99999999999999999999", None),
            ("9223372036854775.807", Some(i64::MAX)),
            ("9223372036854775.808", None),
            ("1.7e12", Some(1_700_000_000_000_000)),
            ("123456789012345678901234567890e-20", Some(1_234_567_890_123)),
            ("x", None),
            ("1ex", None),
            ("1.2.3", None),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_times_round_trip(ns in 0..i64::MAX) {
            prop_assert_eq!(nanos(&format!("{}.{:03}", ns / 1000, ns % 1000)), Some(ns));
            prop_assert_eq!(nanos(&format!("-{}.{:03}00", ns / 1000, ns % 1000)), Some(-ns));
            let shifted = format!("{ns}e-3");
            prop_assert_eq!(nanos(&shifted), Some(ns));
        }

        #[test]
        fn no_text_panics(text in "[0-9eE.+-]{0,40}") {
            micros_text_to_ns(&text);
        }
    }
}
