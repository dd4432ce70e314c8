//! Completes files that are cut off, and rewrites what is not JSON in them.

use super::perfetto;
use super::source::ValueReader;
use super::unpack_reader;
use crate::analysis::fault::{Cause, Fault};
use crate::analysis::json_reader::{Json, Result as ReadResult};
use crate::write::chrome::INCOMPLETE;
use crate::write::file;
use crate::{Error, ErrorKind};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The result of [`repair`]. Numbers of bytes are those of the JSON, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// How many bytes were kept.
    pub kept_bytes: u64,
    /// How many bytes behind them were dropped.
    pub dropped_bytes: u64,
    /// How many texts, words and commas were not JSON, and were rewritten.
    pub rewritten: u64,
}

/// Copies a trace that is cut off or not JSON to `output`, up to the last whole event, and closes it there.
///
/// What is not JSON, but read by [`Events::read`](crate::analysis::Events::read)
/// ([`Note::InvalidJson`](crate::analysis::Note::InvalidJson)), is rewritten as JSON. The copy opens in every viewer. If the input
/// is cut off, its header has the key `tracing_kineto_incomplete`, which the reader reports as
/// [`Note::Incomplete`](crate::analysis::Note::Incomplete). It is compressed if its name ends with `.gz`. Returns `None`, and
/// writes nothing, if the input is whole and JSON.
///
/// ```no_run
/// # fn main() -> Result<(), kineto_trace::Error> {
/// if let Some(repair) = kineto_trace::analysis::repair("killed.pt.trace.json", "repaired.pt.trace.json.gz")? {
///     println!("{} bytes were dropped", repair.dropped_bytes);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// With the path: [`Io`](crate::ErrorKind::Io), [`Json`](crate::ErrorKind::Json) if it is neither JSON nor can be rewritten, and
/// [`NotATrace`](crate::ErrorKind::NotATrace) if there is no whole value to keep, and [`Unsupported`](crate::ErrorKind::Unsupported)
/// for Perfetto's format.
pub fn repair(input: impl AsRef<Path>, output: impl AsRef<Path>) -> Result<Option<Repair>, Error> {
    const GZIP_LEVEL: u32 = 1;

    let input = input.as_ref();
    let copied = copy_file(input, &mut io::sink())?;
    if copied.rewritten == 0 && copied.dropped_bytes == 0 && copied.is_closed {
        return Ok(None);
    }
    // The input was read without a fault above, so a failure here is the output's.
    file::save(output.as_ref(), GZIP_LEVEL, &mut |out| copy_file(input, out).map(drop).map_err(io::Error::other))?;
    let Copied { kept_bytes, dropped_bytes, rewritten, .. } = copied;
    Ok(Some(Repair { kept_bytes, dropped_bytes, rewritten }))
}

fn copy_file(input: &Path, out: &mut dyn Write) -> Result<Copied, Error> {
    let file = File::open(input).map_err(|error| Error::from_io("open", input, error, "name a trace file"))?;
    let unpacked = unpack_reader(file).map_err(|error| error.with_path(input))?;
    let mut source = ValueReader::new(unpacked, u64::MAX, None);
    let start = source.peek_bytes(perfetto::PREFIX).map_err(|fault| fault.into_error(None).with_path(input))?;
    if perfetto::is_perfetto(start) {
        let why = "only files of JSON are repaired, and it is in Perfetto's format; use `kineto convert --partial` to keep its whole packets";
        return Err(Error::new(ErrorKind::Unsupported, why).with_path(input));
    }
    let mut copier = Copier { source, out, copied: Copied::default() };
    match copier.copy_root() {
        Ok(()) => Ok(copier.copied),
        Err(fault) => Err(copier.source.place_error(*fault).with_path(input)),
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    /// The offset behind the last whole value.
    kept_bytes: u64,
    dropped_bytes: u64,
    rewritten: u64,
    /// Whether all brackets were closed.
    is_closed: bool,
}

/// Copies a file value by value: members of its object, and elements of its lists.
struct Copier<'o, R> {
    source: ValueReader<R>,
    out: &'o mut dyn Write,
    copied: Copied,
}

