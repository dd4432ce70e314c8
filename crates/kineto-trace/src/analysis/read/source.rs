//! A file on its way: a window on its bytes, from which whole values are taken.

use super::fault::{Cause, Fault};
use super::json::{Json, Result, plain};
use std::io::{ErrorKind, Read};

/// The most bytes that one event, or one value of the header, may take.
const VALUE_MAX: usize = 64 << 20;

/// How much is read at a time.
const STEP: usize = 256 << 10;

/// Takes values out of a reader, which need not be in memory as a whole.
#[derive(Debug)]
pub(super) struct Source<R> {
    reader: R,
    window: Vec<u8>,
    /// What of the window has been read and not been taken yet.
    start: usize,
    end: usize,
    /// Where in the file the window begins.
    origin: u64,
    bytes_max: u64,
}

impl<R: Read> Source<R> {
    /// `bytes_max` is how long the file may be.
    pub(super) fn new(reader: R, bytes_max: u64) -> Source<R> {
        Source { reader, window: vec![0; STEP], start: 0, end: 0, origin: 0, bytes_max }
    }

    /// Where in the file the next byte lies.
    pub(super) fn position(&self) -> u64 {
        self.origin + self.start as u64
    }

    /// Passes over white space, and returns the byte behind it; `None` at the end of the file.
    pub(super) fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let rest = self.window.get(self.start..self.end).unwrap_or_default();
            match rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\t' | b'\r')) {
                Some(spaces) => {
                    self.start += spaces;
                    return Ok(self.window.get(self.start).copied());
                }
                None => self.start = self.end,
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Passes over the byte that was peeked at.
    pub(super) fn pass(&mut self) {
        self.start += 1;
    }

    /// Passes over one of these bytes, and returns it.
    pub(super) fn expect(&mut self, bytes: &[u8], expected: &'static str) -> Result<u8> {
        match self.peek()? {
            Some(byte) if bytes.contains(&byte) => {
                self.pass();
                Ok(byte)
            }
            Some(_) => Err(Fault::new(Cause::NotJson(expected), self.position())),
            None => Err(Fault::new(Cause::Truncated, self.position())),
        }
    }

    /// Takes a value as a whole; whether it is JSON is not known yet, only where it would end.
    pub(super) fn value(&mut self) -> Result<Json<'_>> {
        self.peek()?;
        let mut scan = Scan::default();
        let length = loop {
            let rest = self.window.get(self.start..self.end).unwrap_or_default();
            if let Some(length) = scan.end(rest) {
                break length;
            }
            if !self.fill()? {
                return Err(self.cut_off());
            }
        };
        if length == 0 {
            return Err(Fault::new(Cause::NotJson("a value"), self.position()));
        }
        let (text, origin) = (self.window.get(self.start..self.start + length), self.position());
        self.start += length;
        Ok(Json::new(text.unwrap_or_default(), origin))
    }

    /// Where a value without an end goes wrong, or the file ends.
    fn cut_off(&self) -> Fault {
        let rest = self.window.get(self.start..self.end).unwrap_or_default();
        let fault = Json::new(rest, self.position()).skip().err();
        fault.unwrap_or_else(|| Fault::new(Cause::Truncated, self.origin + self.end as u64))
    }

    /// Reads on, and says whether there was more.
    fn fill(&mut self) -> Result<bool> {
        if self.start > 0 {
            self.window.copy_within(self.start..self.end, 0);
            self.origin += self.start as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.window.len() - self.end < STEP / 2 {
            if self.window.len() >= VALUE_MAX {
                let cause = Cause::TooLarge("an event takes more than 64 MiB");
                return Err(Fault::new(cause, self.position()));
            }
            self.window.resize(self.window.len() * 2, 0);
        }
        let room = self.window.get_mut(self.end..).unwrap_or_default();
        let read = loop {
            match self.reader.read(room) {
                Ok(read) => break read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What a decompressor says of a file without its end.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break 0,
                Err(error) => return Err(Fault::new(Cause::Io(error), self.origin + self.end as u64)),
            }
        };
        self.end += read.min(room.len());
        if self.origin + self.end as u64 > self.bytes_max {
            return Err(Fault::new(Cause::TooLarge("the file is longer than allowed"), self.bytes_max));
        }
        Ok(read > 0)
    }
}

