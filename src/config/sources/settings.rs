//! The settings of each source, and their merge by priority.

use std::fmt;

use super::super::keys::{Key, ReloadPolicy};
use super::super::value::{SettingKind, Value};
use kineto_base::sorting::sort_few_by_key;

/// The settings of one source.
#[derive(Clone, Default)]
pub(crate) struct SourceSettings(Vec<(Key, Value)>);

impl fmt::Debug for SourceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(key, value)| (key.spec().name, value))).finish()
    }
}

impl SourceSettings {
    /// Sets `key`; replaces an earlier value, also of its family if [`Key::replaces_family`] is true.
    pub(crate) fn set(&mut self, key: Key, value: Value) {
        self.0.retain(|(other, _)| *other != key && !(key.replaces_family() && other.family() == key.family()));
        self.0.push((key, value));
    }

    /// Returns the settings with `key` set.
    pub(crate) fn with(mut self, key: Key, value: Value) -> SourceSettings {
        self.set(key, value);
        self
    }

    /// Adds settings, which replace those of the same keys.
    pub(crate) fn merge(&mut self, settings: SourceSettings) {
        settings.0.into_iter().for_each(|(key, value)| self.set(key, value));
    }

    /// Sets `key` to the parsed `text`. Some values only give a warning.
    ///
    /// # Errors
    /// The problem, as a part of a message.
    pub(in crate::config) fn set_from_text(
        &mut self,
        key: Key,
        text: &str,
        warnings: &mut Vec<String>,
    ) -> Result<(), String> {
        let kind = &key.spec().kind;
        match (kind.parse(text), kind) {
            // An invalid log level should not prevent profiling.
            (Err(wrong), SettingKind::Severity) => warnings.push(format!("{}={text:?}: {wrong}", key.spec().name)),
            (Err(wrong), _) => match key.missing_value_warning(text) {
                Some(warning) => warnings.push(warning),
                None => return Err(wrong + &unit_hint(key, text).unwrap_or_default()),
            },
            (Ok(Value::Int(0)), _) if key == Key::StartRoundup => {
                warnings.push(format!("{}=0 is ignored: it rounds to nothing", key.spec().name));
            }
            (Ok(value), _) => match key.missing_feature_warning() {
                Some(warning) => warnings.push(warning),
                None => self.set(key, value),
            },
        }
        Ok(())
    }

    /// Returns the settings without some keys.
    pub(in crate::config) fn without_keys(&self, keys: &[Key]) -> SourceSettings {
        let mut rest = self.clone();
        rest.0.retain(|(key, _)| !keys.contains(key));
        rest
    }

    /// Returns the settings in the order in which they were made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Value)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// Returns whether it contains no settings.
    #[cfg(test)]
    pub(in crate::config) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of `key`, if it is set.
    #[cfg(test)]
    pub(in crate::config) fn get(&self, key: Key) -> Option<&Value> {
        self.0.iter().find(|(set, _)| *set == key).map(|(_, value)| value)
    }
}

/// The source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigSource {
    /// The default.
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The program, by the builder.
    Builder,
    /// An external request.
    Request,
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigSource::Default => "default",
            ConfigSource::File => "file",
            ConfigSource::Environment => "environment",
            ConfigSource::Builder => "builder",
            ConfigSource::Request => "request",
        })
    }
}

/// The merged settings of all sources, in the order of the table, without defaults.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct MergedSettings(Vec<(Key, Value, ConfigSource)>);

impl MergedSettings {
    /// Merges the sources: each family of keys comes from the first source that sets one of its keys.
    pub(in crate::config) fn new(sources: [(ConfigSource, SourceSettings); 3]) -> Self {
        let mut merged: Vec<(Key, Value, ConfigSource)> = Vec::new();
        for (source, SourceSettings(settings)) in sources {
            let earlier = merged.len();
            for (key, value) in settings {
                if !merged.iter().take(earlier).any(|(set, _, _)| set.family() == key.family()) {
                    merged.push((key, value, source));
                }
            }
        }
        MergedSettings::sorted(merged)
    }

    fn sorted(mut settings: Vec<(Key, Value, ConfigSource)>) -> Self {
        sort_few_by_key(&mut settings, |(key, _, _)| *key);
        MergedSettings(settings)
    }

    /// Replaces the value of `key`, and keeps its source.
    pub(in crate::config) fn replace(&mut self, key: Key, value: Value) {
        self.0.iter_mut().filter(|(set, _, _)| *set == key).for_each(|entry| entry.1 = value.clone());
    }

    /// Returns whether anything triggers dumps.
    pub(in crate::config) fn has_dump_triggers(&self) -> bool {
        self.iter().any(|(_, value)| matches!(value, Value::DumpTriggers(triggers) if !triggers.is_empty()))
    }

