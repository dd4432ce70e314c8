//! The command-line tool.

mod doctor;

use clap::{Parser, Subcommand};
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
    Doctor(doctor::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Doctor(arguments) => doctor::run(arguments),
    }
}
