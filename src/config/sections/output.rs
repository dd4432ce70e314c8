//! The output: where a recording's trace goes by default.

use super::super::Config;
use super::super::keys::Key;
use super::super::placeholders::{self, PlaceholderValues, has_placeholder};
use super::super::sources::settings::{ConfigSource, SourceSettings};
use super::super::value::Value;
use crate::error::{Error, ErrorKind};
use kineto_base::text::escaped_path;
use kineto_model::write::file::{FileFormat, is_stream};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The destination of a recording's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Output {
    /// None: the program saves it.
    Nowhere,
    /// libkineto's default, `/tmp/libkineto_activities_<pid>.json`; except on Linux, in the current folder.
    #[default]
    Default,
    /// This file with `_<pid>` inserted, as libkineto does with ACTIVITIES_LOG_FILE, so that processes do not share a file.
    PerProcess(PathBuf),
    /// Exactly this file, or this URL of a registered sink.
    Exact(PathBuf),
}

impl Output {
    /// Returns the path with placeholders expanded, if there is one.
    pub(crate) fn expanded_path(&self, parts: &PlaceholderValues) -> Option<PathBuf> {
        let pid = parts.pid;
        match self {
            Output::Nowhere => None,
            Output::Default => Some(default_folder().join(format!("{DEFAULT}_{pid}.json"))),
            Output::PerProcess(path) if !has_placeholder(path, "{pid}") => Some(parts.expand(&with_pid(path, pid))),
            Output::PerProcess(path) | Output::Exact(path) => Some(parts.expand(path)),
        }
    }

    /// Checks that the extension of a file determines its format; otherwise that is JSON. Names of the environment and of the
    /// configuration file may have any extension, as in libkineto and dynolog: that is a warning.
    ///
    /// # Errors
    /// If the program names a file with an unknown extension.
    pub(crate) fn check_extension(&self, warnings: &mut Vec<String>) -> Result<(), Error> {
        let (Output::PerProcess(path) | Output::Exact(path)) = self else { return Ok(()) };
        let Some(file) = without_url(path) else { return Ok(()) };
        match (FileFormat::check_extension(file), self) {
            (Err(_), Output::PerProcess(_)) => {
                warnings.push(extension_warning(file));
                Ok(())
            }
            (checked, _) => Ok(checked?),
        }
    }

    /// Returns the output with a number in the file's name.
    fn with_file_number(&self, number: u64, numbered: fn(&Path, u64) -> PathBuf) -> Output {
        match self {
            Output::Default => Output::PerProcess(numbered(&default_folder().join(format!("{DEFAULT}.json")), number)),
            Output::PerProcess(path) => Output::PerProcess(numbered(path, number)),
            Output::Nowhere | Output::Exact(_) => self.clone(),
        }
    }
}

/// The start of the default file's name.
const DEFAULT: &str = "libkineto_activities";

fn default_folder() -> &'static Path {
    Path::new(if cfg!(target_os = "linux") { "/tmp" } else { "" })
}

impl Config {
    /// Claims the output file, if there is one.
    ///
    /// `claim` returns `None` if another layer of the process has the file. Then a path from the environment, the
    /// configuration file or the default is `numbered`, from 2 on, and `warnings` gets a line about it.
    ///
    /// # Errors
    /// If the builder's path belongs to another layer.
    pub(crate) fn claim_output<T>(
        &mut self,
        claim: impl Fn(&Path) -> Option<T>,
        numbered: fn(&Path, u64) -> PathBuf,
        warnings: &mut Vec<String>,
    ) -> Result<Option<T>, Error> {
        let parts = self.placeholder_values();
        let Some(wanted) = self.output.expanded_path(&parts) else { return Ok(None) };
        if let Some(claimed) = claim(&wanted) {
            return Ok(Some(claimed));
        }
        let why = format!("the output {} belongs to another layer of this process", wanted.display());
        if matches!(self.output, Output::Exact(_)) {
            let advice = "give each layer an output of its own, or drop the other's guard first";
            return Err(Error::new(ErrorKind::Config, format!("{why}; {advice}")));
        }
        let free = (2..=u64::MAX).find_map(|number| {
            let output = self.output.with_file_number(number, numbered);
            let path = output.expanded_path(&parts)?;
            Some((claim(&path)?, output, path))
        });
        Ok(free.map(|(claimed, output, path)| {
            warnings.push(format!("{why}; this one's traces go to {}", path.display()));
            self.merged.replace(Key::LogFile, Value::Output(output.clone()));
            self.output = output;
            claimed
        }))
    }

