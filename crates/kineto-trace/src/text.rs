//! Counts of things, and texts that are cut at a limit.

use std::fmt;

/// Writes a count with its noun: "1 slice", "2 slices".
pub fn counted(count: u64, noun: &str) -> Counted<'_> {
    Counted { count, noun }
}

/// A count with its noun, in the plural if it is not 1.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'n> {
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
pub fn boundary(text: &str, max: usize) -> usize {
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
