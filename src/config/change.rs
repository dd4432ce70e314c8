//! Reloading of the configuration file in a running program.

use super::keys::{Key, ReloadPolicy};
use super::{Config, MergedSettings};
use crate::error::Error;
use crate::text::joined;
use kineto_base::sorting::sort_few_by_key;

impl Config {
    /// Reads the file again, and returns the configuration that the program would start with now.
    ///
    /// # Errors
    /// Those of [`Config::resolve`] about the file.
    pub(crate) fn reread_file(&self, warnings: &mut Vec<String>) -> Result<Config, Error> {
        Ok(self.with_settings(self.merged.with_file(self.file.read_settings(warnings)?)))
    }

    /// Returns the configuration of a running program that has read `read`.
    pub(crate) fn apply_reloaded(&self, read: &Config) -> Config {
        self.with_settings(self.merged.apply_reloaded(&read.merged))
    }

    /// Describes the keys that differ in `read`, without those that only affect requests: what changes at once, from the next
    /// recording on, and after a restart.
    pub(crate) fn describe_changes(&self, read: &Config) -> String {
        let changed = Key::ALL.iter().filter_map(|key| {
            let value = |config: &Config| config.merged.value_and_source(*key).map(|(value, _)| value);
            let (before, now) = (value(self), value(read));
            let (name, change) = (key.spec().name, key.spec().reload);
            let told = now.as_ref().map_or(format!("{name} unset"), |now| format!("{name}={}", now.escape_debug()));
            (before != now && !key.is_for_requests()).then_some((change, told))
        });
        let mut changed: Vec<_> = changed.collect();
        sort_few_by_key(&mut changed, |(change, _)| *change);
        let describe = |same: &[(ReloadPolicy, String)]| {
            let keys: Vec<_> = same.iter().map(|(_, change)| change.as_str()).collect();
            let from = match same.first().map(|(change, _)| change) {
                Some(ReloadPolicy::AtOnce) => "at once",
                Some(ReloadPolicy::Next) => "from the next recording on",
                _ => "when the program is started again",
            };
            format!("{} ({from})", joined(&keys, ", "))
        };
        let described: Vec<_> = changed.chunk_by(|one, next| one.0 == next.0).map(describe).collect();
        if described.is_empty() { "no settings changed".to_owned() } else { joined(&described, "; ") }
    }

    /// Returns a configuration with these settings; data from the environment alone is kept.
    fn with_settings(&self, merged: MergedSettings) -> Config {
        let mut config = Config::from_merged(merged);
        config.distributed.clone_from(&self.distributed);
        config.job_metadata.clone_from(&self.job_metadata);
        config.gpu.keep_variables(&self.gpu);
        config.file.clone_from(&self.file);
        config
    }
}

#[cfg(test)]
#[cfg(feature = "ondemand")]
mod tests {
    use super::*;
    use crate::config::{Env, Overrides, Value};
    use crate::diag::Severity;
    use crate::error::ErrorKind;
    use kineto_model::activity::{ActivityType, ActivityTypes};
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    /// A file, and the configuration read from it while it was empty.
    struct Started {
        _folder: tempfile::TempDir,
        path: PathBuf,
        config: Config,
    }

    fn start(overrides: Overrides, env: &[(&str, &str)]) -> Started {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libkineto.conf");
        fs::write(&path, "").unwrap();
        let mut overrides = overrides;
        overrides.set_config_file(path.clone());
        let env = Env::from_pairs(env.iter().copied());
        let config = Config::resolve(&overrides, &env, &mut Vec::new()).unwrap();
        Started { _folder: folder, path, config }
    }

    impl Started {
        /// Returns the configuration read from a file with that text.
        fn read(&self, text: &str) -> Config {
            fs::write(&self.path, text).unwrap();
            let mut warnings = Vec::new();
            let config = self.config.reread_file(&mut warnings).unwrap();
            assert_eq!(warnings, Vec::<String>::new());
            config
        }
    }

