//! Reads whole JSON values or packets from a file through a buffer.

use super::Progress;
use super::input::Input;
use super::tolerant::{TextEnd, rewrite_value};
use crate::Error;
use crate::analysis::fault::Place;
use crate::analysis::fault::{Cause, Fault};
use crate::analysis::json_reader::{Json, Result, plain_prefix_len};
use std::io::Read;

/// The maximum size of an event or a header value, in bytes.
const VALUE_MAX: usize = 64 << 20;

/// The initial size of the buffer, which is refilled when less than half of this is free.
const INITIAL_SIZE: usize = 256 << 10;

/// Takes values from a reader without holding the whole file in memory.
pub(super) struct ValueReader<R> {
    input: Input<R>,
    buffer: Vec<u8>,
    /// The range of the window that is read but not yet taken.
    start: usize,
    end: usize,
    /// The offset in the file of the window's first byte.
    buffer_offset: u64,
}

impl<R: Read> ValueReader<R> {
    /// `bytes_max` limits the length of the file, after decompression.
    pub(super) fn new(reader: R, bytes_max: u64, progress: Progress) -> ValueReader<R> {
        ValueReader {
            input: Input::new(reader, bytes_max, progress),
            buffer: vec![0; INITIAL_SIZE],
            start: 0,
            end: 0,
            buffer_offset: 0,
        }
    }

