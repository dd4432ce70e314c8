//! Drops the windows of a long recording whose records are no longer in memory.

use super::Session;
use crate::recorder::Recorder;
use crate::time::Ticks;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The duty of the session's thread for recordings that keep the newest records.
#[derive(Debug, Default)]
pub(crate) struct WindowControl {
    session: OnceLock<Weak<Session>>,
    /// How many windows were left the last time.
    left: AtomicUsize,
}

/// Fewer windows are not worth the search for those that are needed.
const FEW_WINDOWS: usize = 1024;

impl WindowControl {
    /// Sets the session, once.
    pub(super) fn set_session(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::downgrade(session));
    }

    /// Drops the windows that ended before the horizon, each time that their number has doubled.
    pub(super) fn drop_windows_if_due(&self, recorder: &Recorder) {
        // If records are moved to disk, the end of each part drops them.
        if !recorder.settings.evicts_oldest || recorder.is_spilling() {
            return;
        }
        let Some(session) = self.session.get().and_then(Weak::upgrade) else { return };
        let count = session.recording.window_count();
        let is_due = count > FEW_WINDOWS.max(self.left.load(Ordering::Relaxed) * 2);
        if is_due && let Some(horizon) = recorder.horizon() {
            // A stop may take long, and threads wait for this one.
            session.drop_windows(horizon, Duration::ZERO);
            self.left.store(session.recording.window_count(), Ordering::Relaxed);
        }
    }
}

impl Session {
    /// Drops the windows that ended before `until`: earlier records are on disk, or were evicted. If another thread starts, stops or takes a
    /// trace of the recording for longer than `wait`, a later call drops them.
    pub(super) fn drop_windows(&self, until: Ticks, wait: Duration) {
        // A snapshot that is taken later may contain older records.
        self.recording.drop_windows(until, wait, || self.pending_snapshots.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overflow};
    use kineto_model::activity::ActivityTypes;

    #[test]
    fn windows_before_the_horizon_are_dropped() {
        const WINDOWS: u64 = 3000;
        let mut config = Config::default();
        config.overflow = Overflow::KeepNewest;
        let session = Session::with_limit(8 << 20, config);
        session.start().unwrap();
        let began = session.recording.snapshot().unwrap().contents().recorded.whole.0;
        for _ in 0..WINDOWS {
            session.record_instants(1);
            session.recording.pause(ActivityTypes::ALL).unwrap();
            session.recording.resume(ActivityTypes::ALL).unwrap();
        }
        let before = session.recording.snapshot().unwrap();
        let control = WindowControl::default();
        control.set_session(&session);
        // The session's thread may have dropped them, or hold the lock.
        while session.recording.window_count() > FEW_WINDOWS {
            control.drop_windows_if_due(&session.recorder);
        }
        let after = session.recording.snapshot().unwrap();
        let [before, after] = [before, after].map(|trace| (trace.stats().events, trace.contents().recorded.whole.0));
        assert!(before.1 > began && before.0 > 0 && before.0 < WINDOWS);
        assert_eq!(after, before, "events and start");
        let last = session.stop().unwrap().stats();
        assert_eq!((last.events, last.losses.iter().map(|(loss, _)| *loss).collect::<Vec<_>>()), (before.0, vec![]));
    }
}
