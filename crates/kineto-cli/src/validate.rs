//! `kineto validate`: reports which tools cannot read the whole trace, and why.

use crate::terminal_width::terminal_width;
use crate::trace_file::{read_events, trace_files};
use crate::{print_error, print_text};
use kineto_base::text::{count_with_noun, escaped_path, filled_lines, printable};
use kineto_trace::analysis::{BrokenRule, Events};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Says which rules of Perfetto, TensorBoard and HTA a trace breaks, with the first event that breaks each.
///
/// Exit status: 0 if no rule is broken; 1 if one is, or if a trace was not read; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto validate app.pt.trace.json.gz\n  \
    kineto validate traces/")]
pub(crate) struct ValidateArguments {
    /// The trace files, or folders of them; `-` is the standard input.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Reads a truncated file up to its last event.
    #[arg(long)]
    partial: bool,
}

/// Validates each trace.
pub(crate) fn run(arguments: &ValidateArguments) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for path in arguments.traces.iter().flat_map(|path| trace_files(path)) {
        match read_events(&path, arguments.partial) {
            Ok(events) => {
                let text = format_report(&path, &events);
                if text.contains('\n') {
                    status = ExitCode::FAILURE;
                }
                print_text(&format!("{text}\n"));
            }
            Err(error) => status = print_error(&error),
        }
    }
    status
}

/// Returns one line, and two more for each broken rule.
fn format_report(path: &Path, events: &Events) -> String {
    let mut broken: Vec<String> = events.broken_rules().iter().map(|rule| format_rule(events, rule)).collect();
    if !events.is_perfetto() {
        broken.extend(name_fault(path));
    }
    if broken.is_empty() {
        return format!("{}: no problem in {}", escaped_path(path), count_with_noun(events.len() as u64, "event"));
    }
    format!("{}:\n{}", escaped_path(path), broken.join("\n"))
}

/// Returns a text with spaces before it; in a terminal, in lines that fit.
fn indented(text: &str, indent: usize) -> String {
    let indent = " ".repeat(indent);
    let Some(width) = terminal_width() else { return indent + text };
    let words: Vec<_> = text.split_whitespace().collect();
    let lines = filled_lines(&words, " ", width.saturating_sub(indent.len()).max(20));
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

fn format_rule(events: &Events, rule: &BrokenRule) -> String {
    let BrokenRule { reader, problem, effect, remedy, .. } = rule;
    let count = if rule.count > 0 { format!(" ({})", rule.count) } else { String::new() };
    let first = rule.first.and_then(|first| events.get(first)).map_or_else(String::new, |event| {
        let track = event.track();
        let at = event.start().since(events.window().0);
        let (name, track) = (printable(event.name()), printable(&format!("{}/{}", track.process, track.thread)));
        format!("first: `{name}` on {track}, {at} ns after the start; ")
    });
    let problem = indented(&format!("{reader} {effect}: {problem}{count}"), 2);
    format!("{problem}\n{}", indented(&format!("{first}to do: {remedy}"), 4))
}

/// Returns what TensorBoard needs of the name, if it lacks that.
fn name_fault(path: &Path) -> Option<String> {
    // A pipe is read under the name that its writer or the shell chose.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let name = path.file_name()?.to_string_lossy();
    let is_listed = name.ends_with(".pt.trace.json") || name.ends_with(".pt.trace.json.gz");
    let problem = "TensorBoard does not list the file: its name does not end with .pt.trace.json or .pt.trace.json.gz";
    (!is_listed).then(|| indented(problem, 2) + "\n    to do: rename it")
}
