//! Rust source as a list of tokens without comments: the groups of `proc-macro2` are opened.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

/// One token and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Word(String),
    /// A string literal, byte and raw ones too, as it is written between its quotes.
    Text(String),
    /// `::`
    PathSeparator,
    /// Anything else but a number, a lifetime or a character literal.
    Sign(char),
}

impl Token {
    pub fn word(&self) -> Option<&str> {
        if let Kind::Word(word) = &self.kind { Some(word) } else { None }
    }

    pub fn text(&self) -> Option<&str> {
        if let Kind::Text(text) = &self.kind { Some(text) } else { None }
    }

    pub fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    pub fn is_separator(&self) -> bool {
        self.kind == Kind::PathSeparator
    }
}

/// Splits a source into trees of tokens.
#[expect(clippy::panic, reason = "the sources compile")]
pub(crate) fn parse(source: &str) -> TokenStream {
    source.parse().unwrap_or_else(|error| panic!("cannot split a source into tokens: {error}"))
}

/// Splits a source into tokens.
pub fn tokens(source: &str) -> Vec<Token> {
    let mut tokens = Tokens(Vec::new());
    tokens.add(parse(source));
    tokens.0
}

/// Returns the tokens without items under `#[cfg(test)]` and the like.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some(token) = tokens.get(at) {
        match test_item(tokens, at) {
            Some(behind) => at = behind,
            None => {
                kept.push(token.clone());
                at += 1;
            }
        }
    }
    kept
}

/// If an item for tests alone begins at `at` with its attribute: what is behind it.
fn test_item(tokens: &[Token], at: usize) -> Option<usize> {
    let [hash, open, cfg, ..] = tokens.get(at..)? else { return None };
    if !(hash.is_sign('#') && open.is_sign('[') && cfg.is_word("cfg")) {
        return None;
    }
    let end = at + tokens.get(at..)?.iter().position(|token| token.is_sign(']'))?;
    let condition = tokens.get(at..end)?;
    // For each open parenthesis, whether what is inside is negated.
    let mut negated = Vec::new();
    let for_tests = condition.iter().zip([hash].into_iter().chain(condition)).any(|(token, before)| {
        let is_negated = negated.last().copied().unwrap_or_default();
        if token.is_sign('(') {
            negated.push(is_negated || before.is_word("not"));
        } else if token.is_sign(')') {
            negated.pop();
        }
        token.is_word("test") && !is_negated
    });
    if !for_tests {
        return None;
    }
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(end) {
        if token.is_sign('{') {
            depth += 1;
        } else if token.is_sign('}') {
            depth = depth.checked_sub(1)?;
        }
        if depth == 0 && (token.is_sign('}') || token.is_sign(';')) {
            return Some(i + 1);
        }
    }
    Some(tokens.len())
}

/// Whether these are the brackets of a comment of documentation, which is an attribute: `#[doc = …]` or `#![doc = …]`.
fn is_documentation(tree: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = tree else { return false };
    group.stream().into_iter().take(2).map(|tree| tree.to_string()).eq(["doc", "="])
}

struct Tokens(Vec<Token>);

impl Tokens {
    fn push(&mut self, kind: Kind, span: Span) {
        self.0.push(Token { kind, line: span.start().line });
    }

    fn add(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            if matches!(&tree, TokenTree::Punct(sign) if sign.as_char() == '#') {
                let is_inner = matches!(trees.peek(), Some(TokenTree::Punct(sign)) if sign.as_char() == '!');
                if is_documentation(trees.clone().nth(usize::from(is_inner)).as_ref()) {
                    trees.nth(usize::from(is_inner));
                    continue;
                }
            }
            let span = tree.span();
            match tree {
                TokenTree::Ident(word) => {
                    self.push(Kind::Word(word.to_string().trim_start_matches("r#").to_owned()), span);
                }
                TokenTree::Literal(literal) => {
                    let written = literal.to_string();
                    let text = written.trim_start_matches(['b', 'c', 'r']).trim_matches('#').strip_prefix('"');
                    if let Some(text) = text {
                        self.push(Kind::Text(text.trim_end_matches('"').to_owned()), span);
                    }
                }
                TokenTree::Group(group) => self.add_group(&group),
                TokenTree::Punct(sign) => match (sign.as_char(), trees.peek()) {
                    // A lifetime.
                    ('\'', _) => drop(trees.next()),
                    (':', Some(TokenTree::Punct(next))) if next.as_char() == ':' => {
                        trees.next();
                        self.push(Kind::PathSeparator, span);
                    }
                    (sign, _) => self.push(Kind::Sign(sign), span),
                },
            }
        }
    }

    fn add_group(&mut self, group: &Group) {
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ('(', ')'),
            Delimiter::Brace => ('{', '}'),
            Delimiter::Bracket | Delimiter::None => ('[', ']'),
        };
        self.push(Kind::Sign(open), group.span_open());
        self.add(group.stream());
        self.push(Kind::Sign(close), group.span_close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        tokens(source).iter().filter_map(|token| token.word().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_lifetimes_and_numbers_are_no_words() {
        assert_eq!(words("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(words("//! a\n/// b\nfn f<'a>(x: &'a u8) { '\"'; b'\"'; 1e5 }"), ["fn", "f", "x", "u8"]);
        assert_eq!(words("r#type"), ["type"]);
    }

    #[test]
    fn items_for_tests_are_left_out() {
        let shipped = |source: &str| {
            without_tests(&tokens(source)).iter().filter_map(Token::word).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            shipped("#[cfg(test)] fn a() {} #[cfg(all(test, not(loom)))] mod b { c! {} } struct D;"),
            ["struct", "D"]
        );
        assert_eq!(shipped("#[cfg(not(all(test, loom)))] a! {}"), ["cfg", "not", "all", "test", "loom", "a"]);
    }

    #[test]
    fn literals_are_texts_on_their_lines() {
        let found = tokens("a\n/*\n*/ f(\"a \\\" unsafe\", r#\"b\"c\"#, b\"\nd\") x");
        let texts: Vec<_> = found.iter().filter_map(Token::text).collect();
        assert_eq!(texts, ["a \\\" unsafe", "b\"c", "\nd"]);
        let lines: Vec<_> = found.iter().filter(|token| token.word().is_some()).map(|token| token.line).collect();
        assert_eq!(lines, [1, 3, 4]);
    }
}
