//! Recordings that go on only while some span is open.

use super::Session;
use crate::os::fork;
use kineto_trace::activity::ActivityTypes;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether spans that must be open for a recording to go on are.
#[derive(Debug, Default)]
pub(super) struct WhileOpen {
    /// There are such spans, and none is open: a recording that starts is paused.
    is_shut: AtomicBool,
    /// How often such spans are entered; those of a forked child's parent do not count.
    entered: fork::Own<u64>,
}

impl WhileOpen {
    /// Whether a recording that starts is to be paused.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::SeqCst)
    }
}

impl Session {
    /// Pauses what goes on, and what starts, until such a span is entered.
    pub(crate) fn wait_for_span(&self) {
        self.change_entered(|entered| entered);
    }

    pub(crate) fn enter_waited_for(&self) {
        self.change_entered(|entered| entered + 1);
    }

    pub(crate) fn exit_waited_for(&self) {
        // One may have been entered before anybody waited.
        self.change_entered(|entered| entered.saturating_sub(1));
    }

    fn change_entered(&self, change: impl FnOnce(u64) -> u64) {
        // Held until the recording has followed, so that the last change is the one that holds.
        let mut entered = self.while_open.entered.lock();
        let before = *entered;
        *entered = change(before);
        self.while_open.is_shut.store(*entered == 0, Ordering::SeqCst);
        // Nothing may be going on, which is no matter.
        let _ = match (before, *entered) {
            (_, 0) => self.pause(ActivityTypes::ALL),
            (0, _) => self.resume(ActivityTypes::ALL),
            _ => Ok(()),
        };
    }
}
