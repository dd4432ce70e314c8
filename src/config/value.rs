//! The value of a key: its kinds, and how each is parsed and formatted.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracing_core::LevelFilter;
use tracing_subscriber::filter::Targets;

use super::placeholders;
use super::sections::async_spans::AsyncSpans;
use super::sections::dumps::DumpTrigger;
use super::sections::mode::Modes;
use super::sections::output::Output;
use super::sections::overflow::Overflow;
use super::sections::split::Split;
use crate::diag::{LogFormat, Severity};
use crate::os::platform;
use crate::text::{count_with_noun, joined};
use kineto_model::activity::{ActivityGroup, ActivityTypes};

/// A parsed value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bool(bool),
    Text(String),
    List(Vec<String>),
    Severity(Severity),
    LogFormat(LogFormat),
    Events(LevelFilter),
    AsyncSpans(AsyncSpans),
    Modes(Modes),
    Overflow(Overflow),
    DumpTriggers(Vec<DumpTrigger>),
    Output(Output),
    Int(i64),
    Mode(i64),
    Bytes(u64),
    Time(Duration),
    /// A time with its unit.
    Duration(Duration),
    Activities(ActivityTypes),
    Split(Split),
    Filter(Arc<Targets>),
}

impl Value {
    /// Makes a number of a size, which is too large for its key if it is too large for `i64`.
    pub(crate) fn of_size(size: usize) -> Value {
        Value::Int(i64::try_from(size).unwrap_or(i64::MAX))
    }

    /// Makes a text of a path, for messages; a path that is not UTF-8 loses bytes.
    pub(crate) fn of_path(path: &Path) -> Value {
        Value::Text(path.display().to_string())
    }

    /// Returns the number; 0 for another kind of value, or for one below 0.
    pub(super) fn as_number(&self) -> u64 {
        if let Value::Int(number) = self { u64::try_from(*number).unwrap_or(0) } else { 0 }
    }

    /// Returns the number as seconds.
    pub(super) fn as_seconds(&self) -> Duration {
        Duration::from_secs(self.as_number())
    }

    /// Returns the text; an empty one for another kind of value.
    pub(super) fn as_text(&self) -> &str {
        if let Value::Text(text) = self { text } else { "" }
    }
}

/// A field of the configuration that a key's value sets; a value of another kind has no effect.
pub(super) trait Assign {
    fn assign(&mut self, value: &Value);
}

macro_rules! assign {
    ($($field:ty: $($kind:ident)|+ ($value:ident) => $new:expr;)+) => {
        $(impl Assign for $field {
            fn assign(&mut self, value: &Value) {
                if let $(Value::$kind($value))|+ = value {
                    *self = $new;
                }
            }
        })+
    };
}

assign! {
    bool: Bool(is_on) => *is_on;
    Option<bool>: Bool(is_on) => Some(*is_on);
    Severity: Severity(severity) => *severity;
    LogFormat: LogFormat(format) => *format;
    LevelFilter: Events(level) => *level;
    AsyncSpans: AsyncSpans(spans) => *spans;
    Modes: Modes(modes) => *modes;
    Overflow: Overflow(overflow) => *overflow;
    Output: Output(output) => output.clone();
    String: Text(text) => text.clone();
    Vec<String>: List(list) => list.clone();
    Vec<DumpTrigger>: DumpTriggers(triggers) => triggers.clone();
    // The builder's number may be too large.
    usize: Int(number) => usize::try_from(*number).unwrap_or(usize::MAX);
    u32: Int | Mode (number) => u32::try_from(*number).unwrap_or(0);
    Option<u32>: Int(number) => u32::try_from(*number).ok();
    u64: Bytes(bytes) => *bytes;
    Option<u64>: Bytes(bytes) => Some(*bytes);
    Duration: Time | Duration (time) => *time;
    Option<Duration>: Duration(duration) => Some(*duration);
    // An empty text means none.
    Option<String>: Text(text) => Some(text.clone()).filter(|text| !text.is_empty());
    // An empty text means none.
    Option<PathBuf>: Text(path) => Some(PathBuf::from(path)).filter(|_| !path.is_empty());
    Option<Split>: Split(split) => Some(*split);
    Option<Arc<Targets>>: Filter(targets) => Some(targets.clone());
}

