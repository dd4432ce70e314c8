//! The settings of the next recording: those of the program's start, with later changes of the configuration file.

use super::{FORKED_LOCK, Session, lock_within};
use crate::config::Config;
use std::sync::Arc;
use std::time::Duration;

impl Session {
    /// Returns the settings of the next recording.
    pub(crate) fn settings(&self) -> Arc<Config> {
        // In a forked child, the thread that held the lock may not exist.
        lock_within(&self.next, FORKED_LOCK).map_or_else(|| self.config.clone(), |next| next.clone())
    }

    /// Applies a reloaded configuration. Keys that may change at once do; the others apply to the next recording.
    pub(crate) fn apply_reloaded(&self, read: &Config) -> Arc<Config> {
        let before = self.settings();
        let config = Arc::new(before.apply_reloaded(read));
        if let Some(mut next) = lock_within(&self.next, FORKED_LOCK) {
            *next = config.clone();
        }
        config.apply_changed_log_settings(&before);
        config
    }

    /// Returns how long the file may take that is written when a recording ends.
    pub(crate) fn flush_timeout(&self) -> Duration {
        self.settings().flush_timeout
    }
}
