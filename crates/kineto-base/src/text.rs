//! Counts with nouns, printable names, truncation and distances of text.

mod bounded;
mod spelling;

pub use bounded::Bounded;
pub use spelling::closest_name;
use std::ffi::CString;
use std::fmt::{self, Write};
use std::path::Path;

/// Returns a C string without the text's NUL bytes.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Formats a count with its noun: "1 slice", "2 slices", "2 launches", "2 copies".
pub fn count_with_noun(count: u64, noun: &str) -> CountWithNoun<'_> {
    CountWithNoun { count, noun }
}

/// A count with its noun, in the plural unless it is 1.
#[derive(Clone, Copy, Debug)]
pub struct CountWithNoun<'n> {
    count: u64,
    noun: &'n str,
}

impl fmt::Display for CountWithNoun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CountWithNoun { count, noun } = *self;
        match noun.strip_suffix('y') {
            _ if count == 1 => write!(f, "{count} {noun}"),
            Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => write!(f, "{count} {stem}ies"),
            _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => write!(f, "{count} {noun}es"),
            _ => write!(f, "{count} {noun}s"),
        }
    }
}

/// Returns a text in which a space replaces each character that would act on a terminal or hide or reorder other text.
pub fn printable(text: &str) -> String {
    text.replace(is_unprintable, " ")
}

/// Returns a text in which escapes such as `\u{1b}` replace characters that a terminal does not show or that act on it.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Writing to memory does not fail.
    let _ = Escaping { out: &mut out, keeps_lines: false }.write_str(text);
    out
}

/// Returns a path as [`escaped`] text: other users choose the names in their folders.
pub fn escaped_path(path: &Path) -> String {
    escaped(&path.display().to_string())
}

/// Writes [`escaped`] text.
#[derive(Debug)]
pub struct Escaping<W> {
    /// Receives the text.
    pub out: W,
    /// Whether line breaks stay.
    pub keeps_lines: bool,
}

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_escaped = |c: char| is_unprintable(c) && !(self.keeps_lines && c == '\n');
        for part in text.split_inclusive(is_escaped) {
            let last = part.chars().next_back().filter(|last| is_escaped(*last));
            self.out.write_str(part.get(..part.len() - last.map_or(0, char::len_utf8)).unwrap_or_default())?;
            last.map_or(Ok(()), |last| write!(self.out, "{}", last.escape_default()))?;
        }
        Ok(())
    }
}

/// Returns whether a character is a control character, a mark of direction, a line separator or invisible.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the columns of a terminal that a text takes.
pub fn text_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Returns the columns of a terminal that a character takes: 2 for East Asian scripts, full-width forms and pictures, else 1.
pub fn char_width(c: char) -> usize {
    let is_wide = matches!(c, '\u{1100}'..='\u{115f}' | '\u{231a}'..='\u{231b}' | '\u{23e9}'..='\u{23ec}' | '\u{2614}'..='\u{2615}'
        | '\u{26a1}' | '\u{2705}' | '\u{274c}' | '\u{2753}'..='\u{2755}' | '\u{2795}'..='\u{2797}' | '\u{2b1b}'..='\u{2b1c}'
        | '\u{2b50}' | '\u{2b55}' | '\u{2e80}'..='\u{303e}' | '\u{3041}'..='\u{4dbf}' | '\u{4e00}'..='\u{a4cf}'
        | '\u{a960}'..='\u{a97c}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe10}'..='\u{fe19}'
        | '\u{fe30}'..='\u{fe6b}' | '\u{ff01}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{16fe0}'..='\u{18cff}'
        | '\u{1b000}'..='\u{1b2fb}' | '\u{1f18e}' | '\u{1f191}'..='\u{1f19a}' | '\u{1f200}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}' | '\u{1f7e0}'..='\u{1f7eb}' | '\u{1f90c}'..='\u{1faff}' | '\u{20000}'..='\u{3fffd}');
    if is_wide { 2 } else { 1 }
}

