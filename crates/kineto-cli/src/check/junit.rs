//! The results of a check as JUnit XML, which CI systems show.

use kineto_trace::Error;
use kineto_trace::analysis::check::{CheckReport, RuleOutcome, RuleStatus};
use std::fmt;
use std::path::Path;

/// The test suites of all traces.
#[derive(Default)]
pub(super) struct JunitReport {
    suites: String,
    counts: CaseCounts,
}

/// The numbers of test cases.
#[derive(Clone, Copy, Default)]
struct CaseCounts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
}

impl fmt::Display for CaseCounts {
    /// Formats attributes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaseCounts { tests, failures, errors, skipped } = self;
        write!(f, "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"")
    }
}

impl JunitReport {
    /// Adds the suite of a trace, with a test case for each rule.
    pub(super) fn add_report(&mut self, path: &Path, report: &CheckReport) {
        let outcomes = report.outcomes();
        let skipped = outcomes.iter().filter(|outcome| outcome.status == RuleStatus::Skipped).count();
        let counts = CaseCounts { tests: outcomes.len(), failures: report.failures().count(), errors: 0, skipped };
        let cases: Vec<_> = outcomes.iter().map(format_case).collect();
        self.add_suite(path, counts, &cases);
    }

    /// Adds the suite of a trace that was not read.
    pub(super) fn add_unread(&mut self, path: &Path, error: &Error) {
        let counts = CaseCounts { tests: 1, errors: 1, ..CaseCounts::default() };
        let case = format!("name=\"read\"><error message=\"{}\"/></testcase>", escape(&error.to_string()));
        self.add_suite(path, counts, &[case]);
    }

    /// Adds a suite. CI systems group and follow cases by class, so the class is the trace.
    fn add_suite(&mut self, path: &Path, counts: CaseCounts, cases: &[String]) {
        let trace = escape(&path.display().to_string());
        self.suites += &format!("  <testsuite name=\"{trace}\" {counts}>\n");
        for case in cases {
            self.suites += &format!("    <testcase classname=\"{trace}\" {case}\n");
        }
        self.suites += "  </testsuite>\n";
        self.counts.tests += counts.tests;
        self.counts.failures += counts.failures;
        self.counts.errors += counts.errors;
        self.counts.skipped += counts.skipped;
    }

    /// Returns the file.
    pub(super) fn format(&self) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"kineto check\" {}>\n{}</testsuites>\n",
            self.counts, self.suites
        )
    }
}

/// Returns a test case after its class.
fn format_case(outcome: &RuleOutcome) -> String {
    let rule = outcome.rule.to_string();
    let name = escape(outcome.rule.name().unwrap_or(&rule));
    let text = outcome.to_string();
    let first = escape(text.lines().next().unwrap_or_default());
    match outcome.status {
        RuleStatus::Holds => format!("name=\"{name}\"/>"),
        RuleStatus::Skipped => format!("name=\"{name}\"><skipped message=\"{first}\"/></testcase>"),
        _ => format!("name=\"{name}\"><failure message=\"{first}\">{}</failure></testcase>", escape(&text)),
    }
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
