//! The configuration file: its location and its contents.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::super::keys::Key;
use super::env::Env;
use super::parse::parse_settings;
use super::settings::SourceSettings;
use crate::error::{Error, ErrorKind};
use crate::os::folder::open_regular;
use crate::os::process;
use crate::text::joined;

/// The default file, as in libkineto.
pub(in crate::config) const DEFAULT: &str =
    if cfg!(target_os = "linux") { "/etc/libkineto.conf" } else { "libkineto.conf" };

/// The largest accepted file.
const LIMIT: u64 = 1 << 20;

/// The path of the configuration file, and its state at the last check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    /// The setting that named it, if any.
    named_by: Option<&'static str>,
    stamp: Option<Stamp>,
}

/// The state of a file; differs after a change or a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl ConfigFile {
    /// Checks the file that the program names, else that of KINETO_CONFIG, else `default`.
    pub(in crate::config) fn find(named: Option<&Path>, env: &Env, default: &Path) -> ConfigFile {
        let variable = env.text(Key::ConfigFile.spec().name).map(PathBuf::from);
        let (path, named_by) = match (named, variable) {
            (Some(path), _) => (path.to_owned(), Some("config_file()")),
            (None, Some(path)) => (path, Some("KINETO_CONFIG")),
            (None, None) => (default.to_owned(), None),
        };
        ConfigFile { path, named_by, stamp: None }.with_current_stamp()
    }

    /// Returns this file with its current stamp; equal if the file has not changed, or is not a regular file, such as a
    /// pipe.
    pub(crate) fn with_current_stamp(&self) -> ConfigFile {
        let metadata = fs::metadata(&self.path).ok().filter(Metadata::is_file);
        let stamp = metadata.map(|metadata| Stamp {
            inode: inode(&metadata),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        });
        ConfigFile { stamp, ..self.clone() }
    }

    /// Returns whether a setting named it.
    pub(in crate::config) fn is_named(&self) -> bool {
        self.named_by.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file.
    ///
    /// Problems with a named file are errors. Problems with the default file, which applies to all programs of the machine,
    /// are warnings, and it may be missing.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::Config`] about a named file.
    pub(in crate::config) fn read_settings(&self, warnings: &mut Vec<String>) -> Result<SourceSettings, Error> {
        let (path, shown) = (&self.path, self.path.display());
        let is_of_untrusted = path.is_relative() && process::has_untrusted_caller();
        let text = match self.named_by {
            // The folder of an untrusted caller holds no file of the machine.
            None if is_of_untrusted => return Ok(SourceSettings::default()),
            Some(_) if is_of_untrusted => {
                Err(io::Error::other("its folder is that of an untrusted caller, so the path must be absolute"))
            }
            _ => read_text(path),
        };
        let text = match (text, self.named_by) {
            (Ok(text), _) => text,
            (Err(source), Some(by)) => {
                let advice = format!("name a file that can be read in {by}, or none");
                return Err(Error::io("read the configuration file", path, source, &advice));
            }
            (Err(source), None) => {
                if source.kind() != io::ErrorKind::NotFound {
                    warnings.push(format!("{shown}: cannot be read: {source}"));
                }
                return Ok(SourceSettings::default());
            }
        };
        let reading = parse_settings(&text);
        for warning in &reading.warnings {
            warnings.push(format!("{shown}: {warning}"));
        }
        if self.is_named() && !reading.errors.is_empty() {
            let errors = joined(&reading.errors, "; ");
            let message = format!("cannot use the configuration file {shown}: {errors}; correct it");
            return Err(Error::new(ErrorKind::Config, message));
        }
        for error in &reading.errors {
            warnings.push(format!("{shown}: {error}; the line is ignored"));
        }
        Ok(reading.settings)
    }
}

