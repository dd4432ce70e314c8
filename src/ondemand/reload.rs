//! Reloads the configuration file when it changes; checks it each second while requests are served.

use super::source::RequestSource;
use crate::config::{self, Config, ConfigFile};
use crate::diag::diag;
use crate::session::Session;
use crate::wait::steady;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Watches the configuration file.
#[derive(Debug)]
pub(super) struct ConfigReloader {
    /// The configuration of the last successful read.
    read: Arc<Config>,
    /// The file's state at the last check.
    seen: ConfigFile,
    /// The file's state at the last read, even if that failed.
    done: ConfigFile,
    next: Instant,
}

/// How often the file is checked, which costs one system call.
const INTERVAL: Duration = Duration::from_secs(1);

impl ConfigReloader {
    /// Watches the file that `config` was read from.
    pub(super) fn new(config: Arc<Config>) -> ConfigReloader {
        let file = config.file.clone();
        ConfigReloader { read: config, seen: file.clone(), done: file, next: steady() + INTERVAL }
    }

    /// Applies the file to the session and the sources, if it has changed.
    ///
    /// An invalid file changes nothing, and is reported once.
    pub(super) fn reload_if_changed(&mut self, session: &Session, sources: &mut [Box<dyn RequestSource>]) {
        if !self.has_changed(steady()) {
            return;
        }
        let mut warnings = Vec::new();
        let read = self.read.reread_file(&mut warnings);
        config::report_warnings(&warnings);
        let path = self.done.path().display();
        match read {
            Err(why) => diag!(Warning, "config", "{why}; keeping the previous configuration"),
            Ok(read) => {
                let changes = self.read.describe_changes(&read);
                let settings = session.settings.apply_reloaded(&read);
                sources.iter_mut().for_each(|source| source.apply_settings(&settings.ondemand));
                diag!(Stage, "config", "the configuration file {path} was read again: {changes}");
                self.read = Arc::new(read);
            }
        }
    }

    /// Checks the file, if it is time. A file that may still be being written counts after two equal checks.
    fn has_changed(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + INTERVAL;
        let before = std::mem::replace(&mut self.seen, self.done.with_current_stamp());
        if before != self.seen || self.seen == self.done {
            return false;
        }
        self.done.clone_from(&self.seen);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Env, Overrides};
    use std::fs;

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn change_counts_once_after_two_equal_checks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf");
        fs::write(&path, "GZIP_LEVEL=1").unwrap();
        let mut overrides = Overrides::default();
        overrides.set_config_file(path.clone());
        let config = Config::resolve(&overrides, &Env::default(), &mut Vec::new()).unwrap();
        let mut reloader = ConfigReloader::new(Arc::new(config));
        let begun = Instant::now() + INTERVAL;
        let mut checks = 0;
        let mut check = |reloader: &mut ConfigReloader| {
            checks += 1;
            reloader.has_changed(begun + INTERVAL * checks)
        };
        assert_eq!([check(&mut reloader), check(&mut reloader)], [false, false]);
        fs::write(&path, "GZIP_LEVEL=1\nWITH_").unwrap();
        assert!(!check(&mut reloader), "it may still be written");
        fs::write(&path, "GZIP_LEVEL=1\nWITH_ARGS=no").unwrap();
        assert!(!reloader.has_changed(begun), "it is not time yet");
        assert_eq!([check(&mut reloader), check(&mut reloader), check(&mut reloader)], [false, true, false]);
        fs::remove_file(&path).unwrap();
        assert_eq!([check(&mut reloader), check(&mut reloader), check(&mut reloader)], [false, true, false]);
        // A file that exists only between two checks is not seen.
        fs::write(&path, "").unwrap();
        assert!(!check(&mut reloader));
        fs::remove_file(&path).unwrap();
        assert_eq!([check(&mut reloader), check(&mut reloader)], [false, false]);
    }
}
