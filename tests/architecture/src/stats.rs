//! Figures on the shape of the sources: lines, the largest file and function, names, words of the documents. They are for readers; the
//! tests hold what must hold.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::files::texts;
use crate::lexer::{Token, tokens, without_tests};

/// One Rust file.
struct Source {
    package: String,
    file: String,
    /// Without the items for tests.
    shipped: Vec<Token>,
    counts: Counts,
}

/// Lines: of code, of comments, of tests.
#[derive(Clone, Copy, Default)]
struct Counts {
    files: usize,
    code: usize,
    comments: usize,
    tests: usize,
}

impl Source {
    fn new(file: String, text: &str) -> Source {
        let all = tokens(text);
        let parts: Vec<_> = file.split('/').collect();
        let package = match parts.as_slice() {
            ["src", ..] => "tracing-kineto".to_owned(),
            ["crates", name, ..] => (*name).to_owned(),
            ["integrations", name, ..] => format!("integrations/{name}"),
            [folder, ..] => (*folder).to_owned(),
            [] => String::new(),
        };
        let is_test = ["tests", "benches"].iter().any(|folder| parts.contains(folder)) || file.ends_with("/tests.rs");
        let shipped = if is_test { Vec::new() } else { without_tests(&all) };
        let (code, all) = (lines(&shipped), lines(&all));
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//")).count();
        Source { package, file, shipped, counts: Counts { files: 1, code, comments, tests: all - code } }
    }

    /// Returns name and lines of each function with a body.
    fn functions(&self) -> impl Iterator<Item = (&str, usize)> {
        let starts = self.shipped.windows(2).enumerate().filter(|(_, pair)| pair[0].is_word("fn"));
        starts.filter_map(|(at, pair)| {
            let mut depth = 0_usize;
            let body = self.shipped[at..].iter().find(|token| {
                depth = (depth + usize::from(token.is_sign('{'))).saturating_sub(usize::from(token.is_sign('}')));
                depth == 0 && (token.is_sign('}') || token.is_sign(';'))
            })?;
            let is_body = body.is_sign('}');
            is_body.then_some((pair[1].word()?, body.line - pair[0].line + 1))
        })
    }
}

/// Returns how many lines these tokens begin on; a text alone is no code.
fn lines(tokens: &[Token]) -> usize {
    let mut lines: Vec<_> = tokens.iter().filter(|token| token.text().is_none()).map(|token| token.line).collect();
    lines.dedup();
    lines.len()
}

/// Returns the figures of the checkout in that folder as text.
///
/// # Errors
///
/// If a file cannot be read.
pub fn figures(root: &Path) -> io::Result<String> {
    let mut sources = Vec::new();
    for folder in ["src", "crates", "capi", "integrations", "tests", "benches"] {
        sources.extend(texts(root, folder, &[".rs"])?.into_iter().map(|(file, text)| Source::new(file, &text)));
    }
    let mut rows: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
    for source in &sources {
        let below = source.file.split_once("src/").and_then(|(_, path)| path.split_once('/'));
        let below = below.filter(|_| ["tracing-kineto", "kineto-trace"].contains(&source.package.as_str()));
        for folder in [""].into_iter().chain(below.map(|(folder, _)| folder)) {
            let row = rows.entry((&source.package, folder)).or_default();
            let Counts { files, code, comments, tests } = source.counts;
            let added = Counts { files: row.files + files, code: row.code + code, ..*row };
            *row = Counts { comments: row.comments + comments, tests: row.tests + tests, ..added };
        }
    }
    let mut text = format!("{:28}{:>7}{:>8}{:>10}{:>8}\n", "package, folder", "files", "code", "comments", "tests");
    for ((package, folder), Counts { files, code, comments, tests }) in &rows {
        let name = if folder.is_empty() { (*package).to_owned() } else { format!("  {folder}") };
        let _ = writeln!(text, "{name:28}{files:7}{code:8}{comments:10}{tests:8}");
    }

    let shipped =
        || sources.iter().filter(|source| source.file.starts_with("src/") || source.file.starts_with("crates/"));
    let functions = || shipped().flat_map(|source| source.functions().map(move |(name, lines)| (lines, name, source)));
    let one_word = functions().filter(|(_, name, _)| !name.trim_matches('_').contains('_')).count();
    let _ = writeln!(text, "\nfunctions with a name of one word: {one_word} of {}", functions().count());
    if let Some(source) = shipped().max_by_key(|source| source.counts.code) {
        let _ = writeln!(text, "largest file: {}, {} lines of code", source.file, source.counts.code);
    }
    if let Some((lines, name, source)) = functions().max_by_key(|(lines, ..)| *lines) {
        let _ = writeln!(text, "largest function: {name} in {}, {lines} lines", source.file);
    }

    text += "\nwords of documents, without code\n";
    for (file, page) in texts(root, "", &[".md"])? {
        let words: usize = page.split("```").step_by(2).map(|part| part.split_whitespace().count()).sum();
        let _ = writeln!(text, "  {file}: {words}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_code_of_comments_or_of_tests() {
        let text =
            "//! A.\n\n/// B.\nfn f() {\n    // C.\n    g(\"1\n2\");\n}\n#[cfg(test)]\nmod tests {\n    fn h() {}\n}\n";
        let source = Source::new("crates/a/src/b.rs".to_owned(), text);
        let Counts { code, comments, tests, .. } = source.counts;
        assert_eq!((source.package.as_str(), code, comments, tests), ("a", 4, 3, 4));
        assert_eq!(source.functions().collect::<Vec<_>>(), [("f", 5)]);
        let tests = Source::new("tests/a.rs".to_owned(), "fn f() {}\n");
        assert_eq!((tests.package.as_str(), tests.counts.code, tests.counts.tests), ("tests", 0, 1));
    }
}
