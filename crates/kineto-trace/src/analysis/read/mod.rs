//! Reads events from a file: Kineto's JSON, or Perfetto's native format.

#[cfg(feature = "gzip")]
mod ahead;
mod blocks;
mod element;
mod file;
mod input;
mod list;
mod parallel;
mod perfetto;
mod repair;
mod source;
mod time;
mod tolerant;

pub use repair::{Repair, repair};

use super::events::Events;
use crate::Error;
#[cfg(any(test, doc, not(feature = "gzip")))]
use crate::ErrorKind;
use crate::analysis::fault::{Cause, Fault};
use file::FileReader;
use parallel::Parallelism;
use perfetto::PerfettoReader;
use source::ValueReader;
use std::fmt;
use std::fs::File;
use std::io::{self, Chain, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Options for reading a trace; [`Events::read`] uses the defaults.
///
/// ```no_run
/// use kineto_trace::analysis::ReadOptions;
///
/// // The file of a program that was killed.
/// let events = ReadOptions::new().partial(true).read("app.pt.trace.json.gz")?;
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone)]
pub struct ReadOptions {
    partial: bool,
    max_bytes: u64,
    time_limit: Option<Duration>,
    progress: Progress,
}

/// Receives the number of bytes read so far.
type Progress = Option<Arc<dyn Fn(u64) + Send + Sync>>;

impl fmt::Debug for ReadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOptions")
            .field("partial", &self.partial)
            .field("max_bytes", &self.max_bytes)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions::new()
    }
}

impl ReadOptions {
    /// Returns options for complete files of up to 64 GiB when unpacked.
    pub fn new() -> ReadOptions {
        ReadOptions { partial: false, max_bytes: 64 << 30, time_limit: None, progress: None }
    }

    /// Sets whether a truncated file is read up to its last event, with [`Note::CutOff`](super::Note::CutOff).
    ///
    /// Default: false; then it is an error, as is always a file without any event.
    #[must_use]
    pub fn partial(self, partial: bool) -> ReadOptions {
        ReadOptions { partial, ..self }
    }

    /// Limits the size of the JSON or the packets, after decompression.
    ///
    /// Fixed limits apply too: 64 MiB for an event or a packet, and 128 levels of nesting.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> ReadOptions {
        ReadOptions { max_bytes: bytes, ..self }
    }

    /// Limits how long events are read; there is no limit by default. After that time the events read so far are
    /// returned, and [`Note::TimeLimit`](super::Note::TimeLimit) reports it; torch's `post_processing_timeout_s`.
    ///
    /// If the JSON has not yet given the origin of its times, the rest is skipped to its end, which takes a fraction of
    /// the time. In Perfetto's format the names of tracks may come last, so the rest is always skimmed. WebAssembly has no clock and ignores the limit.
    /// With a limit, JSON is parsed on one thread.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> ReadOptions {
        ReadOptions { time_limit: Some(limit), ..self }
    }

    /// Sets a callback that receives the number of bytes read so far, about every 256 KiB.
    ///
    /// For a compressed file these are the bytes after decompression, so their final number is not known before the end.
    #[must_use]
    pub fn on_progress(self, report: impl Fn(u64) + Send + Sync + 'static) -> ReadOptions {
        ReadOptions { progress: Some(Arc::new(report)), ..self }
    }

    /// Reads a trace file, as [`Events::read`].
    ///
    /// # Errors
    /// Those of [`Events::read`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Events, Error> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| Error::from_io("open", path, error, "name a trace file"))?;
        self.read_file(file, path)
    }

    /// Reads an open trace file; `path` names it in errors.
    ///
    /// # Errors
    /// Those of [`Events::read`].
    pub fn read_file(&self, file: File, path: impl AsRef<Path>) -> Result<Events, Error> {
        let path = path.as_ref();
        let text = unpack_reader(file).map_err(|error| error.with_path(path))?;
        // Only decompression is worth a thread of its own.
        let events = match text {
            Unpacked::Plain(text) => self.read_unpacked(text, Parallelism::of_machine()),
            #[cfg(feature = "gzip")]
            Unpacked::Gzip(text) => self.read_unpacked(ahead::read_ahead(text), Parallelism::of_machine()),
        };
        events.map_err(|error| error.with_path(path))
    }

    /// Reads a trace from any reader, as [`Events::from_reader`].
    ///
    /// # Errors
    /// Those of [`Events::read`].
    pub fn from_reader(&self, reader: impl Read) -> Result<Events, Error> {
        self.read_unpacked(unpack_reader(reader)?, Parallelism::of_machine())
    }

    /// Reads either format, which the first bytes tell.
    fn read_unpacked(&self, reader: impl Read, parallelism: Option<Parallelism>) -> Result<Events, Error> {
        let mut source = ValueReader::new(reader, self.max_bytes, self.progress.clone());
        let prefix = source.peek_bytes(perfetto::PREFIX).map_err(|fault| fault.into_error(None))?;
        if perfetto::is_perfetto(prefix) {
            let mut file = PerfettoReader::with_time_limit(self.time_limit);
            let read = file.read_file(&mut source);
            if self.is_cut_off(read, file.has_events()).map_err(|fault| fault.into_error(None))? {
                file.cut_off();
            }
            return Ok(file.finish(source.position()));
        }
        let mut file = FileReader::new(self.time_limit, parallelism);
        let read = file.read_file(&mut source);
        let cut_off = self.is_cut_off(read, file.has_events());
        if cut_off.map_err(|fault| source.place_error(fault))? {
            file.cut_off();
        }
        Ok(file.finish(source.position()))
    }

    /// Returns whether the file ended early, or the fault if that or anything else prevents reading it.
    fn is_cut_off(&self, read: Result<(), Box<Fault>>, has_events: bool) -> Result<bool, Fault> {
        match read.map_err(|fault| *fault) {
            Ok(()) | Err(Fault { cause: Cause::TimeLimit, .. }) => Ok(false),
            Err(Fault { cause: Cause::Truncated, at }) if !has_events => Err(Fault { cause: Cause::WithoutEvents, at }),
            Err(Fault { cause: Cause::Truncated, .. }) if self.partial => Ok(true),
            Err(fault) => Err(fault),
        }
    }
}

