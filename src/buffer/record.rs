//! What the slots of a chunk mean: one head slot for each record, then the rest of its payload.

use super::chunk::{Chunk, SLOTS, Slots};

/// The kinds of records.
///
/// Word 3 of the head slot holds the tag, flags, the payload's length and the callsite; the words before it hold what
/// [`Tag::words`] says, and after that the payload begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// One enter..exit: start, end (0 while open), span id; with [`flag::DEFINES`], the parent's span id.
    Slice = 1,
    /// A span, whose id is this record's: parent's span id; payload: fields.
    Span = 2,
    /// The end of a slice whose chunk is no longer at hand: the slice's id, end.
    End = 3,
    /// Values recorded after a span was made: span id, time; payload: fields.
    Values = 4,
    /// An event: time, span id of the span it was in; payload: fields.
    Instant = 5,
    /// A counter event: time; payload: fields.
    Counter = 6,
    /// An event of level ERROR: the id of the slice it was in; payload: fields.
    Error = 7,
    /// A span is gone: span id, time.
    Close = 8,
    /// A span follows from another: its span id, the other's.
    Follows = 9,
    /// From here on the chunk belongs to another thread: its lane.
    Lane = 10,
}

/// Flags of a record.
pub(crate) mod flag {
    /// Slice: the first of its span.
    pub(crate) const FIRST: u8 = 1;
    /// Slice: it defines its span, which has no fields and no record of its own; the span's id is the slice's.
    pub(crate) const DEFINES: u8 = 2;
    /// Slice: it began before the recording did, and its start is the recording's.
    pub(crate) const CLIPPED: u8 = 4;
    /// Close: nothing happened on the thread between the span's last exit and this.
    pub(crate) const AFTER_EXIT: u8 = 8;
    /// Anything with fields: the payload is the id of a block that holds them.
    pub(crate) const BLOCK: u8 = 16;
}

/// The longest payload of one record, in bytes; what a chunk of its own could hold and some room.
pub(crate) const PAYLOAD_MAX: usize = 60 * 1024;

/// Word 3 of a head slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) tag: Tag,
    pub(crate) flags: u8,
    /// Bytes of payload.
    pub(crate) payload: u16,
    /// Index of the callsite.
    pub(crate) site: u32,
}

impl Head {
    /// A head without payload.
    #[inline(always)]
    pub(crate) const fn new(tag: Tag, flags: u8, site: u32) -> Head {
        Head { tag, flags, payload: 0, site }
    }

    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.tag as u64 | (self.flags as u64) << 8 | (self.payload as u64) << 16 | (self.site as u64) << 32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields of the word are cut out of it")]
    fn of(word: u64) -> Option<Head> {
        Some(Head {
            tag: Tag::of(word as u8)?,
            flags: (word >> 8) as u8,
            payload: (word >> 16) as u16,
            site: (word >> 32) as u32,
        })
    }

    /// Returns how many slots a record with this head takes.
    #[inline(always)]
    pub(crate) const fn slots(self) -> usize {
        1 + (self.payload as usize).saturating_sub(self.tag.inline_bytes()).div_ceil(32)
    }
}

impl Tag {
    /// How many words of the head slot are the record's own.
    #[inline(always)]
    const fn words(self) -> usize {
        match self {
            Tag::Slice => 3,
            Tag::Span | Tag::Counter | Tag::Error | Tag::Lane => 1,
            Tag::End | Tag::Values | Tag::Instant | Tag::Close | Tag::Follows => 2,
        }
    }

    /// How many bytes of payload fit into the head slot.
    #[inline(always)]
    const fn inline_bytes(self) -> usize {
        (3 - self.words()) * 8
    }

