//! The attribute of tests on a virtual clock.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes a function a test that runs in a process of its own, on a virtual clock.
///
/// Time does not pass while the test, the library and the simulated devices work, and jumps to the next time that is waited for
/// whenever nothing else can go on.
#[proc_macro_attribute]
pub fn virtual_time(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let body = tokens.pop().into_iter().collect();
    let run = group(Delimiter::Parenthesis, [parse("||"), body]);
    let test = group(Delimiter::Parenthesis, [parse("|clock| clock.run"), run]);
    let call = group(Delimiter::Brace, [parse("::support::virtual_time"), test]);
    [parse("#[test]"), tokens.into_iter().collect(), call].into_iter().collect()
}

fn parse(text: &str) -> TokenStream {
    text.parse().expect("tokens")
}

fn group(delimiter: Delimiter, inside: [TokenStream; 2]) -> TokenStream {
    TokenTree::Group(Group::new(delimiter, inside.into_iter().collect())).into()
}
