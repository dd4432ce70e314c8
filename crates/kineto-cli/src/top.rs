//! `kineto top`: shows what running programs record.

mod live_files;
mod live_view;
mod terminal;

use crate::process::has_ended;
use crate::{RunResult, write_output};
use kineto_base::text::escaped_path;
use live_files::find_live_files;
use live_view::LiveView;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use terminal::{TableScreen, TerminalSize};

/// Shows what a running program records: spans a second, the spans with the most time, busy devices, losses, memory.
///
/// Reads the live file of the recording, which the program writes with KINETO_SHM_DIR or `shm_folder`. The program does not take part.
/// The file is read as a whole each time, so a small limit (KINETO_BUFFER_LIMIT_MB with KINETO_OVERFLOW=keep_newest) makes this cheap. Reading
/// takes at most a tenth of the time: after a slow one the next comes later. If nothing is recorded, the age of the newest record grows.
///
/// In a terminal, tables replace each other and are cut to its size; its former contents return at the end.
///
/// Exit status: 0 at the end of the program, or after `--once`; 1 if no live file was read; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    kineto top 4711\n  \
    kineto top /dev/shm --once")]
pub(crate) struct TopArguments {
    /// The process, which may be in a container, or a folder of live files.
    #[arg(value_name = "PID|FOLDER")]
    target: String,
    /// Prints the table once.
    #[arg(long)]
    once: bool,
    /// Shows the spans that ended in the last seconds, this many, and reads again after them.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = parse_interval)]
    interval: f64,
    /// Lists this many names of spans.
    #[arg(long, default_value_t = 10, value_name = "N")]
    rows: usize,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds from 0.1 to 3600".to_owned())
}

/// Prints tables until the program ends.
pub(crate) fn run(arguments: &TopArguments) -> RunResult {
    let is_screen = io::stdout().is_terminal() && !arguments.once;
    let mut screen: Option<TableScreen> = None;
    let mut is_first = true;
    loop {
        let begun = Instant::now();
        let files = match find_live_files(&arguments.target) {
            Ok(files) => files,
            Err(why) if is_first => return Err(why.into()),
            // The next recording may begin later, unless the process has ended.
            Err(_) if is_ended_process(&arguments.target) => return Ok(ExitCode::SUCCESS),
            Err(why) if show_table(screen.as_mut(), is_first, format!("{why}\n")) => Vec::new(),
            Err(_) => return Ok(ExitCode::SUCCESS),
        };
        if is_first || !files.is_empty() {
            let size = if is_screen { TerminalSize::of_output() } else { None };
            let (table, any_read) = read_table(arguments, &files, size);
            if !any_read && is_first {
                return Err(table.trim_end().into());
            }
            if is_first && is_screen {
                screen = TableScreen::enter().ok();
            }
            if !show_table(screen.as_mut(), is_first, table) || arguments.once {
                return Ok(ExitCode::SUCCESS);
            }
        }
        is_first = false;
        thread::sleep(pause_after(begun.elapsed(), Duration::from_secs_f64(arguments.interval)));
    }
}

/// Reads live files; returns the table, and whether any file was read.
fn read_table(arguments: &TopArguments, files: &[PathBuf], size: Option<TerminalSize>) -> (String, bool) {
    let pid = arguments.target.parse().ok();
    let mut text = pid.and_then(crate::status::state_line).unwrap_or_default();
    let mut any_read = false;
    let rows = size.map_or(arguments.rows, |size| {
        let free = size.lines.saturating_sub(text.lines().count() + 1) / files.len().max(1);
        free.saturating_sub(LiveView::HEAD_LINES).min(arguments.rows)
    });
    for file in files {
        match LiveView::read(file, arguments.interval) {
            Ok(view) => {
                any_read = true;
                text += &view.format(rows);
            }
            Err(why) => text += &format!("{}: {why}\n", escaped_path(file)),
        }
    }
    (size.map_or_else(|| text.clone(), |size| size.cut(&text)), any_read)
}

/// Shows a table on the screen, or prints it after the others; returns whether it was written.
fn show_table(screen: Option<&mut TableScreen>, is_first: bool, table: String) -> bool {
    match screen {
        Some(screen) => screen.show(table),
        None => write_output(&format!("{}{table}", if is_first { "" } else { "\n" })),
    }
}

/// Returns the time until the next reading: the interval, or nine times the last reading if that is longer.
fn pause_after(reading: Duration, interval: Duration) -> Duration {
    interval.max(reading.saturating_mul(9))
}

/// Returns whether the target is a process that has ended. A folder never ends.
fn is_ended_process(target: &str) -> bool {
    target.parse().is_ok_and(has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reading_takes_a_tenth_of_the_time() {
        let seconds = Duration::from_secs;
        assert_eq!(pause_after(Duration::from_millis(50), seconds(2)), seconds(2));
        assert_eq!(pause_after(seconds(1), seconds(2)), seconds(9));
        assert_eq!(pause_after(Duration::MAX, seconds(2)), Duration::MAX);
    }
}