    fn of(byte: u8) -> Option<Tag> {
        const ALL: [Tag; 10] = [
            Tag::Slice,
            Tag::Span,
            Tag::End,
            Tag::Values,
            Tag::Instant,
            Tag::Counter,
            Tag::Error,
            Tag::Close,
            Tag::Follows,
            Tag::Lane,
        ];
        ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// A committed record, seen in its chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'c> {
    pub(crate) chunk: &'c Chunk,
    /// The record's head slot.
    pub(crate) at: usize,
    pub(crate) head: Head,
    /// The record's own words; what is not its own is payload.
    pub(crate) words: [u64; 3],
}

impl<'c> Record<'c> {
    /// Reads the record at slot `at`; `None` behind the last, or where a chunk is damaged.
    #[inline]
    pub(crate) fn read(chunk: &'c Chunk, at: usize, committed: usize) -> Option<Record<'c>> {
        if at >= committed {
            return None;
        }
        let [a, b, c, word] = chunk.read(at);
        let head = Head::of(word)?;
        (at + head.slots() <= committed).then_some(Record { chunk, at, head, words: [a, b, c] })
    }

    /// Writes a record at slot `at`, without committing it; `words` beyond the tag's own are ignored.
    #[inline(always)]
    pub(crate) fn write(slots: Slots, at: usize, head: Head, words: [u64; 3], payload: &[u8]) {
        let [a, b, c] = words;
        if payload.is_empty() {
            slots.write(at, [a, b, c, head.word()]);
        } else {
            Record::write_payload(slots, at, head, words, payload);
        }
    }

    #[inline]
    fn write_payload(slots: Slots, at: usize, head: Head, words: [u64; 3], payload: &[u8]) {
        let (inline, rest) = payload.split_at_checked(head.tag.inline_bytes()).unwrap_or((payload, &[]));
        let [a, b, c] = words;
        let [x, y, ..] = padded(inline);
        let [a, b, c] = match head.tag.words() {
            1 => [a, x, y],
            2 => [a, b, x],
            _ => [a, b, c],
        };
        slots.write(at, [a, b, c, head.word()]);
        let (whole, tail) = rest.as_chunks();
        let mut slot = at + 1;
        for bytes in whole {
            slots.write(slot, words_of(bytes));
            slot += 1;
        }
        if !tail.is_empty() {
            slots.write(slot, padded(tail));
        }
    }

    /// Returns the record's id.
    pub(crate) fn id(&self) -> u64 {
        self.chunk.first_id() + self.at as u64
    }

    /// Returns the id of a slice's span.
    #[inline]
    pub(crate) fn span(&self) -> u64 {
        if self.head.flags & flag::DEFINES != 0 { self.id() } else { self.words[2] }
    }

    /// Returns the id of a span's parent, if this is the record that defines the span.
    pub(crate) fn parent(&self) -> Option<u64> {
        match self.head.tag {
            Tag::Span => Some(self.words[0]),
            Tag::Slice if self.head.flags & flag::DEFINES != 0 => Some(self.words[2]),
            _ => None,
        }
    }

    /// Returns the slot behind the record.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        self.at + self.head.slots()
    }

    /// Copies the payload into `bytes`, which is cleared first.
    pub(crate) fn payload(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        let length = usize::from(self.head.payload);
        for word in self.words.iter().skip(self.head.tag.words()) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for slot in self.at + 1..self.next() {
            for word in self.chunk.read(slot) {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.truncate(length);
    }
}

/// The words of at most 32 bytes, with zeros behind them.
#[inline(always)]
fn padded(bytes: &[u8]) -> [u64; 4] {
    let mut whole = [0; 32];
    if let Some(place) = whole.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    words_of(&whole)
}

#[inline(always)]
fn words_of(bytes: &[u8; 32]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|i| words.get(i).map_or(0, |word| u64::from_le_bytes(*word)))
}

const _: () = assert!(SLOTS < 8 || PAYLOAD_MAX / 32 + 2 < SLOTS, "the longest record fits into an empty chunk");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_it_was_written_whatever_its_payload() {
        // What is left in the slots from the record before must not matter.
        let chunk = Chunk::new();
        let step = if cfg!(miri) { 67 } else { 1 };
        let longest: &[usize] = if cfg!(miri) { &[] } else { &[4096, PAYLOAD_MAX] };
        for tag in (1..=10).filter_map(Tag::of) {
            for length in (0..200).step_by(step).chain(longest.iter().copied()) {
                chunk.open(SLOTS as u64, 1);
                let payload: Vec<u8> = (0..length).map(|i| u8::try_from((i * 7 + 1) % 256).unwrap()).collect();
                let head =
                    Head { payload: u16::try_from(length).unwrap(), ..Head::new(tag, flag::FIRST | flag::DEFINES, 77) };
                Record::write(chunk.slots(), 1, head, [11, 22, 33], &payload);
                chunk.slots().commit((SLOTS + 1 + head.slots()) as u64);
                let record = Record::read(&chunk, 1, chunk.committed()).unwrap();
                assert_eq!((record.head, record.id()), (head, SLOTS as u64 + 1));
                assert_eq!(record.words[..tag.words()], [11, 22, 33][..tag.words()]);
                let mut back = Vec::new();
                record.payload(&mut back);
                if tag != Tag::Slice {
                    assert_eq!(back, payload, "{tag:?} with {length} bytes");
                }
                assert!(Record::read(&chunk, record.next(), chunk.committed()).is_none());
            }
        }
    }

    #[test]
    fn a_damaged_slot_ends_the_chunk_instead_of_lying() {
        let chunk = Chunk::new();
        chunk.open(SLOTS as u64, 1);
        chunk.slots().write(1, [0, 0, 0, 200]);
        chunk.slots().write(2, [0, 0, 0, Head { payload: u16::MAX, ..Head::new(Tag::Span, 0, 0) }.word()]);
        chunk.slots().commit(SLOTS as u64 + 3);
        assert!(Record::read(&chunk, 1, 3).is_none());
        assert!(Record::read(&chunk, 2, 3).is_none(), "the payload would lie behind the committed length");
    }
}
