//! Trace files, written atomically.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind as Io, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind};
use kineto_base::os::descriptor::CheckedDescriptor;

/// Hooks for a program that must not be traced while it writes files; this crate cannot provide them itself.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// Called on each thread that formats, compresses or writes, before its first byte; the value is dropped there after the last.
    pub begin: fn() -> Box<dyn Any>,
    /// Called with each temporary file right after its creation, before it gets the name of an
    /// [unfinished trace](is_unfinished_name).
    pub created: fn(&File),
}

static PROTECTION: OnceLock<Protection> = OnceLock::new();

/// Installs hooks for all files written from now on; only the first call has an effect.
pub fn install_protection(protection: Protection) {
    let _ = PROTECTION.set(protection);
}

/// Protects the program from the calling thread, which helps to write a file, until the value is dropped there.
pub(super) fn begin_protection() -> Option<Box<dyn Any>> {
    PROTECTION.get().map(|protection| (protection.begin)())
}

/// Writes a file that appears at `path` only when it is complete.
///
/// `write` fills a temporary file in the same folder, named `<name>.<pid>-<number>-<random>.part`; with a [`Protection`],
/// `.tmp`. It is created exclusively, with default permissions, and then renamed. An existing file is replaced atomically. A
/// symbolic link is itself replaced and never followed, so other users of a shared folder cannot redirect the write.
///
/// Character devices and `/dev/stdout`, `/dev/stderr`, `/dev/fd/N` are written to directly. The file extension
/// determines the [format](FileFormat); `gzip_level` is 0 to 9. Data is not synced to the disk: after a power failure the
/// file may be empty, after a crash of the program it is complete.
///
/// # Errors
///
/// [`ErrorKind::Io`] with the path and advice; the temporary file has been removed. [`ErrorKind::Unsupported`] for a
/// format that this build cannot write.
pub fn save(
    path: &Path,
    gzip_level: u32,
    write: &mut dyn FnMut(&mut dyn FileContent) -> io::Result<()>,
) -> Result<(), Error> {
    let format = FileFormat::from_path(path)?;
    if is_stream(path) {
        let mut file = OpenOptions::new().write(true).open(path).map_err(|error| file_error("open", path, error))?;
        return format.encode(&mut file, gzip_level, write).map_err(|error| file_error("write", path, error));
    }
    check_replaceable(path)?;
    let (temporary, file) = TemporaryFile::create(path).map_err(|error| file_error("create", path, error))?;
    let file = CheckedDescriptor::new(file);
    format.encode(&mut &file, gzip_level, write).map_err(|error| file_error("write", path, error))?;
    temporary.rename(path).map_err(|error| file_error("replace", path, error))
}

/// Checks that [`save`] can currently write to `path`.
///
/// # Errors
///
/// The same as those of [`save`].
pub fn check_writable(path: &Path) -> Result<(), Error> {
    FileFormat::from_path(path)?;
    if is_stream(path) {
        return Ok(());
    }
    check_replaceable(path)?;
    TemporaryFile::create(path).map(drop).map_err(|error| file_error("create", path, error))
}

/// Receives the content of a file before it is compressed.
pub trait FileContent: Write {
    /// Returns how many bytes of the file were written. Content that is not compressed yet does not count.
    fn file_bytes(&self) -> u64;
}

/// Counts the bytes that it forwards.
pub(super) struct CountedFile<'w> {
    out: &'w mut dyn Write,
    bytes: u64,
}

impl<'w> CountedFile<'w> {
    pub(super) fn new(out: &'w mut dyn Write) -> CountedFile<'w> {
        CountedFile { out, bytes: 0 }
    }
}

impl Write for CountedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl FileContent for CountedFile<'_> {
    fn file_bytes(&self) -> u64 {
        self.bytes
    }
}

/// A file format, determined by the file extension, ignoring case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFormat {
    /// The encoding of the trace.
    pub kind: Format,
    /// Whether the file is compressed: the extension ends in `.gz`.
    pub is_gzip: bool,
}

