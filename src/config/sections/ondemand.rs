//! Sources of external requests, and the limits on their files.

use super::super::keys::Key;
use super::super::value::Value;
use super::retention::RetentionLimits;
use super::timetable::Timetable;
use std::path::PathBuf;
use std::time::Duration;

/// The settings for external requests.
#[derive(Clone, Debug)]
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

    /// Applies a key's value.
    pub(in crate::config) fn apply_setting(&mut self, key: Key, value: &Value) {
        let seconds = |number| Duration::from_secs(u64::try_from(number).unwrap_or(0));
        let folder = |path: &String| Some(PathBuf::from(path)).filter(|_| !path.is_empty());
        match (key, value) {
            (Key::IpcFabric, Value::Bool(on)) => self.polling_override = Some(*on),
            (Key::UpdateInterval, Value::Int(number)) => {
                self.poll_interval = Some(seconds(*number).max(MIN_POLL_INTERVAL))
            }
            (Key::SocketFolder, Value::Text(path)) => self.socket_folder = folder(path),
            (Key::OnDemandFolder, Value::Text(path)) => {
                self.trace_folder = folder(path).unwrap_or_else(|| OnDemandConfig::default().trace_folder);
            }
            (Key::LongestRequest, Value::Int(number)) => self.max_duration = seconds(*number),
            (Key::LatestStart, Value::Int(number)) => self.max_start_delay = seconds(*number),
            (Key::FileMode, Value::Mode(mode)) => self.file_mode = *mode,
            (Key::RequestFiles, value) => self.kept.set_files(value),
            (Key::RequestBytes, value) => self.kept.set_bytes(value),
            (Key::RequestAge, value) => self.kept.set_age(value),
            (Key::TriggerFolder, Value::Text(path)) => self.trigger_folder = folder(path),
            (Key::DaemonUser, Value::Int(user)) => self.trusted_uid = u32::try_from(*user).ok(),
            (Key::SlurmJob, Value::Text(job)) => self.slurm_job_id = leading_number(job),
            _ => self.timetable.apply_setting(key, value),
        }
    }
}

impl Default for OnDemandConfig {
    fn default() -> OnDemandConfig {
        OnDemandConfig {
            use_daemon: false,
            polling_override: None,
            poll_interval: None,
            socket_folder: None,
            trace_folder: PathBuf::from("/tmp/"),
            max_duration: Duration::from_secs(3600),
            max_start_delay: Duration::from_secs(3600),
            file_mode: 0o600,
            kept: RetentionLimits::NONE,
            trigger_folder: None,
            trusted_uid: None,
            slurm_job_id: 0,
            timetable: Timetable::default(),
        }
    }
}

/// Returns the number at the start of a text, as C's `strtoll` reads it; 0 if there is none.
fn leading_number(text: &str) -> i64 {
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
        let mut settings = OnDemandConfig::default();
        assert!(!settings.polls_daemon());
        settings.use_daemon = true;
        assert!(settings.polls_daemon());
        settings.apply_setting(Key::IpcFabric, &Value::Bool(false));
        assert!(!settings.polls_daemon() && settings.is_enabled());
        settings.apply_setting(Key::UpdateInterval, &Value::Int(0));
        assert_eq!(settings.poll_interval, Some(MIN_POLL_INTERVAL));
    }

    #[test]
    fn requests_come_from_the_daemon_or_a_folder() {
        let mut settings = OnDemandConfig::default();
        settings.apply_setting(Key::TriggerFolder, &Value::Text(String::new()));
        assert!(!settings.is_enabled());
        settings.apply_setting(Key::TriggerFolder, &Value::Text("/run/app".into()));
        assert!(settings.is_enabled());
        assert!(!settings.polls_daemon());
    }
}
