//! The environment: this module alone reads its variables.

use kineto_base::sorted::SortedMap;
use std::ffi::{OsStr, OsString};

use super::super::TIMETABLE_KEYS;
use super::super::keys::{Key, KeyDefault, OTHER_VARIABLES, ReloadPolicy, is_removed};
use super::super::value::{self, SettingKind};
use super::settings::{ParsedSettings, describe_invalid};
use crate::error::{Error, ErrorKind};
use crate::os::{platform, process};
use crate::text::{closest_name, joined};

/// A snapshot of the environment's variables that concern this crate.
///
/// A plain value: tests create their own, and each variable of the process is read once. An empty variable counts as unset,
/// because a shell can unset a variable for one command only that way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Env(SortedMap<String, OsString>);

/// The effect of the environment on `KinetoLayer::from_env()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// Returns no layer.
    Off,
    /// Returns a layer that waits for a start: only KINETO_USE_DAEMON or KINETO_TRIGGER_DIR is set.
    Idle,
    /// Returns a layer that records as configured.
    On,
}

/// Variables that begin with `KINETO_` but belong to PyTorch or to this project's own checks.
const OTHERS: [&str; 5] = [
    "KINETO_DAEMON_INIT_DELAY_S",
    "KINETO_FORCE_OPTIMIZER_HOOK",
    "KINETO_FORCE_STEP_HOOK",
    "KINETO_PLUGIN_LIB_DIR_PATH",
    "KINETO_TRACES",
];

/// The keys whose variables make `from_env()` return a layer that records, in addition to [`TIMETABLE_KEYS`].
const SWITCHES: [Key; 5] = [Key::ConfigFile, Key::LogFile, Key::ActivityTypes, Key::Activities, Key::DumpOn];

/// The keys whose variables make it return a layer that waits.
const WAITING: [Key; 2] = [Key::UseDaemon, Key::TriggerFolder];

const PREFIX: &str = "KINETO_";

impl Env {
    /// Reads the process's environment; WebAssembly has none, and that of an untrusted caller counts as empty.
    pub(crate) fn from_process() -> Self {
        if process::has_untrusted_caller() { Env::default() } else { Env(variables()) }
    }

    /// Returns whether an untrusted caller has set variables of ours.
    pub(crate) fn is_withheld() -> bool {
        process::has_untrusted_caller() && !variables().is_empty()
    }

    /// Creates an environment with these variables.
    #[cfg(test)]
    pub(crate) fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Env(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
    }

