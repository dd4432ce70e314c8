//! `kineto summary`: prints where the time of traces went.

use crate::terminal_width::{DEFAULT_WIDTH, terminal_width};
use crate::trace_file::{EventSelection, TraceFile, for_each_trace, trace_files};
use crate::{print_error, print_text};
use kineto_base::text::escaped_path;
use kineto_trace::analysis::Summary;
use kineto_trace::analysis::summary::{Screen, ScreenSection};
use serde_json::json;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints where the time of a trace went: devices, idle time and its causes, steps, operations, kernels.
///
/// Reads Kineto's JSON, plain or compressed by gzip, of this crate, PyTorch or libkineto. `-` is the standard input; of a folder, each
/// trace in it is read, but none in its subfolders. Several traces are read at once, and end with one line for each.
///
/// Exit status: 0 if all traces were read, 1 if one was not or nothing of it is selected, 2 if the arguments are wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto summary app.pt.trace.json.gz\n  \
    kineto summary --json rank0.json | jq .temporal\n  \
    kineto summary --findings rank*.pt.trace.json.gz\n  \
    kineto summary --brief app.pt.trace.json.gz\n  \
    kineto summary --section kernels --rows 50 app.pt.trace.json.gz\n  \
    kineto summary --csv traces/ > figures.csv\n  \
    kineto summary --step 7 app.pt.trace.json.gz\n  \
    kineto summary --rows 50 traces/")]
pub(crate) struct SummaryArguments {
    /// The trace files, or folders of them.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Prints one JSON object for each trace, a line each; times are microseconds.
    #[arg(long)]
    json: bool,
    /// Prints all figures as CSV: trace, section, name, figure and value, a line each; times are microseconds.
    #[arg(long, conflicts_with_all = ["json", "findings"])]
    csv: bool,
    /// Prints only the findings with their evidence; with `--json` in at most 16 KiB for each trace.
    #[arg(long)]
    findings: bool,
    /// Prints only the first screen: what the trace is, busy devices, causes of idle time, what to do next, and requests.
    #[arg(long, conflicts_with_all = ["json", "csv", "findings", "section"])]
    brief: bool,
    /// Prints only this section: findings, path, steps, operations, kernels, memory or counters.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["json", "csv", "findings"])]
    section: Option<ScreenSection>,
    /// Lists this many operations and kernels.
    #[arg(long, default_value_t = 10, value_name = "N", conflicts_with_all = ["json", "csv", "findings"])]
    rows: usize,
    #[command(flatten)]
    part: EventSelection,
}

/// Prints the summary of each trace.
pub(crate) fn run(arguments: &SummaryArguments) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    let mut lines = Vec::new();
    let traces: Vec<_> = arguments.traces.iter().flat_map(|path| trace_files(path)).collect();
    let is_data = arguments.json || arguments.csv;
    let summarize = |trace: &TraceFile| arguments.part.read_events(trace).map(|events| events.summary());
    for_each_trace(&traces, summarize, |path, summary| match summary {
        Ok(summary) => {
            if summary.slices == 0 {
                let failed = print_error(&arguments.part.empty_warning(path));
                status = if arguments.part.is_whole() { status } else { failed };
            }
            let separator = if lines.is_empty() || is_data { "" } else { "\n" };
            print_text(&format!("{separator}{}", format_summary(path, &summary, lines.is_empty(), arguments)));
            lines.push(RankLine::new(path, &summary));
        }
        Err(error) => status = print_error(&error),
    });
    if lines.len() > 1 && !is_data {
        print_text(&format!("\n{}", format_ranks(&lines)));
    }
    status
}

fn format_summary(path: &Path, summary: &Summary, is_first: bool, arguments: &SummaryArguments) -> String {
    if arguments.csv {
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = summary.write_csv(&mut text, &path.display().to_string(), is_first);
        return String::from_utf8_lossy(&text).into_owned();
    }
    if arguments.json {
        return if arguments.findings { findings_json(path, summary) } else { summary.to_json() } + "\n";
    }
    let screen = summary.screen().rows(arguments.rows).brief(arguments.brief);
    let screen = screen.width(terminal_width().unwrap_or(DEFAULT_WIDTH)).color(io::stdout().is_terminal());
    let section = arguments.section.or(arguments.findings.then_some(ScreenSection::Findings));
    format!("{}\n{}", escaped_path(path), section.into_iter().fold(screen, Screen::section))
}

/// Returns the findings as a JSON object; times are microseconds.
fn findings_json(path: &Path, summary: &Summary) -> String {
    let findings = summary.findings().into_iter().map(
        |finding| json!({ "title": finding.title, "evidence": finding.evidence, "gain": ns_to_micros(finding.gain_ns) }),
    );
    let (findings, span) = (findings.collect::<Vec<_>>(), ns_to_micros(summary.span_ns));
    let (trace, notes) =
        (path.display().to_string(), summary.notes.iter().map(|(note, _)| note.as_str()).collect::<Vec<_>>());
    json!({
        "schema": "kineto-findings/1", "unit": "us", "trace": trace, "span": span, "dump_reason": summary.dump_reason,
        "findings": findings, "notes": notes,
    })
    .to_string()
}

fn ns_to_micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// One trace of several, in a line.
struct RankLine {
    name: String,
    rank: Option<i64>,
    span_ns: u64,
    /// Busy, computing and exposed communication, as shares of the device's window.
    shares: Option<[f64; 3]>,
}

impl RankLine {
    fn new(path: &Path, summary: &Summary) -> RankLine {
        let shares = summary.occupation.as_ref().map(|found| {
            [found.busy_ns, found.compute_ns, found.exposed_communication_ns]
                .map(|ns| ns_to_micros(ns) * 100.0 / ns_to_micros(found.window_ns.max(1)))
        });
        let name = escaped_path(path.file_name().map_or(path, Path::new));
        RankLine { name, rank: summary.rank, span_ns: summary.span_ns, shares }
    }
}

/// Returns one line for each trace; the longest is marked.
fn format_ranks(lines: &[RankLine]) -> String {
    let longest = lines.iter().map(|line| line.span_ns).max();
    let mut text = format!(
        "{} traces\n  {:>5} {:>14} {:>8} {:>8} {:>8}  file\n",
        lines.len(),
        "rank",
        "span",
        "busy",
        "compute",
        "exposed"
    );
    for line in lines {
        let rank = line.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let shares: String = match line.shares {
            Some(shares) => shares.iter().map(|share| format!(" {share:>6.1} %")).collect(),
            None => format!(" {:>8} {:>8} {:>8}", "-", "-", "-"),
        };
        let mark = if Some(line.span_ns) == longest { "  <- longest" } else { "" };
        let span = format!("{:.3} ms", ns_to_micros(line.span_ns) / 1e3);
        text += &format!("  {rank:>5} {span:>14}{shares}  {}{mark}\n", line.name);
    }
    text
}
