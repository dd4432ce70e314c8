//! A JSON reader over a text in memory.

use super::fault::{Cause, Fault};
use std::borrow::Cow;

/// The maximum nesting of values.
pub(super) const DEPTH: usize = 128;

/// Reads values one after another.
#[derive(Clone, Debug)]
pub(crate) struct Json<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// The offset of `text` in the file.
    origin: u64,
}

/// A value; numbers, strings, lists and objects are unparsed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum JsonValue<'a> {
    Null,
    Bool(bool),
    Number(JsonNumber<'a>),
    /// A float that JSON cannot represent, as C and Python print it; libkineto's counters may contain it.
    NotFinite(f64),
    Text(JsonText<'a>),
    /// A list or object with its brackets; valid JSON except for invalid UTF-8.
    Nested(&'a [u8]),
}

/// A number, which matches JSON's grammar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JsonNumber<'a> {
    text: &'a [u8],
    /// The number without sign and decimal point; `None` if it has an exponent or more than 18 digits.
    digits: Option<i64>,
    /// How many of the digits are decimals.
    decimals: usize,
}

/// A string as written between its quotes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JsonText<'a> {
    raw: &'a [u8],
    escaped: bool,
}

pub(super) type Result<T> = std::result::Result<T, Box<Fault>>;

impl<'a> Json<'a> {
    /// `origin` is the offset of `text` in the file.
    pub(crate) fn new(text: &'a [u8], origin: u64) -> Json<'a> {
        Json { text, at: 0, depth: 0, origin }
    }

    /// Reads an object: calls `each` with every key and the reader before its value, which `each` must read.
    pub(crate) fn read_object(&mut self, mut each: impl FnMut(JsonText<'a>, &mut Self) -> Result<()>) -> Result<()> {
        self.read_members(|json| {
            let key = json.read_key()?;
            each(key, json)
        })
    }

    /// Reads an object: calls `each` with the reader before every key, which `each` must read with its value.
    #[inline]
    pub(super) fn read_members(&mut self, mut each: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.open_bracket(b'{', "an object")?;
        let mut more = self.skip_space() != b'}';
        while more {
            self.skip_space();
            each(self)?;
            more = self.has_more(b'}', "a comma or the object's end")?;
        }
        self.close_bracket();
        Ok(())
    }

    /// Reads a key and the colon after it.
    pub(super) fn read_key(&mut self) -> Result<JsonText<'a>> {
        let key = self.read_text()?;
        if self.skip_space() != b':' {
            return self.expected_error("a colon");
        }
        self.at += 1;
        Ok(key)
    }

    /// Skips bytes if they come next, and returns whether it did; `false` for no bytes.
    #[inline]
    pub(super) fn take_bytes(&mut self, bytes: &[u8]) -> bool {
        let comes_next = !bytes.is_empty() && self.text.get(self.at..).is_some_and(|rest| rest.starts_with(bytes));
        self.at += if comes_next { bytes.len() } else { 0 };
        comes_next
    }

    /// Reads a list: calls `each` with the reader before every element, which `each` must read.
    pub(crate) fn read_array(&mut self, mut each: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.open_bracket(b'[', "a list")?;
        let mut more = self.skip_space() != b']';
        while more {
            each(self)?;
            more = self.has_more(b']', "a comma or the list's end")?;
        }
        self.close_bracket();
        Ok(())
    }

    pub(crate) fn read_value(&mut self) -> Result<JsonValue<'a>> {
        match self.skip_space() {
            b'"' => self.read_text().map(JsonValue::Text),
            b'{' | b'[' => {
                let start = self.at;
                self.skip_value()?;
                Ok(JsonValue::Nested(self.text.get(start..self.at).unwrap_or_default()))
            }
            b'0'..=b'9' => self.read_number(),
            b'-' => match self.text.get(self.at + 1) {
                Some(b'0'..=b'9') => self.read_number(),
                _ => self.read_word(),
            },
            _ => self.read_word(),
        }
    }

    /// Skips one value.
    pub(crate) fn skip_value(&mut self) -> Result<()> {
        match self.skip_space() {
            b'{' => self.read_object(|_, json| json.skip_value()),
            b'[' => self.read_array(Json::skip_value),
            _ => match self.read_value()? {
                JsonValue::NotFinite(_) => self.expected_error("a number"),
                _ => Ok(()),
            },
        }
    }

    /// Skips white space, and takes the next byte.
    pub(super) fn take_byte(&mut self) -> Option<u8> {
        self.skip_space();
        let byte = self.text.get(self.at).copied();
        self.at += usize::from(byte.is_some());
        byte
    }

