//! Rewrites a value that is not JSON as JSON, with the meaning that lenient readers give it.
//!
//! Files are read strictly. After a fault, the value with the fault is rewritten and read once more; each change is counted.
//!
//! | In the file | Read as |
//! |---|---|
//! | a text with a backslash that begins no escape, such as a path of Windows | all its backslashes are letters |
//! | a control character in a text | that character |
//! | `N/A`, `None` or `undefined` as a value | null |
//! | a number that is not finite, where the strict reader takes none | a text, as this crate writes it |
//! | a comma before a closing bracket | no comma |
//!
//! Unescaped quotes stay a fault: where such a text ends is a guess.

use super::json::plain_prefix_len;

/// A value as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RewrittenValue {
    pub(super) json: Vec<u8>,
    /// The length of the value in the file.
    pub(super) length: usize,
    /// How many texts, words and commas were changed.
    pub(super) repairs: u64,
}

/// Rewrites the value at the beginning of `text`; `None` if the value continues beyond it.
pub(super) fn rewrite_value(text: &[u8]) -> Option<RewrittenValue> {
    let mut rewriter = Rewriter { text, at: 0, json: Vec::with_capacity(text.len().min(1 << 12)), repairs: 0 };
    rewriter.rewrite_value()?;
    let Rewriter { at, json, repairs, .. } = rewriter;
    Some(RewrittenValue { json, length: at, repairs })
}

struct Rewriter<'t> {
    text: &'t [u8],
    at: usize,
    json: Vec<u8>,
    repairs: u64,
}

/// How the backslashes of a text are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslashes {
    Escapes,
    Letters,
}

