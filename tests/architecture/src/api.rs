//! What is public in the libraries: each declaration that a program can see on a line, without its place, so that code may move.
//!
//! `pub` means public there, since the lint `unreachable_pub` is on.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::files::{packages, texts};
use crate::lexer::parse;

/// Returns the public declarations of the libraries in that checkout, sorted.
///
/// # Errors
///
/// If a source cannot be read.
pub fn declarations_of(root: &Path) -> io::Result<String> {
    let mut found = BTreeSet::new();
    for package in ["src".to_owned()].into_iter().chain(packages(root)?) {
        found.extend(declarations(texts(root, &package, &[".rs"])?.iter().map(|(_, text)| text.as_str())));
    }
    Ok(found.into_iter().map(|line| line + "\n").collect())
}

/// Returns the public declarations in the sources of a package.
fn declarations<'s>(sources: impl Iterator<Item = &'s str>) -> BTreeSet<String> {
    let mut api = Api::default();
    sources.for_each(|source| api.add_items(parse(source)));
    let Api { declared, heads, private, public } = api;
    let is_private = |name: &String| private.contains(name) && !public.contains(name);
    let heads = heads.into_iter().filter(|(_, names)| !names.iter().any(is_private));
    declared.into_iter().chain(heads.map(|(head, _)| head)).collect()
}

#[derive(Default)]
struct Api {
    declared: BTreeSet<String>,
    /// Heads of implementations of traits, with the names in them.
    heads: Vec<(String, Vec<String>)>,
    /// The names of types and traits.
    private: BTreeSet<String>,
    public: BTreeSet<String>,
}

impl Api {
    fn add_items(&mut self, stream: TokenStream) {
        let trees: Vec<_> = stream.into_iter().collect();
        let mut rest = trees.as_slice();
        while !rest.is_empty() {
            rest = self.add_item(rest);
        }
    }

    /// Adds the item at the beginning; returns what is behind it.
    fn add_item<'t>(&mut self, trees: &'t [TokenTree]) -> &'t [TokenTree] {
        let (attributes, item) = split_attributes(trees);
        let words: Vec<_> = item.iter().take_while(|tree| !is_end(tree)).filter_map(word).collect();
        let words: Vec<_> =
            words.iter().map(String::as_str).filter(|word| !["pub", "unsafe", "async"].contains(word)).collect();
        let is_function =
            words.starts_with(&["fn"]) || words.starts_with(&["const", "fn"]) || words.starts_with(&["extern", "fn"]);
        let keyword = words.first().copied().unwrap_or_default();
        let is_public = is_public(item);
        // The value of a constant may have blocks.
        let has_value = ["const", "static", "type", "use"].contains(&keyword) && !is_function;
        let is_last = |tree: &TokenTree| if has_value { is_sign(tree, ';') } else { is_end(tree) };
        let end = item.iter().position(is_last).map_or(item.len(), |at| at + 1);
        let (item, behind) = item.split_at(end);
        if attributes.iter().any(|attribute| is_for_tests(attribute)) || item.is_empty() {
            return behind;
        }
        let body = item.last().and_then(|tree| if let TokenTree::Group(group) = tree { Some(group) } else { None });
        let body = body.filter(|group| group.delimiter() == Delimiter::Brace);
        self.note_type(&words, is_public);
        match (keyword, body) {
            ("impl", Some(body)) => {
                let head = &item[..item.len() - 1];
                if head.iter().any(|tree| word(tree).is_some_and(|word| word == "for")) {
                    let names = head.iter().filter_map(word).collect();
                    self.heads.push((text(head), names));
                }
                self.add_items(body.stream());
            }
            ("mod", Some(body)) => self.add_items(body.stream()),
            ("macro_rules", Some(_)) if attributes.iter().any(|group| group.to_string().contains("macro_export")) => {
                self.declared.insert(text(item));
            }
            ("struct" | "union", Some(body)) if is_public => {
                self.declared.insert(text(&item[..item.len() - 1]));
                self.add_fields(body);
            }
            _ if is_public => {
                let without_body = item.len() - usize::from(is_function && body.is_some());
                self.declared.insert(text(&item[..without_body]));
            }
            // The items that a macro of the project is given.
            ("", Some(body)) => self.add_items(body.stream()),
            (_, Some(body)) if item.get(1).is_some_and(|tree| is_sign(tree, '!')) => self.add_items(body.stream()),
            _ => {}
        }
        behind
    }

    fn note_type(&mut self, words: &[&str], is_public: bool) {
        if let [keyword, name, ..] = words
            && ["struct", "enum", "trait", "union", "type"].contains(keyword)
        {
            if is_public { &mut self.public } else { &mut self.private }.insert((*name).to_owned());
        }
    }

    fn add_fields(&mut self, body: &Group) {
        let trees: Vec<_> = body.stream().into_iter().collect();
        let mut rest = split_attributes(&trees).1;
        while !rest.is_empty() {
            let end = (1..rest.len()).find(|at| is_sign(&rest[at - 1], ',') && begins_field(&rest[*at..]));
            let (field, behind) = rest.split_at(end.unwrap_or(rest.len()));
            if is_public(field) {
                let has_comma = field.last().is_some_and(|last| is_sign(last, ','));
                self.declared.insert(text(&field[..field.len() - usize::from(has_comma)]));
            }
            rest = split_attributes(behind).1;
        }
    }
}