    /// Sets the output, because the program names another while it runs. A reload of the file keeps it.
    pub(crate) fn set_output(&mut self, output: Output) {
        let set = SourceSettings::default().with(Key::LogFile, Value::Output(output.clone()));
        self.merged = self.merged.overridden_by(ConfigSource::Builder, &set);
        self.output = output;
    }

    /// Makes the folders of segments and of live files absolute: the program may change its working directory.
    pub(crate) fn settle_folders(&mut self) {
        for folder in [&mut self.spill_folder, &mut self.shm_folder].into_iter().flatten() {
            *folder = absolute_of(folder);
        }
    }

    /// Checks the output, and makes a relative path absolute: `check` gets the path with placeholders expanded, and returns
    /// the absolute path.
    ///
    /// An unusable path from the environment or the machine's own configuration file is reported in `warnings` and replaced
    /// by the default folder.
    ///
    /// # Errors
    /// Those of `check`, about a path from the builder, a named file, or a strict environment.
    pub(crate) fn settle_output(
        &mut self,
        check: impl Fn(&Path) -> Result<PathBuf, Error>,
        is_strict: bool,
        warnings: &mut Vec<String>,
    ) -> Result<(), Error> {
        let (given, absolute): (&Path, fn(PathBuf) -> Output) = match &self.output {
            Output::Nowhere | Output::Default => return Ok(()),
            Output::PerProcess(path) => (path, Output::PerProcess),
            Output::Exact(path) => (path, Output::Exact),
        };
        let may_fall_back = match self.value_source(Key::LogFile) {
            ConfigSource::Environment => !is_strict,
            ConfigSource::File => !self.file.is_named(),
            _ => false,
        };
        let parts = self.placeholder_values();
        let wrong = |why| Error::new(ErrorKind::Config, format!("cannot write to {}: {why}", given.display()));
        match placeholders::check_placeholders(given).map_err(wrong).and_then(|()| check(&parts.expand(given))) {
            Ok(path) => {
                self.output = absolute(if parts.expand(given) == given { path } else { absolute_of(given) });
                self.merged.replace(Key::LogFile, Value::Output(self.output.clone()));
            }
            Err(why) if may_fall_back => {
                let default = Output::Default.expanded_path(&parts).unwrap_or_default();
                warnings.push(format!("{why}; traces go to {}", default.display()));
                self.output = Output::Default;
                self.merged.remove(Key::LogFile);
                // A file is wanted, although it cannot be the named one.
                self.dumps.write_at_end.get_or_insert(true);
            }
            Err(why) => return Err(why),
        }
        Ok(())
    }
}

/// Makes a path with placeholders absolute; returns a URL unchanged.
fn absolute_of(path: &Path) -> PathBuf {
    let is_url = path.to_str().is_some_and(|text| text.contains("://"));
    std::path::absolute(path).ok().filter(|_| !is_url).unwrap_or_else(|| path.to_owned())
}

/// Returns the warning for a file of that name, which environment, configuration file and requests may name.
pub(crate) fn extension_warning(file: &Path) -> String {
    let file = escaped_path(file);
    format!("{file} has an unknown extension: Kineto's JSON is written; use .json or .pftrace, each also with .gz")
}

/// Returns the path of a file, without `file://`; `None` for another URL.
fn without_url(path: &Path) -> Option<&Path> {
    match path.to_str().and_then(|text| text.split_once("://")) {
        Some((scheme, rest)) => scheme.eq_ignore_ascii_case("file").then_some(Path::new(rest)),
        None => Some(path),
    }
}

