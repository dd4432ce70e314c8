//! `kineto summary`: prints where the time of traces went.

use crate::trace_file::read;
use crate::{print_error, print_text};
use kineto_trace::analysis::Events;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints where the time of a trace went: devices, idle time and its causes, steps, operators, kernels.
///
/// Reads Kineto's JSON, plain or compressed by gzip, of this crate, PyTorch or libkineto. `-` is the standard input.
///
/// Exit status: 0 if all traces were read, 1 if one was not, 2 if the arguments are wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto summary app.pt.trace.json.gz\n  \
    kineto summary --json rank0.json | jq .temporal\n  \
    kineto summary --rows 50 rank*.pt.trace.json.gz")]
pub(crate) struct SummaryArguments {
    /// The trace files.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Prints one JSON object for each trace, a line each; times are microseconds.
    #[arg(long)]
    json: bool,
    /// Lists this many operators and kernels.
    #[arg(long, default_value_t = 10, value_name = "N", conflicts_with = "json")]
    rows: usize,
    /// Reads a truncated file up to its last event.
    #[arg(long)]
    partial: bool,
}

/// Prints the summary of each trace.
pub(crate) fn run(arguments: &SummaryArguments) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for (number, path) in arguments.traces.iter().enumerate() {
        match read(path, arguments.partial) {
            Ok(events) => {
                let separator = if number > 0 && !arguments.json { "\n" } else { "" };
                print_text(&format!("{separator}{}", formatted(path, &events, arguments)));
            }
            Err(error) => {
                status = print_error(&error);
            }
        }
    }
    status
}

fn formatted(path: &Path, events: &Events, arguments: &SummaryArguments) -> String {
    let summary = events.summary();
    if arguments.json {
        return summary.to_json() + "\n";
    }
    let screen = summary.screen().rows(arguments.rows).color(io::stdout().is_terminal());
    format!("{}\n{screen}", path.display())
}