    /// Gives `key` another default than that of the table, unless a source sets it.
    pub(in crate::config) fn set_default(&mut self, key: Key, value: Value) {
        if self.value_source(key) == ConfigSource::Default {
            self.remove(key);
            self.0.push((key, value, ConfigSource::Default));
            sort_few_by_key(&mut self.0, |(key, _, _)| *key);
        }
    }

    /// Removes the value of a key.
    pub(in crate::config) fn remove(&mut self, key: Key) {
        self.0.retain(|(set, _, _)| *set != key);
    }

    /// Returns these settings with `settings` on top: each key that `settings` contains replaces all keys of its family.
    pub(in crate::config) fn overridden_by(&self, source: ConfigSource, settings: &SourceSettings) -> MergedSettings {
        let is_replaced = |key: Key| settings.iter().any(|(set, _)| set.family() == key.family());
        let mut merged = self.0.clone();
        merged.retain(|(key, _, _)| !is_replaced(*key));
        for (key, value) in settings.iter() {
            merged.push((key, value.clone(), source));
        }
        MergedSettings::sorted(merged)
    }

    /// Returns the settings with those of the reloaded file.
    pub(in crate::config) fn with_file(&self, file: SourceSettings) -> MergedSettings {
        let of = |wanted: ConfigSource| {
            let mut own = SourceSettings::default();
            for (key, value, source) in &self.0 {
                if *source == wanted {
                    own.0.push((*key, value.clone()));
                }
            }
            (wanted, own)
        };
        MergedSettings::new([of(ConfigSource::Builder), of(ConfigSource::Environment), (ConfigSource::File, file)])
    }

    /// Returns the settings with those changes in `new` that take effect in a running program.
    pub(in crate::config) fn apply_reloaded(&self, new: &MergedSettings) -> MergedSettings {
        let waits = |key: Key| matches!(key.spec().reload, ReloadPolicy::Start | ReloadPolicy::Never);
        // The program may have set some after the builder, so `new` lacks them.
        let is_set_by_program =
            |key: Key| self.0.iter().any(|(set, _, by)| *by == ConfigSource::Builder && set.family() == key.family());
        let mut merged = Vec::new();
        for (settings, is_old) in [(self, true), (new, false)] {
            for setting in &settings.0 {
                if (waits(setting.0) || is_set_by_program(setting.0)) == is_old {
                    merged.push(setting.clone());
                }
            }
        }
        MergedSettings::sorted(merged)
    }

    pub(in crate::config) fn iter(&self) -> impl Iterator<Item = (Key, &Value)> {
        self.0.iter().map(|(key, value, _)| (*key, value))
    }

    /// Returns the value of a key as text, and its source.
    pub(in crate::config) fn value_and_source(&self, key: Key) -> Option<(String, ConfigSource)> {
        match self.0.iter().find(|(set, _, _)| *set == key) {
            Some((_, value, source)) => Some((value.to_string(), *source)),
            // Another key of its family is set.
            None if self.0.iter().any(|(set, _, _)| set.family() == key.family()) => None,
            None => key.default_text().map(|text| (text.to_owned(), ConfigSource::Default)),
        }
    }

    pub(in crate::config) fn value_source(&self, key: Key) -> ConfigSource {
        self.0.iter().find(|(set, _, _)| *set == key).map_or(ConfigSource::Default, |(_, _, source)| *source)
    }
}

/// Describes an invalid setting for messages, which repeat the start of its text.
pub(in crate::config) fn describe_invalid(found: &str, problem: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 100;
    let found: String = found.chars().take(SHOWN_CHARS_MAX).collect();
    format!("`{}`: {problem}", found.escape_debug())
}

/// Returns advice for a number with a unit: the number in the key's own unit.
fn unit_hint(key: Key, text: &str) -> Option<String> {
    const TIMES: &[(&[&str], f64)] =
        &[(&["ms"], 1e-3), (&["s", "sec", "secs"], 1.0), (&["m", "min"], 60.0), (&["h"], 3600.0)];
    const SIZES: &[(&[&str], f64)] =
        &[(&["k", "kb", "kib"], 1.0 / 1024.0), (&["m", "mb", "mib"], 1.0), (&["g", "gb", "gib"], 1024.0)];
    let ends = |ends: &[&str]| ends.iter().any(|end| key.spec().name.ends_with(end));
    let (units, own) = if ends(&["_MS", "_MSECS"]) {
        (TIMES, 1e-3)
    } else if ends(&["_SECS"]) {
        (TIMES, 1.0)
    } else if ends(&["_MB"]) {
        (SIZES, 1.0)
    } else {
        return None;
    };
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, unit) = units.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    let count = (number.parse::<f64>().ok()? * unit / own).round().max(1.0);
    Some(format!("; write {count} for {text}"))
}