    /// Returns the value of a variable if it is not empty and valid UTF-8.
    pub(in crate::config) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().filter(|text| !text.is_empty())
    }

    /// Returns the value of a variable that is set, even if it is empty.
    pub(crate) fn raw_value(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }

    /// Returns whether `from_env()` creates a layer.
    ///
    /// KINETO_ENABLED decides if it is set. Otherwise, a variable that configures a recording enables it: KINETO_CONFIG,
    /// KINETO_ACTIVITIES_LOG_FILE, KINETO_ACTIVITY_TYPES, KINETO_ACTIVITIES, KINETO_DUMP_ON, or one that sets when or for how
    /// long to record.
    /// KINETO_USE_DAEMON and KINETO_TRIGGER_DIR create a layer that waits.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if KINETO_ENABLED is neither true nor false.
    pub(crate) fn activation(&self) -> Result<Activation, Error> {
        let enabled = Key::Enabled.spec();
        if let Some(text) = self.0.get(enabled.name).filter(|text| !text.is_empty()) {
            let text = text.to_string_lossy();
            return match value::parse_bool(text.trim()) {
                Some(true) => Ok(Activation::On),
                Some(false) => Ok(Activation::Off),
                None => Err(Error::new(
                    ErrorKind::Config,
                    format!("{}={text:?}: expected {}; correct or unset it", enabled.name, enabled.kind),
                )),
            };
        }
        Ok(self.implied_activation())
    }

    /// Returns the effect of the variables other than KINETO_ENABLED.
    fn implied_activation(&self) -> Activation {
        let has_any = |keys: &[Key]| keys.iter().any(|key| key.missing_feature().is_none() && self.is_set(*key));
        if has_any(&SWITCHES) || has_any(&TIMETABLE_KEYS) {
            Activation::On
        } else if has_any(&WAITING) {
            Activation::Idle
        } else {
            Activation::Off
        }
    }

    /// Returns whether a key's variable is set and not empty; for a presence flag, whether it is not an off value.
    fn is_set(&self, key: Key) -> bool {
        let is_on = |text: &OsStr| {
            key.spec().kind != SettingKind::AnyText
                || text.to_str().is_some_and(|text| value::parse_presence(text.trim()))
        };
        self.0.iter().any(|(name, text)| key.is_variable(name) && !text.is_empty() && is_on(text))
    }

    /// Like [`activation`](Env::activation), but ignores an invalid value.
    pub(crate) fn activation_or_default(&self) -> Activation {
        self.activation().unwrap_or_else(|_| self.implied_activation())
    }

    /// Returns a warning if variables configure a recording and none enables one.
    pub(crate) fn not_enabled_warning(&self) -> Option<String> {
        let is_of_recordings = |key: &Key| {
            let spec = key.spec();
            spec.is_in_file() && spec.reload != ReloadPolicy::AtOnce && !spec.name.starts_with("DISABLE_")
        };
        if self.text(Key::Enabled.spec().name).is_some() {
            return None;
        }
        let mut names = Vec::new();
        for key in Key::ALL.iter().filter(|key| is_of_recordings(key)) {
            let name = key.env_variable();
            if self.text(&name).is_some() {
                names.push(name);
            }
        }
        let mut ignored = None;
        for keys in [&SWITCHES[..], &TIMETABLE_KEYS, &WAITING] {
            for key in keys.iter().filter(|key| self.is_set(**key)) {
                ignored = ignored.or_else(|| key.missing_feature_warning());
            }
        }
        if names.is_empty() || ignored.is_some() {
            return ignored;
        }
        let are = if names.len() == 1 { "is" } else { "are" };
        Some(format!("{} {are} set, but nothing is recorded; set KINETO_ENABLED=1 as well", joined(&names, ", ")))
    }

    /// Reads the variables of all keys. Unless `is_strict`, invalid ones are ignored with a warning.
    pub(in crate::config) fn read_settings(&self, is_strict: bool) -> ParsedSettings {
        let mut reading = ParsedSettings::default();
        if self.0.is_empty() {
            return reading;
        }
        let mut invalid = Vec::new();
        for (name, value) in self.0.iter() {
            if value.to_str().is_none() {
                invalid.push((describe_invalid(name, "expected UTF-8"), ""));
            }
        }
        for key in Key::ALL.iter().copied() {
            let Some(name) = self.0.keys().find(|name| key.is_variable(name)) else { continue };
            let Some(text) = self.text(name) else { continue };
            if let Err(wrong) = reading.settings.set_from_text(key, text.trim(), &mut reading.warnings) {
                let (KeyDefault::Literal(default) | KeyDefault::Described(default)) = key.spec().default;
                invalid.push((describe_invalid(&format!("{name}={text}"), &wrong), default));
            }
        }
        for (error, default) in invalid {
            match default {
                _ if is_strict => reading.errors.push(error),
                "" => reading.warnings.push(format!("{error}; it is ignored")),
                default => reading.warnings.push(format!("{error}; it is ignored (default: {default})")),
            }
        }
        reading
    }

    /// Returns the header entries from variables of PyTorch's jobs (include/EnvMetadata.h), as names and plain texts.
    pub(in crate::config) fn job_metadata(&self) -> Vec<(String, String)> {
        let names = ["PT_PROFILER_JOB_NAME", "PT_PROFILER_JOB_VERSION", "PT_PROFILER_JOB_ATTEMPT_INDEX"];
        let mut entries = Vec::new();
        for name in names {
            if let Some(text) = self.text(name) {
                entries.push((name.to_owned(), text.to_owned()));
            }
        }
        entries
    }

    /// Returns a warning for each unknown variable with this crate's prefix.
    pub(crate) fn unknown_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for name in self.0.keys() {
            let Some(bare) = name.strip_prefix(PREFIX) else { continue };
            if OTHERS.contains(&name.as_str()) || Key::ALL.iter().any(|key| key.is_variable(name)) {
                continue;
            }
            warnings.push(if is_removed(bare) {
                format!("{name} no longer does anything, here as in libkineto")
            } else {
                let known: Vec<_> = Key::ALL.iter().map(|key| key.env_variable()).collect();
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                let meant = if bare.starts_with(PREFIX) { Some(bare) } else { closest_name(name, &known) };
                let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
                format!("unknown variable {}{meant}", name.escape_debug())
            });
        }
        warnings
    }
}

/// Returns the process's variables that concern this crate.
fn variables() -> SortedMap<String, OsString> {
    let mut ours = SortedMap::new();
    if platform::CAN_RECORD {
        #[expect(clippy::disallowed_methods, reason = "only this function reads the environment")]
        let variables = std::env::vars_os();
        for (name, value) in variables {
            if may_concern_us(name.as_encoded_bytes())
                && let Ok(name) = name.into_string()
                && concerns_us(&name)
            {
                ours.insert(name, value);
            }
        }
    }
    ours
}