impl<R: Read> Copier<'_, R> {
    fn copy_root(&mut self) -> ReadResult<()> {
        let is_object = match self.source.skip_mark_and_peek()? {
            Some(b'{') => true,
            Some(b'[') => false,
            None => return Err(Fault::new(Cause::NotATrace("it is empty"), 0)),
            Some(_) => return Err(Fault::new(Cause::OtherFormat, self.source.position())),
        };
        let read = if is_object { self.copy_object() } else { self.copy_list(b"]") };
        match read {
            Ok(()) => self.copied.is_closed = true,
            Err(fault) if matches!(fault.cause, Cause::Truncated) => {}
            Err(fault) => return Err(fault),
        }
        if self.copied.is_closed {
            self.write(b"\n")?;
            return match self.source.skip_space_and_peek()? {
                None => Ok(()),
                Some(_) => Err(Fault::new(Cause::NotJson("nothing more"), self.source.position())),
            };
        }
        let length = self.source.skip_to_end()?;
        let kept = self.copied.kept_bytes;
        if kept == 0 {
            return Err(Fault::new(Cause::NotATrace("it has no whole event"), length));
        }
        self.copied.dropped_bytes = length - kept;
        if !is_object {
            return self.write(b"\n]\n");
        }
        self.write(format!("\n,\n\"{INCOMPLETE}\": {{\"cut_at_byte\": {kept}}}}}\n").as_bytes())
    }

    /// Copies an object up to its end. If it is cut off, all whole members and elements are written, and only its own end is missing.
    fn copy_object(&mut self) -> ReadResult<()> {
        self.source.skip_byte();
        self.write(b"{")?;
        let mut separator: &[u8] = b"";
        loop {
            if self.source.skip_if(b'}')? {
                // A comma before it is dropped.
                self.copied.rewritten += u64::from(!separator.is_empty());
                break;
            }
            let (key, rewritten) = self.source.next_json(b"}")?;
            self.source.take_one_of(b":", "a colon")?;
            let is_list = self.source.skip_space_and_peek()? == Some(b'[');
            if is_list {
                self.write(&[separator, &key, b": "].concat())?;
                let read = self.copy_list(b"]}");
                if read.is_err() {
                    self.write(b"\n]")?;
                }
                read?;
            } else {
                let (value, more) = self.source.next_json(b"}")?;
                self.write(&[separator, &key, b": "].concat())?;
                self.write_value(&value)?;
                self.copied.rewritten += more;
            }
            self.keep(rewritten);
            separator = b",\n";
            if self.source.take_one_of(b",}", "a comma or the object's end")? == b'}' {
                break;
            }
        }
        self.keep(0);
        self.write(b"}")
    }

    /// Copies a list up to its end, or all its whole elements. `closers` are the brackets that close it and what is around it.
    fn copy_list(&mut self, closers: &'static [u8]) -> ReadResult<()> {
        self.source.skip_byte();
        self.write(b"[")?;
        let mut separator: &[u8] = b"\n";
        loop {
            if self.source.skip_if(b']')? {
                self.copied.rewritten += u64::from(separator.starts_with(b","));
                break;
            }
            let is_object = self.source.skip_space_and_peek()? == Some(b'{');
            let (element, rewritten) =
                if is_object { self.source.read_with(closers, copy_value)? } else { self.source.next_json(closers)? };
            self.write(separator)?;
            self.write_value(&element)?;
            self.keep(rewritten);
            separator = b",\n";
            if self.source.take_one_of(b",]", "a comma or the list's end")? == b']' {
                break;
            }
        }
        self.keep(0);
        self.write(b"\n]")
    }

    /// Writes a value, in which bytes other than UTF-8 are replaced.
    fn write_value(&mut self, value: &[u8]) -> ReadResult<()> {
        let text = String::from_utf8_lossy(value);
        self.copied.rewritten += u64::from(matches!(text, Cow::Owned(_)));
        self.write(text.as_bytes())
    }

    /// Notes that all is whole up to here.
    fn keep(&mut self, rewritten: u64) {
        self.copied.kept_bytes = self.source.position();
        self.copied.rewritten += rewritten;
    }

    fn write(&mut self, bytes: &[u8]) -> ReadResult<()> {
        self.out.write_all(bytes).map_err(|error| Fault::new(Cause::Io(error), self.source.position()))
    }
}

