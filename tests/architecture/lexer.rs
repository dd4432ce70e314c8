//! Rust source as a row of tokens: enough to see paths, words and string literals, and to leave comments out.

/// One token and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word(String),
    /// A string literal, byte and raw ones too, as it stands between its quotes.
    Text(String),
    /// `::`
    PathSeparator,
    /// Anything else that is no number, lifetime or character literal.
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
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { chars: source.chars().collect(), at: 0, line: 1, tokens: Vec::new() };
    while let Some(c) = lexer.peek(0) {
        lexer.token(c);
    }
    lexer.tokens
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.tokens.push(Token { kind, line });
    }

    fn token(&mut self, c: char) {
        let line = self.line;
        match (c, self.peek(1)) {
            ('/', Some('/')) => while self.next().is_some_and(|c| c != '\n') {},
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.text(0, true, line),
            ('\'', _) => self.quote(),
            (':', Some(':')) => {
                self.at += 2;
                self.push(Kind::PathSeparator, line);
            }
            _ if c.is_alphabetic() || c == '_' => self.word(line),
            _ if c.is_ascii_digit() => {
                while self.peek(0).is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    self.at += 1;
                }
            }
            _ => {
                self.next();
                if !c.is_whitespace() {
                    self.push(Kind::Sign(c), line);
                }
            }
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.next();
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                return;
            }
        }
    }

    /// A word, or what begins like one: `r"…"`, `br#"…"#`, `b'…'`, `r#word`.
    fn word(&mut self, line: usize) {
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
            self.at += 1;
        }
        let hashes = (0..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        let is_raw = matches!(word.as_str(), "r" | "br" | "cr");
        if (is_raw || matches!(word.as_str(), "b" | "c") && hashes == 0) && self.peek(hashes) == Some('"') {
            self.at += hashes;
            return self.text(hashes, !is_raw, line);
        }
        if word == "b" && self.peek(0) == Some('\'') {
            return self.quote();
        }
        if word == "r" && hashes == 1 {
            self.at += 1;
            return self.word(line);
        }
        self.push(Kind::Word(word), line);
    }

    /// A string literal from its opening quote on.
    fn text(&mut self, hashes: usize, escapes: bool, line: usize) {
        self.next();
        let mut text = String::new();
        while let Some(c) = self.next() {
            if c == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                self.at += hashes;
                break;
            }
            text.push(c);
            if escapes && c == '\\' {
                text.extend(self.next());
            }
        }
        self.push(Kind::Text(text), line);
    }

    /// A character literal or a lifetime; neither says anything.
    fn quote(&mut self) {
        self.next();
        match (self.peek(0), self.peek(1)) {
            (Some('\\'), _) => {
                self.at += 2;
                while self.next().is_some_and(|c| c != '\'') {}
            }
            (Some(_), Some('\'')) => {
                self.next();
                self.next();
            }
            _ => {
                while self.peek(0).is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    self.at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        tokens(source).iter().filter_map(|token| token.word().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_characters_and_lifetimes_hide_nothing_behind_them() {
        assert_eq!(words("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(words("fn f<'a>(x: &'a u8) { '\"'; '\\''; b'\"'; g('/', '/') }"), ["fn", "f", "x", "u8", "g"]);
        assert_eq!(words("0x_ff_u8 1e5 r#type"), ["type"]);
    }

    #[test]
    fn literals_are_texts_and_their_words_are_none() {
        let found = tokens("f(\"a \\\" unsafe\", r#\"b\"c\"#, b\"d\") x");
        let texts: Vec<_> = found.iter().filter_map(Token::text).collect();
        assert_eq!(texts, ["a \\\" unsafe", "b\"c", "d"]);
        assert_eq!(found.last().and_then(Token::word), Some("x"));
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let found = tokens("a\n/*\n*/ b \"\n\" c\n// d\ne");
        let lines: Vec<_> = found.iter().filter(|token| token.word().is_some()).map(|token| token.line).collect();
        assert_eq!(lines, [1, 3, 4, 6]);
    }
}
