//! Destinations of traces: files, or handlers selected by the scheme of a URL.

use kineto_base::sorted::SortedMap;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{self, Contents, Destination, FileContent, FileFormat};
use crate::error::{Error, ErrorKind};
use crate::os::fork;
use crate::text::joined;

/// Opens writers for traces that are saved to URLs of one scheme.
///
/// It corresponds to the factories that libkineto registers by protocol. A closure
/// `Fn(&str) -> io::Result<Box<dyn Write + Send>>` implements it. The URL's extension selects the format, as for files.
///
/// ```
/// use std::io::{self, Write};
/// use tracing_kineto::TraceSink;
///
/// fn takes(sink: impl TraceSink) {}
/// takes(|url: &str| -> io::Result<Box<dyn Write + Send>> { Ok(Box::new(io::sink())) });
/// ```
pub trait TraceSink: Send + Sync {
    /// Opens a writer for one trace; `url` is the user's text, including the scheme.
    ///
    /// The writer receives the trace in pieces, most of them of 256 KiB, or 512 KiB before compression. After the last one it
    /// is flushed, once or more, and then dropped. A flush means that the trace is complete, and may return the error of
    /// final work (an upload, a rename). A writer that is dropped without a flush has received an incomplete trace, and
    /// should discard it.
    ///
    /// # Errors
    ///
    /// Any error; `save` returns it with the URL in front.
    fn open(&self, url: &str) -> io::Result<Box<dyn Write + Send>>;
}

impl<F> TraceSink for F
where
    F: Fn(&str) -> io::Result<Box<dyn Write + Send>> + Send + Sync,
{
    fn open(&self, url: &str) -> io::Result<Box<dyn Write + Send>> {
        self(url)
    }
}

/// Writers of the program, each of which receives one trace.
#[derive(Clone, Default)]
pub(crate) struct Writers(Arc<fork::Own<WaitingWriters>>);

#[derive(Default)]
struct WaitingWriters {
    by_url: SortedMap<PathBuf, Box<dyn Write + Send>>,
    added: usize,
}

/// The text by which messages name a writer's output.
const WRITERS_TRACE: &str = "the writer's trace";

impl Writers {
    pub(crate) const SCHEME: &str = "writer";

    /// Keeps a writer until its trace is written; returns the URL of that output.
    pub(crate) fn add(&self, writer: Box<dyn Write + Send>) -> PathBuf {
        let mut waiting = self.0.lock();
        waiting.added += 1;
        let url = match waiting.added {
            1 => PathBuf::from("writer://trace.json"),
            number => PathBuf::from(format!("writer://trace.{number}.json")),
        };
        waiting.by_url.insert(url.clone(), writer);
        url
    }

    /// Drops the writer of an output that receives no trace any more.
    pub(crate) fn remove(&self, output: &Path) {
        let writer = self.0.lock().by_url.remove(output);
        // It is the program's code, which may use this list.
        drop(writer);
    }

    /// Returns the text by which messages name an output: its path or URL, or that it is a writer's, which has neither.
    pub(crate) fn output_name(output: &Path) -> Cow<'_, str> {
        if Writers::is_url(output) { Cow::Borrowed(WRITERS_TRACE) } else { output.to_string_lossy() }
    }

    /// Returns whether an output is a writer.
    pub(crate) fn is_url(output: &Path) -> bool {
        output.to_str().and_then(split_scheme).is_some_and(|(scheme, _)| scheme == Writers::SCHEME)
    }
}

impl TraceSink for Writers {
    fn open(&self, url: &str) -> io::Result<Box<dyn Write + Send>> {
        let writer = self.0.lock().by_url.remove(Path::new(url));
        writer.ok_or_else(|| io::Error::other("the writer has received a trace already; give each trace its own"))
    }
}

/// The handlers by scheme; `file` is built in.
#[derive(Clone, Default)]
pub(crate) struct Sinks {
    by_scheme: SortedMap<String, Arc<dyn TraceSink>>,
}

const FILE: &str = "file";

impl Destination for Sinks {
    fn write_file(&self, path: &Path, gzip_level: u32, contents: &mut Contents<'_>) -> Result<PathBuf, Error> {
        self.save(path, gzip_level, &mut |out| contents(path, out)).map(|()| path.to_owned())
    }
}