impl Rewriter<'_> {
    fn rewrite_value(&mut self) -> Option<()> {
        /// Words that are no JSON, and their JSON.
        const WORDS: [(&[u8], &[u8]); 13] = [
            (b"N/A", b"null"),
            (b"n/a", b"null"),
            (b"None", b"null"),
            (b"undefined", b"null"),
            (b"NaN", b"\"nan\""),
            (b"nan", b"\"nan\""),
            (b"-nan", b"\"nan\""),
            (b"-NaN", b"\"nan\""),
            (b"Infinity", b"\"inf\""),
            (b"inf", b"\"inf\""),
            (b"-Infinity", b"\"-inf\""),
            (b"-inf", b"\"-inf\""),
            (b"+inf", b"\"inf\""),
        ];

        let mut depth = 0_usize;
        loop {
            let byte = self.skip_space()?;
            match byte {
                b'"' => self.rewrite_text()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.copy(1);
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.repairs += u64::from(self.json.pop_if(|last| *last == b',').is_some());
                    self.copy(1);
                }
                b',' | b':' => self.copy(1),
                _ => {
                    let rest = self.text.get(self.at..)?;
                    let is_end = |byte: &u8| b",:{}[]\" \n\r\t".contains(byte);
                    let length = rest.iter().position(is_end)?;
                    let word = rest.get(..length)?;
                    if self.json.last().is_some_and(|last| !b",:{[".contains(last)) {
                        self.json.push(b' ');
                    }
                    match WORDS.iter().find(|(found, _)| *found == word) {
                        Some((_, json)) => {
                            self.json.extend_from_slice(json);
                            self.at += length;
                            self.repairs += 1;
                        }
                        None => self.copy(length),
                    }
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Skips white space and returns the next byte.
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    fn copy(&mut self, length: usize) {
        self.json.extend_from_slice(self.text.get(self.at..self.at + length).unwrap_or_default());
        self.at += length;
    }

    fn rewrite_text(&mut self) -> Option<()> {
        let (start, from) = (self.at, self.json.len());
        for backslashes in [Backslashes::Escapes, Backslashes::Letters] {
            self.at = start;
            self.json.truncate(from);
            let is_changed = self.copy_text(backslashes)?;
            if let Some(is_changed) = is_changed {
                self.repairs += u64::from(is_changed);
                return Some(());
            }
        }
        Some(())
    }

    /// Copies a text; `Some(None)` if its backslashes begin no escapes. Returns whether it was changed.
    fn copy_text(&mut self, backslashes: Backslashes) -> Option<Option<bool>> {
        let mut is_changed = backslashes == Backslashes::Letters;
        self.copy(1);
        loop {
            self.copy(plain_prefix_len(self.text.get(self.at..)?));
            match *self.text.get(self.at)? {
                b'"' => {
                    self.copy(1);
                    let is_end = backslashes == Backslashes::Letters || self.is_before_punctuation(self.at);
                    return Some(is_end.then_some(is_changed));
                }
                b'\\' if backslashes == Backslashes::Escapes => match escape_length(self.text.get(self.at..)?)? {
                    0 => return Some(None),
                    length => self.copy(length),
                },
                // A quote behind it ends the text only if what follows is not a text's.
                b'\\' if *self.text.get(self.at + 1)? == b'"' && !self.is_before_punctuation(self.at + 2) => {
                    self.copy(2)
                }
                b'\\' => {
                    self.json.extend_from_slice(b"\\\\");
                    self.at += 1;
                }
                control => {
                    self.json.extend_from_slice(format!("\\u{control:04x}").as_bytes());
                    self.at += 1;
                    is_changed = true;
                }
            }
        }
    }

    /// Returns whether what follows can follow a text.
    fn is_before_punctuation(&self, at: usize) -> bool {
        let rest = self.text.get(at..).unwrap_or_default();
        rest.trim_ascii_start().first().is_none_or(|byte| b",:}]".contains(byte))
    }
}

/// Returns the length of the escape at the beginning of `text`; 0 if there is none, `None` if it continues beyond it.
fn escape_length(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => {
            let digits = text.get(2..6)?;
            Some(if digits.iter().all(u8::is_ascii_hexdigit) { 6 } else { 0 })
        }
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::Json;
    use super::*;
    use proptest::prelude::*;

    fn rewritten(text: &str) -> Option<(String, usize, u64)> {
        rewrite_value(text.as_bytes())
            .map(|value| (String::from_utf8(value.json).unwrap(), value.length, value.repairs))
    }

    #[test]
    fn values_of_other_writers_become_json() {
        for (text, json, repairs) in [
            (r#"{"a": "lib\core\new.py"}"#, r#"{"a":"lib\\core\\new.py"}"#, 1),
            (r#"{"a": "C:\dir\", "b": "\"c\""}"#, r#"{"a":"C:\\dir\\","b":"\"c\""}"#, 1),
            (r#"{"a": "C:\new\", "b": 1}"#, r#"{"a":"C:\\new\\","b":1}"#, 1),
            (r#"["\x \"q\" \d"]"#, r#"["\\x \"q\" \\d"]"#, 1),
            ("[\"a\u{1}\tb\\n\"]", r#"["a\u0001\u0009b\n"]"#, 1),
            (r#"{"a":N/A,"b":[nan, -inf],"c":None}"#, r#"{"a":null,"b":["nan","-inf"],"c":null}"#, 4),
            (r#"{"a":[1,2, ], }"#, r#"{"a":[1,2]}"#, 2),
            (r#""\user""#, r#""\\user""#, 1),
            ("N/A,", "null", 1),
            (r#"{"a":1} more"#, r#"{"a":1}"#, 0),
            ("[1 2,null true]", "[1 2,null true]", 0),
        ] {
            let length = text.trim_end_matches(',').trim_end_matches(" more").len();
            assert_eq!(rewritten(text), Some((json.to_owned(), length, repairs)), "{text}");
        }
        for cut in [r#"{"a": "lib\core"#, r#"{"a": [1, "#, "", r#"["\u12"#, "N/A"] {
            assert_eq!(rewritten(cut), None, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn valid_values_keep_their_meaning(text in "[\\[\\]{}\",:0-9a\\\\u enl]{0,24}") {
            if let (Ok(value), Some((json, _, repairs))) =
                (serde_json::from_str::<serde_json::Value>(&text), rewritten(&text))
            {
                prop_assert_eq!((serde_json::from_str::<serde_json::Value>(&json).unwrap(), repairs), (value, 0));
            }
        }

        #[test]
        fn any_bytes_end_within_the_text(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(value) = rewrite_value(&bytes) {
                prop_assert!(value.length <= bytes.len());
                let _ = Json::new(&value.json, 0).skip_value();
            }
        }
    }
}