    /// Returns the offset of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.buffer_offset + self.start as u64
    }

    /// Returns the next bytes: at least `count`, or all that are left.
    pub(super) fn peek_bytes(&mut self, count: usize) -> Result<&[u8]> {
        while self.end - self.start < count && self.fill_buffer()? {}
        Ok(self.buffer.get(self.start..self.end).unwrap_or_default())
    }

    /// Takes the next `count` bytes.
    pub(super) fn take_bytes(&mut self, count: usize) -> Result<&[u8]> {
        if count > VALUE_MAX {
            return Err(Fault::new(Cause::TooLarge("a packet takes more than 64 MiB"), self.position()));
        }
        if self.peek_bytes(count)?.len() < count {
            return Err(Fault::new(Cause::Truncated, self.buffer_offset + self.end as u64));
        }
        let taken = self.start..self.start + count;
        self.start += count;
        Ok(self.buffer.get(taken).unwrap_or_default())
    }

    /// Skips white space, and returns the next byte; `None` at the end of the file.
    pub(super) fn skip_space_and_peek(&mut self) -> Result<Option<u8>> {
        loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            match rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\t' | b'\r')) {
                Some(spaces) => {
                    self.start += spaces;
                    return Ok(self.buffer.get(self.start).copied());
                }
                None => self.start = self.end,
            }
            if !self.fill_buffer()? {
                return Ok(None);
            }
        }
    }

    /// Skips a byte order mark, which is not JSON, but some editors write one, and white space; returns the next byte.
    pub(super) fn skip_mark_and_peek(&mut self) -> Result<Option<u8>> {
        for mark in [0xef, 0xbb, 0xbf] {
            self.skip_if(mark)?;
        }
        self.skip_space_and_peek()
    }

    /// Skips the rest of the file, and returns its length.
    pub(super) fn skip_to_end(&mut self) -> Result<u64> {
        loop {
            self.start = self.end;
            if !self.fill_buffer()? {
                return Ok(self.position());
            }
        }
    }

    /// Skips the peeked byte.
    pub(super) fn skip_byte(&mut self) {
        self.start += 1;
    }

    /// Skips white space and one of these bytes, and returns that; `expected` describes them in an error.
    pub(super) fn take_one_of(&mut self, bytes: &[u8], expected: &'static str) -> Result<u8> {
        match self.skip_space_and_peek()? {
            Some(byte) if bytes.contains(&byte) => {
                self.skip_byte();
                Ok(byte)
            }
            Some(_) => {
                let before = self.buffer.get(..self.start).unwrap_or_default().trim_ascii_end();
                let is_after_text = before.ends_with(b"\"");
                let cause = if is_after_text { Cause::NotJsonAfterText(expected) } else { Cause::NotJson(expected) };
                Err(Fault::new(cause, self.position()))
            }
            None => Err(Fault::new(Cause::Truncated, self.position())),
        }
    }

    /// Returns the place of an offset that is not consumed yet.
    pub(super) fn place_of(&self, offset: u64) -> Place {
        let length = usize::try_from(offset.saturating_sub(self.buffer_offset)).unwrap_or(usize::MAX);
        self.input.place_after(self.buffer.get(..length.min(self.end)).unwrap_or_default())
    }

    /// Converts the fault that ended reading to an error.
    pub(super) fn place_error(&self, fault: Fault) -> Error {
        let place = self.place_of(fault.at);
        fault.into_error(Some(place))
    }

    /// Returns whether the file was cut off within its compressed data.
    pub(super) fn is_cut(&self) -> bool {
        self.input.is_cut()
    }

    /// Skips white space and then this byte, if it comes next; returns whether it did.
    pub(super) fn skip_if(&mut self, byte: u8) -> Result<bool> {
        let is_next = self.skip_space_and_peek()? == Some(byte);
        self.start += usize::from(is_next);
        Ok(is_next)
    }

    /// Consumes the bytes that `read` parses. If the buffer ends within the value, reads more bytes and calls `read` again. If the
    /// value is not JSON, `read` parses it [rewritten](super::tolerant). Also returns how often it was repaired. `closers` are the
    /// brackets that close what is around the value.
    pub(super) fn read_with<T>(
        &mut self,
        closers: &'static [u8],
        mut read: impl FnMut(&mut Json<'_>) -> Result<T>,
    ) -> Result<(T, u64)> {
        loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            let mut json = Json::new(rest, self.position());
            match read(&mut json) {
                Ok(result) => {
                    self.start += json.position();
                    return Ok((result, 0));
                }
                Err(fault) if matches!(fault.cause, Cause::Truncated) && self.double_rest()? => {}
                Err(fault) if fault.may_be_rewritten() => return self.read_rewritten(fault, closers, read),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Consumes a value that is not JSON; `read` parses it rewritten. Returns the fault if that is not possible.
    fn read_rewritten<T>(
        &mut self,
        fault: Box<Fault>,
        closers: &'static [u8],
        mut read: impl FnMut(&mut Json<'_>) -> Result<T>,
    ) -> Result<(T, u64)> {
        let mut end = TextEnd::Unread;
        let rewritten = loop {
            match rewrite_value(self.buffer.get(self.start..self.end).unwrap_or_default(), end) {
                Some(rewritten) => break rewritten,
                None if self.double_rest().unwrap_or(false) => {}
                None if end != TextEnd::Unread => return Err(fault),
                None if self.is_cut() => end = TextEnd::Cut,
                None => end = TextEnd::Closers(closers),
            }
        };
        let result = read(&mut Json::new(&rewritten.json, self.position())).map_err(|_| fault)?;
        self.start += rewritten.length;
        Ok((result, rewritten.repairs))
    }

    /// Reads at least as many bytes as the window contains, or to the end of the file; returns whether there were any. So all
    /// attempts at a long value take no longer than twice the last one.
    fn double_rest(&mut self) -> Result<bool> {
        let before = self.end - self.start;
        while self.end - self.start < 2 * before.max(1) {
            if !self.fill_buffer()? {
                break;
            }
        }
        Ok(self.end - self.start > before)
    }

    /// Takes a whole value as valid JSON; also returns how often it was repaired. `closers` are the brackets that close what is around
    /// the value.
    pub(super) fn next_json(&mut self, closers: &'static [u8]) -> Result<(Vec<u8>, u64)> {
        let whole = |json: &mut Json<'_>| -> Result<Vec<u8>> {
            json.skip_value()?;
            json.expect_end()?;
            Ok(json.whole_text().to_vec())
        };
        if self.skip_space_and_peek()? == Some(b'"') {
            return self.next_text(closers);
        }
        let fault = match self.next_value() {
            Ok(mut json) => match whole(&mut json) {
                Ok(text) => return Ok((text, 0)),
                Err(fault) => {
                    // The value has an end, so it is not cut off.
                    let is_cut = matches!(fault.cause, Cause::Truncated);
                    let length = json.whole_text().len();
                    self.start -= length;
                    if is_cut { Fault::new(Cause::NotJson("a value"), self.position()) } else { fault }
                }
            },
            Err(fault) => fault,
        };
        if fault.may_be_rewritten() { self.read_rewritten(fault, closers, whole) } else { Err(fault) }
    }

    /// Takes a text as valid JSON, up to a quote that ends it according to what follows.
    fn next_text(&mut self, closers: &'static [u8]) -> Result<(Vec<u8>, u64)> {
        let mut is_first_attempt = true;
        self.read_with(closers, |json| {
            let is_first = std::mem::take(&mut is_first_attempt);
            let start = json.position();
            json.skip_value()?;
            let text = json.whole_text().get(start..json.position()).unwrap_or_default().to_vec();
            let mut behind = json.clone();
            behind.is_at_end();
            let next = behind.whole_text().get(behind.position());
            // At first, more bytes may follow. At last, this is the end of the file, or of the rewritten text.
            let can_follow = match next {
                None => !is_first,
                Some(next) => b",:}]".contains(next),
            };
            if can_follow { Ok(text) } else { behind.expected_error("a comma, a colon or a closing bracket") }
        })
    }

    /// Takes a whole value. Only quotes and brackets are matched, so it may still be invalid JSON.
    pub(super) fn next_value(&mut self) -> Result<Json<'_>> {
        self.skip_space_and_peek()?;
        let mut scan = ValueScanner::default();
        let length = loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            if let Some(length) = scan.find_end(rest) {
                break length;
            }
            if !self.fill_buffer()? {
                return Err(self.unterminated_fault());
            }
        };
        if length == 0 {
            return Err(Fault::new(Cause::NotJson("a value"), self.position()));
        }
        let (text, origin) = (self.buffer.get(self.start..self.start + length), self.position());
        self.start += length;
        Ok(Json::new(text.unwrap_or_default(), origin))
    }

    /// Lets `read` take the next bytes; those that it puts back are taken next.
    pub(super) fn with_input<T>(&mut self, read: impl FnOnce(&mut Input<R>) -> T) -> T {
        let (consumed, rest) = self.buffer.get(..self.end).unwrap_or_default().split_at(self.start);
        self.input.consume(consumed);
        self.input.put_back(rest.to_vec());
        let result = read(&mut self.input);
        (self.start, self.end, self.buffer_offset) = (0, 0, self.input.offset());
        result
    }

    /// Returns the error of a value without an end: invalid JSON, or the end of the file.
    fn unterminated_fault(&self) -> Box<Fault> {
        let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
        let fault = Json::new(rest, self.position()).skip_value().err();
        fault.unwrap_or_else(|| Fault::new(Cause::Truncated, self.buffer_offset + self.end as u64))
    }

    /// Reads more bytes behind the rest, which may move or enlarge the window; returns whether there were any.
    fn fill_buffer(&mut self) -> Result<bool> {
        if self.start > 0 {
            self.input.consume(self.buffer.get(..self.start).unwrap_or_default());
            self.buffer.copy_within(self.start..self.end, 0);
            self.buffer_offset += self.start as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < INITIAL_SIZE / 2 {
            if self.buffer.len() >= VALUE_MAX {
                let cause = Cause::TooLarge("an event or a header value takes more than 64 MiB");
                return Err(Fault::new(cause, self.position()));
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = self.input.read(free)?;
        self.end += read;
        Ok(read > 0)
    }
}

/// Finds the end of a value by its quotes and brackets alone.
#[derive(Debug, Default)]
struct ValueScanner {
    scanned: usize,
    depth: usize,
    in_string: bool,
}

impl ValueScanner {
    /// Returns the length of the value at the beginning of `bytes`; `None` if it continues beyond them. `bytes` may
    /// have grown since the last call.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        loop {
            let rest = bytes.get(self.scanned..)?;
            if self.in_string {
                self.scanned += plain_prefix_len(rest);
                match bytes.get(self.scanned)? {
                    b'\\' => self.scanned += 2,
                    b'"' => {
                        (self.scanned, self.in_string) = (self.scanned + 1, false);
                        if self.depth == 0 {
                            return Some(self.scanned);
                        }
                    }
                    _ => self.scanned += 1,
                }
                continue;
            }
            // Commas, colons and white space only end a number or word outside brackets.
            let ends = |byte: &u8| match byte {
                b'"' | b'{' | b'}' | b'[' | b']' => true,
                b',' | b':' | b' ' | b'\n' | b'\t' | b'\r' => self.depth == 0,
                _ => false,
            };
            let Some(found) = rest.iter().position(ends) else {
                self.scanned = bytes.len();
                return None;
            };
            self.scanned += found + 1;
            match rest.get(found) {
                Some(b'"') => self.in_string = true,
                Some(b'{' | b'[') => self.depth += 1,
                Some(b'}' | b']') if self.depth > 1 => self.depth -= 1,
                Some(b'}' | b']') if self.depth == 1 => return Some(self.scanned),
                _ => return Some(self.scanned - 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::json_reader::JsonValue;

    /// Returns one byte per read.
    struct SlowReader<'t>(&'t [u8]);

    impl Read for SlowReader<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let (first, rest) = self.0.split_at(self.0.len().min(1));
            room[..first.len()].copy_from_slice(first);
            self.0 = rest;
            Ok(first.len())
        }
    }

    #[test]
    fn values_are_taken_singly_from_a_slow_reader() {
        let text = b" {\"a\": [\"}\\\"]\", {}]} , 12 ,\"x\\\\\" , null]";
        let mut source = ValueReader::new(SlowReader(text), u64::MAX, None);
        let mut taken = Vec::new();
        for _ in 0..4 {
            let value = source.next_value().unwrap().read_value().unwrap();
            taken.push(match value {
                JsonValue::Nested(text) => String::from_utf8(text.to_vec()).unwrap(),
                JsonValue::Number(number) => number.as_str().to_owned(),
                other => format!("{other:?}"),
            });
            source.take_one_of(b",]", "a comma").unwrap();
        }
        assert_eq!(taken[0], "{\"a\": [\"}\\\"]\", {}]}");
        assert_eq!(taken[1], "12");
        assert!(taken[2].starts_with("Text("));
        assert_eq!(taken[3], "Null");
        assert_eq!((source.skip_space_and_peek().unwrap(), source.position()), (None, text.len() as u64));
    }

    #[test]
    fn long_value_from_a_slow_reader_is_read_a_few_times() {
        let text = format!("{{\"a\": \"{}\"}} ,", "b".repeat(100_000));
        let (mut source, mut attempts) = (ValueReader::new(SlowReader(text.as_bytes()), u64::MAX, None), 0);
        let read = source.read_with(b"", |json| {
            attempts += 1;
            json.skip_value()
        });
        assert!(read.is_ok() && attempts < 20, "{attempts}");
        assert_eq!(source.position(), text.len() as u64 - 2);
        let mut cut = ValueReader::new(SlowReader(&text.as_bytes()[..50_000]), u64::MAX, None);
        let fault = cut.read_with(b"", |json| json.skip_value()).unwrap_err();
        assert!(matches!(fault.cause, Cause::Truncated) && fault.at == 50_000, "{fault:?}");
    }

    #[test]
    fn value_without_end_is_truncated_or_invalid() {
        let fault = |text: &str| {
            ValueReader::new(text.as_bytes(), u64::MAX, None)
                .next_value()
                .err()
                .map(|f| (f.at, format!("{:?}", f.cause)))
        };
        assert_eq!(fault(" {\"a\": \"b"), Some((9, "Truncated".to_owned())));
        assert!(fault("{\"a\": [1} ").is_some_and(|(at, cause)| at == 8 && cause.starts_with("NotJson")));
    }

    #[test]
    fn size_limits_are_enforced() {
        let fault = |text: &[u8], max| {
            ValueReader::new(text, max, None).next_value().err().map(|fault| format!("{:?}", fault.cause))
        };
        assert!(fault(b"[1, 2, 3]", 8).is_some_and(|cause| cause == "TooLong"));
        let long = [b"\"".as_slice(), &vec![b'a'; VALUE_MAX + 1]].concat();
        assert!(fault(&long, u64::MAX).is_some_and(|cause| cause.contains("64 MiB")));
    }
}
