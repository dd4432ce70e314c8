//! The terminal in which tables replace each other, and what fits into it.

use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Switches to the terminal's second screen, and clears it.
const ENTER: &str = "\x1b[?1049h\x1b[H\x1b[2J";
/// Switches back to the first screen, with what was there before.
const LEAVE: &str = "\x1b[?1049l";
/// Moves to the top of the screen, and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The terminal's second screen, as long as this lives. A signal that ends or stops the command leaves it first.
pub(super) struct TableScreen {
    last: String,
    /// Held while a table is written, and from a signal on.
    writing: Arc<Mutex<()>>,
}

impl TableScreen {
    /// Switches to the second screen.
    ///
    /// # Errors
    /// If signals cannot be handled.
    pub(super) fn enter() -> io::Result<TableScreen> {
        // The standard output may be locked by a thread that waits for the terminal.
        let mut terminal = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP])?;
        let writing = Arc::new(Mutex::new(()));
        let writer = Arc::clone(&writing);
        thread::Builder::new().spawn(move || {
            for signal in signals.forever() {
                let _no_table = wait_for_table(&writer);
                let _ = terminal.write_all(LEAVE.as_bytes());
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                // The command was stopped and continues.
                let _ = terminal.write_all(ENTER.as_bytes());
            }
        })?;
        crate::write_output(ENTER);
        Ok(TableScreen { last: String::new(), writing })
    }

    /// Shows a table instead of the last one; returns whether it was written.
    pub(super) fn show(&mut self, table: String) -> bool {
        let _writing = self.writing.lock();
        let is_written = crate::write_output(&format!("{CLEAR}{table}"));
        self.last = table;
        is_written
    }
}

/// Waits until no table is being written, but not long: the terminal may take no more output.
fn wait_for_table(writing: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    const TRIES: u32 = 100;
    (0..TRIES).find_map(|_| {
        let free = writing.try_lock().ok();
        if free.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        free
    })
}

impl Drop for TableScreen {
    /// Leaves the screen, and prints the last table.
    fn drop(&mut self) {
        crate::write_output(&format!("{LEAVE}{}", self.last));
    }
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TerminalSize {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

impl TerminalSize {
    /// Returns the size of the standard output; `None` if it is unknown.
    pub(super) fn of_output() -> Option<TerminalSize> {
        let size = tcgetwinsize(io::stdout()).ok()?;
        let (columns, lines) = (usize::from(size.ws_col), usize::from(size.ws_row));
        (columns > 0 && lines > 0).then_some(TerminalSize { columns, lines })
    }

    /// Cuts lines to the width, and leaves out those that do not fit. The last line of the terminal stays empty.
    pub(super) fn cut(self, text: &str) -> String {
        let cut = |line: &str| match line.char_indices().nth(self.columns) {
            None => format!("{line}\n"),
            Some(_) => line.chars().take(self.columns.saturating_sub(1)).chain("…\n".chars()).collect(),
        };
        text.lines().take(self.lines.saturating_sub(1).max(1)).map(cut).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_to_the_terminal() {
        let size = TerminalSize { columns: 4, lines: 3 };
        assert_eq!(size.cut("äöüß\nabcde\nf\n"), "äöüß\nabc…\n");
        assert_eq!(TerminalSize { columns: 1, lines: 1 }.cut("ab\nc"), "…\n");
    }
}
