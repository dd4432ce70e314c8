//! The command `kineto`.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a command prints")]

mod doctor;
#[cfg(target_os = "linux")]
mod listener;
#[cfg(target_os = "linux")]
mod status;
mod summary;
#[cfg(target_os = "linux")]
mod trigger;

use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

/// Tools for traces of Rust programs in the format of PyTorch's profiler.
#[derive(Debug, Parser)]
#[command(name = "kineto", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Summary(summary::SummaryArguments),
    Doctor(doctor::DoctorArguments),
    #[cfg(target_os = "linux")]
    Trigger(trigger::TriggerArguments),
    #[cfg(target_os = "linux")]
    Status(status::StatusArguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Summary(arguments) => summary::run(&arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        #[cfg(target_os = "linux")]
        Command::Trigger(arguments) => trigger::run(&arguments),
        #[cfg(target_os = "linux")]
        Command::Status(arguments) => status::run(&arguments),
    }
}

/// Prints text. A closed pipe is ignored; the exit status reports the result.
fn print_text(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Prints an error.
fn print_error(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
