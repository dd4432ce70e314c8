//! Rewrites a value that is not JSON as JSON, with the meaning that lenient readers give it.
//!
//! Files are read strictly. After a fault, the value with the fault is rewritten and read once more; each change is counted.
//!
//! | In the file | Read as |
//! |---|---|
//! | a text with a backslash that begins no escape or precedes its end, such as a path of Windows | all its backslashes are letters |
//! | a control character in a text | that character |
//! | `N/A`, `None` or `undefined` as a value | null |
//! | a number that is not finite, where the strict reader takes none | a text, as this crate writes it |
//! | a comma before a closing bracket | no comma |
//!
//! A quote behind a backslash ends a text if what follows can follow a text. For the last text of a file, the rest must close all
//! brackets: otherwise a file that is cut off within an escaped quote looks the same.
//!
//! Unescaped quotes stay a fault: where such a text ends is a guess.

use crate::analysis::json_reader::plain_prefix_len;

/// A value as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RewrittenValue {
    pub(super) json: Vec<u8>,
    /// The length of the value in the file.
    pub(super) length: usize,
    /// How many texts, words and commas were changed.
    pub(super) repairs: u64,
}

/// What follows the bytes that are read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextEnd {
    /// More bytes may follow.
    Unread,
    /// Nothing: the file is cut off.
    Cut,
    /// Nothing: the file ends. If it is whole, these brackets close what is around the value.
    Closers(&'static [u8]),
}

/// Rewrites the value at the beginning of `text`; `None` if the value continues beyond it, or is no JSON in another way.
pub(super) fn rewrite_value(text: &[u8], end: TextEnd) -> Option<RewrittenValue> {
    Rewriter::new(text, end).rewrite()
}

struct Rewriter<'t> {
    text: &'t [u8],
    end: TextEnd,
    at: usize,
    json: Vec<u8>,
    repairs: u64,
    /// The brackets around the next byte.
    open: Vec<u8>,
    /// Whether only the end of the file shows that a backslash before a quote is a letter.
    is_guess: bool,
    /// How many bytes were visited, some of them more than once.
    #[cfg(test)]
    visited: usize,
}

/// How the backslashes of a text are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslashes {
    Escapes,
    Letters,
}

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