/// The encoding of a trace.
///
/// ```
/// use kineto_trace::Format;
/// use kineto_trace::analysis::Events;
///
/// let events = Events::from_reader(br#"{"traceEvents": []}"#.as_slice())?;
/// let mut json = Vec::new();
/// events.write(&mut json, Format::Json).expect("writing to a Vec does not fail");
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Kineto's JSON, for all other extensions.
    Json,
    /// Perfetto's protobuf format: `.pftrace`, or `.perfetto-trace` as in Perfetto's own tools. In `tracing-kineto` it needs
    /// the feature `perfetto`.
    ///
    /// Times are exact nanoseconds, and overlapping slices are whole.
    Perfetto,
}

impl Format {
    /// Returns the error of a build without the format's feature.
    #[doc(hidden)]
    pub fn missing_feature(self) -> io::Error {
        let remedy = "switch it on in Cargo.toml, or write JSON";
        let why = format!("cannot write the format {self:?}: the feature \"perfetto\" is off; {remedy}");
        io::Error::new(io::ErrorKind::Unsupported, why)
    }
}

impl FileFormat {
    /// Returns the format for `path`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for `.zst` and `.zip`, for `.gz` if the feature `gzip` is off, and for `.pftrace` if the
    /// feature `perfetto` is off.
    pub fn from_path(path: &Path) -> Result<Self, Error> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        if let Some(end) = [".zst", ".zip"].into_iter().find(|end| name.ends_with(end)) {
            let message = format!("cannot write {}: {end} is not supported; use .json.gz", path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let needs_feature = |feature, advice| {
            let why = format!("the feature \"{feature}\" is off; switch it on in Cargo.toml, or {advice}");
            Err(Error::new(ErrorKind::Unsupported, format!("cannot write {}: {why}", path.display())))
        };
        let plain = name.strip_suffix(".gz");
        if plain.is_some() && !cfg!(feature = "gzip") {
            return needs_feature("gzip", "save without .gz");
        }
        let is_perfetto = PERFETTO.iter().any(|end| plain.unwrap_or(&name).ends_with(end));
        if is_perfetto && !cfg!(feature = "perfetto") {
            return needs_feature("perfetto", "save as .json, which `kineto convert` converts");
        }
        let kind = if is_perfetto { Format::Perfetto } else { Format::Json };
        Ok(FileFormat { kind, is_gzip: plain.is_some() })
    }

    /// Checks that the extension of `path` determines its format, or that it is a device such as `/dev/stdout`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if [`from_path`](FileFormat::from_path) chooses JSON because it does not know the extension.
    pub fn check_extension(path: &Path) -> Result<(), Error> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        if is_stream(path) || name.ends_with(".json") || PERFETTO.iter().any(|end| name.ends_with(end)) {
            return Ok(());
        }
        let why = "unknown file extension; use .json or .pftrace, each also with .gz";
        Err(Error::new(ErrorKind::Unsupported, format!("cannot write {}: {why}", path.display())))
    }

    /// Calls `write` with the format's encoder in front of `out`.
    ///
    /// `out` is flushed after the last byte if no write failed.
    ///
    /// # Errors
    /// Those of `out` and of `write`.
    pub fn encode(
        self,
        out: &mut dyn Write,
        gzip_level: u32,
        write: &mut dyn FnMut(&mut dyn FileContent) -> io::Result<()>,
    ) -> io::Result<()> {
        let _protected = begin_protection();
        let mut out = CountedFile::new(out);
        match self.is_gzip {
            #[cfg(feature = "gzip")]
            true => std::thread::scope(|scope| {
                let mut gzip = super::gzip::Gzip::new(&mut out, gzip_level, scope)?;
                write(&mut gzip)?;
                gzip.finish()
            }),
            _ => {
                let _ = gzip_level;
                write(&mut out)?;
                out.flush()
            }
        }
    }
}

/// File extensions of Perfetto's format.
const PERFETTO: [&str; 2] = [".pftrace", ".perfetto-trace"];

