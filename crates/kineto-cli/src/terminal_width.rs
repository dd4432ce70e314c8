//! The width of the terminal, which tables fit.

/// The width of tables that are not printed to a terminal.
pub(crate) const DEFAULT_WIDTH: usize = 80;

/// Returns the width of the terminal at the standard output, if there is one.
#[cfg(target_os = "linux")]
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    // A terminal that does not know its width says 0.
    Some(if size.ws_col == 0 { DEFAULT_WIDTH } else { usize::from(size.ws_col) })
}

/// Returns the width of the terminal at the standard output, if there is one.
#[cfg(not(target_os = "linux"))]
pub(crate) fn terminal_width() -> Option<usize> {
    std::io::IsTerminal::is_terminal(&std::io::stdout()).then_some(DEFAULT_WIDTH)
}
