//! The command `kineto`.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a command prints")]

mod check;
mod convert;
mod diff;
mod doctor;
#[cfg(target_os = "linux")]
mod listener;
mod path;
#[cfg(target_os = "linux")]
mod process;
mod record;
mod repair;
mod report;
mod stacks;
#[cfg(target_os = "linux")]
mod status;
mod summary;
mod table;
mod terminal_width;
#[cfg(target_os = "linux")]
mod top;
mod trace_file;
#[cfg(target_os = "linux")]
mod trigger;
mod validate;
mod view;

use clap::{Parser, Subcommand};
use kineto_base::text::escaped;
use std::error::Error;
use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tools for traces of Rust programs in the format of PyTorch's profiler.
///
/// A command exits with 1 if its output cannot be written. A closed pipe is no error.
#[derive(Debug, Parser)]
#[command(name = "kineto", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Summary(summary::SummaryArguments),
    Table(table::TableArguments),
    Path(path::PathArguments),
    Check(check::CheckArguments),
    Report(report::ReportArguments),
    Diff(diff::DiffArguments),
    Stacks(stacks::StacksArguments),
    View(view::ViewArguments),
    Record(record::RecordArguments),
    Convert(convert::ConvertArguments),
    Validate(validate::ValidateArguments),
    Repair(repair::RepairArguments),
    Doctor(doctor::DoctorArguments),
    #[cfg(target_os = "linux")]
    Trigger(trigger::TriggerArguments),
    #[cfg(target_os = "linux")]
    Status(status::StatusArguments),
    #[cfg(target_os = "linux")]
    Top(top::TopArguments),
}

/// Whether some output could not be written.
static OUTPUT_FAILED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let status = run(Arguments::parse().command).unwrap_or_else(|error| print_error(&error));
    if OUTPUT_FAILED.load(Ordering::Relaxed) { ExitCode::FAILURE } else { status }
}

/// The exit status of a command, or the error to print.
type RunResult = Result<ExitCode, Box<dyn Error>>;

fn run(command: Command) -> RunResult {
    match command {
        Command::Summary(arguments) => Ok(summary::run(&arguments)),
        Command::Table(arguments) => table::run(&arguments),
        Command::Path(arguments) => path::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Diff(arguments) => Ok(diff::run(&arguments)),
        Command::Stacks(arguments) => stacks::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Validate(arguments) => Ok(validate::run(&arguments)),
        Command::Repair(arguments) => repair::run(&arguments),
        Command::Doctor(arguments) => Ok(doctor::run(arguments)),
        #[cfg(target_os = "linux")]
        Command::Trigger(arguments) => Ok(trigger::run(&arguments)),
        #[cfg(target_os = "linux")]
        Command::Status(arguments) => Ok(status::run(&arguments)),
        #[cfg(target_os = "linux")]
        Command::Top(arguments) => top::run(&arguments),
    }
}

/// Prints text. A closed pipe is ignored, as its reader wants no more; after another error, the command fails.
fn print_text(text: &str) {
    write_output(text);
}

/// Does the same; returns whether the text was written.
fn write_output(text: &str) -> bool {
    print_pieces(|out| out.write_all(text.as_bytes()))
}

/// Prints what `write` writes, piece by piece; returns whether it was written.
fn print_pieces(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> bool {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let failed = write(&mut out).and_then(|()| out.flush()).err();
    let Some(error) = failed else { return true };
    if error.kind() != ErrorKind::BrokenPipe && !OUTPUT_FAILED.swap(true, Ordering::Relaxed) {
        print_error(&format!("cannot write the output: {error}; free space or write it elsewhere"));
    }
    false
}

/// Writes an error to the standard error stream, with escapes for what would act on a terminal; returns the exit status.
fn print_error(error: &dyn Display) -> ExitCode {
    let lines: String = error.to_string().lines().map(|line| escaped(line) + "\n").collect();
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
    ExitCode::FAILURE
}