/// Returns the text of a value.
fn copy_value(json: &mut Json<'_>) -> ReadResult<Vec<u8>> {
    let start = json.position();
    json.skip_value()?;
    Ok(json.whole_text().get(start..json.position()).unwrap_or_default().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::analysis::{Events, Note, ReadOptions};
    use std::fs;

    const WHOLE: &str = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "a]\"}"}], "traceEvents": [
        {"ph": "X", "name": "a,\"}]", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {"n": [1, 2]}},
        {"ph": "X", "name": "b", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": {}}
    ], "traceName": "x.json"}"#;

    /// Every prefix that the partial reader reads is repaired to a file with the same events, or one more that is whole.
    #[test]
    fn each_prefix_is_repaired_to_its_whole_events() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("cut.json"), folder.path().join("repaired.json"));
        let mut counts = [0; 3];
        for length in 0..WHOLE.len() {
            fs::write(&input, &WHOLE.as_bytes()[..length]).unwrap();
            let partial = ReadOptions::new().partial(true).read(&input).map_or(0, |events| events.len());
            if partial == 0 {
                continue;
            }
            let repair = repair(&input, &output).unwrap().unwrap();
            assert_eq!(repair.kept_bytes + repair.dropped_bytes, length as u64);
            let events = Events::read(&output).unwrap();
            assert_eq!(events.len(), partial, "{length}: {}", fs::read_to_string(&output).unwrap());
            assert!(events.notes().any(|(note, _)| note == Note::Incomplete));
            counts[events.len()] += 1;
        }
        assert!(counts[1] > 50 && counts[2] > 10, "{counts:?}");
    }

    #[test]
    fn whole_files_are_left_alone_and_others_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.json"), folder.path().join("out.json"));
        let result = |text: &str| {
            fs::write(&input, text).unwrap();
            repair(&input, &output)
        };
        assert_eq!(result(WHOLE).unwrap(), None);
        assert!(!output.exists());
        for (text, kind) in [("", ErrorKind::NotATrace), ("[1]]", ErrorKind::Json), ("hello", ErrorKind::Json)] {
            assert_eq!(result(text).unwrap_err().kind(), kind, "{text}");
        }
        let list = result("[{\"ph\": \"X\", \"ts\": 1, \"dur\": 1}, {\"ph\"").unwrap().unwrap();
        assert_eq!((list.dropped_bytes, Events::read(&output).unwrap().len()), (7, 1));
        assert_eq!(repair(folder.path().join("none"), &output).unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn what_is_not_json_is_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.json");
        for (name, dropped, rewritten) in [
            ("windows_path", 0, 1),
            ("raw_control_character", 0, 1),
            ("bare_NA", 0, 1),
            ("array_trailing_comma", 0, 1),
            ("array_without_end", 2, 0),
        ] {
            let input = format!("{}/tests/data/inputs/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let repair = repair(&input, &output).unwrap().unwrap();
            assert_eq!((repair.dropped_bytes, repair.rewritten), (dropped, rewritten), "{name}");
            let value: serde_json::Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
            assert_eq!(value.get("tracing_kineto_incomplete"), None, "{name}");
            let [before, after] = [Path::new(&input), &output].map(|path| Events::read(path).unwrap());
            assert_eq!(after.notes().collect::<Vec<_>>(), [], "{name}");
            let events = |events: &Events| events.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>();
            assert_eq!(events(&before), events(&after), "{name}");
        }
        let input = folder.path().join("in.json");
        let text = b"{\"loss\": NaN, \"host\": \"C:\\dir\\\", \"traceEvents\": [7, {\"ph\": \"X\", \"name\": \"\xff\", \"ts\": 1, \"dur\": 1}, ], }";
        fs::write(&input, text).unwrap();
        let found = repair(&input, &output).unwrap().unwrap();
        assert_eq!((found.kept_bytes, found.dropped_bytes, found.rewritten), (text.len() as u64, 0, 5));
        let value: serde_json::Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
        assert_eq!(
            (&value["loss"], &value["host"], &value["traceEvents"][0]),
            (&"nan".into(), &"C:\\dir\\".into(), &7.into())
        );
        assert_eq!(repair(&output, folder.path().join("again.json")).unwrap(), None);
    }

    #[cfg(feature = "gzip")]
    #[test]
    fn compressed_file_without_its_end_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.json.gz"), folder.path().join("out.json.gz"));
        let event = r#"{"ph": "X", "name": "a", "ts": 1, "dur": 2},"#;
        let text = format!("{{\"traceEvents\": [{}", event.repeat(10_000));
        let mut packed = Vec::new();
        let mut encoder = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        fs::write(&input, &packed[..packed.len() / 2]).unwrap();
        assert!(repair(&input, &output).unwrap().is_some());
        assert!(Events::read(&output).unwrap().len() > 100);
        assert_eq!(fs::read(&output).unwrap()[..2], [0x1f, 0x8b]);
    }
}