/// Returns whether a name begins with one of our prefixes: a cheap filter, because each layer scans all variables.
fn may_concern_us(name: &[u8]) -> bool {
    matches!(name, [b'E', b'N', ..] | [b'K', b'I', ..] | [b'L', b'O', ..] | [b'O', b'M', ..] | [b'P', b'T', ..])
        || matches!(name, [b'R', b'A', ..] | [b'S', b'L', ..] | [b'W', b'O', ..])
        || matches!(name, [b'C', b'U', ..] | [b'C', b'O', ..] | [b'V', b'I', ..] | [b'N', b'V' | b'O', ..])
        || matches!(name, [b'T', b'O', ..] | [b'R', b'O', ..] | [b'H', b'I', ..] | [b'O', b'N', ..])
}

/// Returns whether this crate reads a variable of that name.
fn concerns_us(name: &str) -> bool {
    let listed = || OTHER_VARIABLES.iter().any(|(names, ..)| names.contains(&name));
    // A few keys have names without this crate's prefix.
    let is_key = || Key::ALL.iter().any(|key| !key.spec().is_in_file() && key.spec().name == name);
    name.starts_with(PREFIX) || listed() || is_key()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sources::parse::parse_settings;
    use crate::config::sources::settings::tests::sample;

    #[test]
    fn each_key_has_the_same_value_from_variable_and_file() {
        for key in Key::ALL.iter().copied().filter(|key| key.missing_feature().is_none()) {
            let (text, _) = sample(key);
            let reading = Env::from_pairs([(key.env_variable().as_str(), text)]).read_settings(true);
            assert!(reading.errors.is_empty() && reading.warnings.is_empty(), "{key:?}: {reading:?}");
            let from_env = reading.settings.get(key).map(ToString::to_string);
            assert!(from_env.is_some(), "{key:?}");
            let file = parse_settings(&format!("{}={text}", key.spec().name));
            let from_file = file.settings.get(key).map(ToString::to_string);
            // Keys of the environment alone only cause a warning in a file.
            let expected = if key.spec().is_in_file() { from_env } else { None };
            assert_eq!(from_file, expected, "{key:?}");
            assert_eq!(file.warnings.is_empty(), key.spec().is_in_file(), "{key:?}");
        }
    }

    /// If all features are on, there is nothing to check.
    #[test]
    fn keys_of_a_missing_feature_are_ignored_with_a_warning() {
        let missing = |key: Key| Some((key, key.missing_feature()?));
        for (key, feature) in Key::ALL.iter().copied().filter_map(missing) {
            let (name, (text, _)) = (key.spec().name, sample(key));
            let told = format!("{name} needs tracing-kineto's feature `{feature}`, which is off; it is ignored");
            let env = Env::from_pairs([(key.env_variable().as_str(), text)]).read_settings(true);
            assert_eq!((&env.warnings, env.errors.len(), env.settings.is_empty()), (&vec![told.clone()], 0, true));
            if key.spec().is_in_file() {
                let file = parse_settings(&format!("{name}={text}"));
                assert_eq!((file.warnings, file.settings.is_empty()), (vec![format!("line 1: {told}")], true));
            }
        }
    }

    #[test]
    fn all_variables_are_read_from_the_process() {
        let is_read = |name: &str| may_concern_us(name.as_bytes()) && concerns_us(name);
        assert!(Key::ALL.iter().all(|key| is_read(&key.env_variable())));
        for (names, ..) in OTHER_VARIABLES {
            assert!(names.iter().all(|name| is_read(name)), "{names:?}");
        }
        assert!(!concerns_us("PATH") && !concerns_us("kineto_config"));
        // Cargo sets variables for tests, which do not concern this crate.
        assert!(!Env::from_process().0.keys().any(|name| name.starts_with("CARGO")));
    }

    #[test]
    fn bad_values_name_the_variable_and_its_format() {
        let env =
            Env::from_pairs([("KINETO_GZIP_LEVEL", "12"), ("KINETO_WITH_ARGS", "no"), ("KINETO_ACTIVITIES", "gpu")]);
        let reading = env.read_settings(true);
        let errors = &reading.errors;
        assert_eq!(errors.len(), 2);
        assert!(errors[0].starts_with("`KINETO_ACTIVITIES=gpu`: ") && errors[0].contains("CUDA"), "{errors:?}");
        assert_eq!(errors[1], "`KINETO_GZIP_LEVEL=12`: expected a whole number from 0 to 9");
        assert!(reading.settings.get(Key::WithArgs).is_some());
    }

    #[test]
    fn empty_variables_are_unset() {
        let reading = Env::from_pairs([("KINETO_GZIP_LEVEL", ""), ("KINETO_USE_DAEMON", "")]).read_settings(true);
        assert!(reading.errors.is_empty() && reading.settings.is_empty());
    }

    #[test]
    fn unknown_variables_with_our_prefix_warn() {
        let names =
            ["KINETO_GZIP_LEVL", "KINETO_KINETO_CONFIG", "KINETO_ENABLE_SIGUSR2", "KINETO_FORCE_STEP_HOOK", "HOME"];
        let warnings: Vec<_> = Env::from_pairs(names.map(|name| (name, "1"))).unknown_warnings();
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        let gzip = "unknown variable KINETO_GZIP_LEVL; did you mean KINETO_GZIP_LEVEL?";
        let config = "unknown variable KINETO_KINETO_CONFIG; did you mean KINETO_CONFIG?";
        assert!([gzip, config].iter().all(|warning| warnings.contains(&(*warning).to_owned())), "{warnings:?}");
        assert!(warnings.contains(&"KINETO_ENABLE_SIGUSR2 no longer does anything, here as in libkineto".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn values_that_are_not_utf8_are_errors() {
        use std::os::unix::ffi::OsStringExt as _;
        let mut env = Env::default();
        env.0.insert("KINETO_ACTIVITIES_LOG_FILE".into(), OsString::from_vec(vec![b'/', 0xff]));
        let errors = env.read_settings(true).errors;
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0], "`KINETO_ACTIVITIES_LOG_FILE`: expected UTF-8");
    }

    // Shows the key KINETO_ENABLED.
    #[test]
    #[cfg(feature = "ondemand")]
    fn enabled_variable_decides() {
        for (pairs, expected) in [
            (&[][..], Activation::Off),
            (&[("KINETO_ENABLED", "1")], Activation::On),
            (&[("KINETO_ENABLED", "False"), ("KINETO_CONFIG", "x")], Activation::Off),
            (&[("KINETO_ENABLED", ""), ("KINETO_CONFIG", "x")], Activation::On),
            (&[("KINETO_CONFIG", "x")], Activation::On),
            (&[("KINETO_ACTIVITIES_LOG_FILE", "x.json")], Activation::On),
            (&[("KINETO_ACTIVITY_TYPES", "cpu_op")], Activation::On),
            (&[("KINETO_ACTIVITIES", "cpu")], Activation::On),
            (&[("KINETO_DUMP_ON", "panic")], Activation::On),
            (&[("KINETO_ACTIVITIES", "")], Activation::Off),
            (&[("KINETO_START_DELAY_MS", "1")], Activation::On),
            (&[("KINETO_ACTIVITIES_DURATION_MSECS", "1"), ("KINETO_USE_DAEMON", "1")], Activation::On),
            (&[("KINETO_ACTIVITIES_ITERATIONS", "1")], Activation::On),
            (&[("KINETO_ACTIVITIES_WARMUP_PERIOD_SECS", "1")], Activation::Off),
            (&[("KINETO_LOG_LEVEL", "0"), ("KINETO_GZIP_LEVEL", "3")], Activation::Off),
            // libkineto only checks whether it is set, so that "0" enables it.
            (&[("KINETO_USE_DAEMON", "1")], Activation::Idle),
            (&[("KINETO_USE_DAEMON", "0")], Activation::Off),
            (&[("KINETO_USE_DAEMON", "")], Activation::Off),
            (&[("KINETO_USE_DAEMON", "Off")], Activation::Off),
            (&[("KINETO_USE_DAEMON", "1"), ("KINETO_ACTIVITIES", "cpu")], Activation::On),
            (&[("KINETO_TRIGGER_DIR", "/run/app")], Activation::Idle),
            (&[("KINETO_TRIGGER_DIR", "")], Activation::Off),
        ] {
            assert_eq!(Env::from_pairs(pairs.iter().copied()).activation().unwrap(), expected, "{pairs:?}");
        }
        let error = Env::from_pairs([("KINETO_ENABLED", "maybe")]).activation().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with("KINETO_ENABLED=\"maybe\": expected true or false"), "{error}");
    }

    #[test]
    fn job_metadata_keeps_its_names() {
        let env = Env::from_pairs([("PT_PROFILER_JOB_NAME", "train \"x\""), ("PT_PROFILER_JOB_ATTEMPT_INDEX", "2")]);
        let expected = [("PT_PROFILER_JOB_NAME", "train \"x\""), ("PT_PROFILER_JOB_ATTEMPT_INDEX", "2")];
        assert_eq!(env.job_metadata(), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}
