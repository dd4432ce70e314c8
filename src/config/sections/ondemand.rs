//! Sources of external requests, and the limits on their files.

use super::retention::RetentionLimits;
use super::timetable::Timetable;
use std::path::PathBuf;
use std::time::Duration;

/// The settings for external requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnDemandConfig {
    /// `KINETO_USE_DAEMON`: whether the daemon is polled, unless `fabric` decides.
    pub(crate) use_daemon: bool,
    /// `ENABLE_IPC_FABRIC`, from the file or the environment, if set: it overrides `use_daemon`.
    pub(crate) polling_override: Option<bool>,
    /// The interval at which the daemon is polled; `None` chooses it from the daemon's response time.
    pub(crate) poll_interval: Option<Duration>,
    /// The folder of the daemon's sockets; abstract sockets if unset.
    pub(crate) socket_folder: Option<PathBuf>,
    /// The folder to which requests may write.
    pub(crate) trace_folder: PathBuf,
    /// The maximum duration of a recording, and also the maximum time that it waits for its first iteration.
    pub(crate) max_duration: Duration,
    /// How far ahead a request's start time may be.
    pub(crate) max_start_delay: Duration,
    /// The permissions of files that requests write.
    pub(crate) file_mode: u32,
    /// How many files of requests are kept.
    pub(crate) kept: RetentionLimits,
    /// The watched folder for request files, if set.
    pub(crate) trigger_folder: Option<PathBuf>,
    /// The id of a trusted user, in addition to root and the process's own.
    pub(crate) trusted_uid: Option<u32>,
    /// The Slurm job under which the process registers.
    pub(crate) slurm_job_id: i64,
    /// The recordings that start by time or iteration.
    pub(crate) timetable: Timetable,
}

/// The minimum interval: dynolog's own loop is no faster.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

impl OnDemandConfig {
    /// Returns whether any source may request a recording, including a daemon whose polling the file disables for now.
    pub(crate) fn is_enabled(&self) -> bool {
        self.accepts_requests() || self.timetable.is_wanted()
    }

    /// Returns whether the daemon or a file in the trigger folder can ask for a recording.
    pub(crate) fn accepts_requests(&self) -> bool {
        self.needs_daemon_client() || self.trigger_folder.is_some()
    }

    /// Returns whether the daemon is polled, or only `ENABLE_IPC_FABRIC` disables that, which the file may change.
    pub(crate) fn needs_daemon_client(&self) -> bool {
        self.use_daemon || self.polls_daemon()
    }

    /// Returns whether the daemon is polled.
    pub(crate) fn polls_daemon(&self) -> bool {
        self.polling_override.unwrap_or(self.use_daemon)
    }
}

/// Returns the interval that a key asks for, which is as long as dynolog's own at least.
pub(in crate::config) fn poll_interval(asked: Duration) -> Duration {
    asked.max(MIN_POLL_INTERVAL)
}

/// Returns the number at the start of a text, as C's `strtoll` reads it; 0 if there is none.
pub(in crate::config) fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let digits_from = usize::from(text.starts_with(['-', '+']));
    let digits = text.bytes().skip(digits_from).take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return 0;
    }
    let number = text.get(..digits_from + digits).unwrap_or_default();
    let limit = if number.starts_with('-') { i64::MIN } else { i64::MAX };
    number.parse().unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Key, Value};

    #[test]
    fn job_is_the_leading_number() {
        let read =
            [("42", 42), (" -7x", -7), ("12_0", 12), ("x1", 0), ("", 0), ("-", 0), ("99999999999999999999", i64::MAX)];
        for (text, job) in read {
            assert_eq!(leading_number(text), job, "{text:?}");
        }
    }

    #[test]
    fn file_key_wins_over_the_variable() {
        let mut config = Config::default();
        assert!(!config.ondemand.polls_daemon());
        Key::UseDaemon.apply(&Value::Bool(true), &mut config);
        assert!(config.ondemand.polls_daemon());
        Key::IpcFabric.apply(&Value::Bool(false), &mut config);
        assert!(!config.ondemand.polls_daemon() && config.ondemand.is_enabled());
        Key::UpdateInterval.apply(&Value::Int(0), &mut config);
        assert_eq!(config.ondemand.poll_interval, Some(MIN_POLL_INTERVAL));
    }

    #[test]
    fn requests_come_from_the_daemon_or_a_folder() {
        let mut config = Config::default();
        Key::TriggerFolder.apply(&Value::Text(String::new()), &mut config);
        assert!(!config.ondemand.is_enabled());
        Key::TriggerFolder.apply(&Value::Text("/run/app".into()), &mut config);
        assert!(config.ondemand.is_enabled());
        assert!(!config.ondemand.polls_daemon());
    }
}