    #[test]
    fn callsite_keys_stay_and_others_change_on_reload() {
        let started = start(Overrides::default(), &[("RANK", "3"), ("WORLD_SIZE", "8")]);
        let read = started.read(
            "FILTER=a=info\nEVENTS=info\nWITH_ARGS=no\nLOG_LEVEL=info\nON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=7\n\
             ENABLE_IPC_FABRIC=true\nACTIVITY_TYPES=kernel\nHOST_NAME=h\nGZIP_LEVEL=9\nFLUSH_TIMEOUT_MSECS=7",
        );
        assert!(!read.with_args && read.filter.is_some());
        let reloaded = started.config.apply_reloaded(&read);
        assert!(reloaded.with_args && reloaded.filter.is_none() && reloaded.events == tracing_core::LevelFilter::OFF);
        assert_eq!(
            (reloaded.log_level, reloaded.ondemand.poll_interval),
            (Severity::Info, Some(Duration::from_secs(7)))
        );
        assert!(reloaded.ondemand.polls_daemon() && !started.config.ondemand.polls_daemon());
        assert_eq!(reloaded.activities, ActivityTypes::from(ActivityType::ConcurrentKernel));
        assert_eq!((reloaded.host_name.as_deref(), reloaded.gzip_level), (Some("h"), 9));
        assert_eq!(reloaded.distributed, started.config.distributed);
        let json: serde_json::Value = serde_json::from_str(&reloaded.effective_json()).unwrap();
        assert_eq!((&json["from"]["HOST_NAME"], &json["from"]["FILTER"]), (&"file".into(), &serde_json::Value::Null));
        assert_eq!(
            started.config.describe_changes(&read),
            "FLUSH_TIMEOUT_MSECS=7, LOG_LEVEL=info, ENABLE_IPC_FABRIC=true, ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=7 (at \
             once); ACTIVITY_TYPES=kernel, GZIP_LEVEL=9, HOST_NAME=h (from the next recording on); FILTER=a=info, \
             WITH_ARGS=false, EVENTS=info (when the program is started again)"
        );
        // Then all changes are undone.
        let empty = started.read("# nothing");
        assert_eq!(format!("{:?}", reloaded.apply_reloaded(&empty)), format!("{:?}", started.config));
        let back = read.describe_changes(&empty);
        assert!(back.contains("HOST_NAME unset") && back.contains("GZIP_LEVEL=1"), "{back}");
    }

    #[test]
    fn each_key_reloads_as_the_table_says() {
        let started = start(Overrides::default(), &[]);
        for key in Key::ALL.iter().copied().filter(|key| *key != Key::Overflow) {
            let (text, _) = crate::config::sources::settings::tests::sample(key);
            if Key::in_file(key.spec().name).is_none() || key.missing_feature().is_some() {
                continue;
            }
            let read = started.read(&format!("{}={text}", key.spec().name));
            let reloaded = started.config.apply_reloaded(&read);
            let has_changed = reloaded.value_source(key) != started.config.value_source(key);
            assert_eq!(has_changed, key.spec().reload != ReloadPolicy::Start, "{key:?}");
        }
    }

    #[test]
    fn builder_and_environment_win_after_reload() {
        let overrides = Overrides::default().with(Key::GzipLevel, Value::Int(4));
        let started = start(overrides, &[("KINETO_HOST_NAME", "mine")]);
        let read = started.read("GZIP_LEVEL=9\nHOST_NAME=other\nREQUEST_TRACE_ID=a\\b");
        let reloaded = started.config.apply_reloaded(&read);
        assert_eq!((reloaded.gzip_level, reloaded.host_name.as_deref()), (4, Some("mine")));
        let changes = started.config.describe_changes(&read);
        assert_eq!(changes, r"REQUEST_TRACE_ID=a\\b (from the next recording on)");
        assert_eq!(read.describe_changes(&read), "no settings changed");
    }

    #[test]
    fn invalid_file_fails_on_reload_as_at_start() {
        let started = start(Overrides::default(), &[]);
        for (text, kind) in [("GZIP_LEVEL=99", ErrorKind::Config), ("START_WINDOWS=0", ErrorKind::Config)] {
            fs::write(&started.path, text).unwrap();
            let again = started.config.reread_file(&mut Vec::new()).unwrap_err();
            let mut overrides = Overrides::default();
            overrides.set_config_file(started.path.clone());
            let at_start = Config::resolve(&overrides, &Env::default(), &mut Vec::new()).unwrap_err();
            assert_eq!((again.kind(), again.to_string()), (kind, at_start.to_string()));
        }
        fs::remove_file(&started.path).unwrap();
        assert_eq!(started.config.reread_file(&mut Vec::new()).unwrap_err().kind(), ErrorKind::Io);
    }
}