    /// Skips white space, and returns whether nothing more follows.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at >= self.text.len()
    }

    /// Returns how many bytes are read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Returns the whole text.
    pub(super) fn whole_text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns whether the next value is an object.
    pub(crate) fn is_object(&mut self) -> bool {
        self.skip_space() == b'{'
    }

    /// Returns whether the next value is an object or a list.
    pub(super) fn starts_with_bracket(&mut self) -> bool {
        matches!(self.skip_space(), b'{' | b'[')
    }

    /// Returns an error unless only white space is left.
    pub(super) fn expect_end(&mut self) -> Result<()> {
        if self.is_at_end() { Ok(()) } else { self.expected_error("nothing more") }
    }

    /// Returns an error at the next byte.
    pub(super) fn expected_error<T>(&self, expected: &'static str) -> Result<T> {
        let before = self.text.get(..self.at).unwrap_or_default().trim_ascii_end();
        let cause = match self.text.get(self.at) {
            None => Cause::Truncated,
            Some(_) if before.ends_with(b"\"") => Cause::NotJsonAfterText(expected),
            Some(_) => Cause::NotJson(expected),
        };
        Err(Fault::new(cause, self.origin + self.at as u64))
    }

    /// Skips white space, and returns the next byte; 0 at the end.
    #[inline]
    fn skip_space(&mut self) -> u8 {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                Some(byte) => return *byte,
                None => return 0,
            }
        }
    }

    fn open_bracket(&mut self, bracket: u8, expected: &'static str) -> Result<()> {
        if self.skip_space() != bracket {
            return self.expected_error(expected);
        }
        if self.depth == DEPTH {
            let cause = Cause::TooLarge("values are nested more than 128 levels deep");
            return Err(Fault::new(cause, self.origin + self.at as u64));
        }
        (self.depth, self.at) = (self.depth + 1, self.at + 1);
        Ok(())
    }

    fn close_bracket(&mut self) {
        (self.depth, self.at) = (self.depth - 1, self.at + 1);
    }

    fn has_more(&mut self, bracket: u8, expected: &'static str) -> Result<bool> {
        match self.skip_space() {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == bracket => Ok(false),
            _ => self.expected_error(expected),
        }
    }

    fn read_text(&mut self) -> Result<JsonText<'a>> {
        if self.text.get(self.at) != Some(&b'"') {
            return self.expected_error("a text");
        }
        self.at += 1;
        let (start, mut escaped) = (self.at, false);
        loop {
            self.at += plain_prefix_len(self.text.get(self.at..).unwrap_or_default());
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.skip_escape()?;
                }
                _ => return self.expected_error("no control character in a text"),
            }
        }
        self.at += 1;
        Ok(JsonText { raw: self.text.get(start..self.at - 1).unwrap_or_default(), escaped })
    }

    /// Skips an escape sequence.
    fn skip_escape(&mut self) -> Result<()> {
        self.at += 1;
        match self.text.get(self.at) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                for _ in 0..4 {
                    self.at += 1;
                    if !self.text.get(self.at).is_some_and(u8::is_ascii_hexdigit) {
                        return self.expected_error("four hexadecimal digits");
                    }
                }
                self.at += 1;
            }
            _ => return self.expected_error("a valid escape character"),
        }
        Ok(())
    }

    fn read_number(&mut self) -> Result<JsonValue<'a>> {
        /// Numbers of up to this many digits fit into 64 bits.
        const DIGITS: usize = 18;

        let start = self.at;
        self.at += usize::from(self.text.get(start) == Some(&b'-'));
        let zero = self.text.get(self.at) == Some(&b'0');
        let (mut value, whole) = self.read_digits(0)?;
        if zero && whole > 1 {
            self.at -= whole - 1;
            return self.expected_error("a number without leading zeros");
        }
        let mut decimals = 0;
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            (value, decimals) = self.read_digits(value)?;
        }
        let mut digits = (whole + decimals <= DIGITS).then_some(value);
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            self.at += usize::from(matches!(self.text.get(self.at), Some(b'+' | b'-')));
            self.read_digits(0)?;
            digits = None;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        Ok(JsonValue::Number(JsonNumber { text, digits, decimals }))
    }

    /// Reads at least one digit. Returns `value` with the digits appended, wrapping, and their number.
    #[inline]
    fn read_digits(&mut self, mut value: i64) -> Result<(i64, usize)> {
        let mut count = 0;
        for byte in self.text.get(self.at..).unwrap_or_default() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(digit.into());
            count += 1;
        }
        self.at += count;
        if count == 0 { self.expected_error("a digit") } else { Ok((value, count)) }
    }

    fn read_word(&mut self) -> Result<JsonValue<'a>> {
        const WORDS: [(&str, JsonValue<'static>); 11] = [
            ("null", JsonValue::Null),
            ("true", JsonValue::Bool(true)),
            ("false", JsonValue::Bool(false)),
            ("NaN", JsonValue::NotFinite(f64::NAN)),
            ("nan", JsonValue::NotFinite(f64::NAN)),
            ("-nan", JsonValue::NotFinite(f64::NAN)),
            ("Infinity", JsonValue::NotFinite(f64::INFINITY)),
            ("-Infinity", JsonValue::NotFinite(f64::NEG_INFINITY)),
            ("inf", JsonValue::NotFinite(f64::INFINITY)),
            ("-inf", JsonValue::NotFinite(f64::NEG_INFINITY)),
            ("-NaN", JsonValue::NotFinite(f64::NAN)),
        ];
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = WORDS.iter().find(|(word, _)| {
            let behind = rest.strip_prefix(word.as_bytes());
            behind.is_some_and(|behind| !behind.first().is_some_and(u8::is_ascii_alphanumeric))
        });
        let Some((word, value)) = found else {
            // The text ends within a word.
            if !rest.is_empty() && WORDS.iter().any(|(word, _)| word.as_bytes().starts_with(rest)) {
                self.at = self.text.len();
            }
            return self.expected_error("a value");
        };
        self.at += word.len();
        Ok(*value)
    }
}