impl<'t> Rewriter<'t> {
    fn new(text: &'t [u8], end: TextEnd) -> Rewriter<'t> {
        let json = Vec::with_capacity(text.len().min(1 << 12));
        Rewriter {
            text,
            end,
            at: 0,
            json,
            repairs: 0,
            open: Vec::new(),
            is_guess: false,
            #[cfg(test)]
            visited: 0,
        }
    }

    fn rewrite(&mut self) -> Option<RewrittenValue> {
        loop {
            match self.skip_space()? {
                b'"' => self.rewrite_text()?,
                bracket @ (b'{' | b'[') => {
                    self.open.push(bracket);
                    self.copy(1);
                }
                b'}' | b']' => {
                    self.open.pop();
                    self.repairs += u64::from(self.json.pop_if(|last| *last == b',').is_some());
                    self.copy(1);
                }
                b',' | b':' => self.copy(1),
                _ => self.rewrite_word()?,
            }
            if self.open.is_empty() {
                return self.is_end_as_guessed().then(|| RewrittenValue {
                    json: std::mem::take(&mut self.json),
                    length: self.at,
                    repairs: self.repairs,
                });
            }
        }
    }

    fn rewrite_word(&mut self) -> Option<()> {
        let word = word_prefix(self.text.get(self.at..)?)?;
        // Each text begins at a quote that no backslash precedes, so `copy_text` visits no byte more than twice.
        if word.contains(&b'\\') {
            return None;
        }
        if self.json.last().is_some_and(|last| !b",:{[".contains(last)) {
            self.json.push(b' ');
        }
        match WORDS.iter().find(|(found, _)| *found == word) {
            Some((_, json)) => {
                self.json.extend_from_slice(json);
                self.at += word.len();
                self.repairs += 1;
            }
            None => self.copy(word.len()),
        }
        Some(())
    }

    /// Returns whether the rest of the file closes the brackets around the value, if its end was a guess.
    fn is_end_as_guessed(&self) -> bool {
        let TextEnd::Closers(closers) = self.end else { return !self.is_guess };
        let rest = self.text.get(self.at..).unwrap_or_default();
        !self.is_guess || rest.iter().filter(|byte| !b", \n\r\t".contains(byte)).eq(closers)
    }

    /// Skips white space and returns the next byte.
    fn skip_space(&mut self) -> Option<u8> {
        self.at += space_prefix_len(self.text.get(self.at..)?);
        self.text.get(self.at).copied()
    }

    fn copy(&mut self, length: usize) {
        self.json.extend_from_slice(self.text.get(self.at..self.at + length).unwrap_or_default());
        self.at += length;
        #[cfg(test)]
        {
            self.visited += length;
        }
    }

    fn rewrite_text(&mut self) -> Option<()> {
        let (start, from) = (self.at, self.json.len());
        let is_key = self.open.last() == Some(&b'{') && self.json.last().is_some_and(|last| b"{,".contains(last));
        let is_changed = self.copy_text(Backslashes::Escapes, is_key);
        if let Some(Some(is_changed)) = is_changed {
            self.repairs += u64::from(is_changed);
            return Some(());
        }
        if is_changed.is_none() {
            if self.end == TextEnd::Unread {
                return None;
            }
            self.is_guess = true;
        }
        self.at = start;
        self.json.truncate(from);
        self.repairs += 1;
        self.copy_text(Backslashes::Letters, is_key).map(drop)
    }

    /// Copies a text, and returns whether it was changed; `Some(None)` if its backslashes begin no escapes.
    fn copy_text(&mut self, backslashes: Backslashes, is_key: bool) -> Option<Option<bool>> {
        let mut is_changed = backslashes == Backslashes::Letters;
        self.copy(1);
        loop {
            self.copy(plain_prefix_len(self.text.get(self.at..)?));
            match *self.text.get(self.at)? {
                b'"' => {
                    self.copy(1);
                    let is_end = backslashes == Backslashes::Letters || self.can_end_text(self.at, is_key)?;
                    return Some(is_end.then_some(is_changed));
                }
                b'\\' if backslashes == Backslashes::Escapes => match escape_length(self.text.get(self.at..)?)? {
                    0 => return Some(None),
                    length => self.copy(length),
                },
                // A quote behind it ends the text only if what follows is not a text's.
                b'\\' if *self.text.get(self.at + 1)? == b'"' && !self.can_end_text(self.at + 2, is_key)? => {
                    // A writer that escapes quotes was cut off.
                    if self.is_guess {
                        return None;
                    }
                    self.copy(2);
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

    /// Returns whether what follows can follow a text: the colon of a key, or brackets that close those that are open, up to a comma
    /// and a further key or value. `None` if more bytes must be read.
    fn can_end_text(&mut self, at: usize, is_key: bool) -> Option<bool> {
        let (mut rest, mut open) = (self.text.get(at..)?, self.open.as_slice());
        let can_end = loop {
            let Some((next, behind)) = after_space(rest) else { break self.at_end(!is_key) };
            rest = behind;
            open = match (open, next) {
                ([.., b'{'], b':') => break Some(is_key),
                ([outer @ .., b'{'], b'}') | ([outer @ .., b'['], b']') if !is_key => outer,
                ([.., bracket], b',') if !is_key => break self.can_follow_comma(*bracket, rest),
                ([], b',' | b':' | b'}' | b']') => break Some(true),
                _ => break Some(false),
            };
        };
        #[cfg(test)]
        {
            self.visited += self.text.len() - at - rest.len();
        }
        can_end
    }

    /// Returns what holds if no more bytes follow; `None` if they may.
    fn at_end(&self, holds: bool) -> Option<bool> {
        (self.end != TextEnd::Unread).then_some(holds)
    }

    fn can_follow_comma(&self, bracket: u8, rest: &[u8]) -> Option<bool> {
        let Some((next, _)) = after_space(rest) else { return self.at_end(true) };
        Some(match (bracket, next) {
            (_, b'"') | (b'{', b'}') | (b'[', b'{' | b'[' | b']') => true,
            (b'[', _) => {
                let Some(word) = word_prefix(rest.trim_ascii_start()) else { return self.at_end(false) };
                matches!(word, b"null" | b"true" | b"false")
                    || WORDS.iter().any(|(found, _)| *found == word)
                    || matches!(word, [b'-' | b'0'..=b'9', ..])
            }
            _ => false,
        })
    }
}

fn space_prefix_len(text: &[u8]) -> usize {
    text.iter().position(|byte| !b" \n\r\t".contains(byte)).unwrap_or(text.len())
}

/// Returns the first byte after white space, and what follows it.
fn after_space(text: &[u8]) -> Option<(u8, &[u8])> {
    let (first, behind) = text.get(space_prefix_len(text)..)?.split_first()?;
    Some((*first, behind))
}

/// Returns the bytes before the first that ends a word; `None` if there is none.
fn word_prefix(text: &[u8]) -> Option<&[u8]> {
    text.get(..text.iter().position(|byte| b",:{}[]\" \n\r\t".contains(byte))?)
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
    use super::*;
    use crate::analysis::json_reader::Json;
    use proptest::prelude::*;

    fn rewritten(text: &str) -> Option<(String, usize, u64)> {
        rewrite_value(text.as_bytes(), TextEnd::Closers(b""))
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

    #[test]
    fn quote_behind_a_backslash_ends_a_text_before_structure() {
        for (text, json, repairs) in [
            (r#"{"a": "D:\", "b": 1}"#, r#"{"a":"D:\\","b":1}"#, 1),
            (r#"{"a": ["E:\", "F:\"], "b": 1}"#, r#"{"a":["E:\\","F:\\"],"b":1}"#, 2),
            (r#"{"a": {"b": "D:\"}, "c": 1}"#, r#"{"a":{"b":"D:\\"},"c":1}"#, 1),
            (r#"{"C:\": 1, "b": "x\"}, "y": 2}"#, r#"{"C:\\":1,"b":"x\\"}"#, 2),
            (r#"{"a": "say \"a\", C:\core"}"#, r#"{"a":"say \"a\", C:\\core"}"#, 1),
            (r#"{"a": "{\"b\": [\"c\", 1], \"d\": \"e\"}"}"#, r#"{"a":"{\"b\": [\"c\", 1], \"d\": \"e\"}"}"#, 0),
        ] {
            let found = rewrite_value(format!("{text} ,").as_bytes(), TextEnd::Unread);
            let found = found.map(|value| (String::from_utf8(value.json).unwrap(), value.repairs));
            assert_eq!(found, Some((json.to_owned(), repairs)), "{text}");
        }
        let last = r#"{"a": ["D:\"]}"#;
        let rewrite =
            |rest: &str, end| rewrite_value(format!("{last}{rest}").as_bytes(), end).map(|value| value.length);
        assert_eq!(rewrite("\n]}\n", TextEnd::Closers(b"]}")), Some(last.len()));
        for (rest, end) in [
            ("]}", TextEnd::Unread),
            ("]}", TextEnd::Cut),
            ("]", TextEnd::Closers(b"]}")),
            ("", TextEnd::Closers(b"]}")),
            ("]}", TextEnd::Closers(b"]")),
        ] {
            assert_eq!(rewrite(rest, end), None, "{rest} {end:?}");
        }
        let escaped = r#"{"a": "[\"b\", \"c\"]}]}"#;
        assert_eq!(rewrite_value(escaped.as_bytes(), TextEnd::Closers(b"]}")), None, "cut off in a text");
    }

    #[test]
    fn each_byte_is_visited_a_few_times_at_most() {
        let visited = |text: &str| {
            [TextEnd::Unread, TextEnd::Closers(b"]}")]
                .map(|end| {
                    let mut rewriter = Rewriter::new(text.as_bytes(), end);
                    rewriter.rewrite();
                    rewriter.visited
                })
                .into_iter()
                .max()
                .unwrap()
        };
        for (before, piece, after) in [
            ("[", r#""D:\","#, r#""x"]"#),
            ("[", r#""\",\"#, r#""x"]"#),
            ("[", r#""\",1,\"#, r#""x"]"#),
            ("[", r#""\",1,\"#, ""),
            ("[\"", r#"\","#, r#"\q"]"#),
            ("[\"", r#"\" "#, r#"\q"]"#),
            ("[\"", r#"\" "#, ""),
            ("[", r#""\q\" }","#, "]"),
            ("[\"\\q\\\"", " ", "x\"]"),
            ("[\"\\q\\\"", "}", "x\"]"),
            ("", "[\"\\\",", ""),
        ] {
            let [small, large] = [1 << 10, 1 << 11].map(|count| {
                let text = format!("{before}{}{after}", piece.repeat(count));
                (visited(&text), text.len())
            });
            assert!(large.0 <= 4 * large.1, "{piece}: {large:?}");
            assert!(large.0 <= 2 * small.0 + 100, "{piece}: {small:?} {large:?}");
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
            if let Some(value) = rewrite_value(&bytes, TextEnd::Closers(b"]")) {
                prop_assert!(value.length <= bytes.len());
                let _ = Json::new(&value.json, 0).skip_value();
            }
        }
    }
}
