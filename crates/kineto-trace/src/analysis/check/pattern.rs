//! Patterns of names: exact, or with `*` for any text.

use std::fmt;

/// A name, or a pattern in which each `*` matches any text, also none.
///
/// A name that contains `*`, such as `sum<float*>`, matches itself.
///
/// ```
/// use kineto_trace::analysis::check::NamePattern;
///
/// assert!(NamePattern::from("aten::*").matches("aten::mm"));
/// assert!(!NamePattern::from("decode").matches("decode_step"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePattern(String);

impl NamePattern {
    /// Returns whether a name matches as a whole.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut place) = (0, 0);
        // The last star, and the place in the name up to which it matches.
        let mut star = None;
        while let Some(byte) = name.get(place) {
            if pattern.get(at) == Some(&b'*') {
                star = Some((at, place));
                at += 1;
            } else if pattern.get(at) == Some(byte) {
                (at, place) = (at + 1, place + 1);
            } else if let Some((star_at, until)) = star {
                (at, place) = (star_at + 1, until + 1);
                star = Some((star_at, until + 1));
            } else {
                return false;
            }
        }
        pattern.iter().skip(at).all(|byte| *byte == b'*')
    }

    /// Returns the pattern's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NamePattern {
    fn from(pattern: &str) -> NamePattern {
        NamePattern(pattern.to_owned())
    }
}

impl From<String> for NamePattern {
    fn from(pattern: String) -> NamePattern {
        NamePattern(pattern)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Matches by trying every length of each star.
    fn matches_slowly(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| matches_slowly(rest, &name[at..])),
            Some((byte, rest)) => name.first() == Some(byte) && matches_slowly(rest, &name[1..]),
        }
    }

    #[test]
    fn names_with_stars_match_themselves() {
        let cases = [("sum<float*>(int*)", "sum<float*>(int*)"), ("*", ""), ("**a**", "a"), ("ä*", "äöü")];
        assert!(cases.iter().all(|(pattern, name)| NamePattern::from(*pattern).matches(name)));
        let others = [("", "a"), ("a", ""), ("a*b", "a*c"), ("A", "a"), ("decode", "decode "), ("*x", "xy")];
        assert!(others.iter().all(|(pattern, name)| !NamePattern::from(*pattern).matches(name)));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = NamePattern::from("*a".repeat(200) + "b");
        assert!(!pattern.matches(&"a".repeat(2000)));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_trying_all_lengths(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
            let expected = matches_slowly(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(NamePattern::from(pattern).matches(&name), expected);
        }
    }
}
