//! Quantities with units: the limits and the values of rules.

use crate::{Error, ErrorKind};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A value or a limit of a rule, with its unit.
///
/// As text it is a number and a unit, such as "200", "2.5 ms", "10 %" or "512 MiB".
///
/// ```
/// use kineto_trace::analysis::check::Quantity;
///
/// assert_eq!("2.5 ms".parse::<Quantity>()?, Quantity::Nanoseconds(2_500_000));
/// assert_eq!(Quantity::Bytes(512 << 20).to_string(), "512 MiB");
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A number of things.
    Count(u64),
    /// A time in nanoseconds; as text in `ns`, `us`, `ms`, `s` or `min`.
    Nanoseconds(u64),
    /// A share in percent; as text in `%`.
    Percent(f64),
    /// A number of bytes; as text in `B`, `KiB`, `MiB`, `GiB`, `TiB`, `kB`, `MB`, `GB` or `TB`.
    Bytes(u64),
}

/// The units of time and memory, with their size in nanoseconds or bytes.
const TIMES: [(&str, u64); 6] =
    [("ns", 1), ("us", 1000), ("µs", 1000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];
const BYTES: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl Quantity {
    /// Compares two quantities of the same unit; `None` for different units, or if a share is not a number.
    pub(super) fn compare(self, other: Quantity) -> Option<Ordering> {
        match (self, other) {
            (Quantity::Count(a), Quantity::Count(b))
            | (Quantity::Nanoseconds(a), Quantity::Nanoseconds(b))
            | (Quantity::Bytes(a), Quantity::Bytes(b)) => Some(a.cmp(&b)),
            (Quantity::Percent(a), Quantity::Percent(b)) => a.partial_cmp(&b),
            _ => None,
        }
    }

    pub(super) fn has_unit_of(self, other: Quantity) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    pub(super) fn is_zero(self) -> bool {
        match self {
            Quantity::Count(value) | Quantity::Nanoseconds(value) | Quantity::Bytes(value) => value == 0,
            Quantity::Percent(value) => value == 0.0,
        }
    }

    /// Returns what it measures, with an example.
    pub(super) fn unit_text(self) -> &'static str {
        match self {
            Quantity::Count(_) => "a count, such as 200",
            Quantity::Nanoseconds(_) => "a time, such as \"2.5 ms\"",
            Quantity::Percent(_) => "a share, such as \"10 %\"",
            Quantity::Bytes(_) => "a number of bytes, such as \"512 MiB\"",
        }
    }

    /// Returns the name of the unit and the number in JSON; times are microseconds.
    pub(super) fn to_json(self) -> (&'static str, serde_json::Value) {
        match self {
            Quantity::Count(count) => ("count", count.into()),
            Quantity::Nanoseconds(ns) => ("us", (ns as f64 / 1e3).into()),
            Quantity::Percent(percent) => ("percent", ((percent * 1e4).round() / 1e4).into()),
            Quantity::Bytes(bytes) => ("bytes", bytes.into()),
        }
    }
}

impl From<u64> for Quantity {
    fn from(count: u64) -> Quantity {
        Quantity::Count(count)
    }
}

impl From<Duration> for Quantity {
    fn from(duration: Duration) -> Quantity {
        Quantity::Nanoseconds(duration.as_nanos().try_into().unwrap_or(u64::MAX))
    }
}

impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Quantity, Error> {
        let fault = |why: &str| {
            let advice = "write a count, or a number with a unit, such as \"2.5 ms\", \"10 %\" or \"512 MiB\"";
            Error::new(ErrorKind::Config, format!("\"{text}\" is not a quantity: {why}; {advice}"))
        };
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_start();
        let scale = |units: &[(&str, u64)]| units.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size);
        let scaled = |size| parse_scaled(number, size).ok_or_else(|| fault("the number is invalid or too large"));
        if unit.is_empty() {
            return number.parse().map(Quantity::Count).map_err(|_| fault("it is not a count and has no unit"));
        }
        if unit == "%" {
            let percent = number.parse().ok().filter(|percent: &f64| percent.is_finite());
            return percent.map(Quantity::Percent).ok_or_else(|| fault("the number is invalid or too large"));
        }
        match (scale(&TIMES), scale(&BYTES)) {
            (Some(size), _) => scaled(size).map(Quantity::Nanoseconds),
            (_, Some(size)) => scaled(size).map(Quantity::Bytes),
            _ => Err(fault("the unit is unknown")),
        }
    }
}

