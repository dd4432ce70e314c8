//! `kineto stacks`: prints folded stacks of a trace, for flame graphs.

use crate::trace_file::{TraceInput, is_standard_stream};
use crate::{RunResult, print_error, print_pieces};
use kineto_trace::analysis::StackMetric;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints folded stacks: one line per stack, with frames from the root, then microseconds.
///
/// flamegraph.pl, inferno and speedscope read them.
///
/// Exit status: 0 if the stacks were written; 1 if not; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto stacks app.pt.trace.json.gz | inferno-flamegraph > cpu.svg\n  \
    kineto stacks app.pt.trace.json.gz --metric self_cuda_time_total -o gpu.folded")]
pub(crate) struct StacksArguments {
    #[command(flatten)]
    input: TraceInput,
    /// Writes to this file; by default, and for `-`, to the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The time of a stack: `self_cpu_time_total` or `self_cuda_time_total`.
    #[arg(long, default_value = "self_cpu_time_total", value_name = "METRIC")]
    metric: StackMetric,
    /// Adds source locations to frames, if they were recorded.
    #[arg(long)]
    locations: bool,
}

/// Prints or writes the stacks.
pub(crate) fn run(arguments: &StacksArguments) -> RunResult {
    let events = arguments.input.read_events()?;
    if arguments.locations && !events.has_locations() {
        print_error(
            &"stacks have no locations: the trace records none; record spans with KINETO_WITH_LOCATION=1 or \
              `with_location(true)`, PyTorch with `with_stack=True`",
        );
    }
    let stacks = events.stacks(arguments.metric).with_locations(arguments.locations);
    match arguments.output.as_deref().filter(|path| !is_standard_stream(path)) {
        Some(path) => stacks.save(path)?,
        None => drop(print_pieces(|out| stacks.write(out))),
    }
    Ok(ExitCode::SUCCESS)
}
