//! `kineto path`: prints the critical path of a trace, piece by piece.

use crate::terminal_width::{DEFAULT_WIDTH, terminal_width};
use crate::trace_file::{TraceFile, read_events};
use crate::{RunResult, print_pieces, print_text};
use kineto_base::text::{count_with_noun, padded, text_width, truncate_name};
use kineto_trace::analysis::Events;
use kineto_trace::analysis::summary::{CriticalPath, PathPiece, PathPlace, format_ns};
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the critical path: what the end of a trace or step waited for, back to its start.
///
/// The pieces are device work, operations and calls of the host, and the waits between them. They follow each other without a gap, so
/// their times add up to the time of the trace or step. Speeding up anything outside the path gains nothing.
///
/// Exit status: 0 if the trace was read; 1 if not; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto path app.pt.trace.json.gz --step 7\n  \
    kineto path app.pt.trace.json.gz --csv > path.csv")]
pub(crate) struct PathArguments {
    /// The trace file; `-` is the standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Reads a truncated file up to its last event.
    #[arg(long)]
    partial: bool,
    /// Limits the path to `ProfilerStep#N`, up to the end of the device work launched in it.
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Prints at most the first N pieces.
    #[arg(long, default_value_t = 100, value_name = "N", conflicts_with_all = ["csv", "json"])]
    rows: usize,
    /// Prints all pieces as CSV; times are in nanoseconds.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Prints all pieces and their totals as JSON; times are microseconds.
    #[arg(long)]
    json: bool,
}

/// Prints the path.
pub(crate) fn run(arguments: &PathArguments) -> RunResult {
    let events = read_events(&TraceFile::named(&arguments.trace), arguments.partial)?;
    let window = match arguments.step {
        Some(step) => events.step_range(step)?,
        None => events.slice_range(),
    };
    let path = events.critical_path(window);
    if arguments.csv {
        print_pieces(|out| path.write_csv(out));
    } else if arguments.json {
        print_pieces(|out| path.write_json(&mut *out).and_then(|()| writeln!(out)));
    } else {
        print_text(&format_path(&events, &path, arguments.rows, terminal_width().unwrap_or(DEFAULT_WIDTH)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns lines of totals, and a table of the first pieces that fits the width.
fn format_path(events: &Events, path: &CriticalPath<'_>, rows: usize, width: usize) -> String {
    const MIN_NAME: usize = 16;

    let (figures, start) = (path.figures(), path.window().start);
    let share = |place| figures.place_percent(place);
    let offset = format_ns(start.since(events.slice_range().start));
    let mut text = format!(
        "Critical path of {}, from {offset} after the start of the trace:\n  host {:.1} %   device {:.1} %   waits {:.1} %\n",
        format_ns(figures.window_ns),
        share(PathPlace::Host),
        share(PathPlace::Device),
        share(PathPlace::Wait)
    );
    text += &format!("{:>10} {:>10}  {:<18}  {:<14}  name\n", "start", "time", "what", "thread");
    for piece in path.pieces().iter().take(rows) {
        let (at, time) = (format_ns(piece.start.since(start)), format_ns(piece.duration_ns()));
        let what = piece.kind.as_str().replace('_', " ");
        let track = padded(&truncate_name(&track_text(piece), 14), 14);
        let start = format!("{at:>10} {time:>10}  {what:<18}  {track}  ");
        let name_width = width.saturating_sub(text_width(&start)).max(MIN_NAME);
        let line = start + &truncate_name(piece.event.map_or("", |event| event.name()), name_width);
        text += &format!("{}\n", line.trim_end());
    }
    match path.pieces().len().saturating_sub(rows) {
        0 => text,
        more => text + &format!("… {}\n", count_with_noun(more as u64, "more piece")),
    }
}

/// Returns the name of the piece's thread or stream, else its ids.
fn track_text(piece: &PathPiece<'_>) -> String {
    piece.event.map_or_else(String::new, |event| match event.track() {
        track if track.name.is_empty() => format!("{}/{}", track.process, track.thread),
        track => track.name.to_owned(),
    })
}
