//! `kineto check`: checks traces against a file of rules.

mod junit;
mod rules_file;

use crate::trace_file::{EventSelection, is_standard_stream, trace_files};
use crate::{RunResult, print_error, print_text};
use junit::JunitReport;
use kineto_base::text::{count_with_noun, escaped_path};
use kineto_trace::analysis::check::{CheckReport, Figure};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit status if a trace does not meet a rule.
const RULE_FAILED: u8 = 3;

/// Checks traces against rules: no synchronization in a span, launches a step, percentiles of durations, busy devices, losses.
///
/// The file of rules is TOML. Each `[[rule]]` has a `figure`, a limit (`max`, `min` or both), and may have `of` (a name), `in` or `each` (a
/// span) and `name`. Names may contain `*` for any text. A rule that matches nothing fails, unless it has `optional = true`. Only a rule
/// that forbids a name (`of` with `max = 0`) holds if the trace has spans, calls or device work, and none of that name; it cannot find a
/// misspelt one. `--figures` lists the figures.
///
/// Exit status: 0 if all traces meet all rules; 1 if a trace or the rules were not read, or the output or `--junit` was not written; 2 for
/// wrong arguments; 3 if a rule fails.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto check rules.toml app.pt.trace.json.gz\n  \
    kineto check rules.toml traces/ --junit report.xml\n\n\
    rules.toml:\n  \
    [[rule]]\n  \
    figure = \"synchronizations\"\n  \
    in = \"decode\"\n  \
    max = 0\n\n  \
    [[rule]]\n  \
    figure = \"duration.p99\"\n  \
    of = \"decode\"\n  \
    max = \"2.5 ms\"")]
pub(crate) struct CheckArguments {
    /// The file of rules.
    #[arg(required_unless_present = "figures", value_name = "RULES.toml")]
    rules: Option<PathBuf>,
    /// The trace files, or folders of them; subfolders are not read.
    #[arg(required_unless_present = "figures", value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Prints one JSON object for each trace, a line each; times are microseconds.
    #[arg(long)]
    json: bool,
    /// Writes the results as JUnit XML too, for the pages of CI systems; `-` prints them instead of the text.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Lists the figures that rules can limit.
    #[arg(long, conflicts_with_all = ["json", "junit"])]
    figures: bool,
    #[command(flatten)]
    part: EventSelection,
}

/// Checks each trace.
pub(crate) fn run(arguments: &CheckArguments) -> RunResult {
    if arguments.figures {
        print_text(&Figure::all().iter().map(|figure| format!("{figure}\n")).collect::<String>());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(rules) = &arguments.rules else { return Ok(ExitCode::SUCCESS) };
    let rules = rules_file::read_rules(rules)?;
    let (mut all_read, mut all_hold, mut junit) = (true, true, JunitReport::default());
    let prints_junit = arguments.junit.as_ref().is_some_and(|path| is_standard_stream(path));
    for path in arguments.traces.iter().flat_map(|path| trace_files(path)) {
        match arguments.part.read_events(&path).map(|events| rules.check(&events)) {
            Ok(report) => {
                all_hold &= report.holds();
                junit.add_report(&path, &report);
                match (prints_junit, arguments.json) {
                    (true, _) => {}
                    (false, true) => print_text(&format_json(&path, &report)),
                    (false, false) => print_text(&format_text(&path, &report)),
                }
            }
            Err(error) => {
                all_read = false;
                junit.add_unread(&path, &error);
                print_error(&error);
            }
        }
    }
    if prints_junit {
        print_text(&junit.format());
    } else if let Some(path) = &arguments.junit {
        fs::write(path, junit.format())
            .map_err(|error| format!("cannot write {}: {error}; choose another file", path.display()))?;
    }
    Ok(match (all_read, all_hold) {
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::from(RULE_FAILED),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// Returns a line for the trace, and one or more for each rule.
fn format_text(path: &Path, report: &CheckReport) -> String {
    let rules = count_with_noun(report.outcomes().len() as u64, "rule");
    format!("{}: {} of {rules} failed\n{report}", escaped_path(path), report.failures().count())
}

fn format_json(path: &Path, report: &CheckReport) -> String {
    let (trace, report) = (json!(path.display().to_string()), report.to_json());
    let members = report.strip_prefix('{').unwrap_or(&report);
    format!("{{\"trace\":{trace},{members}\n")
}
