//! Prints figures on the sources, or what is public in the libraries.
//!
//! `sources stats [FOLDER]` prints sizes and names of the checkout in that folder; without one, of this checkout.
//! `sources api` prints each public declaration of the libraries on a line, sorted.

use std::error::Error;
use std::path::{Path, PathBuf};
use test_architecture::{api, stats};

fn main() -> Result<(), Box<dyn Error>> {
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["stats"] => print!("{}", stats::figures(&here())?),
        ["stats", folder] => print!("{}", stats::figures(&PathBuf::from(folder))?),
        ["api"] => print!("{}", api::declarations_of(&here())?),
        _ => return Err("usage: sources stats [FOLDER], or sources api".into()),
    }
    Ok(())
}
