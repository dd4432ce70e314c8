//! Keeps the live file up to date, and reports what it lacks.

use super::Session;
use crate::diag::diag;
use crate::live::LiveGaps;
use crate::recorder::Recorder;
use crate::text::count_with_noun;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The duties of the session's thread for the live file.
#[derive(Debug, Default)]
pub(crate) struct LiveControl {
    session: OnceLock<Weak<Session>>,
    is_reported: AtomicBool,
}

impl LiveControl {
    /// Sets the session, once.
    pub(super) fn set_session(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::downgrade(session));
    }

    /// Compacts the file's journal if that is due, and reports once that the file lacks something.
    pub(super) fn maintain(&self, recorder: &Recorder) {
        let Some(live) = recorder.live().current() else { return };
        let LiveGaps { entries, slots, is_journal_full, has_room_again } = live.maintain();
        if has_room_again {
            recorder.note_tables();
            if let Some(session) = &self.session.get().and_then(Weak::upgrade) {
                session.recording.note_windows();
            }
        }
        if entries + slots > 0 && !self.is_reported.swap(true, Ordering::Relaxed) {
            let missed = count_with_noun(entries + slots, "part");
            let path = live.path().display();
            if is_journal_full && slots == 0 {
                diag!(
                    Warning,
                    "live",
                    "{path} lacks {missed} of the recording so far, which a killed process would lose: its journal is full; \
                     raise BUFFER_LIMIT_MB"
                );
            } else {
                diag!(
                    Warning,
                    "live",
                    "{path} lacks {missed} of the recording so far, which a killed process would lose: its folder is full; \
                     free it, or lower BUFFER_LIMIT_MB"
                );
            }
        }
    }

    /// Notes what has changed, each second.
    pub(super) fn refresh(&self, recorder: &Recorder) {
        if recorder.live().current().is_none() {
            return;
        }
        if let Some(session) = self.session.get().and_then(Weak::upgrade) {
            session.recording.refresh_live();
        }
    }
}
