//! The terminal that displays messages.
#![allow(unsafe_code, reason = "a terminal's size has no safe form")]

/// Returns how many characters fit into a line of stderr's terminal; `None` if stderr is not a terminal.
#[cfg(unix)]
pub fn width() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes a `winsize` to `size`, or nothing if stderr is not a terminal.
    let failed = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) } != 0;
    Some(usize::from(size.ws_col)).filter(|columns| !failed && *columns > 0)
}

/// Returns how many characters fit into a line of stderr's terminal; `None` if stderr is not a terminal.
#[cfg(not(unix))]
pub fn width() -> Option<usize> {
    None
}
