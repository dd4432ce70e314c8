//! `kineto convert`: writes a trace in another format.

use crate::print_error;
use crate::trace_file::Input;
use kineto_trace::Error;
use kineto_trace::activity::CorrelationId;
use kineto_trace::analysis::{Event, Events, StackMetric, TrackId};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes a trace in another format, which the name of the output gives.
///
/// `.json` is Kineto's JSON, `.pftrace` Perfetto's format; both may end with `.gz`. `.csv` has a line for each event, `.folded` a line for
/// each stack of operators with its self time in microseconds, which flamegraph.pl, inferno and speedscope read.
///
/// Exit status: 0 if the file was written; 1 if not; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto convert app.pt.trace.json.gz -o app.pftrace\n  \
    kineto convert app.pt.trace.json.gz -o events.csv\n  \
    kineto convert --partial killed.json -o whole.json.gz")]
pub(crate) struct ConvertArguments {
    #[command(flatten)]
    input: Input,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Converts the trace.
pub(crate) fn run(arguments: &ConvertArguments) -> ExitCode {
    match arguments.input.read().and_then(|events| save(&events, &arguments.output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_error(&error),
    }
}

fn save(events: &Events, output: &Path) -> Result<(), Error> {
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => save_csv(events, output)
            .map_err(|error| Error::io("write", output, error, "free space, or choose another folder")),
        Some("folded") => events.stacks(StackMetric::SelfHost).save(output),
        _ => events.save(output),
    }
}

/// Writes a line for each event; times are nanoseconds.
fn save_csv(events: &Events, output: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(output)?);
    out.write_all(b"start_ns,duration_ns,category,name,process,thread,id,linked,arguments\n")?;
    events.iter().try_for_each(|event| out.write_all(csv_line(&event).as_bytes()))?;
    out.flush()
}

fn csv_line(event: &Event<'_>) -> String {
    let id = |id: Option<CorrelationId>| id.map_or_else(String::new, |id| id.0.to_string());
    let track = event.track();
    format!(
        "{},{},{},{},{},{},{},{},{}\n",
        event.start().as_nanos(),
        event.duration_ns(),
        quoted(event.category()),
        quoted(event.name()),
        quoted(&lane(&track.process)),
        quoted(&lane(&track.thread)),
        id(event.id()),
        id(event.linked()),
        quoted(&event.metadata_json()),
    )
}

fn lane(id: &TrackId) -> String {
    match id {
        TrackId::Id(id) => id.to_string(),
        TrackId::Name(name) => name.clone(),
    }
}

/// Returns a field of RFC 4180.
fn quoted(field: &str) -> String {
    let needs_quotes = field.contains(['"', ',', '\n', '\r']);
    if needs_quotes { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}