/// Splits a file name into its stem and its trace extensions, such as `app` and `.pt.trace.json.gz`, in any case.
///
/// The stem is not empty, and keeps bytes that are not UTF-8.
pub fn stem_and_end(name: &OsStr) -> (&OsStr, String) {
    const ENDS: [&str; 9] = [
        ".pt.trace.json.gz",
        ".pt.trace.json",
        ".json.gz",
        ".json",
        ".pftrace.gz",
        ".pftrace",
        ".perfetto-trace.gz",
        ".perfetto-trace",
        ".gz",
    ];
    let text = name.to_string_lossy();
    let lower = text.to_ascii_lowercase();
    let length = ENDS.iter().find_map(|end| lower.strip_suffix(end).filter(|stem| !stem.is_empty())).map(str::len);
    let end = text.get(length.unwrap_or(text.len())..).unwrap_or_default();
    // A name that is not UTF-8 can only be split at its dots.
    let stem = end.matches('.').fold(name, |stem, _| Path::new(stem).file_stem().unwrap_or(stem));
    (stem, end.to_owned())
}

/// Returns a path in the folder of `target` that no other process uses or can predict.
///
/// Its randomness comes from the standard library.
///
/// # Errors
/// If `target` has no file name.
pub fn temporary_name(target: &Path) -> io::Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    /// Systems limit a file name to 255 bytes.
    const LONGEST: usize = 180;

    let name = target.file_name().ok_or_else(|| io::Error::new(Io::InvalidInput, "the path has no file name"))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one(number);
    let mut temporary = if name.len() <= LONGEST { name.to_owned() } else { OsString::from("trace") };
    // WebAssembly has no processes.
    let process = if cfg!(target_family = "wasm") { 0 } else { std::process::id() };
    temporary.push(format!(".{process}-{number}-{random:016x}.part"));
    Ok(target.with_file_name(temporary))
}

/// Returns the name of an unfinished trace for a [`temporary_name`]. A file has it only while its writer holds the file's lock, or
/// after the writer was killed.
pub fn unfinished_name(temporary: &Path) -> PathBuf {
    temporary.with_extension("tmp")
}

/// Returns whether a name is one that [`unfinished_name`] could return.
pub fn is_unfinished_name(name: &str) -> bool {
    let Some((_, end)) = name.strip_suffix(".tmp").and_then(|name| name.rsplit_once('.')) else { return false };
    let parts: Vec<_> = end.split('-').collect();
    matches!(parts[..], [process, number, random]
        if [process, number].iter().all(|part| part.parse::<u64>().is_ok())
            && random.len() == 16 && u64::from_str_radix(random, 16).is_ok())
}

/// A temporary file, removed when dropped unless it was renamed.
struct TemporaryFile {
    path: PathBuf,
    renamed: bool,
}

impl TemporaryFile {
    /// Creates a temporary file in the folder of `target`.
    fn create(target: &Path) -> io::Result<(Self, File)> {
        loop {
            let path = temporary_name(target)?;
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == Io::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let mut temporary = TemporaryFile { path, renamed: false };
                    if let Some(protection) = PROTECTION.get() {
                        (protection.created)(&file);
                        let unfinished = unfinished_name(&temporary.path);
                        fs::rename(&temporary.path, &unfinished)?;
                        temporary.path = unfinished;
                    }
                    return Ok((temporary, file));
                }
            }
        }
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.renamed {
            // A more important error is already being reported.
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

/// Returns whether to write directly to `path`: it is not in a folder where a temporary file could be created.
#[cfg(unix)]
pub fn is_stream(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;

    let standard = path == Path::new("/dev/stdout") || path == Path::new("/dev/stderr");
    standard
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
        || fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_char_device())
}

/// Returns `false`: this platform has no such devices.
#[cfg(not(unix))]
pub fn is_stream(_path: &Path) -> bool {
    false
}

