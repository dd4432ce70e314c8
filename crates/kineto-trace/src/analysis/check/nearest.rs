//! The names of a trace that are nearest to a misspelt one.

use crate::sorting::sort_few;
pub(super) use crate::text::printable;
use crate::text::{edit_distance, floor_char_boundary};
use std::collections::BTreeSet;

/// Returns up to three names, quoted and in order of their distance; "nothing" if there are no names.
pub(super) fn nearest_names<'n>(misspelt: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    const SHOWN: usize = 3;
    /// More names, or longer parts of them, would take too long to compare.
    const COMPARED: usize = 2000;
    const COMPARED_BYTES: usize = 100;

    let head = |name: &'n str| name.get(..floor_char_boundary(name, COMPARED_BYTES)).unwrap_or_default();
    let wanted = misspelt.replace('*', "");
    let wanted = wanted.get(..floor_char_boundary(&wanted, COMPARED_BYTES)).unwrap_or_default();
    let names: BTreeSet<&str> = names.into_iter().map(head).collect();
    let mut found: Vec<_> = names
        .into_iter()
        .take(COMPARED)
        .map(|name| {
            let contains = !wanted.is_empty() && name.to_lowercase().contains(&wanted.to_lowercase());
            (!contains, edit_distance(wanted.as_bytes(), name.as_bytes()), name)
        })
        .collect();
    sort_few(&mut found);
    let shown: Vec<_> = found.iter().take(SHOWN).map(|(.., name)| format!("`{}`", printable(name))).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_contain_the_text_are_first() {
        let names = ["encode", "decode_step", "decoder", "prefill", "decode_step"];
        assert_eq!(nearest_names("decode", names), "`decoder`, `decode_step`, `encode`");
        assert_eq!(nearest_names("*DECODE*", names), "`decoder`, `decode_step`, `encode`");
        assert_eq!(nearest_names("x", ["\u{1b}[2J"]), "` [2J`");
        assert_eq!(nearest_names("x", []), "nothing");
    }

    #[test]
    fn repeated_names_are_compared_once() {
        let names = std::iter::repeat_n("aten::mm", 3000).chain(["decoder"]);
        assert_eq!(nearest_names("decode", names), "`decoder`, `aten::mm`");
    }

    #[test]
    fn many_long_names_are_compared_in_part() {
        let names: Vec<_> = (0..5000).map(|number| format!("{number}{}", "ä".repeat(500))).collect();
        assert!(nearest_names(&"ä".repeat(10_000), names.iter().map(String::as_str)).starts_with("`0ä"));
    }
}
