//! `kineto top`: shows what running programs record.

mod live_files;
mod live_view;

use crate::{print_error, write_output};
use live_files::find_live_files;
use live_view::LiveView;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Shows what a running program records: spans a second, the spans with the most time, busy devices, losses, memory.
///
/// Reads the live file of the recording, which the program writes with KINETO_SHM_DIR or `shm_folder`. The program does not take part.
/// The file is read as a whole each time, so a small limit (KINETO_BUFFER_LIMIT_MB with KINETO_OVERFLOW=keep_newest) makes this cheap. Reading
/// takes at most a tenth of the time: after a slow one the next comes later.
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
    /// Shows the spans that ended in this many seconds, and reads again after them.
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
pub(crate) fn run(arguments: &TopArguments) -> ExitCode {
    /// Clears a terminal, and starts at its top.
    const CLEAR: &str = "\x1b[H\x1b[2J";

    let is_screen = io::stdout().is_terminal() && !arguments.once;
    let mut is_first = true;
    loop {
        let begun = Instant::now();
        let (mut text, mut any_read) = (String::new(), false);
        let files = match find_live_files(&arguments.target) {
            Ok(files) => files,
            Err(why) if is_first => return print_error(&why),
            // The next recording may begin later, unless the process has ended.
            Err(_) if has_ended(&arguments.target) => return ExitCode::SUCCESS,
            Err(why) => {
                text += &format!("{why}\n");
                Vec::new()
            }
        };
        let pid = arguments.target.parse().ok();
        text += &pid.and_then(crate::status::state_line).unwrap_or_default();
        for file in &files {
            match LiveView::read(file, arguments.interval) {
                Ok(view) => {
                    any_read = true;
                    text += &view.format(arguments.rows);
                }
                Err(why) => text += &format!("{}: {why}\n", file.display()),
            }
        }
        if !any_read && is_first {
            return print_error(&text.trim_end());
        }
        let before = match (is_screen, is_first) {
            (true, _) => CLEAR,
            (false, true) => "",
            (false, false) => "\n",
        };
        if !write_output(&format!("{before}{text}")) || arguments.once {
            return ExitCode::SUCCESS;
        }
        is_first = false;
        thread::sleep(pause_after(begun.elapsed(), Duration::from_secs_f64(arguments.interval)));
    }
}

/// Returns the time until the next reading: the interval, or nine times the last reading if that is longer.
fn pause_after(reading: Duration, interval: Duration) -> Duration {
    interval.max(reading.saturating_mul(9))
}

/// Returns whether the target is a process that has ended. A folder never ends.
fn has_ended(target: &str) -> bool {
    target.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
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
