//! The layout of records in a chunk: one head slot for each record, then the rest of its payload.

use super::chunk::{SLOTS, Slots};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of records.
///
/// Word 0 of the head slot, the [`Head`], holds the tag, flags, the payload's length and the callsite. The next words are
/// those listed at each kind; the payload follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// One enter..exit of a span: start, end (0 while open), span id; with [`flag::DEFINES`], the parent's span id.
    Slice = 1,
    /// A span, whose id is this record's: the parent's span id; payload: fields.
    Span = 2,
    /// The end of a slice in a chunk that the thread no longer writes: the slice's id, end.
    End = 3,
    /// Values recorded after a span was created: span id, time; payload: fields.
    Values = 4,
    /// An event: time, id of the span around it; payload: fields.
    Instant = 5,
    /// A counter event: time; payload: fields.
    Counter = 6,
    /// An event of level ERROR: the id of the slice around it; payload: fields.
    Error = 7,
    /// A span closed: span id, time.
    Close = 8,
    /// A span follows from another: its span id, the other's.
    Follows = 9,
    /// The following records in the chunk belong to another thread: the number of its lane.
    Lane = 10,
    /// An allocator's event: time, id of the slice around it, address; payload: bytes (negative for a free), total allocated,
    /// total reserved. The head holds a [`MemoryTag`] in place of the callsite.
    Memory = 11,
    /// The stack at the enter of the slice recorded next; payload: return addresses, the innermost first.
    Stack = 12,
    /// The thread's counters at the exit of a slice: the slice's id, 0 for those at the enter of the slice recorded next.
    /// Payload: the nanoseconds for which they were enabled and for which they counted, then a count for each.
    Counts = 13,
}

/// Flags of a record.
pub(crate) mod flag {
    /// Slice: the first of its span.
    pub(crate) const FIRST: u8 = 1;
    /// Slice: it defines its span, which has no fields and no record of its own; the span's id is the slice's id.
    pub(crate) const DEFINES: u8 = 2;
    /// Slice: it began before the recording, and its start is the recording's.
    pub(crate) const CLIPPED: u8 = 4;
    /// Slice: its span is a user annotation.
    pub(crate) const ANNOTATES: u8 = 8;
    /// Slice: the span's first enter directly followed its creation: on the same thread, which created, entered and exited
    /// no other span in between. The hook before that creation must not have created another span with the same parent:
    /// constructors of models create the spans of their layers in a row.
    pub(crate) const DIRECT: u8 = 32;
    /// Close: the thread exited a span before, and did nothing with spans in between that leaves no record.
    pub(crate) const AFTER_EXIT: u8 = 8;
    /// Any record with fields: the payload is the id of the large payload that holds them.
    pub(crate) const LARGE: u8 = 16;
    /// Memory: the allocation failed.
    pub(crate) const OUT_OF_MEMORY: u8 = 32;
}

/// The longest payload of one record, in words: the capacity of an empty chunk, less some slack.
pub(crate) const PAYLOAD_MAX: usize = 60 * 1024 / 8;

/// Word 0 of a head slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) tag: Tag,
    pub(crate) flags: u8,
    /// Words of payload.
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
    pub(crate) const fn to_word(self) -> u64 {
        self.tag as u64 | (self.flags as u64) << 8 | (self.payload as u64) << 16 | (self.site as u64) << 32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields are extracted from the word")]
    fn from_word(word: u64) -> Option<Head> {
        Some(Head {
            tag: Tag::from_byte(word as u8)?,
            flags: (word >> 8) as u8,
            payload: (word >> 16) as u16,
            site: (word >> 32) as u32,
        })
    }

    /// Returns how many slots a record with this head takes.
    #[inline(always)]
    pub(crate) const fn slot_count(self) -> usize {
        (1 + self.tag.fixed_words() + self.payload as usize).div_ceil(4)
    }
}

impl Tag {
    /// Returns how many words of the head slot the tag uses.
    #[inline(always)]
    pub(crate) const fn fixed_words(self) -> usize {
        match self {
            Tag::Stack => 0,
            Tag::Slice | Tag::Memory => 3,
            Tag::Span | Tag::Counter | Tag::Error | Tag::Lane | Tag::Counts => 1,
            Tag::End | Tag::Values | Tag::Instant | Tag::Close | Tag::Follows => 2,
        }
    }

