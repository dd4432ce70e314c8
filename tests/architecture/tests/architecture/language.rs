//! Checks how the project writes: banned expressions, names of types and functions, and messages that say what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::rules::Source;
use test_architecture::lexer::{Token, tokens};

/// The longest name of a function, tests included.
const NAME_MAX: usize = 55;

/// The folders of kineto-devices that vendors share; each other one is a vendor's.
const SHARED: [&str; 6] = ["buffered", "deferred", "library", "records", "telemetry", "timers"];
/// The folders of a vendor's libraries that record the same.
const BACKENDS: [&str; 2] = ["rocm/sdk/", "rocm/tracer/"];

/// Expressions that do not occur, each with the number of times that it may still occur.
pub(crate) struct Banned(BTreeMap<String, Vec<(Vec<String>, usize)>>);

impl Banned {
    /// Parses lines of `expression` or `expression = count`; `#` starts a comment.
    pub(crate) fn parse(list: &str) -> Banned {
        let mut banned: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (expression, count) = line.split_once(" = ").unwrap_or((line, "0"));
            let words: Vec<_> = expression.split(' ').map(str::to_owned).collect();
            let first = words.first().cloned().unwrap_or_default();
            banned.entry(first).or_default().push((words, count.parse().unwrap_or(0)));
        }
        Banned(banned)
    }

    /// Adds the places where `text` contains a banned expression to `found`, by expression.
    pub(crate) fn find(&self, file: &str, text: &str, found: &mut BTreeMap<String, Vec<String>>) {
        let words = words(text);
        for (at, (line, word)) in words.iter().enumerate() {
            for (expression, _) in self.0.get(word).into_iter().flatten() {
                let window = words.get(at..at + expression.len()).unwrap_or_default();
                if window.iter().map(|(_, word)| word).eq(expression) {
                    found.entry(expression.join(" ")).or_default().push(format!("{file}:{line}"));
                }
            }
        }
    }

    /// Returns a fault for each expression that occurs more or less often than the list allows.
    pub(crate) fn faults(&self, found: &BTreeMap<String, Vec<String>>) -> Vec<String> {
        let mut faults = Vec::new();
        for (expression, allowed) in self.0.values().flatten() {
            let expression = expression.join(" ");
            let places = found.get(&expression).map(Vec::as_slice).unwrap_or_default();
            match places.len() {
                count if count > *allowed => {
                    faults.push(format!(
                        "\"{expression}\" occurs {count} times, {allowed} allowed: {}",
                        places.join(", ")
                    ));
                }
                count if count < *allowed => {
                    faults.push(format!("\"{expression}\" occurs {count} times: lower its number in the list"));
                }
                _ => {}
            }
        }
        faults
    }
}

/// Splits a text into lower-case words with their lines. Punctuation is an empty word; comment markers are skipped.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim_start().trim_start_matches(['/', '!']);
        for part in content.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'') {
            let word = part.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
            if !word.is_empty() {
                words.push((line, word.to_lowercase()));
            }
            if !part.ends_with(char::is_whitespace) && part.len() > word.len() {
                words.push((line, String::new()));
            }
        }
    }
    words
}

/// Returns the function names of a source that are too long, with their lines.
pub(crate) fn long_names(text: &str) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let pairs = tokens.iter().zip(tokens.iter().skip(1)).filter(|(first, _)| first.is_word("fn"));
    let names = pairs.filter_map(|(_, name)| Some((name.line, name.word()?)));
    names.filter(|(_, name)| name.len() > NAME_MAX).map(|(line, name)| (line, name.to_owned())).collect()
}

/// Returns the names that types in several files of a package share, unless each belongs to another vendor. Two types in
/// one file are for two platforms, and a stub (`no_*.rs`) has the types of the module that it replaces.
pub(crate) fn repeated_types<'s>(sources: impl Iterator<Item = &'s Source>) -> BTreeSet<String> {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let is_stub = |source: &&Source| source.file.rsplit('/').next().is_some_and(|name| name.starts_with("no_"));
    for source in sources.filter(|source| !is_stub(source)) {
        let package = source.file.split_once("/src/").map_or("", |(package, _)| package);
        for name in source.types() {
            places.entry(format!("{package} {name}")).or_default().insert(source.file.clone());
        }
    }
    places.retain(|_, files| {
        let vendors = files.iter().map(|file| vendor_folder(file));
        let distinct: Option<BTreeSet<_>> = vendors.collect();
        files.len() > distinct.map_or(1, |vendors| vendors.len())
    });
    places.into_keys().map(|name| name.trim_start().to_owned()).collect()
}

