//! `kineto path`: prints the critical path of a trace, piece by piece.

use crate::trace_file::{TraceFile, read_events};
use crate::{print_error, print_pieces, print_text};
use kineto_trace::analysis::Events;
use kineto_trace::analysis::summary::{CriticalPath, PathPiece, PathPlace};
use kineto_trace::text::{count_with_noun, printable};
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
pub(crate) fn run(arguments: &PathArguments) -> ExitCode {
    let events = match read_events(&TraceFile::named(&arguments.trace), arguments.partial) {
        Ok(events) => events,
        Err(error) => return print_error(&error),
    };
    let window = match arguments.step {
        Some(step) => match events.step_range(step) {
            Ok(window) => window,
            Err(error) => return print_error(&error),
        },
        None => events.slice_range(),
    };
    let path = events.critical_path(window);
    if arguments.csv {
        print_pieces(|out| path.write_csv(out));
    } else if arguments.json {
        print_pieces(|out| path.write_json(&mut *out).and_then(|()| writeln!(out)));
    } else {
        print_text(&format_path(&events, &path, arguments.rows));
    }
    ExitCode::SUCCESS
}

/// Returns a line of totals, and a table of the first pieces.
fn format_path(events: &Events, path: &CriticalPath<'_>, rows: usize) -> String {
    let (figures, start) = (path.figures(), path.window().start);
    let share = |place| figures.place_percent(place);
    let mut text = format!(
        "Critical path of {} us, from {} us after the start of the trace: host {:.1} %, device {:.1} %, waits {:.1} %\n",
        micros_text(figures.window_ns),
        micros_text(start.since(events.slice_range().start)),
        share(PathPlace::Host),
        share(PathPlace::Device),
        share(PathPlace::Wait)
    );
    text += &format!("{:>14} {:>14}  {:<35} {:<19} name\n", "start [us]", "time [us]", "what", "track");
    for piece in path.pieces().iter().take(rows) {
        let (at, ns) = (micros_text(piece.start.since(start)), micros_text(piece.duration_ns()));
        let line = format!("{at:>14} {ns:>14}  {:<35} {:<19} {}", piece.kind, track_text(piece), piece_name(piece));
        text += &format!("{}\n", line.trim_end());
    }
    match path.pieces().len().saturating_sub(rows) {
        0 => text,
        more => text + &format!("… {}\n", count_with_noun(more as u64, "more piece")),
    }
}

/// Returns the printable name of the piece's event.
fn piece_name(piece: &PathPiece<'_>) -> String {
    let name = piece.event.map_or("", |event| event.name());
    printable(name)
}

fn track_text(piece: &PathPiece<'_>) -> String {
    piece.event.map_or_else(String::new, |event| {
        let track = event.track();
        printable(&format!("{}/{}", track.process, track.thread))
    })
}

/// Returns microseconds with three decimals.
fn micros_text(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
