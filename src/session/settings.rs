//! The settings of a session: those of the program's start, and those of the next recording.

use super::writes::Patience;
use super::{FORKED_LOCK, YEAR, lock_within};
use crate::config::{Config, Output, ParsedRequest};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The settings that the program started with, with later changes of the configuration file.
#[derive(Debug)]
pub(crate) struct SessionSettings {
    first: Arc<Config>,
    next: Mutex<Arc<Config>>,
}

/// The minimum of `flush_timeout`: a working writer may make no progress for some milliseconds.
const LEAST: Duration = Duration::from_secs(1);

impl SessionSettings {
    pub(super) fn new(config: Config) -> SessionSettings {
        let first = Arc::new(config);
        SessionSettings { next: Mutex::new(first.clone()), first }
    }

    /// Returns the settings that the program started with.
    pub(super) fn first_config(&self) -> &Arc<Config> {
        &self.first
    }

    /// Returns the settings of the next recording.
    pub(crate) fn next_config(&self) -> Arc<Config> {
        // In a forked child, the thread that held the lock may not exist.
        lock_within(&self.next, FORKED_LOCK).map_or_else(|| self.first.clone(), |next| next.clone())
    }

    /// Sets the output of the next recording.
    pub(super) fn set_output(&self, output: Output) {
        if let Some(mut next) = lock_within(&self.next, FORKED_LOCK) {
            Arc::make_mut(&mut next).set_output(output);
        }
    }

    /// Applies a reloaded configuration. Keys that may change at once do; the others apply to the next recording.
    pub(crate) fn apply_reloaded(&self, read: &Config) -> Arc<Config> {
        // No change of the output may come between.
        let mut next = lock_within(&self.next, FORKED_LOCK);
        let before = next.as_deref().unwrap_or(&self.first).clone();
        let config = Arc::new(before.apply_reloaded(read));
        if let Some(next) = &mut next {
            **next = config.clone();
        }
        drop(next);
        config.apply_log_settings(Some(&before));
        config
    }

    /// Returns the settings of a requested recording, and a warning if it requests options that only the layer can enable.
    pub(crate) fn of_request(&self, asked: &ParsedRequest, output: PathBuf) -> (Config, Option<&'static str>) {
        let missing = "PROFILE_WITH_STACK has no effect: the layer records no call stacks; start the program with \
                       KINETO_PROFILE_WITH_STACK";
        let config = self.next_config().of_request(asked, output);
        let lacks_stacks = config.flags.with_stack && !self.first.flags.with_stack;
        (config, lacks_stacks.then_some(missing))
    }

    /// Returns a warning if these settings of a request differ from those of the program's own recording, of which it gets a
    /// part.
    pub(crate) fn without_effect(&self, of_request: &Config) -> Option<&'static str> {
        let own = self.next_config();
        let is_same = own.activities == of_request.activities && own.flags == of_request.flags;
        let why = "its activity types and options have no effect: it gets a part of the program's own recording; change those \
                   of the program instead";
        (!is_same).then_some(why)
    }

    /// Returns the file of recordings that the configuration schedules: the program's output, or the default one if it has
    /// none.
    pub(crate) fn scheduled_output(&self) -> PathBuf {
        let (settings, parts) = (self.next_config(), self.next_config().placeholder_values());
        let own = settings.output.expanded_path(&parts).or_else(|| Output::Default.expanded_path(&parts));
        own.unwrap_or_default()
    }

    /// Returns how long the file may take that is written when a recording ends.
    pub(super) fn flush_timeout(&self) -> Duration {
        self.next_config().flush_timeout
    }

    /// Returns how long the program waits for a file without progress.
    pub(crate) fn patience(&self) -> Patience {
        Patience::WhileAlive(self.flush_timeout().max(LEAST))
    }

    /// Returns until when a process that begins to end at `now` waits for files.
    pub(super) fn exit_deadline(&self, now: Instant) -> Instant {
        exit_deadline(self.flush_timeout(), now)
    }
}

/// Returns until when a process that begins to end at `now` waits for a file with that time limit.
pub(super) fn exit_deadline(flush_timeout: Duration, now: Instant) -> Instant {
    now + flush_timeout.clamp(LEAST, YEAR)
}

#[cfg(test)]
#[cfg(feature = "ondemand")]
mod tests {
    use super::*;
    use crate::config::{Env, Overrides};
    use std::fs;

    /// The file names another output than the program does later.
    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn reload_keeps_the_output_that_the_program_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kineto.conf");
        fs::write(&path, "ACTIVITIES_LOG_FILE=/tmp/file.json").unwrap();
        let mut overrides = Overrides::default();
        overrides.set_config_file(path.clone());
        let config = Config::resolve(&overrides, &Env::default(), &mut Vec::new()).unwrap();
        let settings = SessionSettings::new(config.clone());
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            settings.apply_reloaded(&config.reread_file(&mut Vec::new()).unwrap());
            (settings.next_config().output.clone(), settings.next_config().gzip_level)
        };
        let (of_file, of_program) = (Output::PerProcess("/tmp/b.json".into()), Output::Exact("/tmp/c.json".into()));
        assert_eq!(read("ACTIVITIES_LOG_FILE=/tmp/b.json\nGZIP_LEVEL=2"), (of_file, 2));
        settings.set_output(of_program.clone());
        assert_eq!(read("ACTIVITIES_LOG_FILE=/tmp/b.json\nGZIP_LEVEL=3"), (of_program.clone(), 3));
        assert_eq!(read("GZIP_LEVEL=4"), (of_program, 4));
    }
}
