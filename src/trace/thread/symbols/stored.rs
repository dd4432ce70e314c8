//! Symbols in a file.

use super::{StackSymbols, SymbolFrame};
use crate::encoding::{encoded, encoded_as};
use std::sync::{Arc, Mutex};

encoded! {
    SymbolFrame { text, is_library }
}

encoded_as! {
    StackSymbols as (usize, Vec<(u64, Arc<[SymbolFrame]>)>): |symbols| {
        let known = symbols.lock_known();
        (symbols.frames, known.iter().map(|(address, frames)| (*address, frames.clone())).collect())
    }, |(frames, known)| {
        Some(StackSymbols { frames, are_own: false, known: Mutex::new(known.into_iter().collect()) })
    };
}