/// An empty text keeps the default.
impl Assign for PathBuf {
    fn assign(&mut self, value: &Value) {
        if let Value::Text(path) = value
            && !path.is_empty()
        {
            *self = PathBuf::from(path);
        }
    }
}

/// Several keys that select types add up.
impl Assign for ActivityTypes {
    fn assign(&mut self, value: &Value) {
        if let Value::Activities(types) = value {
            *self = self.union(*types);
        }
    }
}

/// The kind of a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingKind {
    /// n, y, no, yes, f, t, false, true, 0, 1 in any case.
    Bool,
    /// As in PyTorch's variables, any value means true. Unlike there, 0, false, off and the like mean false.
    AnyText,
    /// As in some of PyTorch's variables, 1 means true, any other value false.
    OneIsTrue,
    /// A whole number, base 10, never negative.
    Int(RangeInclusive<i64>),
    /// Milliseconds since 1970, at most 10 s ago, as in libkineto; 0 means unset.
    StartTime,
    /// Permissions of a file, in octal.
    Mode,
    /// A number of MiB.
    Mebibytes,
    /// A number of milliseconds.
    Milliseconds,
    /// A time with its unit: 500ms, 30s, 5m, 1h.
    Duration,
    Text,
    /// Items separated by commas, trimmed; empty items are ignored.
    List,
    /// A list of whole numbers.
    IntList,
    /// Names of activity types.
    Types,
    /// Names of groups of activity types.
    Groups,
    Severity,
    LogFormat,
    /// The least severe level of recorded events.
    Events,
    AsyncSpans,
    /// Names of modes, joined by `+`.
    Modes,
    Overflow,
    /// A time, a size or a number of steps, with its unit.
    Split,
    /// Triggers of dumps.
    DumpTriggers,
    /// A file name, into which the process id is inserted.
    LogFile,
    /// `target=level,…`
    Filter,
}

const MEBIBYTE: u64 = 1 << 20;

impl SettingKind {
    /// The whole numbers that libkineto's toInt32 accepts.
    pub(super) const I32: SettingKind = SettingKind::Int(0..=i32::MAX as i64);
    /// The whole numbers that libkineto's toInt64 accepts.
    pub(super) const I64: SettingKind = SettingKind::Int(0..=i64::MAX);

    /// Parses `text`, which must be trimmed; an error is a clause that describes the problem.
    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        match self {
            SettingKind::Bool => parse_bool(text).map(Value::Bool),
            SettingKind::AnyText => Some(Value::Bool(parse_presence(text))),
            SettingKind::OneIsTrue => Some(Value::Bool(text == "1")),
            SettingKind::Int(range) => parse_int(text, range).map(Value::Int),
            SettingKind::StartTime => {
                let earliest = i64::try_from(milliseconds_now()).unwrap_or(i64::MAX).saturating_sub(10_000);
                parse_int(text, &(0..=i64::MAX)).filter(|start| *start == 0 || *start >= earliest).map(Value::Int)
            }
            SettingKind::Mode => {
                i64::from_str_radix(text, 8).ok().filter(|mode| (0..=0o777).contains(mode)).map(Value::Mode)
            }
            SettingKind::Mebibytes => parse_int(text, &(1..=i64::from(i32::MAX)))
                .and_then(|count| u64::try_from(count).ok())
                .map(|count| Value::Bytes(count * MEBIBYTE)),
            SettingKind::Milliseconds => parse_int(text, &(0..=i64::from(i32::MAX)))
                .and_then(|count| u64::try_from(count).ok())
                .map(|count| Value::Time(Duration::from_millis(count))),
            SettingKind::Duration => parse_duration(text).map(Value::Duration),
            SettingKind::Text => Some(Value::Text(text.to_owned())),
            SettingKind::List => Some(Value::List(parse_list(text))),
            SettingKind::IntList => {
                let list = parse_list(text);
                list.iter().all(|part| parse_int(part, &(0..=i64::MAX)).is_some()).then_some(Value::List(list))
            }
            SettingKind::Types => {
                return ActivityTypes::parse(text).map(Value::Activities).map_err(|unknown| unknown.to_string());
            }
            SettingKind::Groups => {
                return ActivityGroup::parse_csv(text).map(Value::Activities).map_err(|unknown| unknown.to_string());
            }
            SettingKind::Severity => Severity::parse(text).map(Value::Severity),
            SettingKind::LogFormat => by_name(LogFormat::ALL, LogFormat::as_str, text).map(Value::LogFormat),
            SettingKind::Events => parse_event_level(text).map(Value::Events),
            SettingKind::AsyncSpans => by_name(AsyncSpans::ALL, AsyncSpans::as_str, text).map(Value::AsyncSpans),
            SettingKind::Modes => return Modes::parse(text).map(Value::Modes).map_err(|unknown| unknown.to_string()),
            SettingKind::Overflow => by_name(Overflow::ALL, Overflow::as_str, text).map(Value::Overflow),
            SettingKind::Split => text.parse().ok().map(Value::Split),
            SettingKind::DumpTriggers => {
                let triggers = DumpTrigger::parse_list(&parse_list(text)).map_err(|unknown| unknown.to_string())?;
                (!triggers.is_empty()).then_some(Value::DumpTriggers(triggers))
            }
            SettingKind::LogFile => {
                placeholders::check_placeholders(Path::new(text))?;
                (!text.is_empty()).then(|| Value::Output(Output::PerProcess(PathBuf::from(text))))
            }
            SettingKind::Filter => return parse_filter(text).map(|targets| Value::Filter(Arc::new(targets))),
        }
        .ok_or_else(|| format!("expected {self}"))
    }

    /// Returns the expected text in the form of the docs' table.
    pub(super) fn in_short(&self) -> String {
        match self {
            SettingKind::Bool => "true or false".to_owned(),
            SettingKind::Int(range) if *range.end() >= i64::from(i32::MAX) => "whole number".to_owned(),
            SettingKind::Int(range) => format!("{} to {}", range.start(), range.end()),
            SettingKind::Mebibytes => "MiB".to_owned(),
            SettingKind::Milliseconds => "ms".to_owned(),
            other => other.to_string(),
        }
    }
}

