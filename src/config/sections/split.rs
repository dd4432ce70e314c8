//! When a part of a recording ends that is moved to disk.

use super::super::value::parse_duration;
use crate::error::{Error, ErrorKind};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long, large or how many steps the parts of an [`Overflow::Spill`](crate::Overflow::Spill) recording are.
///
/// Set it by [`Spill::split`](crate::Spill::split), or as text in `KINETO_SPLIT`. A MB is a MiB, as in
/// other settings, and a GB 1024 of them:
///
/// ```
/// use std::time::Duration;
/// use tracing_kineto::Split;
///
/// assert_eq!("10min".parse::<Split>()?, Split::Time(Duration::from_secs(600)));
/// assert_eq!("8MB".parse::<Split>()?, Split::Bytes(8 << 20));
/// assert_eq!("100steps".parse::<Split>()?, Split::Steps(100));
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Split {
    /// A part ends when so much time has passed, to some milliseconds.
    Time(Duration),
    /// A part ends when so many bytes of records are complete. A slice takes 32 bytes and its fields; threads complete 64 KiB at
    /// once. The size is checked about once a second, or when chunks fill.
    Bytes(u64),
    /// A part ends with every n-th [step](crate::Profiler::step) since the recording began, exactly at its end. If the steps fill
    /// a quarter of the memory limit, a part also ends inside a step.
    Steps(u64),
}

impl Split {
    /// The texts that can be parsed.
    pub(in crate::config) const EXPECTED: &str = "a time such as 10min, a size such as 8MB, or steps such as 100steps";

    /// Returns whether parts can have that size.
    pub(in crate::config) fn is_valid(&self) -> bool {
        match self {
            Split::Time(time) => !time.is_zero(),
            Split::Bytes(number) | Split::Steps(number) => *number > 0,
        }
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Split, Error> {
        let text = text.trim();
        let parse = || {
            let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
            let (number, unit) = (number.parse::<u64>().ok()?, unit.trim().to_ascii_lowercase());
            match unit.as_str() {
                "step" | "steps" => Some(Split::Steps(number)),
                "mb" | "mib" => number.checked_mul(1 << 20).map(Split::Bytes),
                "gb" | "gib" => number.checked_mul(1 << 30).map(Split::Bytes),
                "bytes" => Some(Split::Bytes(number)),
                "us" | "µs" => Some(Split::Time(Duration::from_micros(number))),
                "ns" => Some(Split::Time(Duration::from_nanos(number))),
                _ => parse_duration(text).map(Split::Time),
            }
        };
        parse()
            .filter(Split::is_valid)
            .ok_or_else(|| Error::new(ErrorKind::Config, format!("{text:?}: expected {}", Split::EXPECTED)))
    }
}

/// Formats as in `KINETO_SPLIT`, in the largest unit that is exact: s, ms, us or ns; MB or bytes.
impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Split::Time(time) if time.subsec_nanos() == 0 => write!(f, "{}s", time.as_secs()),
            Split::Time(time) if time.subsec_nanos() % 1_000_000 == 0 => write!(f, "{}ms", time.as_millis()),
            Split::Time(time) if time.subsec_nanos() % 1_000 == 0 => write!(f, "{}us", time.as_micros()),
            Split::Time(time) => write!(f, "{}ns", time.as_nanos()),
            Split::Bytes(bytes) if bytes % (1 << 20) == 0 => write!(f, "{}MB", bytes >> 20),
            Split::Bytes(bytes) => write!(f, "{bytes}bytes"),
            Split::Steps(steps) => write!(f, "{steps}steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_parsed_and_formatted() {
        for (text, same) in [
            ("10min", "600s"),
            ("10m", "600s"),
            (" 500 ms", "500ms"),
            ("8MB", "8MB"),
            ("2 gb", "2048MB"),
            ("100steps", "100steps"),
            ("1 step", "1steps"),
            ("8 bytes", "8bytes"),
            ("1500us", "1500us"),
            ("2000 µs", "2ms"),
            ("7ns", "7ns"),
        ] {
            let split = text.parse::<Split>().unwrap();
            assert_eq!(split.to_string(), same, "{text}");
            assert_eq!(same.parse::<Split>().unwrap(), split, "{text}");
        }
        for text in
            ["", "10", "0s", "0MB", "0steps", "-1s", "1.5MB", "0bytes", "0ns", "steps", "99999999999999999999MB"]
        {
            let error = text.parse::<Split>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{:?}: expected a time", text.trim())), "{error}");
        }
    }
}