/// The result of reading one source.
#[derive(Debug, Default)]
pub(crate) struct ParsedSettings {
    pub(in crate::config) settings: SourceSettings,
    /// The invalid settings, as parts of messages.
    pub(in crate::config) errors: Vec<String>,
    pub(in crate::config) warnings: Vec<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns two texts for `key` with different meanings.
    pub(crate) fn sample(key: Key) -> (&'static str, &'static str) {
        match &key.spec().kind {
            SettingKind::Bool | SettingKind::AnyText => ("true", "false"),
            SettingKind::OneIsTrue => ("1", "0"),
            SettingKind::Text | SettingKind::List | SettingKind::LogFile => ("a", "b"),
            SettingKind::Types => ("kernel", "cpu_op"),
            SettingKind::Groups => ("cpu", "cuda"),
            SettingKind::Severity | SettingKind::Events => ("error", "info"),
            SettingKind::AsyncSpans => ("track", "both"),
            SettingKind::Modes => ("nvtx", "kineto+nvtx"),
            SettingKind::LogFormat => ("json", "libkineto"),
            SettingKind::Overflow => ("keep_newest", "stop"),
            SettingKind::Split => ("8MB", "100steps"),
            SettingKind::DumpTriggers => ("panic", "signal"),
            SettingKind::Filter => ("a=info", "b=info"),
            SettingKind::Duration => ("7s", "8s"),
            SettingKind::Mode => ("600", "640"),
            SettingKind::StartTime => ("0", "9999999999999"),
            SettingKind::Int(_) | SettingKind::IntList | SettingKind::Mebibytes | SettingKind::Milliseconds => {
                ("7", "8")
            }
        }
    }

    fn settings(pairs: &[(Key, &str)]) -> SourceSettings {
        let mut settings = SourceSettings::default();
        for (key, text) in pairs {
            settings.set_from_text(*key, text, &mut Vec::new()).unwrap();
        }
        settings
    }

    fn merged(builder: &[(Key, &str)], env: &[(Key, &str)], file: &[(Key, &str)]) -> MergedSettings {
        MergedSettings::new([
            (ConfigSource::Builder, settings(builder)),
            (ConfigSource::Environment, settings(env)),
            (ConfigSource::File, settings(file)),
        ])
    }

    #[test]
    fn each_key_has_the_value_of_its_first_source() {
        for key in Key::ALL.iter().copied().filter(|key| key.missing_feature().is_none()) {
            let (a, b) = sample(key);
            let value = |text: &str, source| Some((key.spec().kind.parse(text).unwrap().to_string(), source));
            let all = merged(&[(key, a)], &[(key, b)], &[(key, b)]);
            assert_eq!(all.value_and_source(key), value(a, ConfigSource::Builder), "{key:?}");
            assert_eq!(
                merged(&[], &[(key, a)], &[(key, b)]).value_and_source(key),
                value(a, ConfigSource::Environment),
                "{key:?}"
            );
            assert_eq!(merged(&[], &[], &[(key, a)]).value_and_source(key), value(a, ConfigSource::File), "{key:?}");
            let default = key.default_text().map(|text| (text.to_owned(), ConfigSource::Default));
            assert_eq!(merged(&[], &[], &[]).value_and_source(key), default, "{key:?}");
        }
    }

    #[test]
    fn different_keys_may_come_from_different_sources() {
        let merged = merged(&[(Key::GzipLevel, "9")], &[(Key::WithArgs, "no")], &[(Key::WithTarget, "no")]);
        let set: Vec<_> = merged.iter().map(|(key, value)| format!("{key:?}={value}")).collect();
        assert_eq!(set, ["WithArgs=false", "WithTarget=false", "GzipLevel=9"]);
    }

    #[test]
    #[cfg(feature = "ondemand")]
    fn last_duration_line_wins() {
        let merged_file = merged(&[], &[], &[(Key::DurationMsecs, "20"), (Key::DurationSecs, "3")]);
        assert_eq!(merged_file.value_and_source(Key::DurationSecs), Some(("3".into(), ConfigSource::File)));
        assert_eq!(merged_file.value_and_source(Key::DurationMsecs), None);
        let both = merged(&[], &[(Key::DurationMsecs, "20")], &[(Key::DurationSecs, "3")]);
        assert_eq!(both.value_and_source(Key::DurationMsecs), Some(("20".into(), ConfigSource::Environment)));
        assert_eq!(both.value_and_source(Key::DurationSecs), None);
    }

    #[test]
    fn bad_log_level_only_warns() {
        let (mut settings, mut warnings) = (SourceSettings::default(), Vec::new());
        assert_eq!(settings.set_from_text(Key::LogLevel, "loud", &mut warnings), Ok(()));
        assert!(settings.is_empty());
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("LOG_LEVEL=\"loud\": expected verbose"), "{warnings:?}");
    }

    #[test]
    fn zero_roundup_warns_and_means_unset() {
        let (mut settings, mut warnings) = (SourceSettings::default(), Vec::new());
        assert_eq!(settings.set_from_text(Key::StartRoundup, "0", &mut warnings), Ok(()));
        assert!(settings.get(Key::StartRoundup).is_none());
        assert_eq!(warnings.len(), 1);
    }
}