/// Returns the inode, which identifies a file under several names.
#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// Returns 0: this system has no inodes.
#[cfg(not(unix))]
fn inode(_metadata: &Metadata) -> u64 {
    0
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // The usual name for no file.
    if path != Path::new("/dev/null") {
        // Fails for text that is not UTF-8, too.
        open_regular(path, LIMIT)?.take(LIMIT).read_to_string(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn read(
        named: Option<&Path>,
        env: &Env,
        default: &Path,
        warnings: &mut Vec<String>,
    ) -> Result<SourceSettings, Error> {
        ConfigFile::find(named, env, default).read_settings(warnings)
    }

    /// Returns a folder with a valid file, an invalid one, and one that causes a warning.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("good"), "GZIP_LEVEL=7\n").unwrap();
        fs::write(folder.path().join("bad"), "GZIP_LEVEL=7\nGZIP_LEVEL=99\nfoo\n").unwrap();
        fs::write(folder.path().join("odd"), "GZIP_LEVEL=7\nFUTURE=1\n").unwrap();
        folder
    }

    fn level(settings: &SourceSettings) -> Option<String> {
        settings.get(Key::GzipLevel).map(ToString::to_string)
    }

    #[test]
    fn builder_path_wins_over_environment_over_default() {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let (good, bad) = (path("good"), path("bad"));
        let env = |path: &Path| Env::from_pairs([("KINETO_CONFIG", path.to_str().unwrap())]);
        for (named, env) in [(Some(good.as_path()), env(&bad)), (None, env(&good))] {
            let settings = read(named, &env, &bad, &mut Vec::new()).unwrap();
            assert_eq!(level(&settings).as_deref(), Some("7"));
        }
        let settings = read(None, &Env::default(), &good, &mut Vec::new()).unwrap();
        assert_eq!(level(&settings).as_deref(), Some("7"));
    }

    #[test]
    fn named_file_fails_with_all_its_errors() {
        let folder = folder();
        let bad = folder.path().join("bad");
        fs::write(&bad, "FUTURE=1\nGZIP_LEVEL=99\nfoo\n").unwrap();
        let mut warnings = Vec::new();
        let error = read(Some(&bad), &Env::default(), Path::new(""), &mut warnings).unwrap_err();
        assert!(warnings.len() == 1 && warnings[0].ends_with("bad: line 1: unknown key FUTURE"), "{warnings:?}");
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains("bad: line 2: `GZIP_LEVEL=99`: expected"), "{text}");
        assert!(text.contains("line 3: expected KEY=value; correct it"), "{text}");
    }

    #[test]
    fn errors_of_the_default_file_are_warnings() {
        let folder = folder();
        let read_default = |path: &Path| {
            let mut warnings = Vec::new();
            (read(None, &Env::default(), path, &mut warnings).unwrap(), warnings)
        };
        let (settings, warnings) = read_default(&folder.path().join("bad"));
        assert_eq!(level(&settings).as_deref(), Some("7"));
        assert_eq!(warnings.len(), 2);
        assert!(warnings.iter().all(|warning| warning.contains("bad: line ")), "{warnings:?}");
        let (_, warnings) = read_default(folder.path());
        assert!(warnings[0].contains("cannot be read"), "{warnings:?}");
        let (_, warnings) = read_default(&folder.path().join("odd"));
        assert!(warnings[0].ends_with("odd: line 2: unknown key FUTURE"), "{warnings:?}");
    }

    #[test]
    fn missing_file_is_an_error_only_if_named() {
        let folder = folder();
        let none = folder.path().join("none");
        let env = Env::from_pairs([("KINETO_CONFIG", none.to_str().unwrap())]);
        let mut warnings = Vec::new();
        let error = read(None, &env, Path::new(""), &mut warnings).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(none.as_path())));
        assert!(error.to_string().ends_with("name a file that can be read in KINETO_CONFIG, or none"), "{error}");
        let settings = read(None, &Env::default(), &none, &mut warnings).unwrap();
        assert!(settings.is_empty() && warnings.is_empty());
    }

    #[test]
    fn too_large_or_binary_file_is_an_error() {
        let folder = folder();
        let path = folder.path().join("large");
        for bytes in [vec![b'\n'; 1 << 20 | 1], vec![b'A', b'=', 0xff]] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(
                read(Some(&path), &Env::default(), Path::new(""), &mut Vec::new()).unwrap_err().kind(),
                ErrorKind::Io
            );
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_regular_files_are_read() {
        let folder = folder();
        let read = |path: &Path| read(Some(path), &Env::default(), Path::new(""), &mut Vec::new());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("good", &link).unwrap();
        assert_eq!(level(&read(&link).unwrap()).as_deref(), Some("7"));
        assert!(read(Path::new("/dev/null")).unwrap().is_empty());
        for other in [Path::new("/dev/zero"), folder.path()] {
            assert!(read(other).unwrap_err().to_string().contains("it is not a regular file"), "{}", other.display());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "sets the time of a file")]
    fn file_state_differs_after_any_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf");
        let absent = ConfigFile::find(None, &Env::default(), &path);
        assert_eq!(absent, absent.with_current_stamp());
        fs::write(&path, "GZIP_LEVEL=1").unwrap();
        let first = absent.with_current_stamp();
        assert!(first != absent && first == first.with_current_stamp());
        let now = first.stamp.as_ref().unwrap().modified.unwrap();
        let touch = |path: &Path, time| File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        // The files have the same length, and one pair the same time: their inodes differ.
        let other = folder.path().join("other");
        fs::write(&other, "GZIP_LEVEL=2").unwrap();
        touch(&other, now);
        fs::rename(&other, &path).unwrap();
        let replaced = first.with_current_stamp();
        assert_eq!(replaced == first, cfg!(not(unix)));
        touch(&path, now + std::time::Duration::from_secs(1));
        let touched = replaced.with_current_stamp();
        assert_ne!(touched, replaced);
        fs::remove_file(&path).unwrap();
        assert_eq!(touched.with_current_stamp(), absent);
        fs::create_dir(&path).unwrap();
        assert_eq!(touched.with_current_stamp(), absent, "no file");
    }
}
