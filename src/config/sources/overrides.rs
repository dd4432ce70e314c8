//! Settings from the builder, which override all other sources.

use std::path::PathBuf;

use super::super::keys::Key;
use super::super::sections::dumps::DumpTrigger;
use super::super::sections::output::Output;
#[cfg(test)]
use super::super::sections::split::Split;
use super::super::value::{SettingKind, Value};
use super::settings::{ParsedSettings, SourceSettings, describe_invalid};
use crate::distributed::DistributedInfo;

/// The settings made by the builder's methods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) settings: SourceSettings,
    pub(in crate::config) config_file: Option<PathBuf>,
    pub(crate) distributed: Option<DistributedInfo>,
    /// Whether errors in the environment are returned instead of warned about.
    pub(crate) is_env_strict: bool,
}

impl Overrides {
    /// Returns the settings with a key set.
    #[cfg(test)]
    pub(crate) fn with(mut self, key: Key, value: Value) -> Overrides {
        self.settings.set(key, value);
        self
    }

    /// Sets the configuration file.
    pub(crate) fn set_config_file(&mut self, path: PathBuf) {
        self.settings.set(Key::ConfigFile, Value::of_path(&path));
        self.config_file = Some(path);
    }

    /// Returns whether a key is set to true.
    pub(crate) fn is_on(&self, key: Key) -> bool {
        self.settings.iter().any(|(set, value)| set == key && matches!(value, Value::Bool(true)))
    }

    /// Returns the settings; a value that a file could not contain is an error here, too.
    pub(in crate::config) fn read_settings(&self) -> ParsedSettings {
        let mut reading = ParsedSettings::default();
        for (key, value) in self.settings.iter() {
            match value_error(key, value) {
                Some(fault) => reading.errors.push(fault),
                None => reading.settings.set(key, value.clone()),
            }
        }
        reading
    }
}

fn value_error(key: Key, value: &Value) -> Option<String> {
    let spec = key.spec();
    let fits = match (value, &spec.kind) {
        (Value::Int(value), SettingKind::Int(range)) => range.contains(value),
        (Value::Bytes(bytes), _) => *bytes > 0,
        (Value::Duration(time), _) => key != Key::DumpAge || !time.is_zero(),
        (Value::Modes(modes), _) => modes.are_compatible(),
        (Value::Split(split), _) => split.is_valid(),
        (Value::DumpTriggers(triggers), _) => triggers.iter().all(DumpTrigger::is_valid),
        (Value::Output(Output::Exact(path)), _) => !path.as_os_str().is_empty(),
        _ => return None,
    };
    let expected = match value {
        Value::Bytes(_) => "expected at least 1 byte".to_owned(),
        _ => format!("expected {}", spec.kind),
    };
    let method = spec.builder.split('(').next().unwrap_or(spec.name);
    (!fits).then(|| describe_invalid(&format!("{method}({value})"), &expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builder_values_stay_in_the_ranges_of_keys() {
        let overrides = Overrides::default()
            .with(Key::GzipLevel, Value::Int(10))
            .with(Key::FieldLimit, Value::of_size(0))
            .with(Key::BufferLimit, Value::Bytes(0))
            .with(Key::Split, Value::Split(Split::Steps(0)))
            .with(Key::LogFile, Value::Output(Output::Exact("".into())))
            .with(Key::DumpOn, Value::DumpTriggers(vec![DumpTrigger::SlowStep { times: 1 }]))
            .with(Key::WithArgs, Value::Bool(false));
        let reading = overrides.read_settings();
        assert_eq!(
            reading.errors,
            [
                "`gzip_level(10)`: expected a whole number from 0 to 9",
                "`Fields::limit_bytes(0)`: expected a whole number from 1 to 1073741824",
                "`buffer_limit_bytes(0)`: expected at least 1 byte",
                &format!("`Spill::split(0steps)`: expected {}", Split::EXPECTED),
                "`output()`: expected a path",
                &format!("`Dumps::on(step>1x)`: expected {}", DumpTrigger::EXPECTED),
            ]
        );
        assert!(reading.settings.get(Key::WithArgs).is_some());
    }
}
