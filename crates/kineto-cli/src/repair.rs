//! `kineto repair`: completes a trace that is cut off, or makes one of a segment.

use crate::{print_error, print_text};
use kineto_trace::analysis::{self, Events};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_kineto::{Error, Trace};

/// Completes a trace that is cut off, so that every viewer opens it: copies all whole events and closes the file.
///
/// Of a segment (`.kseg`), writes the trace that it holds, without the parts that are damaged or missing.
///
/// The header of the copy has the key `tracing_kineto_incomplete` if something is missing. The file itself is not changed.
///
/// Exit status: 0 if there is a whole file now, 1 if not, 2 if the arguments are wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  kineto repair killed.pt.trace.json.gz -o whole.pt.trace.json.gz\n  \
                        kineto repair seg-000001.kseg")]
pub(crate) struct RepairArguments {
    /// The trace file, or the segment.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The copy; default: `repaired-` and the file's name, in the same folder, with `.pt.trace.json.gz` for a segment.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Repairs the trace.
pub(crate) fn run(arguments: &RepairArguments) -> ExitCode {
    let output = arguments.output.clone().unwrap_or_else(|| default_output(&arguments.trace));
    let repair = if is_segment(&arguments.trace) { repair_segment } else { repair_trace };
    match repair(&arguments.trace, &output) {
        Ok(result) => print_text(&format!("{result}\n")),
        Err(error) => return print_error(&error),
    }
    ExitCode::SUCCESS
}

/// Copies the whole events of a trace that is cut off; returns what it did.
fn repair_trace(trace: &Path, output: &Path) -> Result<String, Error> {
    let repair = analysis::repair(trace, output)?;
    // A truncated file may also be invalid before the cut, so read the result.
    let events = Events::read(if repair.is_some() { output } else { trace })?.len();
    Ok(match repair {
        None => format!("{}: whole, {events} events", trace.display()),
        Some(repair) => {
            format!("{}: {events} events; {} bytes behind them were dropped", output.display(), repair.dropped_bytes)
        }
    })
}

/// Writes the trace of a segment; returns what it did.
fn repair_segment(segment: &Path, output: &Path) -> Result<String, Error> {
    let segment = Trace::read_segment(segment)?;
    segment.trace.save(output)?;
    Ok(format!("{}: {} events; the segment is {segment}", output.display(), Events::read(output)?.len()))
}

fn is_segment(trace: &Path) -> bool {
    trace.extension().is_some_and(|extension| extension == "kseg")
}

fn default_output(trace: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from("repaired-");
    if is_segment(trace) {
        name.push(trace.file_stem().unwrap_or_default());
        name.push(".pt.trace.json.gz");
    } else {
        name.push(trace.file_name().unwrap_or_default());
    }
    trace.with_file_name(name)
}
