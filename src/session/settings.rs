//! The settings of the next recording: those of the start, with what the configuration file has said since.

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

    /// Turns into what the program would be started with now, as far as it can: what counts at once does, the next
    /// recording takes the rest, and one that goes on keeps its own.
    pub(crate) fn turn_into(&self, read: &Config) -> Arc<Config> {
        let before = self.settings();
        let config = Arc::new(before.turned_into(read));
        if let Some(mut next) = lock_within(&self.next, FORKED_LOCK) {
            *next = config.clone();
        }
        config.apply_changed_log_settings(&before);
        config
    }

    /// How long a file that is written when a recording ends may take.
    pub(crate) fn flush_timeout(&self) -> Duration {
        self.settings().flush_timeout
    }
}