impl Events {
    /// Reads a trace file: Kineto's JSON or Perfetto's native format, plain or compressed by gzip, whatever its name.
    ///
    /// Of JSON it accepts the files of libkineto, PyTorch and this crate, and others in Chrome's trace format: an object with
    /// the list `traceEvents`, or only a list. If none of their categories is Kineto's, slices are operations; asynchronous
    /// slices of one id share a track. Times become whole nanoseconds since the Unix epoch, computed from the
    /// decimal text plus `baseTimeNanoseconds` and rounded half to even. Categories of old versions get their current
    /// names. "External id" becomes [`id`](super::Event::id) or [`linked`](super::Event::linked). Rows about the
    /// recording itself determine the [`window`](Events::window). Everything else that is left out or repaired is
    /// counted in [`notes`](Events::notes). The file is never in memory as a whole.
    ///
    /// JSON of more than a megabyte is parsed on up to eight threads.
    ///
    /// Of Perfetto's format it reads slices, instants, counters and arrows of track events, and the GPU events of PyTorch. They
    /// become the same events as in JSON; the book lists what that format lacks.
    ///
    /// ```
    /// # use kineto_trace::analysis::Events;
    /// # let folder = std::env::temp_dir().join(format!("kineto-read-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let path = folder.join("app.pftrace");
    /// let text = r#"[{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2}]"#;
    /// Events::from_reader(text.as_bytes())?.save(&path)?;
    /// let kernel = Events::read(&path)?;
    /// assert_eq!(kernel.get(0).map(|event| (event.name(), event.duration_ns())), Some(("gemm", 2000)));
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), kineto_trace::Error>(())
    /// ```
    ///
    /// # Errors
    /// All name the path, and all but [`Unsupported`](ErrorKind::Unsupported) and a failed open name the byte: [`Io`](ErrorKind::Io), [`Json`](ErrorKind::Json)
    /// if it is not JSON, [`Truncated`](ErrorKind::Truncated) if it ends too early ([`ReadOptions::partial`] reads such
    /// files), [`NotATrace`](ErrorKind::NotATrace), [`TooLarge`](ErrorKind::TooLarge) beyond
    /// [`ReadOptions::max_bytes`] or a fixed limit, and `Unsupported` for gzip without the feature `gzip`.
    pub fn read(path: impl AsRef<Path>) -> Result<Events, Error> {
        ReadOptions::new().read(path)
    }

    /// Reads a trace from any reader, which need not be buffered, as [`read`](Events::read) does from a file.
    ///
    /// # Errors
    /// Those of [`read`](Events::read), without a path.
    pub fn from_reader(reader: impl Read) -> Result<Events, Error> {
        ReadOptions::new().from_reader(reader)
    }
}

