//! `kineto repair`: completes a trace that is cut off.

use crate::{print_error, print_text};
use kineto_trace::analysis::{self, Events};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Completes a trace that is cut off, so that every viewer opens it: copies all whole events and closes the file.
///
/// The header of the copy has the key `tracing_kineto_incomplete`. The file itself stays as it is.
///
/// Exit status: 0 if there is a whole file now, 1 if not, 2 if the arguments are wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  kineto repair killed.pt.trace.json.gz -o whole.pt.trace.json.gz")]
pub(crate) struct RepairArguments {
    /// The trace file.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The copy; default: `repaired-` and the file's name, in the same folder.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Repairs the trace.
pub(crate) fn run(arguments: &RepairArguments) -> ExitCode {
    let output = arguments.output.clone().unwrap_or_else(|| default_output(&arguments.trace));
    let repaired = analysis::repair(&arguments.trace, &output).and_then(|repair| {
        // A truncated file may also be invalid before the cut, so read the result.
        let events = Events::read(if repair.is_some() { &output } else { &arguments.trace })?;
        Ok((repair, events.len()))
    });
    match repaired {
        Ok((None, events)) => print_text(&format!("{}: whole, {events} events\n", arguments.trace.display())),
        Ok((Some(repair), events)) => print_text(&format!(
            "{}: {events} events; {} bytes behind them were dropped\n",
            output.display(),
            repair.dropped_bytes
        )),
        Err(error) => return print_error(&error),
    }
    ExitCode::SUCCESS
}

fn default_output(trace: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from("repaired-");
    name.push(trace.file_name().unwrap_or_default());
    trace.with_file_name(name)
}
