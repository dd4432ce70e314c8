//! Recordings that run only while a selected span is open.

use super::SessionRecording;
use crate::os::fork;
use kineto_model::activity::ActivityTypes;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counts the open spans that a recording depends on.
#[derive(Debug, Default)]
pub(super) struct WhileOpen {
    /// Whether the recording waits for a span, so that a recording that starts is paused.
    pub(super) is_awaiting_span: AtomicBool,
    /// How many such spans are open; a forked child starts at 0.
    entered: fork::Own<u64>,
}

impl SessionRecording {
    /// Pauses the running recording, and each that starts, until such a span is entered.
    pub(crate) fn wait_for_span(&self) {
        self.change_entered(|entered| entered);
    }

    pub(crate) fn enter_awaited_span(&self) {
        self.change_entered(|entered| entered + 1);
    }

    pub(crate) fn exit_awaited_span(&self) {
        // It may have been entered before the recording depended on it.
        self.change_entered(|entered| entered.saturating_sub(1));
    }

    fn change_entered(&self, change: impl FnOnce(u64) -> u64) {
        // Held until the recording is paused or resumed, so that the last change wins.
        let mut entered = self.while_open.entered.lock();
        let before = *entered;
        *entered = change(before);
        self.while_open.is_awaiting_span.store(*entered == 0, Ordering::SeqCst);
        // It fails if no recording is running, which is fine.
        let _ = match (before, *entered) {
            (_, 0) => self.pause(ActivityTypes::ALL),
            (0, _) => self.resume(ActivityTypes::ALL),
            _ => Ok(()),
        };
    }
}
