//! The terminal in which tables replace each other, and what fits into it.

use kineto_base::text::truncate_name;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Switches to the terminal's second screen, and clears it.
const ENTER: &str = "\x1b[?1049h\x1b[H\x1b[2J";
/// Switches back to the first screen, with what was there before.
const LEAVE: &str = "\x1b[?1049l";
/// Moves to the top of the screen, and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The terminal's second screen, as long as this lives. A signal that ends or stops the command leaves it first, and the table is drawn
/// again when the command continues.
pub(super) struct TableScreen {
    terminal: File,
    shown: Arc<ShownTable>,
}

/// The last table; `None` once the screen was left. It is locked while a table is written, and from a signal on.
type ShownTable = Mutex<Option<String>>;

impl TableScreen {
    /// Switches to the second screen.
    ///
    /// # Errors
    /// If signals cannot be handled.
    pub(super) fn enter() -> io::Result<TableScreen> {
        // The standard output may be locked by a thread that waits for the terminal.
        let terminal = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT])?;
        let screen = TableScreen { terminal: terminal.try_clone()?, shown: Arc::new(Mutex::new(Some(String::new()))) };
        let shown = Arc::clone(&screen.shown);
        thread::Builder::new().spawn(move || {
            signals.forever().for_each(|signal| handle_signal(signal, &terminal, &shown));
        })?;
        crate::write_output(ENTER);
        Ok(screen)
    }

    /// Shows a table instead of the last one; returns whether it was written.
    pub(super) fn show(&mut self, table: String) -> bool {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_written = crate::write_output(&format!("{CLEAR}{table}"));
        *shown = Some(table);
        is_written
    }
}

/// Leaves the screen while the signal has its usual effect, and draws the last table again if the command continues.
fn handle_signal(signal: i32, terminal: &File, shown: &ShownTable) {
    let shown = wait_for_table(shown);
    let is_left = shown.as_ref().is_some_and(|table| table.is_none());
    let write = |text: &str| {
        if !is_left {
            write_if_ready(terminal, text)
        }
    };
    if signal != SIGCONT {
        write(LEAVE);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        // The command was stopped and continues.
        write(ENTER);
    }
    let last = shown.as_deref().and_then(Option::as_deref).unwrap_or_default();
    write(&format!("{CLEAR}{last}"));
}

/// Waits until no table is being written, but not long: the terminal may take no more output.
fn wait_for_table(shown: &ShownTable) -> Option<MutexGuard<'_, Option<String>>> {
    const TRIES: u32 = 100;
    (0..TRIES).find_map(|_| {
        let free = shown.try_lock().ok();
        if free.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        free
    })
}

/// Writes to the terminal unless its output is held, as by Ctrl-S: the command must end then too.
fn write_if_ready(mut terminal: &File, text: &str) {
    const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

    let mut ready = [PollFd::new(terminal, PollFlags::OUT)];
    if poll(&mut ready, Some(&WAIT)).is_ok_and(|count| count > 0) {
        // The terminal may be gone.
        let _ = terminal.write_all(text.as_bytes());
    }
}

impl Drop for TableScreen {
    /// Leaves the screen, and prints the last table.
    fn drop(&mut self) {
        let last = wait_for_table(&self.shown).and_then(|mut shown| shown.take()).unwrap_or_default();
        write_if_ready(&self.terminal, &format!("{LEAVE}{last}"));
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
        let cut = |line: &str| truncate_name(line, self.columns) + "\n";
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