/// Looks for the end of a value: by its quotes and brackets alone.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_text: bool,
}

impl Scan {
    /// Returns how long the value is that `bytes` begin with; `None` if it goes on behind them. `bytes` may have grown
    /// since the last call.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        loop {
            let rest = bytes.get(self.at..)?;
            if self.in_text {
                self.at += plain(rest);
                match bytes.get(self.at)? {
                    b'\\' => self.at += 2,
                    b'"' => {
                        (self.at, self.in_text) = (self.at + 1, false);
                        if self.depth == 0 {
                            return Some(self.at);
                        }
                    }
                    _ => self.at += 1,
                }
                continue;
            }
            // Commas, colons and white space end nothing but a number or a word alone.
            let ends = |byte: &u8| match byte {
                b'"' | b'{' | b'}' | b'[' | b']' => true,
                b',' | b':' | b' ' | b'\n' | b'\t' | b'\r' => self.depth == 0,
                _ => false,
            };
            let Some(found) = rest.iter().position(ends) else {
                self.at = bytes.len();
                return None;
            };
            self.at += found + 1;
            match rest.get(found) {
                Some(b'"') => self.in_text = true,
                Some(b'{' | b'[') => self.depth += 1,
                Some(b'}' | b']') if self.depth > 1 => self.depth -= 1,
                Some(b'}' | b']') if self.depth == 1 => return Some(self.at),
                _ => return Some(self.at - 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::JsonValue;
    use super::*;

    /// Hands out a byte at a time.
    struct Slow<'t>(&'t [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let (first, rest) = self.0.split_at(self.0.len().min(1));
            room[..first.len()].copy_from_slice(first);
            self.0 = rest;
            Ok(first.len())
        }
    }

    #[test]
    fn values_are_taken_one_by_one_however_slowly_they_come() {
        let text = b" {\"a\": [\"}\\\"]\", {}]} , 12 ,\"x\\\\\" , null]";
        let mut source = Source::new(Slow(text), u64::MAX);
        let mut taken = Vec::new();
        for _ in 0..4 {
            let value = source.value().unwrap().value().unwrap();
            taken.push(match value {
                JsonValue::Nested(text) => String::from_utf8(text.to_vec()).unwrap(),
                other => format!("{other:?}"),
            });
            source.expect(b",]", "a comma").unwrap();
        }
        assert_eq!(taken[0], "{\"a\": [\"}\\\"]\", {}]}");
        assert_eq!(taken[1], "Number(\"12\")");
        assert!(taken[2].starts_with("Text("));
        assert_eq!(taken[3], "Null");
        assert_eq!((source.peek().unwrap(), source.position()), (None, text.len() as u64));
    }

    #[test]
    fn what_has_no_end_is_cut_off_or_no_json() {
        let fault =
            |text: &str| Source::new(text.as_bytes(), u64::MAX).value().err().map(|f| (f.at, format!("{:?}", f.cause)));
        assert_eq!(fault(" {\"a\": \"b"), Some((9, "Truncated".to_owned())));
        assert!(fault("{\"a\": [1} ").is_some_and(|(at, cause)| at == 8 && cause.starts_with("NotJson")));
    }

    #[test]
    fn bounds_are_kept() {
        let fault = |text: &[u8], max| Source::new(text, max).value().err().map(|fault| format!("{:?}", fault.cause));
        assert!(fault(b"[1, 2, 3]", 8).is_some_and(|cause| cause.contains("longer than allowed")));
        let long = [b"\"".as_slice(), &vec![b'a'; VALUE_MAX + 1]].concat();
        assert!(fault(&long, u64::MAX).is_some_and(|cause| cause.contains("64 MiB")));
    }
}
