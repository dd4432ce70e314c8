//! A fixed-size output buffer that remembers the first write error.

use std::fmt;
use std::io::{self, Write};

use super::json::{self, Piece, PieceBuffer, SHORT};
use kineto_base::fallible::try_vec_with_capacity;

/// A buffer in front of a writer. JSON is appended to it without error checks.
///
/// It never grows: data is appended in pieces of limited size, and the buffer is flushed when the next piece does not
/// fit.
pub(super) struct Buffer<'w> {
    out: &'w mut dyn Write,
    bytes: Box<[u8]>,
    /// The number of bytes used.
    at: usize,
    error: Option<io::Error>,
    failed: bool,
}

/// The capacity in bytes.
const CAPACITY: usize = 1 << 18;

/// The longest text that is copied into the flushed buffer; a longer one that does not fit is written directly.
const COPIED: usize = 1 << 15;

/// The escape for a backslash at the end of a string.
const BACKSLASH: &[u8; 6] = br"\u005c";

/// Returns the bytes that `write` appends.
pub(super) fn render_bytes(write: impl FnOnce(&mut Buffer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut buffer = Buffer::with_capacity(&mut bytes, size_of::<PieceBuffer>());
    write(&mut buffer);
    // Writing to a `Vec` does not fail.
    let _ = buffer.finish();
    bytes
}

impl fmt::Debug for Buffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("filled", &self.at).field("error", &self.error).finish_non_exhaustive()
    }
}

impl<'w> Buffer<'w> {
    pub(super) fn new(out: &'w mut dyn Write) -> Self {
        Buffer::with_capacity(out, CAPACITY)
    }

    /// `capacity` must hold at least one piece; if memory is short, the buffer holds exactly one.
    fn with_capacity(out: &'w mut dyn Write, capacity: usize) -> Self {
        let mut bytes = try_vec_with_capacity(capacity).unwrap_or_else(|| Vec::with_capacity(size_of::<PieceBuffer>()));
        bytes.resize(bytes.capacity(), 0);
        Buffer { out, bytes: bytes.into(), at: 0, error: None, failed: false }
    }

