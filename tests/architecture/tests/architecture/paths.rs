//! Every path of a source file, with its groups taken apart, and where it leads.

use test_architecture::lexer::{Kind, Token};

/// One path as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// `crate`, `super`, names, and `*` at the end of a glob.
    pub(crate) segments: Vec<String>,
    /// The module that contains it, from the crate's root.
    pub(crate) module: Vec<String>,
    pub(crate) line: usize,
}

impl Path {
    /// Where the path leads, from the crate's root; `None` if it begins with a name, and so leads down or out.
    pub(crate) fn leads_to(&self) -> Option<Vec<String>> {
        let mut at = self.module.clone();
        let mut rest = self.segments.as_slice();
        match self.segments.first().map(String::as_str) {
            Some("crate") => {
                at.clear();
                rest = rest.get(1..).unwrap_or_default();
            }
            Some("self") => rest = rest.get(1..).unwrap_or_default(),
            Some("super") => {
                while let [first, tail @ ..] = rest
                    && first == "super"
                {
                    at.pop();
                    rest = tail;
                }
            }
            _ => return None,
        }
        at.extend_from_slice(rest);
        Some(at)
    }

    /// Whether these segments stand in it, one behind the other.
    pub(crate) fn contains(&self, segments: &[&str]) -> bool {
        self.segments.windows(segments.len()).any(|window| window.iter().zip(segments).all(|(a, b)| a == b))
    }
}

/// Returns the module that a file of `src` is: `layer/mod.rs` is `layer`, `lib.rs` the root.
pub(crate) fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

/// Returns all paths, those of one name included.
pub(crate) fn paths(tokens: &[Token], module: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut inner: Vec<(String, usize)> = Vec::new();
    let (mut at, mut depth) = (0, 0usize);
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Sign('{') => depth += 1,
            Kind::Sign('}') => {
                depth = depth.saturating_sub(1);
                inner.retain(|(_, since)| *since <= depth);
            }
            Kind::Word(word) if word == "mod" => {
                let opens = tokens.get(at + 2).is_some_and(|token| token.is_sign('{'));
                if let (Some(name), true) = (tokens.get(at + 1).and_then(Token::word), opens) {
                    inner.push((name.to_owned(), depth + 1));
                    at += 2;
                    continue;
                }
            }
            Kind::Word(_) => {
                let module: Vec<_> = module.iter().cloned().chain(inner.iter().map(|(name, _)| name.clone())).collect();
                at = path(tokens, at, &[], &module, &mut found);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads the path at `at`, whose first segments are `before`; returns the rest.
fn path(tokens: &[Token], mut at: usize, before: &[String], module: &[String], found: &mut Vec<Path>) -> usize {
    let line = tokens.get(at).map_or(0, |token| token.line);
    let mut segments = before.to_vec();
    loop {
        match tokens.get(at).map(|token| &token.kind) {
            Some(Kind::Word(word)) => segments.push(word.clone()),
            Some(Kind::Sign('*')) => segments.push("*".to_owned()),
            Some(Kind::Sign('{')) => {
                at += 1;
                while let Some(token) = tokens.get(at).filter(|token| !token.is_sign('}')) {
                    at = match token.kind {
                        Kind::Word(_) | Kind::Sign('*' | '{') => path(tokens, at, &segments, module, found),
                        _ => at + 1,
                    };
                }
                return at + 1;
            }
            _ => break,
        }
        at += 1;
        // A path continues after `::` if a name, a group or a glob follows, but not a turbofish.
        let goes_on = |token: &Token| matches!(token.kind, Kind::Word(_) | Kind::Sign('{' | '*'));
        if !(tokens.get(at).is_some_and(Token::is_separator) && tokens.get(at + 1).is_some_and(goes_on)) {
            break;
        }
        at += 1;
    }
    // In a group, `self` means the path before it.
    if !before.is_empty() && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    found.push(Path { segments, module: module.to_vec(), line });
    // The new name of an import is no path.
    let renamed = tokens.get(at).is_some_and(|token| token.is_word("as")) && !before.is_empty();
    if renamed { at + 2 } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_architecture::lexer::tokens;

    fn leads(source: &str, file: &str) -> Vec<String> {
        let paths = paths(&tokens(source), &module_of(file));
        paths.iter().filter_map(Path::leads_to).map(|path| path.join("::")).filter(|path| !path.is_empty()).collect()
    }

    #[test]
    fn groups_are_taken_apart_however_deep() {
        let source = "use crate::{a::{b, c::{self, D as E}}, f, g::*}; use {crate::h, std::io};";
        assert_eq!(leads(source, "x.rs"), ["a::b", "a::c", "a::c::D", "f", "g::*", "h"]);
    }

    #[test]
    fn paths_in_expressions_types_and_macros_are_seen_too() {
        let source = "fn f(x: &crate::a::B<'_>) -> Vec<crate::c::D> { crate::e::f::<u8>(); $crate::g::h!() }";
        assert_eq!(leads(source, "x.rs"), ["a::B", "c::D", "e::f", "g::h"]);
    }

    #[test]
    fn super_leads_to_the_root_from_as_many_floors_down() {
        assert_eq!(leads("use super::a;", "x.rs"), ["a"]);
        assert_eq!(leads("use super::a; use super::super::b; self::c()", "x/y.rs"), ["x::a", "b", "x::y::c"]);
        assert_eq!(leads("use super::a;", "x/mod.rs"), ["a"]);
        let nested = "mod m { use super::a; mod n { use super::super::b; } use super::super::c; } use super::d;";
        assert_eq!(leads(nested, "x/y.rs"), ["x::y::a", "x::y::b", "x::c", "x::d"]);
    }

    #[test]
    fn comments_and_texts_lead_nowhere() {
        assert!(leads("//! [`A`](crate::a::A)\n\"crate::b\" /* crate::c */ pub(crate) struct D;", "x.rs").is_empty());
    }
}
