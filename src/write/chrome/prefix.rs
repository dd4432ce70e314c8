//! The starts of slices, kept rendered: most slices of a trace share theirs with many others.

use std::io::Write;

use crate::activity::ActivityType;
use crate::write::buffer::Buffer;

/// A small table of rendered starts, `{"ph":"X","cat":…,"name":…,"pid":…,"tid":…,"ts":`.
///
/// It holds the names themselves, never their addresses: a caller may reuse the memory of a name at once.
#[derive(Debug)]
pub(super) struct Prefixes {
    slots: Box<[Slot]>,
}

/// What a start depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'t> {
    pub(super) kind: ActivityType,
    pub(super) name: &'t str,
    pub(super) process: i64,
    /// Without its sign.
    pub(super) thread: u64,
}

/// One entry; empty while `text` is.
#[derive(Clone, Debug)]
struct Slot {
    kind: ActivityType,
    process: i64,
    thread: u64,
    name: Vec<u8>,
    text: Vec<u8>,
}

/// A power of two.
const SLOTS: usize = 256;

/// Longer names are rendered each time.
const LONGEST: usize = 128;

/// What a start takes at most: a name, six bytes for each of its own, and everything else.
const RENDERED: usize = 6 * LONGEST + 200;

impl Prefixes {
    pub(super) fn new() -> Self {
        let empty = Slot { kind: ActivityType::CpuOp, process: 0, thread: 0, name: Vec::new(), text: Vec::new() };
        Prefixes { slots: vec![empty; SLOTS].into() }
    }

    /// Appends the start of a slice.
    #[inline]
    pub(super) fn append<W: Write>(&mut self, out: &mut Buffer<W>, key: Key<'_>) {
        let slot = self.slots.get_mut(key.hash() % SLOTS).filter(|_| key.name.len() <= LONGEST);
        match slot {
            Some(slot) if slot.holds(key) => out.verbatim(&slot.text),
            Some(slot) => slot.fill(key, out.capture(RENDERED, |out| key.render(out))),
            None => key.render(out),
        }
    }
}

impl Key<'_> {
    /// Appends the start of a slice.
    fn render<W: Write>(&self, out: &mut Buffer<W>) {
        out.raw(b"\n{\"ph\":\"X\",\"cat\":\"");
        out.verbatim(self.kind.as_str().as_bytes());
        out.raw(b"\",\"name\":");
        out.string(self.name);
        out.raw(b",\"pid\":");
        out.int(self.process);
        out.raw(b",\"tid\":");
        out.uint(self.thread);
        out.raw(b",\"ts\":");
    }

    /// Mixes both ends of the name with the rest.
    #[inline]
    fn hash(&self) -> usize {
        let name = self.name.as_bytes();
        let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => (name.iter().fold(0, |word, &byte| (word << 8) | u64::from(byte)), 0),
        };
        let place = self.thread ^ self.process.cast_unsigned().rotate_left(32) ^ ((self.kind as u64) << 56);
        let mixed = (first ^ last.rotate_left(23) ^ place.rotate_left(11)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [.., a, b] = mixed.to_le_bytes();
        usize::from(u16::from_le_bytes([a, b]))
    }
}

impl Slot {
    #[inline]
    fn holds(&self, key: Key<'_>) -> bool {
        self.thread == key.thread
            && self.process == key.process
            && self.kind == key.kind
            && self.name == key.name.as_bytes()
            && !self.text.is_empty()
    }

    #[cold]
    fn fill(&mut self, key: Key<'_>, text: &[u8]) {
        self.kind = key.kind;
        self.process = key.process;
        self.thread = key.thread;
        self.name.clear();
        self.name.extend_from_slice(key.name.as_bytes());
        self.text.clear();
        self.text.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(prefixes: &mut Prefixes, key: Key<'_>) {
        let text = |write: &mut dyn FnMut(&mut Buffer<Vec<u8>>)| {
            let mut buffer = Buffer::new(Vec::new());
            write(&mut buffer);
            String::from_utf8(buffer.finish().unwrap()).unwrap()
        };
        // Twice: when it is rendered, and when it is there.
        let plain = text(&mut |out| key.render(out));
        assert_eq!(text(&mut |out| prefixes.append(out, key)), plain);
        assert_eq!(text(&mut |out| prefixes.append(out, key)), plain);
    }

    #[test]
    fn names_of_every_length() {
        let mut prefixes = Prefixes::new();
        for length in 0..200 {
            for name in ["n".repeat(length), "\0".repeat(length)] {
                check(&mut prefixes, Key { kind: ActivityType::CpuOp, name: &name, process: -1, thread: u64::MAX });
            }
        }
    }

    #[test]
    fn the_empty_name_of_track_0_is_no_empty_slot() {
        check(&mut Prefixes::new(), Key { kind: ActivityType::CpuOp, name: "", process: 0, thread: 0 });
    }

    #[test]
    fn a_name_in_reused_memory_is_not_taken_for_the_old_one() {
        let mut prefixes = Prefixes::new();
        let mut memory = String::from("first name");
        for letter in ['a', 'b', 'c'] {
            memory.clear();
            // The same start, end and length: the same slot.
            memory.extend(["01234567", &letter.to_string(), "01234567"]);
            check(&mut prefixes, Key { kind: ActivityType::CpuOp, name: &memory, process: 1, thread: 2 });
        }
    }

    proptest! {
        #[test]
        fn any_sequence_of_keys_is_rendered_as_without_the_table(
            keys in prop::collection::vec(("[ab\"]{0,3}", 0..2_i64, 0..2_u64, any::<bool>()), 1..200)
        ) {
            let mut prefixes = Prefixes::new();
            for (name, process, thread, kernel) in &keys {
                let kind = if *kernel { ActivityType::ConcurrentKernel } else { ActivityType::CpuOp };
                check(&mut prefixes, Key { kind, name, process: *process - 1, thread: *thread });
            }
        }
    }
}
