//! The grammar of the configuration file: an extension of libkineto's.
//!
//! A line is `KEY=value`, blank, or a comment. Extensions of libkineto's grammar:
//!
//! - Lines may end in CRLF, and a byte order mark is skipped.
//! - A value may contain `=` and, without a space before it, `#`.
//! - A quoted value may contain any character, with `\"` and `\\` as escapes.
//! - Parsing continues after a bad line, so that all errors are reported at once.
//!
//! A file that is named by mistake, or by an attacker, may hold secrets, so messages repeat only lines with a known key.
//! They repeat an unknown key only if another line has a known key, or if it resembles one.

use super::super::keys::{Key, is_removed, unknown_key_hint};
use super::settings::{ParsedSettings, describe_invalid};
use crate::text::count_with_noun;

/// The most lines with unknown keys that are reported; each needs a slow search for a similar key.
const UNKNOWN_MAX: usize = 100;

/// Parses a configuration text.
pub(in crate::config) fn parse_settings(text: &str) -> ParsedSettings {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reading = ParsedSettings::default();
    let is_ours = |line: &str| without_comment_before_equals(line).is_some_and(|(name, _)| is_known(name));
    let (mut unknown, has_ours) = (0_usize, text.lines().any(is_ours));
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let before = reading.warnings.len();
        let error = read_line(line, has_ours, &mut reading, &mut unknown).err();
        reading.warnings.iter_mut().skip(before).for_each(|warning| *warning = format!("line {number}: {warning}"));
        reading.errors.extend(error.map(|error| format!("line {number}: {error}")));
    }
    if unknown > UNKNOWN_MAX {
        reading
            .warnings
            .push(format!("unknown keys in {}", count_with_noun((unknown - UNKNOWN_MAX) as u64, "more line")));
    }
    reading
}

fn is_known(name: &str) -> bool {
    Key::in_file(name).is_some() || is_removed(name)
}

fn read_line(line: &str, has_ours: bool, reading: &mut ParsedSettings, unknown: &mut usize) -> Result<(), String> {
    let (name, value) = without_comment_before_equals(line).ok_or("expected KEY=value")?;
    if name.is_empty() {
        return Err("expected a key before =".to_owned());
    }
    let Some(key) = Key::in_file(name) else {
        *unknown += 1;
        if *unknown > UNKNOWN_MAX {
            return Ok(());
        }
        let hint = unknown_key_hint(name);
        reading.warnings.push(if is_removed(name) {
            format!("{name} no longer does anything, here as in libkineto")
        } else if has_ours || !hint.is_empty() {
            format!("unknown key {}{hint}", name.escape_debug())
        } else {
            "unknown key".to_owned()
        });
        return Ok(());
    };
    let value = value_of(value).map_err(|wrong| describe_invalid(line, wrong))?;
    let set = reading.settings.set_from_text(key, &value, &mut reading.warnings);
    set.map_err(|wrong| describe_invalid(line, &wrong))
}

/// Splits at the first `=`, unless a comment begins before it.
fn without_comment_before_equals(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    (comment_start(name).is_none()).then(|| (name.trim(), value))
}

/// Removes the quotes or the comment from a value.
fn value_of(text: &str) -> Result<String, &'static str> {
    let trimmed = text.trim();
    if let Some(quoted) = trimmed.strip_prefix('"') {
        return unquote(quoted);
    }
    // A comment may follow the `=` and a space, so do not trim before this.
    let value = comment_start(text).and_then(|at| text.get(..at)).unwrap_or(text);
    Ok(value.trim().to_owned())
}

/// Returns where a comment begins: a `#` at the start of the text, or after a space.
fn comment_start(text: &str) -> Option<usize> {
    let starts_comment =
        |at: usize| text.get(..at).is_some_and(|before| before.is_empty() || before.ends_with([' ', '\t']));
    text.match_indices('#').map(|(at, _)| at).find(|at| starts_comment(*at))
}

