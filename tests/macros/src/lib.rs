//! The attributes of tests that run in processes of their own.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes a function a test that runs in a process of its own.
///
/// What a process has once, such as a simulated machine, is then the test's.
#[proc_macro_attribute]
pub fn own_process(_: TokenStream, function: TokenStream) -> TokenStream {
    test_inside(function, |body| [parse("::support::own_process"), group(Delimiter::Parenthesis, [parse("||"), body])])
}

/// Makes a function a test that runs in a process of its own, on a virtual clock.
///
/// Time does not pass while the test, the library and the simulated devices work, and jumps to the next time that is waited for
/// whenever nothing else can go on.
#[proc_macro_attribute]
pub fn virtual_time(_: TokenStream, function: TokenStream) -> TokenStream {
    test_inside(function, |body| {
        let run = group(Delimiter::Parenthesis, [parse("||"), body]);
        [parse("::support::virtual_time"), group(Delimiter::Parenthesis, [parse("|clock| clock.run"), run])]
    })
}

/// Makes a function a test whose body is a call of a function with the body.
fn test_inside(function: TokenStream, call: impl FnOnce(TokenStream) -> [TokenStream; 2]) -> TokenStream {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let body = tokens.pop().into_iter().collect();
    [parse("#[test]"), tokens.into_iter().collect(), group(Delimiter::Brace, call(body))].into_iter().collect()
}

fn parse(text: &str) -> TokenStream {
    text.parse().expect("tokens")
}

fn group(delimiter: Delimiter, inside: [TokenStream; 2]) -> TokenStream {
    TokenTree::Group(Group::new(delimiter, inside.into_iter().collect())).into()
}
