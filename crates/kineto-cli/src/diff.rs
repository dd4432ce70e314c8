//! `kineto diff`: prints what changed between two traces, or two sets of traces.

use crate::terminal_width::terminal_width;
use crate::trace_file::{EventSelection, TraceFile, for_each_trace, is_standard_stream, trace_files};
use crate::{print_error, print_text};
use kineto_trace::analysis::{DiffOptions, DiffScreen, TraceProfile};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints what changed between two traces, or two sets of them: slower, faster, new, gone and moved operations and kernels.
///
/// A change is reported if it exceeds the threshold and what the spread of steps and traces explains. Classes of other names are
/// matched by their place in a step, so a trace of candle can be compared with one of PyTorch. The change of the mean step is divided into
/// parts of the critical path that add up to it exactly.
///
/// A side is a trace, a folder of traces, or several of either. The first trace of each rank is the first run, the second the second, and so on.
/// Traces of ranks that the other side lacks, of runs that lack a rank, and of runs with few steps are left out and named.
///
/// One run a side does not show how runs differ: changes that most operations share are then not reported as slower. With four or more runs a side
/// they are. Of a few runs a side, the spread between runs is pooled over operations. A question mark, as in `slower?`, marks changes that fewer
/// than four cannot distinguish from the machine's load: of the host, and slow steps.
///
/// Exit status: 0 if nothing is slower, 1 if a trace was not read, 2 if the arguments are wrong, 3 if something is slower, 4 if it is slower in a way
/// that more runs would decide: with a question mark, alike, or in fewer than four steps.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto diff yesterday.pt.trace.json.gz today.pt.trace.json.gz\n  \
    kineto diff main/ branch/                      # folders of runs or ranks\n  \
    kineto diff main-*.json.gz -- branch-*.json.gz # several traces a side\n  \
    kineto diff --rows 20 --threshold 1 candle.json torch.json\n  \
    kineto diff --json main/ branch/ | jq .total\n  \
    kineto diff main/ branch/ || exit              # in CI: 3 if something is slower, 4 if single runs cannot tell")]
pub(crate) struct DiffArguments {
    /// The traces A and B, or all traces of A if those of B follow after `--`.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The traces of B.
    #[arg(last = true, value_name = "B")]
    others: Vec<PathBuf>,
    /// Reports changes from this many percent on.
    #[arg(long, default_value_t = 3.0, value_name = "PERCENT", value_parser = parse_percent)]
    threshold: f64,
    /// Also lists this many classes of each kind, changed or not.
    #[arg(long, value_name = "N", conflicts_with = "json")]
    rows: Option<usize>,
    /// Prints all figures as one JSON object; times are microseconds.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    part: EventSelection,
}

/// The exit status if something is slower.
const SLOWER: u8 = 3;

/// The exit status if few runs or steps cannot decide whether the program is slower.
const SLOWER_ALIKE: u8 = 4;

/// The exit status for wrong arguments.
const WRONG_ARGUMENTS: u8 = 2;

/// Compares both sides.
pub(crate) fn run(arguments: &DiffArguments) -> ExitCode {
    let (a, b) = match (arguments.traces.as_slice(), arguments.others.as_slice()) {
        ([a, b], []) => (std::slice::from_ref(a), std::slice::from_ref(b)),
        (_, []) => {
            print_error(&"error: two traces or folders are needed; write `--` between the traces of two sets");
            return ExitCode::from(WRONG_ARGUMENTS);
        }
        (a, b) => (a, b),
    };
    if a.iter().chain(b).filter(|path| is_standard_stream(path)).count() > 1 {
        print_error(&"error: the standard input (-) is one trace: name it once");
        return ExitCode::from(WRONG_ARGUMENTS);
    }
    let Some((a, b)) = read_sides(a, b, &arguments.part) else { return ExitCode::FAILURE };
    let diff = DiffOptions::new().threshold_percent(arguments.threshold).compare(&a, &b);
    if arguments.json {
        print_text(&(diff.to_json() + "\n"));
    } else {
        let screen = diff.screen().color(io::stdout().is_terminal());
        let screen = terminal_width().into_iter().fold(screen, DiffScreen::width);
        print_text(&arguments.rows.into_iter().fold(screen, |screen, rows| screen.rows(rows)).to_string());
    }
    match () {
        () if diff.is_slower() => ExitCode::from(SLOWER),
        () if diff.is_slower_alike() => ExitCode::from(SLOWER_ALIKE),
        () => ExitCode::SUCCESS,
    }
}

/// Reduces the traces of both sides, several at once. Prints the errors of those that cannot be read.
fn read_sides(a: &[PathBuf], b: &[PathBuf], part: &EventSelection) -> Option<(Vec<TraceProfile>, Vec<TraceProfile>)> {
    let files = |paths: &[PathBuf]| paths.iter().flat_map(|path| trace_files(path)).collect::<Vec<_>>();
    let (a, b) = (files(a), files(b));
    let traces = [a.as_slice(), b.as_slice()].concat();
    let (mut profiles, mut is_complete) = (Vec::new(), true);
    let read = |trace: &TraceFile| part.read_events(trace).map(|events| events.profile());
    for_each_trace(&traces, read, |_, profile| match profile {
        Ok(profile) => {
            profiles.push(profile);
            let first = if profiles.len() > a.len() { a.len() } else { 0 };
            profiles.get_mut(first..).into_iter().for_each(TraceProfile::keep_one_outline);
        }
        Err(error) => {
            print_error(&error);
            is_complete = false;
        }
    });
    let others = is_complete.then(|| profiles.split_off(a.len()))?;
    Some((profiles, others))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if percent.is_finite() && percent >= 0.0 { Ok(percent) } else { Err("must be 0 or more".to_owned()) }
}
