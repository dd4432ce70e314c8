//! Arguments and reading of a command's trace file.

use kineto_trace::Error;
use kineto_trace::analysis::{Events, ReadOptions};
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// Reads a trace; `-` is the standard input. A terminal shows the progress.
pub(crate) fn read(path: &Path, partial: bool) -> Result<Events, Error> {
    let is_shown = io::stderr().is_terminal();
    let mut options = ReadOptions::new().partial(partial);
    if is_shown {
        let (name, begun) = (path.display().to_string(), Instant::now());
        options = options.on_progress(move |bytes| show_progress(&name, bytes, begun.elapsed()));
    }
    let events = if path.as_os_str() == "-" { options.from_reader(io::stdin().lock()) } else { options.read(path) };
    if is_shown {
        erase_line();
    }
    events
}

/// Returns the traces of a folder in order of their names; of any other path, the path.
///
/// A folder without traces is returned itself: reading it gives the error.
pub(crate) fn trace_files(path: &Path) -> Vec<PathBuf> {
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") || name.ends_with(".json.gz")
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(is_trace).collect();
    files.sort();
    if files.is_empty() { vec![path.to_owned()] } else { files }
}

/// Shows how much of a file is read, unless reading takes no longer than a moment.
fn show_progress(name: &str, bytes: u64, elapsed: Duration) {
    const MOMENT: Duration = Duration::from_millis(500);
    const MEGABYTE: u64 = 1_000_000;
    /// Each so many bytes.
    const STEP: u64 = 10 * MEGABYTE;
    if elapsed > MOMENT && bytes % STEP < STEP / 20 {
        let _ = write!(io::stderr().lock(), "\r\x1b[Kreading {name}: {} MB", bytes / MEGABYTE);
    }
}

fn erase_line() {
    let _ = write!(io::stderr().lock(), "\r\x1b[K");
}
