//! Rust source as a list of tokens without comments: the groups of `proc-macro2` are opened.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

/// One token and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word(String),
    /// A string literal, byte and raw ones too, as it is written between its quotes.
    Text(String),
    /// `::`
    PathSeparator,
    /// Anything else but a number, a lifetime or a character literal.
    Sign(char),
}

impl Token {
    pub(crate) fn word(&self) -> Option<&str> {
        if let Kind::Word(word) = &self.kind { Some(word) } else { None }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Kind::Text(text) = &self.kind { Some(text) } else { None }
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub(crate) fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    pub(crate) fn is_separator(&self) -> bool {
        self.kind == Kind::PathSeparator
    }
}

/// Splits a source into tokens.
#[expect(clippy::panic, reason = "this runs in tests alone")]
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let stream = source.parse().unwrap_or_else(|error| panic!("cannot split a source into tokens: {error}"));
    let mut tokens = Tokens(Vec::new());
    tokens.add(stream);
    tokens.0
}

struct Tokens(Vec<Token>);

impl Tokens {
    fn push(&mut self, kind: Kind, span: Span) {
        self.0.push(Token { kind, line: span.start().line });
    }

    fn add(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
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
        let words = group.stream().into_iter().take(2).map(|tree| tree.to_string());
        if words.eq(["doc", "="]) {
            return;
        }
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
    fn literals_are_texts_on_their_lines() {
        let found = tokens("a\n/*\n*/ f(\"a \\\" unsafe\", r#\"b\"c\"#, b\"\nd\") x");
        let texts: Vec<_> = found.iter().filter_map(Token::text).collect();
        assert_eq!(texts, ["a \\\" unsafe", "b\"c", "\nd"]);
        let lines: Vec<_> = found.iter().filter(|token| token.word().is_some()).map(|token| token.line).collect();
        assert_eq!(lines, [1, 3, 4]);
    }
}