/// Returns the folder of a file's vendor. Types that play the same role for several vendors share a name.
fn vendor_folder(file: &str) -> Option<&str> {
    let path = file.strip_prefix("crates/kineto-devices/src/")?;
    let (folder, _) = path.split_once('/')?;
    let backend = BACKENDS.into_iter().find(|backend| path.starts_with(backend));
    (!SHARED.contains(&folder)).then_some(backend.unwrap_or(folder))
}

/// The severities of `diag!`.
const SEVERITIES: [&str; 5] = ["Error", "Warning", "Status", "Info", "Verbose"];
/// The kind of a message on why a collector records nothing.
const UNAVAILABLE: &str = "unavailable";

/// A message that a user may see.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) line: usize,
    /// The severity of a diagnostic, `error` or `unavailable`.
    kind: &'static str,
    pub(crate) text: String,
}

impl Message {
    /// Whether it says what to do (`what failed: cause; what to do`). A text that ends with another message passes that
    /// one's remedy on.
    pub(crate) fn has_remedy(&self) -> bool {
        match self.kind {
            UNAVAILABLE => !self.text.is_empty() && !self.text.ends_with("; "),
            "Warning" | "Error" | "error" => self.text.contains(';') || self.text.ends_with('}'),
            _ => true,
        }
    }
}

/// Returns the messages of a source: those of `diag!`, of `Error::new`, and of `Unavailable::new` with its advice.
pub(crate) fn messages(source: &Source) -> Vec<Message> {
    let tokens = source.shipped();
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let (before, rest) = tokens.split_at(at);
        // The error of the standard library is a cause, not a message.
        let is_cause = before.last().is_some_and(Token::is_separator);
        let (kind, arguments) = match rest {
            [name, bang, open, arguments @ ..] if name.is_word("diag") && bang.is_sign('!') && open.is_sign('(') => {
                (severity(arguments), arguments)
            }
            [name, colons, new, open, arguments @ ..]
                if !is_cause && colons.is_separator() && new.is_word("new") && open.is_sign('(') =>
            {
                match name.word() {
                    Some("Error") => ("error", arguments),
                    Some("Unavailable") => (UNAVAILABLE, arguments),
                    _ => continue,
                }
            }
            _ => continue,
        };
        let texts = call_arguments(arguments).iter().filter_map(|token| Some((token.line, token.text()?)));
        // The topic of a diagnostic is one word.
        let texts: Vec<_> = texts.filter(|(_, text)| kind == UNAVAILABLE || text.contains([' ', '{'])).collect();
        let parts: Vec<_> = texts.iter().map(|(_, text)| unfolded(text)).collect();
        if let ([(line, _), ..], [first, ..]) = (texts.as_slice(), parts.as_slice()) {
            let text = if kind == UNAVAILABLE { parts.join("; ") } else { first.clone() };
            found.push(Message { line: *line, kind, text });
        }
    }
    found
}

/// Returns the first word of a diagnostic's arguments that is a severity.
fn severity(arguments: &[Token]) -> &'static str {
    let mut words = call_arguments(arguments).iter().filter_map(Token::word);
    words.find_map(|word| SEVERITIES.into_iter().find(|severity| *severity == word)).unwrap_or("Info")
}