/// Parses a whole number above 0 with the unit ms, s, m (or min) or h.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit_ms = match unit.trim().to_ascii_lowercase().as_str() {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    number.checked_mul(unit_ms).filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// Formats the expected text for errors.
impl fmt::Display for SettingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingKind::Bool => f.write_str("true or false (also yes, no, y, n, t, f, 1, 0)"),
            SettingKind::AnyText => f.write_str("any text for true; 0, false or off for false"),
            SettingKind::OneIsTrue => f.write_str("1 for true"),
            SettingKind::Int(range) if *range.end() == i64::MAX => write!(f, "a whole number from {}", range.start()),
            SettingKind::Int(range) => write!(f, "a whole number from {} to {}", range.start(), range.end()),
            SettingKind::StartTime => f.write_str("ms since 1970, at most 10 s ago, or 0"),
            SettingKind::Mode => f.write_str("octal, 0 to 777"),
            SettingKind::Mebibytes => write!(f, "MiB, a whole number from 1 to {}", i32::MAX),
            SettingKind::Milliseconds => write!(f, "ms, a whole number from 0 to {}", i32::MAX),
            SettingKind::Duration => f.write_str("a duration such as 500ms, 30s, 5m or 1h"),
            SettingKind::Text => f.write_str("text"),
            SettingKind::List => f.write_str("comma-separated names"),
            SettingKind::IntList => f.write_str("comma-separated whole numbers"),
            SettingKind::Types => f.write_str("comma-separated activity types"),
            SettingKind::Groups => f.write_str("cpu, cuda, xpu, mtia, hpu, privateuse1 or all, comma-separated"),
            SettingKind::Severity => f.write_str("verbose, info, warning, stage, error or usdt, or 0 to 5"),
            SettingKind::LogFormat => f.write_str("text, libkineto or json"),
            SettingKind::Events => f.write_str("off, error, warn, info, debug or trace"),
            SettingKind::AsyncSpans => f.write_str("auto, per_poll, track or both"),
            SettingKind::Modes => f.write_str(
                "disabled, nvtx, itt, privateuse1, kineto, kineto_gpu_fallback, kineto_privateuse1_fallback, or several \
                 joined by +",
            ),
            SettingKind::Overflow => f.write_str("stop, keep_newest or spill"),
            SettingKind::Split => f.write_str(Split::EXPECTED),
            SettingKind::DumpTriggers => f.write_str(DumpTrigger::EXPECTED),
            SettingKind::LogFile => f.write_str("a path"),
            SettingKind::Filter => f.write_str("comma-separated target=level"),
        }
    }
}