    /// Appends a piece, which `write` fills.
    #[inline(always)]
    pub(super) fn put_piece<T>(&mut self, write: impl FnOnce(&mut Piece<'_>) -> T) -> T {
        let mut piece = Piece::new(self.reserve_chunk());
        let result = write(&mut piece);
        self.at += piece.length();
        result
    }

    /// Appends a literal unchanged.
    #[inline(always)]
    pub(super) fn put_literal<const N: usize>(&mut self, text: &[u8; N]) {
        *self.reserve_chunk() = *text;
        self.at += N;
    }

    /// Appends text of any length unchanged.
    #[inline(always)]
    pub(super) fn put_verbatim(&mut self, text: &[u8]) {
        match self.bytes.get_mut(self.at..).and_then(|rest| rest.get_mut(..text.len())) {
            Some(dest) => {
                dest.copy_from_slice(text);
                self.at += text.len();
            }
            None => self.append_unbuffered(text),
        }
    }

    /// Appends valid JSON, unchanged except for backslashes at the ends of strings; see [`put_escaped_text`](Buffer::put_escaped_text).
    pub(super) fn put_json(&mut self, json: &str) {
        let mut rest = json.as_bytes();
        let mut at = 0;
        // In valid JSON a backslash begins an escape of at least two bytes, so `\\` before a quote ends a string.
        while let Some(found) = rest.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == b'\\')) {
            at += found;
            if rest.get(at..at + 3) == Some(br#"\\""#) {
                let (before, after) = rest.split_at(at);
                self.put_verbatim(before);
                self.put_literal(BACKSLASH);
                (rest, at) = (after.get(2..).unwrap_or_default(), 0);
            } else {
                at += 2;
            }
        }
        self.put_verbatim(rest);
    }

    /// Appends `text` as a JSON string.
    #[inline]
    pub(super) fn put_string(&mut self, text: &str) {
        self.put_literal(b"\"");
        self.put_text(text.as_bytes());
        self.put_literal(b"\"");
    }

    /// Appends the key of a member of an object, after a comma unless it is the first.
    #[inline]
    pub(super) fn put_key(&mut self, first: bool, key: &str) {
        self.start_of_member(first, key, |_| {});
    }

    /// Appends the key of a member, after a comma unless it is the first, and the short value that `value` writes.
    #[inline(always)]
    pub(super) fn start_of_member(&mut self, first: bool, key: &str, value: impl Fn(&mut Piece<'_>)) {
        if key.len() <= SHORT {
            let mut piece = Piece::new(self.reserve_chunk());
            if !first {
                piece.put_literal(b",");
            }
            piece.put_literal(b"\"");
            let clean = piece.short_text(key.as_bytes());
            piece.put_literal(b"\":");
            if clean {
                value(&mut piece);
                self.at += piece.length();
                return;
            }
        }
        self.escaped_key(first, key);
        self.put_piece(value);
    }

    #[inline(always)]
    pub(super) fn put_uint(&mut self, value: u64) {
        self.put_piece(|piece| piece.put_uint(value));
    }

    #[inline(always)]
    pub(super) fn put_int(&mut self, value: i64) {
        self.put_piece(|piece| piece.put_int(value));
    }

    /// Appends `value`, as a string if it is above 2^63-1.
    #[inline(always)]
    pub(super) fn put_wide_uint(&mut self, value: u64) {
        self.put_piece(|piece| piece.put_wide_uint(value));
    }

    /// Appends `value` as a string.
    #[cold]
    pub(super) fn put_quoted(&mut self, value: impl fmt::Display) {
        self.put_string(&value.to_string());
    }

    /// Appends a float; see [`Piece::put_float`].
    pub(super) fn put_float(&mut self, value: f64) {
        self.put_piece(|piece| piece.put_float(value));
    }

    /// Ends a row; returns an error if a write failed since the last row.
    #[inline]
    pub(super) fn end_row(&mut self) -> io::Result<()> {
        if self.failed { self.take_error() } else { Ok(()) }
    }

    /// Flushes the buffer and the writer.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush_buffer();
        if !self.failed {
            let flushed = self.out.flush();
            self.record_error(flushed);
        }
        self.end_row()
    }

    #[cold]
    fn escaped_key(&mut self, first: bool, key: &str) {
        if !first {
            self.put_literal(b",");
        }
        self.put_string(key);
        self.put_literal(b":");
    }

    /// Appends `text` with escapes.
    #[inline(always)]
    pub(super) fn put_text(&mut self, text: &[u8]) {
        let mut short = text;
        if text.len() > SHORT {
            let (blocks, rest) = text.as_chunks::<SHORT>();
            self.long_text(blocks, rest.is_empty());
            short = rest;
        }
        let mut piece = Piece::new(self.reserve_chunk());
        if piece.short_text(short) {
            self.at += piece.length();
        } else {
            self.put_escaped_text(short, true);
        }
    }

    /// Appends a part of a text; `is_end` tells whether it is the last part.
    fn long_text(&mut self, blocks: &[[u8; SHORT]], is_end: bool) {
        for (number, block) in blocks.iter().enumerate() {
            if json::is_clean(block) {
                self.put_literal(block);
            } else {
                self.put_escaped_text(block, is_end && number + 1 == blocks.len());
            }
        }
    }

    /// Appends a part of a text that contains characters to escape.
    ///
    /// A backslash at the end of the text becomes `\u005c`: Perfetto takes the quote after `\\` for an escaped quote,
    /// and rejects the file.
    #[cold]
    fn put_escaped_text(&mut self, part: &[u8], is_end: bool) {
        let before_last = part.strip_suffix(b"\\").filter(|_| is_end);
        for &byte in before_last.unwrap_or(part) {
            self.put_piece(|piece| piece.put_escaped_byte(byte));
        }
        if before_last.is_some() {
            self.put_literal(BACKSLASH);
        }
    }

    /// Returns the next `N` bytes of the buffer; they count only once `at` moves past them.
    #[inline(always)]
    fn reserve_chunk<const N: usize>(&mut self) -> &mut [u8; N] {
        if self.bytes.len().saturating_sub(self.at) < N {
            self.flush_buffer();
        }
        let chunk = self.bytes.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut);
        #[expect(clippy::expect_used, reason = "no piece is longer than the flush_buffer buffer")]
        chunk.expect("the buffer was flushed, so a piece fits")
    }

    /// Appends a text that does not fit.
    #[cold]
    fn append_unbuffered(&mut self, text: &[u8]) {
        self.flush_buffer();
        match self.bytes.get_mut(..text.len()) {
            Some(dest) if text.len() <= COPIED => {
                dest.copy_from_slice(text);
                self.at = text.len();
            }
            _ if self.failed => {}
            _ => {
                let written = self.out.write_all(text);
                self.record_error(written);
            }
        }
    }

    #[cold]
    fn flush_buffer(&mut self) {
        let filled = std::mem::take(&mut self.at);
        if let (false, Some(bytes)) = (self.failed, self.bytes.get(..filled)) {
            let written = self.out.write_all(bytes);
            self.record_error(written);
        }
    }

    fn record_error(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.failed = true;
            self.error = Some(error);
        }
    }

    #[cold]
    fn take_error(&mut self) -> io::Result<()> {
        Err(self.error.take().unwrap_or_else(|| io::Error::other("an earlier write of this file failed")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Accepts `capacity` bytes, and records the size of each write.
    struct Disk {
        capacity: usize,
        taken: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.capacity - self.taken.len());
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.taken.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn text(write: impl FnOnce(&mut Buffer<'_>)) -> String {
        let mut bytes = Vec::new();
        let mut buffer = Buffer::new(&mut bytes);
        write(&mut buffer);
        buffer.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn integers_above_63_bits_are_strings() {
        assert_eq!(text(|out| out.put_wide_uint(i64::MAX.unsigned_abs())), "9223372036854775807");
        assert_eq!(text(|out| out.put_wide_uint(i64::MAX.unsigned_abs() + 1)), "\"9223372036854775808\"");
        assert_eq!(text(|out| out.put_int(i64::MIN)), i64::MIN.to_string());
    }

    #[test]
    fn utf8_text_is_unchanged() {
        assert_eq!(text(|out| out.put_string("é\u{2028}\u{7f}🦀\u{1}")), "\"é\u{2028}\u{7f}🦀\\u0001\"");
    }

    #[test]
    fn long_text_does_not_grow_the_buffer() {
        let mut bytes = Vec::new();
        let mut buffer = Buffer::new(&mut bytes);
        let hostile = "\0".repeat(4 << 20);
        let long = "\"é漢\"".repeat(1 << 20);
        for _ in 0..3 {
            buffer.put_string(&hostile);
            buffer.put_literal(b",");
            buffer.put_verbatim(b"[1]");
            buffer.put_literal(b",");
            buffer.put_string(&long);
            buffer.put_literal(b",");
            buffer.end_row().unwrap();
        }
        buffer.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let list: Vec<serde_json::Value> = serde_json::from_str(&format!("[{}0]", text)).unwrap();
        assert_eq!(list.len(), 10);
        assert_eq!(list[6], hostile);
        assert_eq!(list[8], long);
    }

    #[test]
    fn order_is_kept_when_long_text_is_unbuffered() {
        let mut bytes = Vec::new();
        let mut buffer = Buffer::new(&mut bytes);
        buffer.put_literal(b"a");
        buffer.put_verbatim(&b"b".repeat(CAPACITY));
        buffer.put_literal(b"c");
        buffer.finish().unwrap();
        assert_eq!(bytes, format!("a{}c", "b".repeat(CAPACITY)).into_bytes());
    }

    #[test]
    fn nothing_is_written_after_the_first_error() {
        let mut disk = Disk { capacity: CAPACITY + 10, taken: Vec::new() };
        let mut buffer = Buffer::new(&mut disk);
        let row = [b'x'; 4096];
        let mut rows = 0;
        let error = loop {
            buffer.put_literal(&row);
            rows += 1;
            if let Err(error) = buffer.end_row() {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(rows * row.len() > CAPACITY && rows * row.len() <= 3 * CAPACITY);
        for _ in 0..1000 {
            buffer.put_literal(&row);
            assert_eq!(buffer.end_row().unwrap_err().kind(), io::ErrorKind::Other);
        }
        assert!(buffer.finish().is_err());
    }

    #[test]
    fn error_on_flush_is_reported() {
        let mut disk = Disk { capacity: 10, taken: Vec::new() };
        let mut buffer = Buffer::new(&mut disk);
        buffer.put_literal(&[b'x'; 11]);
        assert!(buffer.end_row().is_ok());
        assert_eq!(buffer.finish().err().unwrap().kind(), io::ErrorKind::StorageFull);
    }

    /// Returns whether a string in a JSON text has a backslash before its closing quote.
    fn has_backslash_before_end(json: &str) -> bool {
        let (mut bytes, mut in_string, mut last) = (json.bytes(), false, None);
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' if in_string && last == Some(b'\\') => return true,
                b'"' => in_string = !in_string,
                _ => {}
            }
            last = if byte == b'\\' { bytes.next() } else { Some(byte) };
        }
        false
    }

    #[test]
    fn final_backslash_is_written_as_a_code_point() {
        let block = "31 bytes, and the last of a block";
        let (ends, goes_on) = (format!("{}\\", &block[..31]), format!("{}\\x", &block[..31]));
        for (value, expected) in [
            (ends.as_str(), r#""31 bytes, and the last of a blo\u005c""#),
            (goes_on.as_str(), r#""31 bytes, and the last of a blo\\x""#),
            ("\\", r#""\u005c""#),
            (r"C:\new\", r#""C:\\new\u005c""#),
            (r"\\", r#""\\\u005c""#),
            (r#"\""#, r#""\\\"""#),
        ] {
            assert_eq!(text(|out| out.put_string(value)), expected);
            assert_eq!(text(|out| out.put_key(true, value)), format!("{expected}:"));
            let json = serde_json::to_string(value).unwrap();
            assert_eq!(text(|out| out.put_json(&json)), expected);
        }
    }

    proptest! {
        #[test]
        fn json_keeps_its_values_when_backslashes_change(
            values in prop::collection::vec(("[a\"\\\\\n/u]{0,6}", "[a\"\\\\{}\\[]{0,40}"), 0..8),
        ) {
            let value: serde_json::Value = values.into_iter().map(|(key, text)| (key, vec![text])).collect();
            let written = text(|out| out.put_json(&value.to_string()));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), value);
            prop_assert!(!has_backslash_before_end(&written), "{}", written);
        }

        #[test]
        fn any_string_round_trips(value in any::<String>(), repeat in 1..20_usize) {
            let value = value.repeat(repeat);
            prop_assert_eq!(serde_json::from_str::<String>(&text(|out| out.put_string(&value))).unwrap(), value);
        }

        #[test]
        fn any_string_with_escapes_round_trips(value in "[a\"\\\\\\x00-\\x1f\\x7fé漢🦀]{0,100}") {
            prop_assert_eq!(serde_json::from_str::<String>(&text(|out| out.put_string(&value))).unwrap(), value);
        }
    }
}
