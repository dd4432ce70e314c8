//! The configuration file while requests are served: it is looked at each second, and read again when it has changed.

use super::source::RequestSource;
use crate::config::{self, Config, ConfigFile};
use crate::diag::diag;
use crate::session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is known of the file.
#[derive(Debug)]
pub(super) struct Base {
    /// What the program would have been started with when it was read last.
    read: Arc<Config>,
    /// What it was like at the last look, and when it was read last, be it in vain.
    seen: ConfigFile,
    done: ConfigFile,
    next: Instant,
}

/// A look costs one call of the system.
const EVERY: Duration = Duration::from_secs(1);

impl Base {
    /// The file that this was read from.
    pub(super) fn new(config: Arc<Config>) -> Base {
        let file = config.file.clone();
        Base { read: config, seen: file.clone(), done: file, next: Instant::now() + EVERY }
    }

    /// Has the session and the sources turn into what the file says, if it says something new.
    ///
    /// One that cannot be used changes nothing, and that is told once.
    pub(super) fn follow(&mut self, session: &Session, sources: &mut [Box<dyn RequestSource>]) {
        if !self.has_changed(Instant::now()) {
            return;
        }
        let mut warnings = Vec::new();
        let read = self.read.reread(&mut warnings);
        config::report(&warnings);
        let path = self.done.path().display();
        match read {
            Err(why) => diag!(Warning, "config", "{why}; until then all stays as it is"),
            Ok(read) => {
                let changes = self.read.changes(&read);
                let settings = session.turn_into(&read);
                sources.iter_mut().for_each(|source| source.follow(&settings.ondemand));
                diag!(Stage, "config", "the configuration file {path} was read again: {changes}");
                self.read = Arc::new(read);
            }
        }
    }

    /// Looks at the file, if it is time to. One that somebody may still be writing is left until two looks are the same.
    fn has_changed(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + EVERY;
        let before = std::mem::replace(&mut self.seen, self.done.again());
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
    fn a_change_is_one_when_it_is_the_same_at_two_looks_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf");
        fs::write(&path, "GZIP_LEVEL=1").unwrap();
        let overrides = Overrides { config_file: Some(path.clone()), ..Overrides::default() };
        let config = Config::resolve(&overrides, &Env::default(), &mut Vec::new()).unwrap();
        let mut base = Base::new(Arc::new(config));
        let begun = Instant::now() + EVERY;
        let mut looks = 0;
        let mut look = |base: &mut Base| {
            looks += 1;
            base.has_changed(begun + EVERY * looks)
        };
        assert_eq!([look(&mut base), look(&mut base)], [false, false]);
        fs::write(&path, "GZIP_LEVEL=1\nWITH_").unwrap();
        assert!(!look(&mut base), "somebody may be writing it");
        fs::write(&path, "GZIP_LEVEL=1\nWITH_ARGS=no").unwrap();
        assert!(!base.has_changed(begun), "it is not time yet");
        assert_eq!([look(&mut base), look(&mut base), look(&mut base)], [false, true, false]);
        fs::remove_file(&path).unwrap();
        assert_eq!([look(&mut base), look(&mut base), look(&mut base)], [false, true, false]);
        // What comes and goes between two looks was never there.
        fs::write(&path, "").unwrap();
        assert!(!look(&mut base));
        fs::remove_file(&path).unwrap();
        assert_eq!([look(&mut base), look(&mut base)], [false, false]);
    }
}
