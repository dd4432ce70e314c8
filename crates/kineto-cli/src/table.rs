//! `kineto table`: prints averages of a trace, as torch's `key_averages` does.

use crate::terminal_width::terminal_width;
use crate::trace_file::TraceInput;
use crate::{RunResult, print_pieces, print_text};
use clap::ValueEnum;
use kineto_trace::analysis::{GroupBy, SortBy, Table};
use std::process::ExitCode;

/// Prints averages of operations and kernels by name: torch's `key_averages().table()`.
///
/// In a terminal, columns that do not fit are left out; a pipe or a file gets all.
///
/// Exit status: 0 if the trace was read; 1 if not, or if no event is selected; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto table app.pt.trace.json.gz --sort-by self_cuda_time_total --rows 20\n  \
    kineto table app.pt.trace.json.gz --by shapes --csv > averages.csv")]
pub(crate) struct TableArguments {
    #[command(flatten)]
    input: TraceInput,
    /// Sorts by one of torch's keys, such as `self_cpu_time_total`. [default: self time]
    #[arg(long, value_name = "KEY")]
    sort_by: Option<SortBy>,
    /// Prints this many rows of each section.
    #[arg(long, default_value_t = 100, value_name = "N")]
    rows: usize,
    /// Groups by this in addition to the name; may be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<Group>,
    /// Prints one table of operations and kernels together, as torch does.
    #[arg(long)]
    torch: bool,
    /// Prints all rows as CSV; times are in nanoseconds.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Prints all rows as JSON; times are in nanoseconds.
    #[arg(long)]
    json: bool,
}

/// A grouping key on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Group {
    Shapes,
    Stack,
    Device,
    Thread,
    Target,
    Overload,
}

impl Group {
    fn to_group_by(self) -> GroupBy {
        /// The number of frames that are compared.
        const FRAMES: usize = 5;

        match self {
            Group::Shapes => GroupBy::Shapes,
            Group::Stack => GroupBy::Stack(FRAMES),
            Group::Device => GroupBy::Device,
            Group::Thread => GroupBy::Thread,
            Group::Target => GroupBy::Target,
            Group::Overload => GroupBy::Overload,
        }
    }
}

/// Prints the table.
pub(crate) fn run(arguments: &TableArguments) -> RunResult {
    let events = arguments.input.read_events()?;
    let averaging = arguments.by.iter().fold(events.averages(), |averaging, group| averaging.by(group.to_group_by()));
    let averages = averaging.compute();
    if arguments.csv {
        print_pieces(|out| averages.write_csv(out));
    } else if arguments.json {
        print_pieces(|out| averages.write_json(&mut *out).and_then(|()| writeln!(out)));
    } else {
        let table = averages.table().row_limit(arguments.rows).torch(arguments.torch);
        // torch's table is as wide as torch makes it; a file gets all columns.
        let width = terminal_width().filter(|_| !arguments.torch);
        let table = width.into_iter().fold(table, Table::width);
        print_text(&arguments.sort_by.into_iter().fold(table, |table, key| table.sort_by(key)).to_string());
    }
    Ok(ExitCode::SUCCESS)
}