/// Formats a text that would be parsed as this value.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => value.fmt(f),
            Value::Int(value) => value.fmt(f),
            Value::Mode(mode) => write!(f, "{mode:o}"),
            Value::Bytes(bytes) if bytes % MEBIBYTE == 0 => (bytes / MEBIBYTE).fmt(f),
            // The builder counts in bytes.
            Value::Bytes(bytes) => count_with_noun(*bytes, "byte").fmt(f),
            Value::Time(time) => time.as_millis().fmt(f),
            Value::Duration(duration) if duration.subsec_nanos() == 0 => write!(f, "{}s", duration.as_secs()),
            Value::Duration(duration) => write!(f, "{}ms", duration.as_millis()),
            Value::Text(text) => text.fmt(f),
            Value::List(list) => joined(list, ",").fmt(f),
            Value::Activities(types) => types.fmt(f),
            Value::Severity(severity) => severity.as_str().to_ascii_lowercase().fmt(f),
            Value::LogFormat(format) => format.as_str().fmt(f),
            Value::Events(level) => level.fmt(f),
            Value::AsyncSpans(spans) => spans.as_str().fmt(f),
            Value::Modes(modes) => modes.fmt(f),
            Value::Overflow(overflow) => overflow.as_str().fmt(f),
            Value::Split(split) => split.fmt(f),
            Value::DumpTriggers(triggers) => {
                let triggers: Vec<_> = triggers.iter().map(DumpTrigger::to_string).collect();
                joined(&triggers, ",").fmt(f)
            }
            Value::Output(Output::Nowhere) => f.write_str("none"),
            Value::Output(Output::Default) => f.write_str("default"),
            Value::Output(Output::PerProcess(path) | Output::Exact(path)) => path.display().fmt(f),
            Value::Filter(targets) => targets.fmt(f),
        }
    }
}

/// Parses a boolean in any of libkineto's spellings.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    let is = |words: [&str; 5]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is(["y", "yes", "t", "true", "1"]) {
        return Some(true);
    }
    is(["n", "no", "f", "false", "0"]).then_some(false)
}

/// Returns whether a presence flag is on.
pub(super) fn parse_presence(text: &str) -> bool {
    !text.is_empty() && parse_bool(text) != Some(false) && !text.eq_ignore_ascii_case("off")
}

fn parse_int(text: &str, range: &RangeInclusive<i64>) -> Option<i64> {
    text.parse().ok().filter(|value| range.contains(value))
}

fn milliseconds_now() -> u128 {
    platform::unix_time().as_millis()
}

fn parse_list(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        if !part.is_empty() {
            parts.push(part.to_owned());
        }
    }
    parts
}

fn by_name<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str) -> Option<T> {
    all.iter().copied().find(|value| name(*value).eq_ignore_ascii_case(text))
}

/// `LevelFilter` itself would parse an empty text as "error".
fn parse_event_level(text: &str) -> Option<LevelFilter> {
    if text.is_empty() { None } else { text.parse().ok() }
}