/// Returns the number of bytes before the first quote, backslash or control character.
///
/// It tests eight bytes at a time. The high bit of `(x - n) & !x` marks bytes below n. A borrow can mark further bytes
/// wrongly, but only after one that is marked correctly.
#[inline]
pub(super) fn plain_prefix_len(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
        let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let marks = (below(word, 0x20) | is(b'"') | is(b'\\')) & (ONES * 0x80);
        if marks != 0 {
            return at * 8 + (marks.trailing_zeros() / 8) as usize;
        }
    }
    let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    bytes.len() - rest.len() + rest.iter().position(stops).unwrap_or(rest.len())
}

impl<'a> JsonNumber<'a> {
    /// Returns the number as written.
    pub(crate) fn as_str(self) -> &'a str {
        str::from_utf8(self.text).unwrap_or_default()
    }

    fn is_negative(self) -> bool {
        self.text.first() == Some(&b'-')
    }

    /// Returns the number if it is an integer without fraction and exponent, except -0.
    pub(crate) fn as_integer(self) -> Option<i64> {
        match self.digits {
            Some(0) if self.is_negative() => None,
            Some(_) => self.scaled(0),
            None => self.as_str().parse().ok(),
        }
    }

    /// Returns the number times 10 to the power of `power`; `None` if it has an exponent, more than 18 digits or more decimals than
    /// that, or overflows.
    #[inline]
    pub(super) fn scaled(self, power: u32) -> Option<i64> {
        let missing = power.checked_sub(u32::try_from(self.decimals).ok()?)?;
        let value = self.digits?.checked_mul(10_i64.pow(missing))?;
        Some(if self.is_negative() { -value } else { value })
    }
}

impl<'a> JsonText<'a> {
    /// Returns the string, and whether it was valid; invalid parts are replaced by U+FFFD.
    pub(crate) fn decode_text(self) -> (Cow<'a, str>, bool) {
        match str::from_utf8(self.raw) {
            Ok(text) if !self.escaped => (Cow::Borrowed(text), true),
            Ok(text) => {
                let (text, whole) = resolve_escapes(text);
                (Cow::Owned(text), whole)
            }
            Err(_) => {
                let text = String::from_utf8_lossy(self.raw);
                (if self.escaped { Cow::Owned(resolve_escapes(&text).0) } else { text }, false)
            }
        }
    }

    /// Returns the string if it has no escapes.
    pub(crate) fn as_plain_str(self) -> Option<&'a str> {
        str::from_utf8(self.raw).ok().filter(|_| !self.escaped)
    }

    /// Returns the bytes if it has no escapes; they may be other than UTF-8.
    pub(crate) fn as_plain_bytes(self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.raw)
    }

    /// Returns whether it equals `word`.
    pub(crate) fn is_word(self, word: &str) -> bool {
        if self.escaped { self.decode_text().0 == word } else { self.raw == word.as_bytes() }
    }
}

