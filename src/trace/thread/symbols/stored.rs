//! Symbols in a file.

use super::{StackSymbols, SymbolFrame};
use crate::encoding::{Encoded, encoded};
use kineto_base::fallible::{List, Map};
use std::sync::{Arc, Mutex, PoisonError};

encoded! {
    SymbolFrame { text, is_library }
}

/// Encodes the symbols that are known.
impl Encoded for StackSymbols {
    fn encode(&self, out: &mut List<u8>) {
        self.frames.encode(out);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.len().encode(out);
        for (address, frames) in known.iter() {
            address.encode(out);
            frames.encode(out);
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let (frames, mut known) = (usize::decode(from)?, Map::default());
        for (address, frames) in Vec::<(u64, Arc<[SymbolFrame]>)>::decode(from)? {
            known.insert(address, frames);
        }
        Some(StackSymbols { frames, are_own: false, known: Mutex::new(known) })
    }
}