/// Parses up to the closing quote, after which only a comment may follow.
fn unquote(text: &str) -> Result<String, &'static str> {
    let mut value = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                let tail = rest.as_str().trim_start();
                let end = tail.is_empty() || tail.starts_with('#');
                return if end { Ok(value) } else { Err("expected nothing but a comment after the closing quote") };
            }
            // Any other backslash is literal, as in a Windows path.
            '\\' if rest.as_str().starts_with(['"', '\\']) => value.extend(rest.next()),
            _ => value.push(c),
        }
    }
    Err("expected a closing quote")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a key in `text`, which must be valid.
    fn value(text: &str, key: Key) -> Option<String> {
        let reading = parse_settings(text);
        assert_eq!(reading.errors, Vec::<String>::new(), "{text:?}");
        reading.settings.get(key).map(ToString::to_string)
    }

    fn errors(text: &str) -> Vec<String> {
        parse_settings(text).errors
    }

    // The five tests from here on are libkineto's ConfigTest.cpp, with its cases.

    #[test]
    fn whitespace() {
        for text in ["", " ", "\t", "\n", " \t\n \n"] {
            let reading = parse_settings(text);
            assert!(reading.errors.is_empty() && reading.settings.is_empty(), "{text:?}");
        }
        // Deviation: invalid in libkineto, which therefore rejects files written on Windows.
        assert_eq!(value("\r\n", Key::GzipLevel), None);
        assert_eq!(value("GZIP_LEVEL=3\r\nWITH_ARGS = no\r\n", Key::WithArgs).as_deref(), Some("false"));
    }

    #[test]
    fn comment() {
        for text in ["# comment", "  # comment", "#", "# a=b", "## x\n#y", "#ACTIVITY_TYPES=nonsense"] {
            let reading = parse_settings(text);
            assert!(
                reading.errors.is_empty() && reading.warnings.is_empty() && reading.settings.is_empty(),
                "{text:?}"
            );
        }
        assert_eq!(value("GZIP_LEVEL=3 # comment", Key::GzipLevel).as_deref(), Some("3"));
        assert_eq!(value("GZIP_LEVEL=3 ## x = y", Key::GzipLevel).as_deref(), Some("3"));
        assert_eq!(value("CUSTOM_CONFIG= # nothing", Key::CustomConfig).as_deref(), Some(""));
        assert_eq!(errors("util ## x").len(), 1);
        assert_eq!(errors("util ## x = y").len(), 1);
        // Deviation: libkineto's comments also begin inside words, so that a path with # is truncated.
        assert_eq!(value("ACTIVITIES_LOG_FILE=/tmp/a#1.json", Key::LogFile).as_deref(), Some("/tmp/a#1.json"));
    }

    #[test]
    fn format() {
        assert_eq!(errors("foo"), ["line 1: expected KEY=value"]);
        assert!(errors("foo=").is_empty());
        assert_eq!(errors("=foo="), ["line 1: expected a key before ="]);
        assert_eq!(errors("=").len(), 1);
        // Two settings in a line: the second is part of the first one's value, which is only valid for a text.
        assert_eq!(errors("GZIP_LEVEL=1 WITH_ARGS=no").len(), 1);
        assert_eq!(errors("ACTIVITY_TYPES=kernel WITH_ARGS=no").len(), 1);
        // Deviation: libkineto's values cannot contain =.
        assert_eq!(value("CUSTOM_CONFIG=a=1,b=2", Key::CustomConfig).as_deref(), Some("a=1,b=2"));
    }

    #[test]
    fn unknown_keys_are_reported_up_to_a_limit() {
        let warnings = |lines: usize| parse_settings(&"A=B\n".repeat(lines)).warnings;
        assert_eq!(warnings(UNKNOWN_MAX).len(), UNKNOWN_MAX);
        let more = warnings(40_000);
        assert_eq!(more.len(), UNKNOWN_MAX + 1);
        assert_eq!(more.last().unwrap(), "unknown keys in 39900 more lines");
    }

    #[test]
    fn activity_types() {
        let types = |text: &str| value(text, Key::ActivityTypes);
        assert_eq!(types(""), None);
        let kernel = types("ACTIVITY_TYPES=kernel");
        assert!(kernel.is_some());
        assert_eq!(types("ACTIVITY_TYPES= Kernel ,, kErNeL,"), kernel);
        // The last line replaces what was before it.
        assert_eq!(types("ACTIVITY_TYPES=cpu_op,cuda_runtime\nACTIVITY_TYPES=kernel"), kernel);
        for name in ["xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver", "hpu_op"] {
            assert!(types(&format!("ACTIVITY_TYPES={name}")).is_some(), "{name}");
        }
        let unknown = errors("ACTIVITY_TYPES=kernel,kernle");
        assert_eq!(unknown.len(), 1);
        for known in ["kernle", "cpu_op", "gpu_memcpy", "hardware_counters"] {
            assert!(unknown[0].contains(known), "{unknown:?}");
        }
    }

    #[test]
    fn request_trace_ids_and_log_file() {
        let text = "REQUEST_TRACE_ID=1234\nREQUEST_GROUP_TRACE_ID=56\nACTIVITIES_LOG_FILE=/etc/anywhere.json";
        assert_eq!(value(text, Key::TraceId).as_deref(), Some("1234"));
        assert_eq!(value(text, Key::GroupTraceId).as_deref(), Some("56"));
        // Only external requests are restricted to a folder.
        assert_eq!(value(text, Key::LogFile).as_deref(), Some("/etc/anywhere.json"));
    }

    #[test]
    fn quoted_values_may_contain_anything() {
        for (text, expected) in [
            (r#""a # b = c""#, "a # b = c"),
            (r#" "a" # comment"#, "a"),
            (r#""say \"yes\"""#, r#"say "yes""#),
            (r#""C:\\x\temp""#, r"C:\x\temp"),
            (r#""  space  ""#, "  space  "),
            (r#""""#, ""),
            (r#"a "b" c"#, r#"a "b" c"#),
        ] {
            assert_eq!(value(&format!("CUSTOM_CONFIG={text}"), Key::CustomConfig).as_deref(), Some(expected), "{text}");
        }
        assert!(errors(r#"CUSTOM_CONFIG="a"#)[0].ends_with("expected a closing quote"));
        assert!(errors(r#"CUSTOM_CONFIG="a" b"#)[0].ends_with("after the closing quote"));
        assert!(errors(r#"CUSTOM_CONFIG="a\""#)[0].ends_with("expected a closing quote"));
    }

    #[test]
    fn foreign_text_is_not_repeated() {
        let foreign = "root:$6$secret:1:0\nTOKEN=\"secret\nsecret==\n-----BEGIN secret=\n=secret\n# GZIP_LEVEL=1\n";
        let reading = parse_settings(foreign);
        let said = format!("{:?}{:?}", reading.warnings, reading.errors);
        assert!(!said.contains("secret") && !said.contains("TOKEN") && reading.errors.len() == 2, "{said}");
        // In a file of ours, unknown keys are named, and still no line without a key.
        let reading = parse_settings(&format!("{foreign}GZIP_LEVEL=1\nNEW_KEY=secret\n"));
        let warnings = reading.warnings.join("\n");
        assert!(warnings.contains("unknown key NEW_KEY") && !warnings.contains("=secret"), "{warnings}");
        let errors = reading.errors;
        assert_eq!(errors, ["line 1: expected KEY=value", "line 5: expected a key before ="]);
    }

    #[test]
    fn bad_line_is_named_and_others_apply() {
        let reading = parse_settings("GZIP_LEVEL=2\n\n# x\nGZIP_LEVEL=12\nwhat\nWITH_ARGS=maybe\nWITH_TARGET=no\n");
        let errors = reading.errors;
        assert_eq!(
            errors,
            [
                "line 4: `GZIP_LEVEL=12`: expected a whole number from 0 to 9",
                "line 5: expected KEY=value",
                "line 6: `WITH_ARGS=maybe`: expected true or false (also yes, no, y, n, t, f, 1, 0)",
            ]
        );
        assert_eq!(reading.settings.get(Key::GzipLevel).map(ToString::to_string).as_deref(), Some("2"));
        assert_eq!(reading.settings.get(Key::WithTarget).map(ToString::to_string).as_deref(), Some("false"));
    }

    #[test]
    fn unknown_and_former_keys_warn() {
        let reading = parse_settings(
            "FUTURE_KEY=1\nENABLE_SIGUSR2=YES\nSIGUSR2_X=1\nEVENTS_LOG_FILE=a,b\n\
             activity_types=kernel\nKINETO_USE_DAEMON=1",
        );
        assert!(reading.errors.is_empty() && reading.settings.is_empty());
        assert_eq!(reading.warnings.len(), 6);
        assert_eq!(reading.warnings[0], "line 1: unknown key FUTURE_KEY");
        assert!(reading.warnings[1..4].iter().all(|warning| warning.contains("no longer")), "{:?}", reading.warnings);
        assert!(reading.warnings[4].ends_with("did you mean ACTIVITY_TYPES?"));
        assert!(reading.warnings[5].ends_with("from the environment alone"));
        let reading = parse_settings("\nLOG_LEVEL=loud");
        assert!(reading.errors.is_empty() && reading.warnings[0].starts_with("line 2: LOG_LEVEL"), "{reading:?}");
    }

    #[test]
    fn byte_order_mark_and_unterminated_line_are_accepted() {
        assert_eq!(value("\u{feff}GZIP_LEVEL=4", Key::GzipLevel).as_deref(), Some("4"));
        assert_eq!(errors("\0").len(), 1);
    }
}
