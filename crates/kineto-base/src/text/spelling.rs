//! Suggestions for misspelt names.

use crate::text::edit_distance;

/// Returns the closest name, the first of several, if at most one letter in four differs.
pub fn closest_name<'n>(misspelt: &str, names: &[&'n str]) -> Option<&'n str> {
    const LETTERS_PER_CHANGE: usize = 4;
    let limit = (misspelt.len() / LETTERS_PER_CHANGE).clamp(1, 3);
    let distances = names.iter().map(|name| (edit_distance(misspelt.as_bytes(), name.as_bytes()), *name));
    distances.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
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
            assert_eq!(closest_name(misspelt, &names), expected, "{misspelt}");
        }
    }
}
