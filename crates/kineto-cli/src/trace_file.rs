//! Arguments and reading of a command's trace file.

use kineto_trace::Error;
use kineto_trace::analysis::{Events, ReadOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The arguments of commands that read one trace.
#[derive(clap::Args, Debug)]
pub(crate) struct Input {
    /// The trace file; `-` is the standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Reads a truncated file up to its last event.
    #[arg(long)]
    partial: bool,
}

impl Input {
    /// Reads the trace.
    pub(crate) fn read(&self) -> Result<Events, Error> {
        read(&self.trace, self.partial)
    }
}

/// Reads a trace; `-` is the standard input.
pub(crate) fn read(path: &Path, partial: bool) -> Result<Events, Error> {
    let options = ReadOptions::new().partial(partial);
    if path.as_os_str() == "-" { options.from_reader(io::stdin().lock()) } else { options.read(path) }
}
