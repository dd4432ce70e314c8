//! No signals end this platform's processes.

/// There are no such signals on this platform.
pub fn watch_signals() {}

/// There are no such signals on this platform.
pub fn end_by_pending_signal() {}

/// There are no such signals on this platform.
pub fn expect_signal_thread() {}

/// There are no such signals on this platform.
pub fn start_signal_thread(_flush: fn(), _dump: fn()) {}

/// There are no such signals on this platform.
pub fn watch_dump_signal() -> bool {
    false
}
