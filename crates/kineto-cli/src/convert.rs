//! `kineto convert`: writes a trace in another format.

use crate::RunResult;
use crate::trace_file::{TraceInput, check_has_name, warn_of_left_out};
use kineto_trace::analysis::StackMetric;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a trace in another format, which the name of the output gives.
///
/// `.json` is Kineto's JSON, `.pftrace` Perfetto's format, `.speedscope.json` speedscope's. `.csv` has a line for each event, `.folded` a
/// line for each stack of operations with its self time in microseconds, for flamegraph.pl and inferno. Each may end with `.gz`.
///
/// Exit status: 0 if the file was written; 1 if not; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto convert app.pt.trace.json.gz -o app.pftrace\n  \
    kineto convert app.pt.trace.json.gz -o app.speedscope.json\n  \
    kineto convert app.pt.trace.json.gz -o events.csv\n  \
    kineto convert --partial killed.json -o whole.json.gz")]
pub(crate) struct ConvertArguments {
    #[command(flatten)]
    input: TraceInput,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// The ends of names that give a format; the first that fits counts.
const FORMATS: [&str; 6] = [".speedscope.json", ".json", ".pftrace", ".perfetto-trace", ".csv", ".folded"];

/// Converts the trace.
pub(crate) fn run(arguments: &ConvertArguments) -> RunResult {
    let output = &arguments.output;
    check_has_name(output)?;
    let name = output.to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let Some(format) = FORMATS.into_iter().find(|format| name.ends_with(format)) else {
        let why = "unknown file extension; use .json, .speedscope.json, .pftrace, .csv or .folded, each also with .gz";
        return Err(format!("cannot write {}: {why}", output.display()).into());
    };
    let events = arguments.input.read_events()?;
    match format {
        ".csv" => events.save_csv(output),
        ".speedscope.json" => events.save_speedscope(output),
        ".folded" => events.stacks(StackMetric::SelfHost).save(output),
        _ => events.save(output),
    }?;
    warn_of_left_out(arguments.input.path(), &events);
    Ok(ExitCode::SUCCESS)
}
