//! The results of a check as JUnit XML, which CI systems show.

use kineto_trace::Error;
use kineto_trace::analysis::check::{CheckReport, RuleOutcome, RuleStatus};
use std::path::Path;

/// Returns a file of test suites.
pub(super) fn format_file(suites: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"kineto check\">\n{suites}</testsuites>\n")
}

/// Returns the suite of a trace, with a test case for each rule.
pub(super) fn format_suite(path: &Path, report: &CheckReport) -> String {
    let outcomes = report.outcomes();
    let skipped = outcomes.iter().filter(|outcome| outcome.status == RuleStatus::Skipped).count();
    let head = format!(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{skipped}\">\n",
        escape(&path.display().to_string()),
        outcomes.len(),
        report.failures().count()
    );
    let cases: String = outcomes.iter().map(format_case).collect();
    head + &cases + "  </testsuite>\n"
}

fn format_case(outcome: &RuleOutcome) -> String {
    let rule = outcome.rule.to_string();
    let name = outcome.rule.name().unwrap_or(&rule);
    let start = format!("    <testcase classname=\"kineto.check\" name=\"{}\"", escape(name));
    let text = outcome.to_string();
    let first = escape(text.lines().next().unwrap_or_default());
    match outcome.status {
        RuleStatus::Holds => format!("{start}/>\n"),
        RuleStatus::Skipped => format!("{start}><skipped message=\"{first}\"/></testcase>\n"),
        _ => format!("{start}><failure message=\"{first}\">{}</failure></testcase>\n", escape(&text)),
    }
}

/// Returns the suite of a trace that was not read.
pub(super) fn format_unread(path: &Path, error: &Error) -> String {
    let error = escape(&error.to_string());
    format!(
        "  <testsuite name=\"{}\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\">\n    \
         <testcase classname=\"kineto.check\" name=\"read\"><error message=\"{error}\"/></testcase>\n  </testsuite>\n",
        escape(&path.display().to_string())
    )
}

/// Escapes a text for content and attributes. Characters that XML cannot hold become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn texts_are_valid_xml() {
        assert_eq!(escape("a<b> & \"c\"\n\u{1b}\u{ffff}ä"), "a&lt;b&gt; &amp; &quot;c&quot;&#10;\u{fffd}\u{fffd}ä");
    }
}
