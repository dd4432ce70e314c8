//! Drops the windows of a long recording whose records are no longer in memory.

use super::Session;
use crate::time::Ticks;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Fewer windows are not worth the search for those that are needed.
const FEW_WINDOWS: usize = 1024;

impl Session {
    /// Drops the windows that ended before the horizon, each time that their number has doubled.
    pub(super) fn drop_windows_if_due(&self) {
        // If records are moved to disk, the end of each part drops them.
        if !self.recorder.settings.evicts_oldest || self.recorder.is_spilling() {
            return;
        }
        let count = self.recording.window_count();
        let is_due = count > FEW_WINDOWS.max(self.windows_left.load(Ordering::Relaxed) * 2);
        if is_due && let Some(horizon) = self.recorder.horizon() {
            // A stop may take long, and threads wait for this one.
            self.drop_windows(horizon, Duration::ZERO);
            self.windows_left.store(self.recording.window_count(), Ordering::Relaxed);
        }
    }

    /// Drops the windows that ended before `until`: earlier records are on disk, or were evicted. If another thread starts, stops or takes a
    /// trace of the recording for longer than `wait`, a later call drops them.
    pub(super) fn drop_windows(&self, until: Ticks, wait: Duration) {
        self.recording.drop_windows(until, wait);
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
        // The session's thread may have dropped them, or hold the lock.
        while session.recording.window_count() > FEW_WINDOWS {
            session.windows_left.store(0, Ordering::Relaxed);
            session.drop_windows_if_due();
        }
        let after = session.recording.snapshot().unwrap();
        let [before, after] = [before, after].map(|trace| (trace.stats().events, trace.contents().recorded.whole.0));
        assert!(before.1 > began && before.0 > 0 && before.0 < WINDOWS);
        assert_eq!(after, before, "events and start");
        let last = session.stop().unwrap().stats();
        assert_eq!((last.events, last.losses.iter().map(|(loss, _)| *loss).collect::<Vec<_>>()), (before.0, vec![]));
    }
}
