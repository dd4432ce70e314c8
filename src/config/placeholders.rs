//! The placeholders in the path of an output: `{host}`, `{pid}`, `{rank}`, `{time}`.

use super::Config;
use crate::os::process;
use crate::time::UtcTime;
use crate::wait::wall;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The values of the placeholders.
#[derive(Clone, Debug)]
pub(crate) struct PlaceholderValues {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) rank: u32,
    /// `None` for a name that stays the same: the placeholder and the separators before it are left out.
    pub(crate) time: Option<SystemTime>,
}

const KNOWN: [&str; 4] = ["host", "pid", "rank", "time"];

impl PlaceholderValues {
    /// Returns the path with all known placeholders replaced; the time is in UTC, to the second: `20261123T143000Z`.
    ///
    /// A path that is not UTF-8 is returned as it is.
    pub(crate) fn expand(&self, path: &Path) -> PathBuf {
        let Some(text) = path.to_str().filter(|text| text.contains('{')) else { return path.to_owned() };
        let value = |name| match name {
            "host" => self.host.replace(['/', '\0'], "_"),
            "pid" => self.pid.to_string(),
            "rank" => self.rank.to_string(),
            "time" => {
                let since_epoch = self.time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
                format!("{:#}", UtcTime(since_epoch.as_secs())).replace(['-', ':'], "")
            }
            unknown => format!("{{{unknown}}}"),
        };
        let mut expanded = String::new();
        for (before, name) in split_placeholders(text) {
            expanded.push_str(before);
            match name {
                Some("time") if self.time.is_none() => {
                    expanded.truncate(expanded.trim_end_matches(['_', '-', '.']).len());
                }
                Some(name) => expanded.push_str(&value(name)),
                None => {}
            }
        }
        expanded.into()
    }
}

impl Config {
    /// Returns the values of the placeholders; the time is that of the call.
    pub(crate) fn placeholder_values(&self) -> PlaceholderValues {
        PlaceholderValues {
            host: self.host_name.clone().unwrap_or_else(process::host_name),
            pid: std::process::id(),
            rank: self.distributed.as_ref().map_or(0, |info| info.rank),
            time: Some(wall()),
        }
    }
}

/// Returns whether a path contains a placeholder, such as `{pid}`.
pub(crate) fn has_placeholder(path: &Path, placeholder: &str) -> bool {
    path.to_str().is_some_and(|text| text.contains(placeholder))
}

/// Checks that a path contains only known placeholders.
///
/// # Errors
/// If one is unknown; the text names it and is part of a message.
pub(super) fn check_placeholders(path: &Path) -> Result<(), String> {
    for (_, name) in split_placeholders(path.to_str().unwrap_or_default()) {
        if let Some(name) = name.filter(|name| !KNOWN.contains(name)) {
            return Err(format!("unknown placeholder {{{name}}}; use {{host}}, {{pid}}, {{rank}} or {{time}}"));
        }
    }
    Ok(())
}

/// Returns each literal text with the name of the placeholder behind it, if there is one.
fn split_placeholders(text: &str) -> Vec<(&str, Option<&str>)> {
    let (mut segments, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once('{')
        && let Some((name, after)) = behind.split_once('}')
    {
        segments.push((before, Some(name)));
        rest = after;
    }
    segments.push((rest, None));
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn placeholders_are_expanded_or_refused() {
        let time = UNIX_EPOCH + Duration::from_secs(1_795_401_955);
        let values = PlaceholderValues { host: "node/1".into(), pid: 7, rank: 3, time: Some(time) };
        for (path, expected) in [
            ("/x/{host}/{rank}.{pid}.json", "/x/node_1/3.7.json"),
            ("a_{time}.json", "a_20261123T024555Z.json"),
            ("{pid}{pid}", "77"),
            ("a{b", "a{b"),
            ("a}b", "a}b"),
            ("a", "a"),
        ] {
            assert_eq!(values.expand(Path::new(path)), Path::new(expected));
            assert_eq!(check_placeholders(Path::new(path)), Ok(()));
        }
        let timeless = PlaceholderValues { time: None, ..values };
        for (path, expected) in
            [("/x/a_{time}.json", "/x/a.json"), ("{time}_{pid}.json", "_7.json"), ("a-{time}-b", "a-b")]
        {
            assert_eq!(timeless.expand(Path::new(path)), Path::new(expected));
        }
        for path in ["{x}", "a{}b", "{pid}{PID}", "{pid }"] {
            assert!(check_placeholders(Path::new(path)).unwrap_err().starts_with("unknown placeholder"), "{path}");
        }
    }
}