/// Parses a decimal number times `size`, exactly; what is smaller than 1 is cut off.
fn parse_scaled(number: &str, size: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || !decimals.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut total = u128::from(whole.parse::<u64>().ok()?) * u128::from(size);
    let mut fraction: u128 = 0;
    // Eighteen digits are more than any unit has.
    let digits = decimals.bytes().take(18);
    let scale = 10u128.pow(u32::try_from(digits.len()).ok()?);
    digits.for_each(|digit| fraction = fraction * 10 + u128::from(digit - b'0'));
    total += fraction * u128::from(size) / scale;
    total.try_into().ok()
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Quantity::Count(count) => count.fmt(f),
            Quantity::Nanoseconds(ns) => fmt_time(ns, f),
            Quantity::Percent(percent) => write!(f, "{} %", (percent * 1e4).round() / 1e4),
            Quantity::Bytes(bytes) => fmt_bytes(bytes, f),
        }
    }
}

/// Formats a time without rounding, so that a value that exceeds its limit by a nanosecond shows it.
fn fmt_time(ns: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (unit, size, digits) = match ns {
        0..1000 => return write!(f, "{ns} ns"),
        1000..1_000_000 => ("us", 1000, 3),
        1_000_000..1_000_000_000 => ("ms", 1_000_000, 6),
        _ => ("s", 1_000_000_000, 9),
    };
    let fraction = format!("{:0digits$}", ns % size);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    write!(f, "{}{point}{fraction} {unit}", ns / size)
}

fn fmt_bytes(bytes: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (unit, size) = match bytes {
        0..1024 => return write!(f, "{bytes} B"),
        1024..1_048_576 => ("KiB", 1 << 10),
        1_048_576..1_073_741_824 => ("MiB", 1 << 20),
        _ => ("GiB", 1u64 << 30),
    };
    match bytes % size {
        0 => write!(f, "{} {unit}", bytes / size),
        _ => write!(f, "{:.2} {unit} ({bytes} B)", bytes as f64 / size as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_have_units() {
        for (text, expected) in [
            ("200", Quantity::Count(200)),
            ("2.5 ms", Quantity::Nanoseconds(2_500_000)),
            ("2.5ms", Quantity::Nanoseconds(2_500_000)),
            ("0.0001 us", Quantity::Nanoseconds(0)),
            ("7 µs", Quantity::Nanoseconds(7000)),
            ("1 min", Quantity::Nanoseconds(60_000_000_000)),
            ("12.5 %", Quantity::Percent(12.5)),
            ("0 %", Quantity::Percent(0.0)),
            ("1.5 GiB", Quantity::Bytes(3 << 29)),
            (" 3 kB ", Quantity::Bytes(3000)),
            ("18446744073.709551615 s", Quantity::Nanoseconds(u64::MAX)),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn wrong_texts_are_errors() {
        for text in [
            "",
            " ",
            "ms",
            "1.5",
            "-1",
            "-1 ms",
            "1e3 ms",
            "1,5 ms",
            "1.2.3 ms",
            ".5 ms",
            "5 m",
            "5 sec",
            "5 mib",
            "nan %",
            "inf %",
            ". %",
            "99999999999999999999",
            "18446744073.709551616 s",
            "5 ms ms",
            "0x10",
            "٣ ms",
        ] {
            let error = text.parse::<Quantity>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{text}");
            assert!(error.to_string().contains("; write a count, or a number with a unit"), "{error}");
        }
    }

    #[test]
    fn values_are_not_rounded_to_their_limit() {
        let texts = [
            Quantity::Nanoseconds(2_500_001),
            Quantity::Nanoseconds(999),
            Quantity::Nanoseconds(60_000_000_000),
            Quantity::Bytes((512 << 20) + 1),
            Quantity::Bytes(1023),
            Quantity::Percent(100.0 / 3.0),
        ];
        assert_eq!(
            texts.map(|quantity| quantity.to_string()),
            ["2.500001 ms", "999 ns", "60 s", "512.00 MiB (536870913 B)", "1023 B", "33.3333 %"]
        );
    }

    #[test]
    fn other_units_and_no_numbers_do_not_compare() {
        assert_eq!(Quantity::Count(1).compare(Quantity::Bytes(2)), None);
        assert_eq!(Quantity::Percent(f64::NAN).compare(Quantity::Percent(2.0)), None);
        assert_eq!(Quantity::Count(1).compare(Quantity::Count(2)), Some(Ordering::Less));
    }

    proptest! {
        #[test]
        fn times_equal_their_texts(ns in any::<u64>()) {
            let time = Quantity::Nanoseconds(ns);
            prop_assert_eq!(time.to_string().parse::<Quantity>().unwrap(), time);
        }

        #[test]
        fn no_text_panics(text in "[0-9.]{0,30} ?[a-zA-Zµ%]{0,4}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