fn parse_filter(text: &str) -> Result<Targets, String> {
    // `Targets` keeps the space around a target, and takes an empty text for one.
    let text = joined(&parse_list(text), ",");
    if text.is_empty() {
        return Err(format!("expected {}", SettingKind::Filter));
    }
    text.parse().map_err(|error| format!("expected {} ({error})", SettingKind::Filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: &SettingKind, text: &str) -> Option<String> {
        kind.parse(text).ok().map(|value| value.to_string())
    }

    #[test]
    fn bools_have_ten_spellings_in_any_case() {
        for (yes, no) in [("y", "n"), ("YES", "No"), ("t", "F"), ("True", "falsE"), ("1", "0")] {
            assert_eq!((parse_bool(yes), parse_bool(no)), (Some(true), Some(false)));
        }
        for text in ["", "2", "on", "truee", " true"] {
            assert_eq!(parse_bool(text), None, "{text}");
        }
    }

    #[test]
    fn ints_are_whole_base_ten_and_never_negative() {
        for (kind, text, expected) in [
            (SettingKind::I32, "0", Some("0")),
            (SettingKind::I32, "007", Some("7")),
            (SettingKind::I32, "2147483647", Some("2147483647")),
            (SettingKind::I32, "2147483648", None),
            (SettingKind::I64, "2147483648", Some("2147483648")),
            (SettingKind::I64, "9223372036854775807", Some("9223372036854775807")),
            (SettingKind::I64, "9223372036854775808", None),
            (SettingKind::I32, "-1", None),
            (SettingKind::I32, "", None),
            (SettingKind::I32, "12x", None),
            (SettingKind::I32, "0x10", None),
            (SettingKind::I32, "1 2", None),
            (SettingKind::I32, "1.0", None),
            (SettingKind::Int(0..=9), "9", Some("9")),
            (SettingKind::Int(0..=9), "10", None),
            (SettingKind::Mebibytes, "0", None),
            (SettingKind::Mebibytes, "512", Some("512")),
            (SettingKind::Milliseconds, "0", Some("0")),
            (SettingKind::Milliseconds, "-5", None),
        ] {
            assert_eq!(shown(&kind, text).as_deref(), expected, "{kind:?} {text}");
        }
    }

    #[test]
    fn start_times_are_at_most_ten_seconds_ago() {
        let now = milliseconds_now();
        for (text, expected) in
            [(now, true), (0, true), (now - 5_000, true), (now - 15_000, false), (now + 5_000, true)]
        {
            assert_eq!(SettingKind::StartTime.parse(&text.to_string()).is_ok(), expected, "{text} at {now}");
        }
    }

    #[test]
    fn presence_is_true_except_for_off_values() {
        for (text, expected) in [("1", true), ("", false), ("0", false), ("False", false), ("no", false), ("x", true)] {
            assert_eq!(shown(&SettingKind::AnyText, text), Some(expected.to_string()), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in
            [("500ms", "500ms"), ("30s", "30s"), ("5 M", "300s"), ("5min", "300s"), ("1h", "3600s"), ("2000ms", "2s")]
        {
            assert_eq!(shown(&SettingKind::Duration, text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "30", "s", "0s", "-1s", "1.5s", "1d", "99999999999999999999h", "9223372036854775807h"] {
            assert_eq!(shown(&SettingKind::Duration, text), None, "{text}");
        }
    }

    #[test]
    fn lists_drop_space_and_empty_parts() {
        assert_eq!(shown(&SettingKind::List, " a, b ,,c,").as_deref(), Some("a,b,c"));
        assert_eq!(shown(&SettingKind::List, "").as_deref(), Some(""));
        assert_eq!(shown(&SettingKind::IntList, "0, 3").as_deref(), Some("0,3"));
        assert_eq!(shown(&SettingKind::IntList, "0,x"), None);
    }

    #[test]
    fn choices_have_names_in_any_case() {
        for (kind, texts) in [
            (SettingKind::AsyncSpans, &["auto", "per_poll", "track", "both"][..]),
            (SettingKind::Overflow, &Overflow::ALL.iter().map(|overflow| overflow.as_str()).collect::<Vec<_>>()),
            (SettingKind::LogFormat, &["text", "libkineto", "json"]),
            (SettingKind::Events, &["off", "error", "warn", "info", "debug", "trace"]),
            (SettingKind::Severity, &["verbose", "info", "warning", "stage", "error", "usdt"]),
        ] {
            for text in texts {
                assert_eq!(shown(&kind, &text.to_uppercase()).as_deref(), Some(*text));
                assert!(kind.to_string().contains(text), "{kind} does not name {text}");
            }
            let error = kind.parse("sometimes").unwrap_err();
            assert_eq!(error, format!("expected {kind}"));
            assert!(kind.parse("").is_err(), "{kind:?}");
        }
    }

    #[test]
    fn filters_are_parsed_with_and_without_space() {
        let Ok(Value::Filter(targets)) = SettingKind::Filter.parse("a=info, b::c=off ,debug") else { panic!() };
        assert!(targets.would_enable("a", &tracing_core::Level::INFO));
        assert!(!targets.would_enable("a", &tracing_core::Level::DEBUG));
        assert!(!targets.would_enable("b::c::d", &tracing_core::Level::ERROR));
        assert!(targets.would_enable("z", &tracing_core::Level::DEBUG));
        for text in ["", ",", "a=loud", "a=info=b"] {
            assert!(SettingKind::Filter.parse(text).is_err(), "{text}");
        }
    }
}