/// Resolves escapes; also returns whether all surrogates were paired.
fn resolve_escapes(text: &str) -> (String, bool) {
    let (mut out, mut whole) = (String::with_capacity(text.len()), true);
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        let mut chars = escape.chars();
        match chars.next() {
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let code_unit = code_unit(chars.as_str());
                chars = chars.as_str().get(4..).unwrap_or_default().chars();
                let low = chars.as_str().strip_prefix("\\u").map(self::code_unit);
                let decoded = match (code_unit, low) {
                    (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
                        chars = chars.as_str().get(6..).unwrap_or_default().chars();
                        char::from_u32(0x10000 + ((code_unit - 0xd800) << 10) + (low - 0xdc00))
                    }
                    _ => char::from_u32(code_unit),
                };
                whole &= decoded.is_some();
                out.push(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            other => out.extend(other),
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    (out, whole)
}

/// Parses four hexadecimal digits.
fn code_unit(text: &str) -> u32 {
    text.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the fault of a text as "expected@byte"; empty if there is none.
    fn fault(text: &str) -> String {
        let mut json = Json::new(text.as_bytes(), 100);
        match json.skip_value().and_then(|()| json.expect_end()) {
            Ok(()) => String::new(),
            Err(fault) => match fault.cause {
                Cause::NotJson(expected) | Cause::NotJsonAfterText(expected) => format!("{expected}@{}", fault.at),
                cause => format!("{cause:?}@{}", fault.at),
            },
        }
    }

    #[test]
    fn invalid_json_is_reported_with_its_position() {
        for (text, expected) in [
            ("", "Truncated@100"),
            ("[1,", "Truncated@103"),
            ("[1,]", "a value@103"),
            ("{\"a\"", "Truncated@104"),
            ("{\"a\" 1}", "a colon@105"),
            ("{1:2}", "a text@101"),
            ("[1 2]", "a comma or the list's end@103"),
            ("\"a /\"b\"", "nothing more@105"),
            ("\"a\nb\"", "no control character in a text@102"),
            ("\"\\x\"", "a valid escape character@102"),
            ("\"\\u12g4\"", "four hexadecimal digits@105"),
            ("01", "a number without leading zeros@101"),
            ("-", "Truncated@101"),
            ("1.", "Truncated@102"),
            ("1.e", "a digit@102"),
            ("tru", "Truncated@103"),
            ("trues", "a value@100"),
            ("[nan]", "a number@104"),
            ("{} {}", "nothing more@103"),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
        let deep = "[".repeat(DEPTH) + &"]".repeat(DEPTH);
        assert_eq!(fault(&deep), "");
        assert!(fault(&"[".repeat(1 << 20)).contains("128 levels deep"));
    }

    #[test]
    fn values_are_returned_as_written() {
        let read = |text: &'static str| Json::new(text.as_bytes(), 0).read_value().unwrap();
        let number = |text: &'static str, digits, decimals| JsonNumber { text: text.as_bytes(), digits, decimals };
        assert_eq!(read(" -1.50e+3 "), JsonValue::Number(number("-1.50e+3", None, 2)));
        assert_eq!(read("-1.50,"), JsonValue::Number(number("-1.50", Some(150), 2)));
        assert_eq!(
            read("123456789012345678"),
            JsonValue::Number(number("123456789012345678", Some(123_456_789_012_345_678), 0))
        );
        assert_eq!(read("[1, {\"a\": []}] "), JsonValue::Nested(b"[1, {\"a\": []}]"));
        assert_eq!(read("-inf"), JsonValue::NotFinite(f64::NEG_INFINITY));
        assert!(matches!(read("NaN,"), JsonValue::NotFinite(f) if f.is_nan()));
        let text = |text: &'static str| match read(text) {
            JsonValue::Text(text) => text.decode_text(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text("\"\\u00e9\\ud83e\\udd80\\n\\/\\\\\""), ("é🦀\n/\\".into(), true));
        assert_eq!(text("\"\\ud83ex\""), ("\u{fffd}x".into(), false));
        assert_eq!(text("\"\\ud83e\\ud83e\\udd80\""), ("\u{fffd}🦀".into(), false));
        let invalid = Json::new(b"\"a\xff\\n\"", 0).read_value().unwrap();
        assert!(matches!(invalid, JsonValue::Text(text) if text.decode_text() == ("a\u{fffd}\n".into(), false)));
    }

    proptest! {
        #[test]
        fn plain_finds_the_first_special_byte(text in "[a-z\u{7f}\u{80}é🦀\"\\\\\n ]{0,40}") {
            let stops = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
            let expected = text.bytes().position(stops).unwrap_or(text.len());
            prop_assert_eq!(plain_prefix_len(text.as_bytes()), expected);
        }

        #[test]
        fn any_bytes_parse_as_in_serde(text in "[\\[\\]{}\",:0-9a\\\\u eE.+-]{0,24}") {
            let ours = fault(&text).is_empty();
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            // serde refuses what Rust's strings cannot hold.
            let lone = theirs.as_ref().is_err_and(|e| e.to_string().contains("surrogate") || e.to_string().contains("hex escape"));
            prop_assert!(ours == theirs.is_ok() || lone, "{text}: {theirs:?}, {}", fault(&text));
        }

        #[test]
        fn any_text_round_trips(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let JsonValue::Text(read) = Json::new(json.as_bytes(), 0).read_value().unwrap() else { panic!() };
            prop_assert_eq!(read.decode_text(), (Cow::Borrowed(text.as_str()), true));
        }
    }
}