/// Returns a text with spaces after it up to `width` columns.
pub fn padded(text: &str, width: usize) -> String {
    text.to_owned() + &" ".repeat(width.saturating_sub(text_width(text)))
}

/// Returns a printable name, truncated to `width` columns.
pub fn truncate_name(name: &str, width: usize) -> String {
    let name = printable(name);
    if text_width(&name) <= width {
        return name;
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| left.checked_sub(char_width(*c)).map(|rest| left = rest).is_some();
    name.chars().take_while(fits).chain(['…']).collect()
}

/// Returns the parts with a separator between them. `join` compiles to some 1,000 lines of machine-independent code for each
/// type of the parts.
pub fn joined<T: AsRef<str>>(parts: &[T], separator: &str) -> String {
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            text.push_str(separator);
        }
        text.push_str(part.as_ref());
    }
    text
}

/// Fills lines with parts up to `width` columns; longer parts are truncated.
pub fn filled_lines<T: AsRef<str>>(parts: &[T], separator: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts.iter().map(T::as_ref) {
        match lines.last_mut() {
            Some(line) if text_width(line) + separator.len() + text_width(part) <= width => {
                line.push_str(separator);
                line.push_str(part);
            }
            _ => lines.push(truncate_name(part, width)),
        }
    }
    lines
}

/// Returns the last character boundary of `text` up to `max`.
///
/// `str::floor_char_boundary` needs a newer compiler than the oldest supported one.
pub fn floor_char_boundary(text: &str, max: usize) -> usize {
    if text.len() <= max { text.len() } else { (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0) }
}

/// Returns the edit distance of two texts.
pub fn edit_distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut next = vec![at + 1];
        for ((above, above_left), other) in row.iter().skip(1).zip(&row).zip(other) {
            let left = next.last().copied().unwrap_or_default();
            next.push((above_left + usize::from(letter != other)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_are_plural_unless_there_is_one() {
        let shown = |count, noun| count_with_noun(count, noun).to_string();
        for (noun, plural) in
            [("slice", "slices"), ("class", "classes"), ("launch", "launches"), ("copy", "copies"), ("key", "keys")]
        {
            assert_eq!(
                [0, 1, 2].map(|count| shown(count, noun)),
                [format!("0 {plural}"), format!("1 {noun}"), format!("2 {plural}")]
            );
        }
    }

    #[test]
    fn printable_text_has_no_control_or_direction() {
        assert_eq!(printable("a\u{1b}[2J\u{202e}b\u{2066}c\u{feff}\n ä"), "a [2J b c   ä");
        assert_eq!(printable("a\u{200b}b\u{2060}c\u{ad}d\u{e0041}e\u{180e}f 漢é"), "a b c d e f 漢é");
    }

    #[test]
    fn escaped_text_shows_what_it_hides() {
        assert_eq!(escaped("a\u{1b}[2J\u{202e}b\r\n\u{9b}ä\u{7f}"), r"a\u{1b}[2J\u{202e}b\r\n\u{9b}ä\u{7f}");
        assert_eq!(escaped("漢 \\é"), "漢 \\é");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(["", "äöü", "漢字", "ｆ", "한글", "かな", "🚀", "é漢"].map(text_width), [0, 3, 4, 2, 4, 4, 2, 3]);
        assert_eq!(
            [1, 2, 3, 4, 5, 6].map(|width| truncate_name("漢字漢", width)),
            ["…", "…", "漢…", "漢…", "漢字…", "漢字漢"]
        );
        assert_eq!((padded("漢", 4).as_str(), padded("漢", 1).as_str()), ("漢  ", "漢"));
        assert_eq!(filled_lines(&["漢字", "漢字", "a"], " ", 6), ["漢字", "漢字 a"]);
    }

    #[test]
    fn boundary_does_not_split_characters() {
        assert_eq!([0, 1, 2, 3, 4, 9].map(|max| floor_char_boundary("aöb", max)), [0, 1, 1, 3, 4, 4]);
    }
}