/// Returns the tokens before the closing parenthesis of the call.
fn call_arguments(tokens: &[Token]) -> &[Token] {
    let mut depth = 1;
    let end = tokens.iter().position(|token| {
        depth += i32::from(token.is_sign('('));
        depth -= i32::from(token.is_sign(')'));
        depth == 0
    });
    tokens.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Joins the lines of a literal that ends lines with backslashes.
fn unfolded(text: &str) -> String {
    text.split("\\\n").map(str::trim_start).collect::<Vec<_>>().concat().replace("\\\"", "\"")
}

/// Returns the page that lists all messages, by file.
pub(crate) fn messages_page(sources: &[Source]) -> String {
    let mut page = String::from(
        "# Messages\n\nAll diagnostics and errors that a user may see, by source file. Written by\n\
         `UPDATE_DOCS=1 cargo test --package test-architecture messages`.\n",
    );
    let mut by_path: Vec<_> = sources.iter().map(|source| (source.path(), messages(source))).collect();
    by_path.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (path, messages) in by_path.iter().filter(|(_, messages)| !messages.is_empty()) {
        let _ = writeln!(page, "\n## {path}\n");
        for Message { kind, text, .. } in messages {
            let _ = writeln!(page, "- {kind}: `{}`", text.replace('`', "'"));
        }
    }
    page
}

/// Returns the messages without a remedy as faults unless there are exactly as many as `allowed`, a number that shrinks.
pub(crate) fn remedy_faults(sources: &[Source], allowed: usize) -> Vec<String> {
    let all =
        sources.iter().flat_map(|source| messages(source).into_iter().map(move |message| (source.path(), message)));
    let without: Vec<_> = all.filter(|(_, message)| !message.has_remedy()).collect();
    let places = without.iter().map(|(path, message)| format!("{path}:{}: {}", message.line, message.text));
    match without.len() {
        count if count < allowed => {
            vec![format!("{count} messages lack a remedy: lower the allowed number, {allowed}")]
        }
        count if count > allowed => {
            let summary = format!("{count} messages do not say what to do, {allowed} allowed");
            std::iter::once(summary).chain(places).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_expressions_are_found_across_lines() {
        let banned = Banned::parse("# comment\nstands in\nbeside = 1\n");
        let mut found = BTreeMap::new();
        banned.find("a.rs", "/// It stands\n/// in a row. It stands, in it. Beside it: \"beside\"", &mut found);
        assert_eq!(found["stands in"], ["a.rs:1"]);
        assert_eq!(found["beside"].len(), 2);
        assert_eq!(banned.faults(&found).len(), 2);
        found.get_mut("beside").unwrap().clear();
        assert!(banned.faults(&found)[0].contains("lower its number"));
        assert_eq!(banned.faults(&found).len(), 2);
    }

    #[test]
    fn long_function_names_are_found() {
        let (long, short) = ("a".repeat(NAME_MAX + 1), "b".repeat(NAME_MAX));
        let names = long_names(&format!("fn {short}() {{}}\n#[test]\nfn {long}() {{}}"));
        assert_eq!(names, [(3, long)]);
    }

    #[test]
    fn types_share_names_only_across_vendors() {
        let repeated = |files: &[(&str, &str)]| {
            let sources: Vec<_> = files.iter().map(|(file, text)| Source::new(file, text)).collect();
            repeated_types(sources.iter())
        };
        let (a, b) = (
            ("crates/kineto-devices/src/cupti/a.rs", "struct A;"),
            ("crates/kineto-devices/src/xpu/a.rs", "enum A {}"),
        );
        assert!(repeated(&[a, b]).is_empty());
        assert_eq!(repeated(&[a, b, ("crates/kineto-devices/src/xpu/b.rs", "struct A;")]).len(), 1);
        assert_eq!(repeated(&[a, ("crates/kineto-devices/src/trial.rs", "pub struct A(u8);")]).len(), 1);
        assert!(repeated(&[a, ("crates/kineto-devices/src/no_a.rs", "struct A;")]).is_empty(), "a stub");
        assert!(
            repeated(&[a, ("crates/x/src/a.rs", "struct A;"), ("t.rs", "#[cfg(test)] mod tests { struct A; }")])
                .is_empty()
        );
    }

    #[test]
    fn messages_are_found_with_their_severity() {
        let source = Source::new(
            "a.rs",
            r#"//! A.
            fn f() {
                diag!(logger = logger, Warning, "topic", "cannot {x}: {}; \
                    do it", f(1));
                diag!(Verbose, "topic", "it works");
                Error::new(ErrorKind::Io, "no file");
                Error::new(kind, format!("cannot: {why}"));
                io::Error::new(kind, "a cause");
                Unavailable::new(Why::Busy, "taken", "");
            }"#,
        );
        let found = messages(&source);
        let texts: Vec<_> = found.iter().map(|message| (message.kind, message.text.as_str())).collect();
        let expected = [
            ("Warning", "cannot {x}: {}; do it"),
            ("Verbose", "it works"),
            ("error", "no file"),
            ("error", "cannot: {why}"),
            ("unavailable", "taken; "),
        ];
        assert_eq!(texts, expected);
        assert_eq!(found.iter().map(Message::has_remedy).collect::<Vec<_>>(), [true, true, false, true, false]);
        let sources = [source];
        assert_eq!([0, 2, 3].map(|allowed| remedy_faults(&sources, allowed).len()), [3, 0, 1]);
    }
}
