//! Suggestions for misspelt names.

/// Returns the closest name, if at most one letter in four differs.
pub(crate) fn closest_name<'n>(misspelt: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    const LETTERS_PER_CHANGE: usize = 4;
    let limit = (misspelt.len() / LETTERS_PER_CHANGE).clamp(1, 3);
    let distances = names.into_iter().map(|name| (edit_distance(misspelt.as_bytes(), name.as_bytes()), name));
    distances.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Returns the edit distance of two texts.
fn edit_distance(one: &[u8], other: &[u8]) -> usize {
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
    fn closest_finds_names_with_few_other_letters() {
        let names = ["KINETO_ENABLED", "KINETO_EVENTS", "KINETO_GZIP_LEVEL"];
        for (misspelt, expected) in [
            ("KINETO_ENABLE", Some("KINETO_ENABLED")),
            ("KINETO_GZIP_LEVL", Some("KINETO_GZIP_LEVEL")),
            ("KINETO_GZIPLEVEL", Some("KINETO_GZIP_LEVEL")),
            ("KINETO_EVENT", Some("KINETO_EVENTS")),
            ("KINETO_OTHER_THING", None),
            ("", None),
        ] {
            assert_eq!(closest_name(misspelt, names), expected, "{misspelt}");
        }
    }
}