/// Whether a field begins there: a comma may also be one of a type's parameters.
fn begins_field(trees: &[TokenTree]) -> bool {
    let (attributes, field) = split_attributes(trees);
    let is_named = matches!(field, [name, colon, after, ..]
        if word(name).is_some() && is_sign(colon, ':') && !is_sign(after, ':'));
    !attributes.is_empty() || is_named || field.first().and_then(word).is_some_and(|word| word == "pub")
}

/// Whether an item or a field is public, not only in its crate.
fn is_public(item: &[TokenTree]) -> bool {
    item.first().and_then(word).is_some_and(|word| word == "pub") && !matches!(item.get(1), Some(TokenTree::Group(_)))
}

/// Splits off the attributes, as their groups; documentation is one.
fn split_attributes(mut trees: &[TokenTree]) -> (Vec<&Group>, &[TokenTree]) {
    let mut attributes = Vec::new();
    loop {
        trees = match trees {
            [hash, TokenTree::Group(group), rest @ ..] if is_sign(hash, '#') => {
                attributes.push(group);
                rest
            }
            [hash, not, TokenTree::Group(_), rest @ ..] if is_sign(hash, '#') && is_sign(not, '!') => rest,
            _ => return (attributes, trees),
        };
    }
}

fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    text.starts_with("cfg") && text.contains("test") && !text.contains("not (test)") && !text.contains("not(test)")
}

/// Whether an item ends with it.
fn is_end(tree: &TokenTree) -> bool {
    is_sign(tree, ';') || matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_sign(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(found) if found.as_char() == sign)
}

fn word(tree: &TokenTree) -> Option<String> {
    if let TokenTree::Ident(word) = tree { Some(word.to_string()) } else { None }
}

/// Returns the tokens without attributes, and without `mut` of parameters, which is no part of a signature.
fn text(trees: &[TokenTree]) -> String {
    fn plain(trees: &[TokenTree]) -> TokenStream {
        let (mut kept, mut rest) = (Vec::new(), trees);
        loop {
            (_, rest) = split_attributes(rest);
            let [first, behind @ ..] = rest else { return kept.into_iter().collect() };
            match first {
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    kept.push(TokenTree::Group(Group::new(group.delimiter(), plain(&inner))));
                }
                first if word(first).is_some_and(|word| word == "mut") && is_name(behind, &kept) => {}
                first => kept.push(first.clone()),
            }
            rest = behind;
        }
    }
    /// Whether `mut` precedes the name of a parameter, instead of following a `&` or `*`.
    fn is_name(behind: &[TokenTree], before: &[TokenTree]) -> bool {
        let is_pointer = before.last().is_some_and(|last| is_sign(last, '&') || is_sign(last, '*'));
        !is_pointer && behind.first().and_then(word).is_some() && before.last().is_none_or(|last| is_sign(last, ','))
    }
    plain(trees).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[&str]) {
        let found: Vec<_> = declarations([source].into_iter()).into_iter().collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn public_declarations_are_found_without_their_bodies() {
        check(
            "/// a\n#[must_use] pub fn f(mut a: u8, b: &mut u8) -> u8 { 1 } fn g() {}",
            &["pub fn f (a : u8 , b : & mut u8) -> u8"],
        );
        check("pub(crate) fn f() {} pub const A: [u8; 4] = { [0; 4] };", &["pub const A : [u8 ; 4] = { [0 ; 4] } ;"]);
        check("pub struct A { /// x\n pub b: u8, c: u8 }", &["pub b : u8", "pub struct A"]);
        check("pub enum A { /// x\n B, C(u8) }", &["pub enum A { B , C (u8) }"]);
        check(
            "mod m { pub use a::b; } impl A { pub const fn f(mut self) {} fn g() {} }",
            &["pub const fn f (self)", "pub use a :: b ;"],
        );
        check("named_values! { pub enum A { B = \"b\" } }", &["pub enum A { B = \"b\" }"]);
    }

    #[test]
    fn tests_and_private_items_are_no_api() {
        check("#[cfg(test)] mod tests { pub fn f() {} } #[cfg(not(test))] pub fn g() {}", &["pub fn g ()"]);
        check(
            "macro_rules! a { () => {} } #[macro_export] macro_rules! b { () => {} }",
            &["macro_rules ! b { () => { } }"],
        );
        check(
            "pub struct A; struct B; impl Drop for A {} impl Drop for B {} trait C {} impl C for A {}",
            &["impl Drop for A", "pub struct A ;"],
        );
    }
}
