//! Texts that are cut at a limit, and counts of things.

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A text that stops growing at a limit, so that a value of gigabytes costs no more than one of kilobytes.
pub(crate) struct Bounded {
    pub(crate) text: String,
    bytes_max: usize,
    pub(crate) cut: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.bytes_max - self.text.len();
        if more.len() <= room {
            self.text.push_str(more);
            return Ok(());
        }
        self.text.push_str(more.get(..boundary(more, room)).unwrap_or_default());
        self.cut = true;
        Err(fmt::Error)
    }
}

impl Bounded {
    /// Renders a value, up to `bytes_max`.
    pub(crate) fn debug(value: &dyn fmt::Debug, bytes_max: usize) -> Bounded {
        let mut text = Bounded { text: String::new(), bytes_max, cut: false };
        // An error is either ours, at the limit, or the value's own: what was written until then is kept. A panic is not
        // the program's: without this crate nobody would have asked for the text.
        if catch_unwind(AssertUnwindSafe(|| write!(text, "{value:?}"))).is_err() {
            let _ = text.write_str("(Debug panicked)");
        }
        text
    }
}

/// Writes a count with its noun: "1 slice", "2 slices".
pub(crate) fn counted(count: u64, noun: &str) -> Counted<'_> {
    Counted { count, noun }
}

/// A count with its noun, in the plural if it is not 1.
pub(crate) struct Counted<'n> {
    count: u64,
    noun: &'n str,
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.count, self.noun, if self.count == 1 { "" } else { "s" })
    }
}

/// Returns the last character boundary of `text` that is not beyond `max`; `str::floor_char_boundary` is too young for
/// the oldest supported compiler.
pub(crate) fn boundary(text: &str, max: usize) -> usize {
    if text.len() <= max { text.len() } else { (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::boundary;

    #[test]
    fn a_character_is_not_cut() {
        assert_eq!([0, 1, 2, 3, 4, 9].map(|max| boundary("aöb", max)), [0, 1, 1, 3, 4, 4]);
    }
}