/// Inserts `_<pid>` before the last `.pt.trace.json`, `.json` or `.pftrace` of the file name, else before the extension. URLs without
/// these and devices stay the same.
///
/// libkineto takes the first one of the whole path, and so renames a folder called `x.json`; it does not change other names, so that
/// processes replace each other's files.
fn with_pid(path: &Path, pid: u32) -> PathBuf {
    const LONG: &str = ".pt.trace.json";
    const SHORT: [&str; 2] = [".json", ".pftrace"];
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return path.to_owned() };
    let ends = SHORT.iter().filter_map(|end| Some((name.rfind(end)?, end.len())));
    let Some((stem, length)) = ends.max() else {
        let file = without_url(path).filter(|file| !is_stream(file)).map(|_| Path::new(name));
        let Some((file, stem)) = file.and_then(|file| Some((file, file.file_stem()?.to_str()?))) else {
            return path.to_owned();
        };
        let end = file.extension().and_then(OsStr::to_str).map(|end| format!(".{end}")).unwrap_or_default();
        return path.with_file_name(format!("{stem}_{pid}{end}"));
    };
    let through = name.get(..stem + length).unwrap_or(name);
    let stem = through.strip_suffix(LONG).or_else(|| name.get(..stem)).unwrap_or(through);
    let rest = name.get(stem.len()..).unwrap_or_default();
    path.with_file_name(format!("{stem}_{pid}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pid: u32) -> PlaceholderValues {
        PlaceholderValues { pid, host: "h".to_owned(), rank: 5, time: None }
    }

    #[test]
    fn pid_precedes_the_last_extension() {
        for (given, expected) in [
            ("/tmp/x.json", "/tmp/x_42.json"),
            ("/tmp/x.pt.trace.json", "/tmp/x_42.pt.trace.json"),
            ("/tmp/x.json.gz", "/tmp/x_42.json.gz"),
            ("/tmp/x.pt.trace.json.gz", "/tmp/x_42.pt.trace.json.gz"),
            ("x.json", "x_42.json"),
            ("./x.json", "./x_42.json"),
            // libkineto would rename these folders.
            ("/tmp/a.json/x.json", "/tmp/a.json/x_42.json"),
            ("/tmp/a.pt.trace.json/x.json", "/tmp/a.pt.trace.json/x_42.json"),
            ("/tmp/a.json/x", "/tmp/a.json/x_42"),
            // libkineto would insert it at the first of these.
            ("/tmp/x.json.json", "/tmp/x.json_42.json"),
            ("/tmp/x.json.pt.trace.json", "/tmp/x.json_42.pt.trace.json"),
            ("/tmp/x.pt.trace.json.old.json", "/tmp/x.pt.trace.json.old_42.json"),
            ("/tmp/x.pftrace", "/tmp/x_42.pftrace"),
            ("/tmp/x.json.pftrace.gz", "/tmp/x.json_42.pftrace.gz"),
            // libkineto would not change these.
            ("/tmp/x", "/tmp/x_42"),
            ("/tmp/x.txt", "/tmp/x_42.txt"),
            ("/tmp/x.tar.gz", "/tmp/x.tar_42.gz"),
            ("/tmp/.x", "/tmp/.x_42"),
            ("sink://there", "sink://there"),
            ("/tmp/.json", "/tmp/_42.json"),
            ("/tmp/é.json", "/tmp/é_42.json"),
            ("sink://host/x.json", "sink://host/x_42.json"),
            ("/tmp/..", "/tmp/.."),
            ("/{host}/x_{pid}.{rank}.json", "/h/x_42.5.json"),
            ("/{host}/x.{rank}.json", "/h/x.5_42.json"),
            ("", ""),
        ] {
            let path = Output::PerProcess(given.into()).expanded_path(&parts(42)).unwrap();
            assert_eq!(path, Path::new(expected), "{given}");
        }
    }

    #[test]
    fn unknown_extension_is_an_error_of_the_builder_alone() {
        let mut warnings = Vec::new();
        for known in ["a.json", "{pid}.pftrace.gz", "sink://x", "file:///x.json"] {
            Output::Exact(known.into()).check_extension(&mut warnings).unwrap();
            Output::PerProcess(known.into()).check_extension(&mut warnings).unwrap();
        }
        assert_eq!(warnings, [""; 0]);
        for unknown in ["a.txt", "a", "file:///x.log"] {
            let error = Output::Exact(unknown.into()).check_extension(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{unknown}");
            warnings.clear();
            Output::PerProcess(unknown.into()).check_extension(&mut warnings).unwrap();
            assert!(warnings.len() == 1 && warnings[0].contains("Kineto's JSON is written"), "{warnings:?}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn devices_get_no_pid() {
        for device in ["/dev/stdout", "/dev/null", "/dev/fd/7"] {
            assert_eq!(Output::PerProcess(device.into()).expanded_path(&parts(42)), Some(device.into()));
        }
    }

    #[test]
    fn builder_path_is_unchanged() {
        for path in ["/tmp/x.json", "x.pt.trace.json", "/tmp/a.json/b"] {
            assert_eq!(Output::Exact(path.into()).expanded_path(&parts(42)), Some(path.into()));
        }
        assert_eq!(Output::Nowhere.expanded_path(&parts(42)), None);
    }

    #[test]
    fn default_output_is_libkinetos() {
        let path = Output::Default.expanded_path(&parts(7)).unwrap();
        assert_eq!(path.file_name().unwrap(), "libkineto_activities_7.json");
        assert_eq!(path.starts_with("/tmp"), cfg!(target_os = "linux"));
    }
}
