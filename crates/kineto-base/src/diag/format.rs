//! The formats of messages.

use super::line::thread_number;
use super::{Message, Severity};
use crate::os::platform;
use crate::text::Escaping;
use crate::time::UtcTime;
use std::fmt::{self, Write};

/// The format of messages; `KINETO_LOG_FORMAT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum LogFormat {
    /// `2026-01-31T12:00:00Z  WARN tracing-kineto: text`, like `tracing_subscriber::fmt`.
    #[default]
    Text,
    /// `WARNING:2026-01-31 12:00:00 pid:tid file:line] text`.
    Libkineto,
    /// A JSON object.
    Json,
}

impl LogFormat {
    /// All variants.
    pub const ALL: &'static [LogFormat] = &[LogFormat::Text, LogFormat::Libkineto, LogFormat::Json];

    /// Returns its name in `KINETO_LOG_FORMAT`.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Libkineto => "libkineto",
            LogFormat::Json => "json",
        }
    }

    /// Returns the format of that number.
    pub(super) fn from_number(number: u8) -> LogFormat {
        LogFormat::ALL.iter().copied().find(|format| *format as u8 == number).unwrap_or_default()
    }
}

/// The format of one message, and whether it has colours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineStyle {
    pub(super) format: LogFormat,
    pub(super) has_colours: bool,
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.style.format {
            LogFormat::Text => self.write_text(f),
            LogFormat::Libkineto => self.write_libkineto(f),
            LogFormat::Json => self.write_json(f),
        }
    }
}

const NAME: &str = "tracing-kineto";

impl Message<'_> {
    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, colour) = level_and_colour(self.severity);
        let time = UtcTime(self.seconds);
        if self.style.has_colours {
            write!(f, "\x1b[2m{time:#}\x1b[0m \x1b[{colour}m{level:>5}\x1b[0m \x1b[2m{NAME}:\x1b[0m ")?;
        } else {
            write!(f, "{time:#} {level:>5} {NAME}: ")?;
        }
        self.write_escaped(f)
    }

    fn write_libkineto(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message { severity, seconds, file, line, .. } = self;
        let (time, process, thread) = (UtcTime(*seconds), platform::process_id(), thread_number());
        write!(f, "{severity}:{time} {process}:{thread} {NAME}/{file}:{line}] ")?;
        self.write_escaped(f)
    }

    /// Writes the text, which may have names that another user chose, and how many messages were suppressed.
    fn write_escaped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaping { out: &mut *f, keeps_lines: true }.write_fmt(self.text)?;
        match self.suppressed {
            0 => Ok(()),
            n => write!(f, " ({n} more suppressed)"),
        }
    }

    fn write_json(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, _) = level_and_colour(self.severity);
        let Message { severity, topic, file, line, seconds, suppressed, .. } = self;
        let (time, process, thread) = (UtcTime(*seconds), platform::process_id(), thread_number());
        write!(f, "{{\"timestamp\":\"{time:#}\",\"level\":\"{level}\",\"target\":\"{NAME}\",\"message\":\"")?;
        let data = self.data.filter(|data| data.len() < Escaped::LIMIT);
        let left = Escaped::LIMIT - data.map_or(0, str::len);
        let mut escaped = Escaped { out: &mut *f, left };
        // An error can only come from the value's `Display`; the text before it is kept.
        let _ = escaped.write_fmt(self.text);
        write!(
            f,
            "\",\"severity\":\"{severity}\",\"topic\":\"{topic}\",\"file\":\"{file}\",\"line\":{line},\"pid\":{process},\
             \"tid\":{thread},\"suppressed\":{suppressed}"
        )?;
        if let Some(data) = data {
            write!(f, ",\"outcome\":{data}")?;
        }
        f.write_char('}')
    }
}

/// Returns the name of a severity in `tracing`, and its colour there.
fn level_and_colour(severity: Severity) -> (&'static str, u8) {
    match severity {
        Severity::Verbose => ("DEBUG", 34),
        Severity::Info | Severity::Stage | Severity::Usdt => ("INFO", 32),
        Severity::Warning => ("WARN", 33),
        Severity::Error => ("ERROR", 31),
    }
}

/// Writes JSON string content up to a limit, so that the object fits into a line.
struct Escaped<'o, 'f> {
    out: &'o mut fmt::Formatter<'f>,
    left: usize,
}

impl Escaped<'_, '_> {
    const LIMIT: usize = 3000;
}

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            // No character takes more than six bytes.
            let Some(left) = self.left.checked_sub(6) else { return Ok(()) };
            self.left = left;
            match character {
                '"' | '\\' => write!(self.out, "\\{character}")?,
                '\n' => self.out.write_str("\\n")?,
                control if control.is_control() => write!(self.out, "\\u{:04x}", u32::from(control))?,
                other => self.out.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(style: LineStyle, severity: Severity, text: fmt::Arguments<'_>) -> String {
        let (topic, file) = ("test", "session/mod.rs");
        let message =
            Message { severity, topic, file, line: 7, seconds: 1_700_000_000, suppressed: 3, text, data: None, style };
        message.to_string()
    }

    #[test]
    fn text_has_time_level_and_message() {
        let style = LineStyle { format: LogFormat::Text, has_colours: false };
        let suppressed = "(3 more suppressed)";
        let line = |severity| shown(style, severity, format_args!("two words"));
        assert_eq!(
            line(Severity::Warning),
            format!("2023-11-14T22:13:20Z  WARN tracing-kineto: two words {suppressed}")
        );
        assert_eq!(line(Severity::Error), format!("2023-11-14T22:13:20Z ERROR tracing-kineto: two words {suppressed}"));
        let hostile = shown(style, Severity::Warning, format_args!("{}", "a\u{1b}[2J\n  b"));
        assert!(hostile.contains("a\\u{1b}[2J\n  b (3"), "{hostile}");
        let colours = shown(LineStyle { has_colours: true, ..style }, Severity::Stage, format_args!("x"));
        assert_eq!(
            colours,
            format!(
                "\x1b[2m2023-11-14T22:13:20Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mtracing-kineto:\x1b[0m x {suppressed}"
            )
        );
    }

    #[test]
    fn libkineto_format_has_its_prefix() {
        let style = LineStyle { format: LogFormat::Libkineto, has_colours: true };
        let line = shown(style, Severity::Stage, format_args!("two words"));
        let rest = line.strip_prefix(&format!("STAGE:2023-11-14 22:13:20 {}:", std::process::id())).unwrap();
        let (tid, rest) = rest.split_once(' ').unwrap();
        assert!(tid.parse::<u64>().is_ok(), "{line}");
        assert_eq!(rest, "tracing-kineto/session/mod.rs:7] two words (3 more suppressed)");
    }

    #[test]
    fn json_is_an_object_for_any_text() {
        let style = LineStyle { format: LogFormat::Json, has_colours: true };
        for text in ["a \"b\" \\ c\n\x01é", &"\x02".repeat(5000), &"x".repeat(5000)] {
            let line = shown(style, Severity::Warning, format_args!("{text}"));
            assert!(line.len() < 3400 && !line.contains('\n'), "{}", line.len());
            let read: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert!(text.starts_with(read["message"].as_str().unwrap()), "{read}");
            assert_eq!((&read["level"], &read["severity"]), (&"WARN".into(), &"WARNING".into()));
            assert_eq!((&read["line"], &read["suppressed"]), (&7.into(), &3.into()));
            assert_eq!(read["timestamp"], "2023-11-14T22:13:20Z");
        }
    }
}