/// Returns an error for a folder, pipe, socket or block device.
fn check_replaceable(path: &Path) -> Result<(), Error> {
    let names_folder = path.to_string_lossy().ends_with(std::path::is_separator);
    if names_folder || fs::metadata(path).is_ok_and(|found| found.is_dir()) {
        return Err(file_error("write", path, Io::IsADirectory.into()));
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() && !found.is_symlink() => {
            let source = io::Error::new(Io::InvalidInput, "not a regular file or character device");
            Err(Error::from_io("replace", path, source, "save to a file"))
        }
        _ => Ok(()),
    }
}

/// Returns the error for `path` with advice.
pub fn file_error(what: &str, path: &Path, source: io::Error) -> Error {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.display().to_string(),
        _ => ".".to_owned(),
    };
    let advice = match source.kind() {
        // Folders such as /proc do not accept new files.
        Io::NotFound if Path::new(&folder).is_dir() => format!("no file can be created in {folder}; save elsewhere"),
        Io::NotFound => format!("create the folder {folder} first"),
        Io::PermissionDenied => format!("allow this user to write to {folder}, or save elsewhere"),
        Io::ReadOnlyFilesystem => "save elsewhere".to_owned(),
        Io::StorageFull | Io::QuotaExceeded => "free space or save elsewhere".to_owned(),
        Io::FileTooLarge => "raise the limit on file sizes (ulimit -f) or save elsewhere".to_owned(),
        Io::IsADirectory => "name a file in that folder".to_owned(),
        Io::NotADirectory => format!("{folder} is not a folder; save elsewhere"),
        _ if has_no_descriptor(&source) => "close files or raise the limit (ulimit -n)".to_owned(),
        _ => "save under another name or elsewhere".to_owned(),
    };
    Error::from_io(what, path, source, &advice)
}