impl Sinks {
    /// Registers a handler for a scheme, in any case; returns whether it replaced one. `file` may be replaced.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for an invalid scheme. Valid are letters, digits, `+`, `-`, `.`, a letter first, no `://`.
    pub(crate) fn register(&mut self, scheme: &str, sink: Arc<dyn TraceSink>) -> Result<bool, Error> {
        if !is_scheme(scheme) {
            let message = format!(
                "{scheme:?} is not a URL scheme; give letters, digits, '+', '-' or '.', a letter first, without \"://\""
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        let scheme = scheme.to_ascii_lowercase();
        let built_in = scheme == FILE;
        Ok(self.by_scheme.insert(scheme, sink).is_some() || built_in)
    }

    /// Writes to `target`: a path, or a URL whose scheme has a handler. The text after `file://` is a path, not decoded.
    ///
    /// `gzip_level` is 0 to 9.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownScheme`], which names the registered ones; else as [`file::save`].
    pub(crate) fn save(
        &self,
        target: &Path,
        gzip_level: u32,
        write: &mut dyn FnMut(&mut dyn FileContent) -> io::Result<()>,
    ) -> Result<(), Error> {
        let Some((url, scheme, rest)) = split_url(target) else { return Ok(file::save(target, gzip_level, write)?) };
        let scheme = scheme.to_ascii_lowercase();
        let Some(sink) = self.by_scheme.get(&scheme) else {
            if scheme == FILE {
                return Ok(file::save(Path::new(rest), gzip_level, write)?);
            }
            return Err(self.unknown_scheme_error(url, &scheme));
        };
        let format = FileFormat::from_path(target)?;
        let failed = |what: &str, error: io::Error| {
            if scheme == Writers::SCHEME {
                let advice = "see why the writer fails, or save to a file";
                let error = kineto_model::Error::from_io(what, Path::new(WRITERS_TRACE), error, advice);
                return error.without_path().into();
            }
            Error::io(what, target, error, &format!("see what the handler of {scheme}:// needs, or save to a file"))
        };
        let mut out = sink.open(url).map_err(|error| failed("open", error))?;
        format.encode(&mut out, gzip_level, write).map_err(|error| failed("write", error))
    }

    /// Checks that `target` can be written to now, and returns it as an absolute path if it is one. Handlers are not called.
    ///
    /// # Errors
    ///
    /// Those of [`save`](Sinks::save).
    pub(crate) fn check_target(&self, target: &Path) -> Result<PathBuf, Error> {
        let Some((url, scheme, rest)) = split_url(target) else {
            let advice = "name an absolute path";
            let path = std::path::absolute(target).map_err(|error| Error::io("resolve", target, error, advice))?;
            return Ok(file::check_writable(&path).map(|()| path)?);
        };
        let scheme = scheme.to_ascii_lowercase();
        if self.by_scheme.contains_key(&scheme) {
            Ok(())
        } else if scheme == FILE {
            Ok(file::check_writable(Path::new(rest))?)
        } else {
            Err(self.unknown_scheme_error(url, &scheme))
        }
        .map(|()| target.to_owned())
    }

    /// Returns the path of `target` if it is a file, without `file://`; `None` for a URL of a handler.
    pub(crate) fn file_path(target: &Path) -> Option<&Path> {
        match split_url(target) {
            None => Some(target),
            Some((_, scheme, rest)) => scheme.eq_ignore_ascii_case(FILE).then_some(Path::new(rest)),
        }
    }

    /// Returns whether `target` is a file and not a URL of a handler.
    pub(crate) fn is_file(target: &Path) -> bool {
        Sinks::file_path(target).is_some()
    }

    /// Returns the incomplete files in the folder of `target`, if it is a path.
    pub(crate) fn abandoned_files(target: &Path) -> Vec<PathBuf> {
        Sinks::file_path(target).map(file::abandoned_files).unwrap_or_default()
    }

    fn unknown_scheme_error(&self, url: &str, scheme: &str) -> Error {
        let mut known: Vec<&str> = self.by_scheme.keys().map(String::as_str).collect();
        if !known.contains(&FILE) {
            known.insert(0, FILE);
        }
        let message = format!(
            "no handler is registered for the scheme {scheme} of {url}; registered are {}; register one with \
             KinetoLayer::builder().sink({scheme:?}, handler), or save to a file",
            joined(&known, ", ")
        );
        Error::new(ErrorKind::UnknownScheme, message)
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_scheme.keys()).finish()
    }
}

/// Splits `target` into itself, its scheme and the rest after `://`, if it is a URL.
fn split_url(target: &Path) -> Option<(&str, &str, &str)> {
    let url = target.to_str()?;
    let (scheme, rest) = split_scheme(url)?;
    Some((url, scheme, rest))
}

fn split_scheme(url: &str) -> Option<(&str, &str)> {
    url.split_once("://").filter(|(scheme, _)| is_scheme(scheme))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Records the calls of a handler.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    struct Noted(Notes);

    impl Notes {
        fn add(&self, note: impl Into<String>) {
            self.0.lock().unwrap().push(note.into());
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }

        fn sink(&self) -> Arc<dyn TraceSink> {
            let notes = self.clone();
            Arc::new(move |url: &str| -> io::Result<Box<dyn Write + Send>> {
                notes.add(format!("open {url}"));
                Ok(Box::new(Noted(notes.clone())))
            })
        }
    }

    impl Write for Noted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.add(String::from_utf8_lossy(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.add("flush");
            Ok(())
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.add("drop");
        }
    }

    #[test]
    fn handler_is_found_in_any_case_and_flushed_on_success() {
        let (mut sinks, notes) = (Sinks::default(), Notes::default());
        assert!(!sinks.register("Bucket", notes.sink()).unwrap());
        sinks.save(Path::new("BUCKET://a/b.json"), 1, &mut |out| out.write_all(b"{}")).unwrap();
        assert_eq!(notes.take(), ["open BUCKET://a/b.json", "{}", "flush", "drop"]);
        let error = sinks.save(Path::new("bucket://c"), 1, &mut |out| {
            out.write_all(b"{").and(Err(io::ErrorKind::StorageFull.into()))
        });
        assert!(error.unwrap_err().to_string().contains("bucket://c"));
        assert_eq!(notes.take(), ["open bucket://c", "{", "drop"]);
    }

    #[test]
    fn messages_name_a_writer_without_its_url() {
        let (mut sinks, writers) = (Sinks::default(), Writers::default());
        sinks.register(Writers::SCHEME, Arc::new(writers.clone())).unwrap();
        let url = writers.add(Box::new(Noted(Notes::default())));
        let full = sinks.save(&url, 1, &mut |_| Err(io::Error::other("the disk is full"))).unwrap_err();
        let advice = "see why the writer fails, or save to a file";
        assert_eq!(full.to_string(), format!("cannot write the writer's trace: the disk is full; {advice}"));
        let used = sinks.save(&url, 1, &mut |_| Ok(())).unwrap_err();
        assert!(used.to_string().starts_with("cannot open the writer's trace: the writer has received"), "{used}");
        assert_eq!((full.path(), full.io_error().is_some(), used.path()), (None, true, None));
        assert_eq!(Writers::output_name(&url), "the writer's trace");
        assert_eq!(Writers::output_name(Path::new("bucket://c")), "bucket://c");
    }

    #[test]
    fn paths_and_file_urls_go_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let sinks = Sinks::default();
        for (number, prefix) in ["", "file://", "FILE://"].into_iter().enumerate() {
            let path = folder.path().join(format!("{number} %20.json"));
            let target = format!("{prefix}{}", path.display());
            sinks.save(Path::new(&target), 1, &mut |out| out.write_all(b"1")).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"1");
        }
        let error =
            sinks.save(Path::new(&format!("file://{}", folder.path().display())), 1, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.path(), Some(folder.path()));
    }

    #[test]
    fn registering_again_replaces_and_returns_true() {
        let (mut sinks, first, second) = (Sinks::default(), Notes::default(), Notes::default());
        assert!(!sinks.register("s3", first.sink()).unwrap());
        assert!(sinks.register("S3", second.sink()).unwrap());
        assert!(sinks.register("file", second.sink()).unwrap());
        sinks.save(Path::new("s3://x"), 1, &mut |_| Ok(())).unwrap();
        sinks.save(Path::new("file:///x"), 1, &mut |_| Ok(())).unwrap();
        assert!(first.take().is_empty());
        assert_eq!(second.take().iter().filter(|note| note.starts_with("open")).count(), 2);
    }

    #[test]
    fn unknown_scheme_lists_the_known_ones() {
        let (mut sinks, notes) = (Sinks::default(), Notes::default());
        sinks.register("s3", notes.sink()).unwrap();
        let error = sinks.save(Path::new("gs://x"), 1, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownScheme);
        assert!(error.to_string().contains("registered are file, s3"), "{error}");
        assert!(notes.take().is_empty());
    }

    #[test]
    fn invalid_schemes_are_refused() {
        for bad in ["", "3s", "a b", "s3://", "é"] {
            let error = Sinks::default().register(bad, Notes::default().sink()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
        }
    }

    #[test]
    fn error_of_a_handler_reaches_the_caller() {
        let mut sinks = Sinks::default();
        let refuse = |_: &str| -> io::Result<Box<dyn Write + Send>> { Err(io::Error::other("no credentials")) };
        sinks.register("s3", Arc::new(refuse)).unwrap();
        let error = sinks.save(Path::new("s3://bucket/a.json"), 1, &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().starts_with("cannot open s3://bucket/a.json: no credentials; "), "{error}");
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn url_ending_in_gz_is_compressed() {
        let (mut sinks, notes) = (Sinks::default(), Notes::default());
        sinks.register("s3", notes.sink()).unwrap();
        sinks.save(Path::new("s3://a.json.gz"), 1, &mut |out| out.write_all(b"{}").and_then(|()| out.flush())).unwrap();
        let calls = notes.take();
        assert!(calls[1].starts_with('\u{1f}'), "{calls:?}");
        assert_eq!(calls.iter().filter(|note| *note == "flush").count(), 1);
    }
}