/// The JSON of a file that may be compressed.
enum Unpacked<R: Read> {
    Plain(Prefixed<R>),
    #[cfg(feature = "gzip")]
    Gzip(Box<flate2::read::MultiGzDecoder<Prefixed<R>>>),
}

/// A reader whose first bytes have been read.
type Prefixed<R> = Chain<Cursor<Vec<u8>>, R>;

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Unpacked::Plain(reader) => reader.read(room),
            #[cfg(feature = "gzip")]
            Unpacked::Gzip(reader) => reader.read(room),
        }
    }
}

/// Detects gzip by its first two bytes, and returns a reader of the text.
fn unpack_reader<R: Read>(mut reader: R) -> Result<Unpacked<R>, Error> {
    let mut first = Vec::new();
    let read = reader.by_ref().take(2).read_to_end(&mut first);
    read.map_err(|error| Fault::new(Cause::Io(error), 0).into_error(None))?;
    let is_packed = first == [0x1f, 0x8b];
    let reader = Cursor::new(first).chain(reader);
    if !is_packed {
        return Ok(Unpacked::Plain(reader));
    }
    #[cfg(feature = "gzip")]
    return Ok(Unpacked::Gzip(Box::new(flate2::read::MultiGzDecoder::new(reader))));
    #[cfg(not(feature = "gzip"))]
    Err(Error::new(ErrorKind::Unsupported, "compressed by gzip; build with the feature `gzip`, or unpack it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> (ErrorKind, String) {
        let error = Events::from_reader(text.as_bytes()).unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn unreadable_text_is_reported_with_its_position() {
        for (text, kind, said) in [
            ("", ErrorKind::NotATrace, "it is empty"),
            ("hello", ErrorKind::Json, "byte 0"),
            ("{\"a\": 1}", ErrorKind::NotATrace, "traceEvents"),
            ("{\"traceEvents\": 1}", ErrorKind::NotATrace, "byte 16"),
            ("[1, 2]", ErrorKind::NotATrace, "byte 6"),
            ("{\"note\": \"a /\"b/\"\", \"traceEvents\": []}", ErrorKind::Json, "byte 14"),
            ("{\"traceEvents\": [{\"ph\": \"X\"", ErrorKind::Truncated, "byte 27"),
            ("[{\"ph\": \"X\"", ErrorKind::Truncated, "byte 11"),
            ("{\"traceEvents\": [{\"ph\": \"X\"}", ErrorKind::Truncated, "byte 28"),
            ("[{\"ph\": \"X\"]]", ErrorKind::Json, "byte 11"),
            ("[] []", ErrorKind::Json, "byte 3"),
        ] {
            let (found, message) = error(text);
            assert!(found == kind && message.contains(said), "{text}: {found:?} {message}");
        }
        let (kind, message) = error(&("[{\"a\":".to_owned() + &"[".repeat(1 << 20) + &"]".repeat(1 << 20) + "}]"));
        assert!(kind == ErrorKind::TooLarge && message.contains("128 levels deep"), "{message}");
        let short = ReadOptions::new().max_bytes(10).from_reader(&b"[{\"ph\": \"X\"}]"[..]).unwrap_err();
        assert_eq!(short.kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn error_advice_matches_the_cause() {
        for other in ["hello", "\u{1}\u{2}", "<html>", "  \"text\"", "7"] {
            let (kind, message) = error(other);
            assert!(kind == ErrorKind::Json && !message.contains("quotes"), "{other}: {message}");
            assert!(
                message.contains("no { or [ at line 1, column ") && message.contains("give a trace file"),
                "{message}"
            );
        }
        let (_, message) = error("{\n\"note\": \"a /\"b/\"\", \"traceEvents\": []}");
        assert!(message.contains("line 2, column 14 (byte 15)") && message.contains("quotes in metadata"), "{message}");
        let (_, message) = error("[{\"ph\": \"X\",\n\n  \"ts\": 01}]");
        assert!(message.contains("line 3, column 10 (byte 23)") && !message.contains("quotes"), "{message}");
        let (_, message) = error("{\"traceEvents\": [{\"ph\": \"X\"},\n");
        assert!(
            message.contains("--partial") && message.contains("`kineto repair`") && !message.contains("::"),
            "{message}"
        );
        let long = format!(
            "[{},\n{{\"ph\": \"X\", \"ts\": 1.}}]",
            vec!["{\"ph\":\"X\",\n\"ts\":1,\"dur\":1}"; 200_000].join(",")
        );
        let (_, message) = error(&long);
        assert!(message.contains("line 200002, column 21 "), "{message}");
    }

    #[test]
    fn errors_of_files_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a trace.json");
        let missing = Events::read(&path).unwrap_err();
        assert_eq!((missing.kind(), missing.path()), (ErrorKind::Io, Some(path.as_path())));
        std::fs::write(&path, "[").unwrap();
        let cut = Events::read(&path).unwrap_err();
        assert_eq!((cut.kind(), cut.path()), (ErrorKind::Truncated, Some(path.as_path())));
        assert!(
            cut.to_string().ends_with(
                "a trace.json: cut off at line 1, column 2 (byte 1), before its first whole event; record it again"
            ),
            "{cut}"
        );
    }

    #[test]
    fn time_limit_keeps_what_was_read_so_far() {
        let text = format!("[{}]", vec!["{\"ph\":\"X\",\"ts\":1,\"dur\":1}"; 100_000].join(","));
        let read = |limit| {
            let events = ReadOptions::new().time_limit(limit).from_reader(text.as_bytes()).unwrap();
            (events.len(), events.notes().any(|(note, _)| note == crate::analysis::Note::TimeLimit))
        };
        assert_eq!(read(Duration::from_secs(3600)), (100_000, false));
        let (count, is_noted) = read(Duration::ZERO);
        assert!(count < 100_000 && is_noted, "{count}");
    }

    #[test]
    fn progress_ends_at_the_length_of_the_json() {
        let text = format!("[{}]", vec!["{\"ph\":\"X\",\"ts\":1,\"dur\":1}"; 40_000].join(","));
        let reports = Arc::new(std::sync::Mutex::new(Vec::new()));
        let target = reports.clone();
        let options = ReadOptions::new().on_progress(move |bytes| target.lock().unwrap().push(bytes));
        options.from_reader(text.as_bytes()).unwrap();
        let reports = reports.lock().unwrap();
        assert!(
            reports.len() > 3 && reports.is_sorted() && reports.last() == Some(&(text.len() as u64)),
            "{reports:?}"
        );
    }

    #[cfg(feature = "gzip")]
    #[test]
    fn gzip_is_detected_by_content_and_may_be_truncated() {
        use std::io::Write;
        let event = "{\"ph\":\"X\",\"ts\":1,\"dur\":1,\"name\":\"a\"},".repeat(1000);
        let mut packed = Vec::new();
        // Some tools write two members.
        for part in ["[", &event, "{\"ph\":\"X\",\"ts\":1,\"dur\":1}]"] {
            let mut gzip = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
            gzip.write_all(part.as_bytes()).unwrap();
            gzip.finish().unwrap();
        }
        assert_eq!(Events::from_reader(packed.as_slice()).unwrap().len(), 1001);
        let cut = &packed[..packed.len() - 30];
        assert_eq!(Events::from_reader(cut).unwrap_err().kind(), ErrorKind::Truncated);
        let part = ReadOptions::new().partial(true).from_reader(cut).unwrap();
        assert!(part.len() >= 900 && part.notes().any(|(note, _)| note == crate::analysis::Note::CutOff));
        let broken = [&packed[..2], b"what is this"].concat();
        assert_eq!(Events::from_reader(broken.as_slice()).unwrap_err().kind(), ErrorKind::Io);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Events::from_reader(bytes.as_slice());
        }

        #[test]
        fn trace_like_text_does_not_panic(events in "(\\{(\"(ph|ts|dur|pid|tid|cat|id|args|name|bp)\":(\"[XBECMsfib]\"|-?[0-9]{1,20}|[0-9.e]{1,6}|null|\\[\\]|\\{\"name\":\"[a-z]\"\\})[,}]?)*\\}?,?){0,12}") {
            let text = format!("[{}]", events.trim_end_matches(','));
            let options = ReadOptions::new().partial(true);
            if let Ok(events) = options.from_reader(text.as_bytes()) {
                prop_assert!(events.iter().all(|event| event.start() <= event.end()));
            }
        }
    }
}