    fn from_byte(byte: u8) -> Option<Tag> {
        use Tag::*;
        const ALL: [Tag; 13] =
            [Slice, Span, End, Values, Instant, Counter, Error, Close, Follows, Lane, Memory, Stack, Counts];
        ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// Replaces the callsite of a [`Tag::Memory`]: the device that holds the memory, and the memory's category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MemoryTag {
    /// The number of the kind of device.
    pub(crate) kind: u8,
    /// The device's index; negative if there is only one of the kind.
    pub(crate) index: i16,
    /// The number of the category.
    pub(crate) category: u8,
}

impl MemoryTag {
    #[inline(always)]
    pub(crate) const fn to_word(self) -> u32 {
        self.kind as u32 | (self.category as u32) << 8 | (self.index.cast_unsigned() as u32) << 16
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields are extracted from the word")]
    pub(crate) const fn from_word(word: u32) -> MemoryTag {
        MemoryTag { kind: word as u8, category: (word >> 8) as u8, index: ((word >> 16) as u16).cast_signed() }
    }
}

/// Committed slots with consecutive ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommittedSlots<'c> {
    slots: &'c [[AtomicU64; 4]],
    /// The id of the first slot.
    pub(crate) first_id: u64,
    /// If the slots below are in an earlier part of the recording: where the others begin.
    new_from: Option<usize>,
}

impl<'c> CommittedSlots<'c> {
    pub(crate) fn new(slots: &'c [[AtomicU64; 4]], first_id: u64) -> CommittedSlots<'c> {
        CommittedSlots { slots, first_id, new_from: None }
    }

    /// Marks the records from that slot on as new: no earlier part of the recording has them.
    pub(crate) fn with_new_from(self, new_from: Option<usize>) -> CommittedSlots<'c> {
        CommittedSlots { new_from, ..self }
    }

    /// Reads the record at slot `at`; `None` after the last, or if the slots are damaged.
    #[inline]
    pub(crate) fn read_record(self, at: usize) -> Option<CommittedRecord<'c>> {
        let [word, a, b, c] = self.slots.get(at)?;
        let head = Head::from_word(word.load(Ordering::Relaxed))?;
        let words = [a, b, c].map(|word| word.load(Ordering::Relaxed));
        (at + head.slot_count() <= self.slots.len()).then_some(CommittedRecord { all: self, slot: at, head, words })
    }

    /// Returns the records from slot `at` on.
    pub(crate) fn records_from(self, at: usize) -> impl Iterator<Item = CommittedRecord<'c>> {
        std::iter::successors(self.read_record(at), move |record| self.read_record(record.next_slot()))
    }

    /// Reads the record with that id.
    #[inline]
    pub(crate) fn find_record(self, id: u64) -> Option<CommittedRecord<'c>> {
        self.read_record(usize::try_from(id.checked_sub(self.first_id)?).ok()?)
    }

    /// Returns the words of all slots.
    pub(crate) fn words(self) -> impl Iterator<Item = u64> {
        self.slots.as_flattened().iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns how many slots there are.
    pub(crate) fn len(self) -> usize {
        self.slots.len()
    }
}

/// A committed record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommittedRecord<'c> {
    /// The slots around it.
    pub(crate) all: CommittedSlots<'c>,
    /// The slot of its head.
    pub(crate) slot: usize,
    pub(crate) head: Head,
    /// The words of the head slot after the head; those that the tag does not use are payload.
    pub(crate) words: [u64; 3],
}

