//! Caches demangled names of kernels.

use crate::records::demangle::demangle;
use crate::{Batch, Name, text};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The kernel names of a recording, by the address of their text.
///
/// A text is compared again in each buffer, since another text may be at that address after a module was unloaded.
#[derive(Debug, Default)]
pub(super) struct KernelNames {
    known: HashMap<u64, CachedKernel, BuildHasherDefault<AddressHasher>>,
    /// The buffer that is being read.
    buffer: u64,
    text: Vec<u8>,
}

#[derive(Debug)]
struct CachedKernel {
    text: Box<[u8]>,
    name: Name,
    seen_in: u64,
}

/// The name of a kernel whose text cannot be read.
const UNKNOWN: &str = "unknown kernel";

impl KernelNames {
    /// Starts another buffer.
    pub(super) fn next_buffer(&mut self) {
        self.buffer += 1;
    }

    /// Returns the name whose text is at that address.
    #[inline]
    pub(super) fn name_at(&mut self, address: u64, batch: &mut Batch<'_>) -> Name {
        match self.known.get(&address) {
            Some(known) if known.seen_in == self.buffer => known.name,
            _ => self.read_name(address, batch),
        }
    }

    #[cold]
    fn read_name(&mut self, address: u64, batch: &mut Batch<'_>) -> Name {
        let there = text::copy_c_string(address, &mut self.text);
        if let Some(known) = self.known.get_mut(&address) {
            // If the module is unloaded, this is the name that it had.
            if !there || *known.text == *self.text {
                known.seen_in = self.buffer;
                return known.name;
            }
        }
        if !there {
            return batch.name(UNKNOWN);
        }
        let name = batch.name(&demangle(&String::from_utf8_lossy(&self.text)));
        let text = self.text.as_slice().into();
        self.known.insert(address, CachedKernel { text, name, seen_in: self.buffer });
        name
    }
}

/// Hashes addresses; no attacker chooses them.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, address: u64) {
        let spread = (self.0 ^ address).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ spread >> 32;
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::trial;

    #[test]
    fn text_is_read_again_in_each_buffer() {
        let sink = trial::unbounded_sink();
        let mut names = KernelNames::default();
        let mut text = *b"first\0";
        let address = text.as_mut_ptr().expose_provenance() as u64;
        let name = |names: &mut KernelNames| sink.record(|batch| names.name_at(address, batch));
        let first = name(&mut names);
        text.copy_from_slice(b"other\0");
        std::hint::black_box(&mut text);
        assert_eq!(name(&mut names), first, "within a buffer");
        names.next_buffer();
        let other = name(&mut names);
        assert_ne!(other, first);
        let records = sink.collect_records(false);
        assert_eq!((records.names.text(first), records.names.text(other)), ("first", "other"));
    }

    #[test]
    fn unreadable_name_gets_a_placeholder() {
        let sink = trial::unbounded_sink();
        let mut names = KernelNames::default();
        let broken = b"\xFFab\0";
        let (none, nowhere, broken) = sink.record(|batch| {
            let mut name = |address| names.name_at(address, batch);
            (name(0), name(8), name(broken.as_ptr().expose_provenance() as u64))
        });
        let records = sink.collect_records(false);
        assert_eq!([none, nowhere].map(|name| records.names.text(name)), [UNKNOWN; 2]);
        assert_eq!(records.names.text(broken), "\u{FFFD}ab");
    }
}