/// Returns whether the process or system limit of open files is reached. ENFILE and EMFILE have the same numbers on all
/// Unix systems.
fn has_no_descriptor(why: &io::Error) -> bool {
    cfg!(unix) && matches!(why.raw_os_error(), Some(23 | 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn full() -> io::Error {
        Io::StorageFull.into()
    }

    #[test]
    fn file_appears_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pt.trace.json");
        fs::write(&path, "old").unwrap();
        save(&path, 1, &mut |out| {
            out.write_all(b"new")?;
            assert_eq!(fs::read(&path).unwrap(), b"old");
            let names = names(folder.path());
            assert_eq!(names.len(), 2);
            assert!(names[1].starts_with("a.pt.trace.json.") && names[1].ends_with(".part"), "{names:?}");
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a.pt.trace.json"]);
    }

    #[test]
    fn failed_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let error = save(&path, 1, &mut |out| out.write_all(b"new").and(Err(full()))).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(path.as_path())));
        let text = error.to_string();
        assert!(text.contains("a.json") && text.contains("free space or save elsewhere"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn panic_removes_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let panicked = std::panic::catch_unwind(|| save(&path, 1, &mut |_| panic!("in the walk")));
        assert!(panicked.is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn errors_contain_advice() {
        let folder = tempfile::tempdir().unwrap();
        let not_called = |_: &mut dyn FileContent| -> io::Result<()> { panic!("there is nothing to write to") };
        let missing = save(&folder.path().join("no/such/a.json"), 1, &mut { not_called }).unwrap_err().to_string();
        assert!(missing.contains("create the folder") && missing.contains("no/such first"), "{missing}");
        let directory = save(folder.path(), 1, &mut { not_called }).unwrap_err().to_string();
        assert!(directory.contains("name a file in that folder"), "{directory}");
        fs::write(folder.path().join("file"), "").unwrap();
        let below = save(&folder.path().join("file/a.json"), 1, &mut { not_called }).unwrap_err().to_string();
        assert!(below.contains("is not a folder"), "{below}");
        for nameless in ["", "/", ".."] {
            let error = save(Path::new(nameless), 1, &mut { not_called }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{nameless}");
        }
    }

    #[test]
    fn full_device_is_reported() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let error = save(full, 1, &mut |out| out.write_all(b"x")).unwrap_err();
        assert!(error.to_string().contains("free space"), "{error}");
        assert!(full.exists());
    }

    #[test]
    #[cfg(unix)]
    fn devices_are_written_to_and_links_replaced() {
        let folder = tempfile::tempdir().unwrap();
        save(Path::new("/dev/null"), 1, &mut |out| out.write_all(b"x")).unwrap();
        assert!(is_stream(Path::new("/dev/null")));
        let (link, target) = (folder.path().join("link.json"), folder.path().join("target.json"));
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        save(&link, 1, &mut |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(save(&socket, 1, &mut |_| Ok(())).unwrap_err().to_string().contains("save to a file"));
    }

    #[test]
    #[cfg(unix)]
    fn new_files_have_default_permissions() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("a.json"), folder.path().join("b"));
        save(&ours, 1, &mut |_| Ok(())).unwrap();
        File::create(&plain).unwrap();
        assert_eq!(
            fs::metadata(&ours).unwrap().permissions().mode(),
            fs::metadata(&plain).unwrap().permissions().mode()
        );
    }

    #[test]
    fn longest_file_name_can_be_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(255));
        save(&path, 1, &mut |out| out.write_all(b"1")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"1");
    }

    #[test]
    fn format_follows_the_extension() {
        let json = FileFormat { kind: Format::Json, is_gzip: false };
        let perfetto = FileFormat { kind: Format::Perfetto, is_gzip: false };
        assert_eq!(FileFormat::from_path(Path::new("a.pt.trace.json")).unwrap(), json);
        assert_eq!(FileFormat::from_path(Path::new("a.gz/b")).unwrap(), json);
        for native in ["a.pftrace", "a.b.PFTRACE", "a.perfetto-trace"] {
            assert_eq!(FileFormat::from_path(Path::new(native)).unwrap(), perfetto);
        }
        for native in ["a.json.zst", "a.zip"] {
            assert_eq!(FileFormat::from_path(Path::new(native)).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        let packed = FileFormat::from_path(Path::new("a.JSON.GZ"));
        if cfg!(feature = "gzip") {
            assert_eq!(packed.unwrap(), FileFormat { is_gzip: true, ..json });
            assert_eq!(
                FileFormat::from_path(Path::new("a.pftrace.gz")).unwrap(),
                FileFormat { is_gzip: true, ..perfetto }
            );
        } else {
            let error = packed.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("feature \"gzip\""), "{error}");
        }
    }

    #[test]
    fn unknown_extension_is_an_error() {
        for known in ["a.json", "a.pt.trace.JSON.gz", "a.pftrace", "a.perfetto-trace.gz", "/dev/stdout", "/dev/null"] {
            assert!(FileFormat::check_extension(Path::new(known)).is_ok() || !cfg!(unix), "{known}");
        }
        for unknown in ["a", "a.txt", "a.gz", "a.json/b", "a.jsonl", "json", "/dev"] {
            let error = FileFormat::check_extension(Path::new(unknown)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{unknown}");
            assert!(error.to_string().ends_with("use .json or .pftrace, each also with .gz"), "{error}");
        }
    }

    #[test]
    fn name_is_split_before_its_extensions() {
        for (stem, end) in [
            ("app", ".pt.trace.json.gz"),
            ("app.1", ".JSON"),
            ("App", ".Json.GZ"),
            ("app", ".perfetto-trace"),
            ("app.log", ".gz"),
            ("app.log", ""),
            ("app.", ".json"),
            (".json", ""),
        ] {
            let name = format!("{stem}{end}");
            assert_eq!(stem_and_end(OsStr::new(&name)), (OsStr::new(stem), end.to_owned()), "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn stem_keeps_bytes_that_are_not_utf8() {
        use std::os::unix::ffi::OsStrExt;

        let name = |bytes| OsStr::from_bytes(bytes);
        assert_eq!(stem_and_end(name(b"a.\xff.JSON.gz")), (name(b"a.\xff"), ".JSON.gz".to_owned()));
        assert_eq!(stem_and_end(name(b"\xff")), (name(b"\xff"), String::new()));
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn gz_extension_compresses() {
        use std::io::Read;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json.gz");
        save(&path, 1, &mut |out| out.write_all(b"{}").and_then(|()| out.flush())).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{}");
    }
}
