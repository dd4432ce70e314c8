//! Completes files that are cut off.

use super::fault::{Cause, Fault};
use super::unpack_reader;
use crate::error::Error;
use crate::write::chrome::INCOMPLETE;
use crate::write::file;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The result of [`repair`]. Numbers are bytes of JSON, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// How many bytes were copied.
    pub kept_bytes: u64,
    /// How many bytes behind them were dropped.
    pub dropped_bytes: u64,
}

/// Copies a trace that is cut off to `output`, up to the last whole event, and closes it there.
///
/// The copy opens in every viewer. Its header has the key `tracing_kineto_incomplete`, which the reader reports as
/// [`Note::Incomplete`](crate::analysis::Note::Incomplete). It is compressed if its name ends with `.gz`. Returns `None`, and
/// writes nothing, if the input is not cut off.
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
/// With the path: [`Io`](crate::ErrorKind::Io), [`Json`](crate::ErrorKind::Json) if brackets do not match, and
/// [`NotATrace`](crate::ErrorKind::NotATrace) if there is no whole value to keep.
pub fn repair(input: impl AsRef<Path>, output: impl AsRef<Path>) -> Result<Option<Repair>, Error> {
    const GZIP_LEVEL: u32 = 1;

    let input = input.as_ref();
    let open = || File::open(input).map_err(|error| Error::from_io("open", input, error, "name a trace file"));
    let mut scan = Scan::default();
    scan.read_all(unpack_reader(open()?)?).map_err(|fault| fault.into_error().with_path(input))?;
    if scan.is_whole {
        return Ok(None);
    }
    let Some(cut) = scan.cut else {
        return Err(Fault::new(Cause::NotATrace("it has no whole event"), scan.length).into_error().with_path(input));
    };
    let whole = unpack_reader(open()?)?;
    file::save(output.as_ref(), GZIP_LEVEL, |out| {
        io::copy(&mut whole.take(cut.at), out)?;
        out.write_all(cut.closing_text(&scan.open).as_bytes())
    })?;
    Ok(Some(Repair { kept_bytes: cut.at, dropped_bytes: scan.length - cut.at }))
}

/// The levels at which a file can be cut: its object, and the values in it.
const LEVELS: usize = 2;

/// Finds the end of the last whole value.
#[derive(Debug, Default)]
struct Scan {
    /// The bytes that were read.
    length: u64,
    depth: usize,
    /// The opening brackets of the outer levels.
    open: [u8; LEVELS],
    in_text: bool,
    is_escaped: bool,
    cut: Option<Cut>,
    is_whole: bool,
}

/// A place between two values.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: u64,
    depth: usize,
}

impl Scan {
    fn read_all(&mut self, mut reader: impl Read) -> Result<(), Box<Fault>> {
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A decompressor's report that the file is cut off.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                Err(error) => return Err(Fault::new(Cause::Io(error), self.length)),
            };
            for byte in buffer.get(..count).unwrap_or_default() {
                self.scan_byte(*byte)?;
                self.length += 1;
            }
            if count == 0 {
                return Ok(());
            }
        }
    }

    fn scan_byte(&mut self, byte: u8) -> Result<(), Box<Fault>> {
        if self.in_text {
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return Ok(());
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => {
                if let Some(open) = self.open.get_mut(self.depth) {
                    *open = byte;
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                let fault = || Fault::new(Cause::NotJson("no closing bracket"), self.length);
                self.depth = self.depth.checked_sub(1).ok_or_else(fault)?;
                self.is_whole = self.depth == 0;
                self.set_cut(self.length + 1);
            }
            b',' => self.set_cut(self.length),
            _ => {}
        }
        Ok(())
    }

    /// Remembers a place behind a value of an outer level.
    fn set_cut(&mut self, at: u64) {
        if (1..=LEVELS).contains(&self.depth) {
            self.cut = Some(Cut { at, depth: self.depth });
        }
    }
}

impl Cut {
    /// Returns the text that closes the file here.
    fn closing_text(&self, open: &[u8; LEVELS]) -> String {
        let close = |bracket: u8| if bracket == b'{' { "}" } else { "]" };
        let [root, member] = *open;
        let member = if self.depth == LEVELS { close(member) } else { "" };
        let mark =
            if root == b'{' { format!(",\n\"{INCOMPLETE}\": {{\"cut_at_byte\": {}}}", self.at) } else { String::new() };
        format!("\n{member}{mark}{}\n", close(root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::analysis::{Events, Note, ReadOptions};
    use std::fs;
    #[cfg(feature = "gzip")]
    use std::io::Write as _;

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
        for (text, kind) in [("", ErrorKind::NotATrace), ("[1]]", ErrorKind::Json), ("hello", ErrorKind::NotATrace)] {
            assert_eq!(result(text).unwrap_err().kind(), kind, "{text}");
        }
        let list = result("[{\"ph\": \"X\", \"ts\": 1, \"dur\": 1}, {\"ph\"").unwrap().unwrap();
        assert_eq!((list.dropped_bytes, Events::read(&output).unwrap().len()), (7, 1));
        assert_eq!(repair(folder.path().join("none"), &output).unwrap_err().kind(), ErrorKind::Io);
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