impl CommittedRecord<'_> {
    /// Writes a record at slot `at`, without its payload and without committing it; ignores `words` beyond those of the tag.
    #[inline(always)]
    pub(crate) fn write_head(slots: Slots, at: usize, head: Head, words: [u64; 3]) {
        let place = slots.all_words().get(at * 4..at * 4 + 4).unwrap_or_default();
        let own = std::iter::once(head.to_word()).chain(words).take(1 + head.tag.fixed_words());
        place.iter().zip(own).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }

    /// Returns the record's id.
    pub(crate) fn id(&self) -> u64 {
        self.all.first_id + self.slot as u64
    }

    /// Returns the id of a slice's span.
    #[inline]
    pub(crate) fn span_id(&self) -> u64 {
        if self.head.flags & flag::DEFINES != 0 { self.id() } else { self.words[2] }
    }

    /// Returns the id of a span's parent, if this is the record that defines the span.
    pub(crate) fn parent_id(&self) -> Option<u64> {
        match self.head.tag {
            Tag::Span => Some(self.words[0]),
            Tag::Slice if self.head.flags & flag::DEFINES != 0 => Some(self.words[2]),
            _ => None,
        }
    }

    /// Returns the ids of the records that this one refers to, 0 for none: its span, slice, or parent.
    pub(crate) fn references(&self) -> [u64; 2] {
        let [a, b, c] = self.words;
        match self.head.tag {
            Tag::Slice => [c, 0],
            Tag::Instant | Tag::Memory => [b, 0],
            Tag::Span | Tag::End | Tag::Values | Tag::Error | Tag::Close | Tag::Counts => [a, 0],
            Tag::Follows => [a, b],
            Tag::Counter | Tag::Lane | Tag::Stack => [0, 0],
        }
    }

    /// Returns whether the record was committed after the part of the recording before was taken, whatever time it has.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        self.all.new_from.is_some_and(|from| self.slot >= from)
    }

    /// Returns whether this is a slice whose record holds no end.
    pub(crate) fn is_open_slice(&self) -> bool {
        self.head.tag == Tag::Slice && self.words[1] == 0
    }

    /// Copies the slots from `from` to the end of the record.
    pub(crate) fn copy_slots(&self, from: usize) -> Box<[[AtomicU64; 4]]> {
        let slots = self.all.slots.get(from..self.next_slot()).unwrap_or_default();
        let mut copies = Vec::with_capacity(slots.len());
        for [a, b, c, d] in slots {
            let copy = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
            copies.push([copy(a), copy(b), copy(c), copy(d)]);
        }
        copies.into_boxed_slice()
    }

    /// Returns the slot after the record.
    #[inline]
    pub(crate) fn next_slot(&self) -> usize {
        self.slot + self.head.slot_count()
    }

    /// Returns the words of the payload.
    #[inline]
    pub(crate) fn payload_words(&self) -> impl ExactSizeIterator<Item = u64> {
        let from = self.slot * 4 + 1 + self.head.tag.fixed_words();
        let words = self.all.slots.as_flattened().get(from..).and_then(|words| words.get(..self.head.payload.into()));
        words.unwrap_or_default().iter().map(|word| word.load(Ordering::Relaxed))
    }
}

const _: () = assert!(SLOTS < 8 || PAYLOAD_MAX / 4 + 2 < SLOTS, "the longest record fits into an empty chunk");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::Chunk;

    #[test]
    fn record_round_trips_with_any_payload() {
        // Words of earlier records in the slots must not matter.
        let chunk = Chunk::new().unwrap();
        let longest: &[usize] = if cfg!(miri) { &[] } else { &[600, PAYLOAD_MAX] };
        for tag in (1..=13).filter_map(Tag::from_byte) {
            for length in (0..20).chain(longest.iter().copied()) {
                chunk.open(SLOTS as u64, 1);
                let expected: Vec<u64> = (0..length).map(|i| i as u64 * 7 + 1).collect();
                let writer = chunk.slots();
                let mut payload = writer.begin_payload(SLOTS as u64 + 1, tag);
                expected.iter().for_each(|word| payload.push_words([*word]));
                let head = Head::new(tag, flag::FIRST | flag::CLIPPED, 77);
                assert!(writer.put_with(SLOTS as u64 + 1, payload, head, [11, 22, 33]));
                let records = chunk.committed_slots(chunk.committed_len());
                let record = records.read_record(0).unwrap();
                let payload = u16::try_from(length).unwrap();
                assert_eq!((record.head, record.id()), (Head { payload, ..head }, SLOTS as u64 + 1));
                assert_eq!(record.words[..tag.fixed_words()], [11, 22, 33][..tag.fixed_words()]);
                assert_eq!(record.payload_words().collect::<Vec<u64>>(), expected, "{tag:?} with {length} words");
                assert!(records.read_record(record.next_slot()).is_none());
            }
        }
    }

    #[test]
    fn memory_tag_fits_into_a_head() {
        for (kind, index, category) in [(0, -1, 7), (1, 0, 0), (255, i16::MAX, 255), (20, i16::MIN, 1)] {
            let tag = MemoryTag { kind, index, category };
            assert_eq!(MemoryTag::from_word(tag.to_word()), tag);
        }
    }

    #[test]
    fn damaged_slot_ends_the_chunk() {
        let chunk = Chunk::new().unwrap();
        chunk.open(SLOTS as u64, 1);
        chunk.slots().write_slot(1, [200, 0, 0, 0]);
        chunk.slots().write_slot(2, [Head { payload: u16::MAX, ..Head::new(Tag::Span, 0, 0) }.to_word(), 0, 0, 0]);
        chunk.slots().commit_below(SLOTS as u64 + 3);
        assert!(chunk.committed_slots(3).read_record(0).is_none());
        assert!(chunk.committed_slots(3).read_record(1).is_none(), "the payload would lie behind the committed length");
    }
}
