//! The records of one collector in one recording, as they are read.

use super::device::DeviceDescription;
use super::names::{Name, NameTable};
use super::record::Thread;
use super::shape::RecordLayout;
use super::store::Budget;
use super::threads::Threads;
use crate::buffer::Loss;
use kineto_trace::activity::ActivityType;
use std::collections::HashSet;
use std::sync::Arc;

/// Words in a block.
pub(super) const BLOCK: usize = 8192;
pub(super) const BLOCK_BYTES: u64 = (BLOCK * size_of::<u64>()) as u64;

/// Calls, work, and the rest.
pub(super) const SHELVES: usize = 3;
/// How many words a shelf may hold: places are numbers of 32 bits, of which the shelf takes two.
pub(super) const SHELF_WORDS: usize = 1 << 30;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    Call = 1,
    Work = 2,
    Sync = 3,
    Event = 4,
    External = 5,
    Overhead = 6,
    Counter = 7,
    Memory = 8,
}

impl Role {
    /// Which shelf records of this role lie on.
    pub(super) const fn shelf(self) -> usize {
        match self {
            Role::Call => 0,
            Role::Work => 1,
            _ => 2,
        }
    }
}

/// How many words behind its head every record has of its own.
const OWN: usize = 4;

/// How many more those of a shelf have.
const fn more(shelf: usize) -> usize {
    if shelf == Role::Work.shelf() { 0 } else { 1 }
}

/// The flag of a call that launches something.
pub(super) const LAUNCHES: u8 = 1 << 4;
/// The flag of a call whose thread is named by its handle.
pub(super) const BY_HANDLE: u8 = 1 << 5;
/// The flag of work that a slice stands for, not a call.
pub(super) const OF_SLICE: u8 = 1 << 6;

/// The records of one collector in one recording, as they were taken.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(super) shelves: [Vec<Arc<Vec<u64>>>; SHELVES],
    pub(crate) names: NameTable,
    pub(super) shapes: Vec<&'static dyn RecordLayout>,
    pub(super) contexts: Vec<(u32, i32)>,
    /// Who made the calls.
    pub(crate) threads: Threads,
    pub(crate) losses: Vec<(Loss, u64)>,
    pub(crate) notes: Vec<String>,
    pub(crate) devices: Vec<DeviceDescription>,
    /// Devices that are shown under another number than the records have, since another vendor has one of theirs.
    pub(super) renumbered: Vec<(i32, i32)>,
    /// Correlation ids of launches in pauses: their work may have come before they did.
    pub(super) unwanted: HashSet<u64>,
    /// How far times may be wrong by the collector's own clock, in nanoseconds.
    pub(crate) clock_error_ns: u64,
    pub(super) owned: Option<(Arc<dyn Budget>, u64)>,
}

/// A record, seen where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'t> {
    /// Its place.
    pub(crate) at: u32,
    tag: u8,
    kind: u8,
    shape: u8,
    pub(crate) name: Name,
    own: &'t [u64; OWN],
    /// One more word of its own; 0 for work.
    last: u64,
    /// What its shape shows.
    pub(crate) words: &'t [u64],
}

impl Collected {
    /// No records.
    pub(crate) fn empty() -> Collected {
        let (names, shapes, contexts, losses) = (NameTable::default(), Vec::new(), Vec::new(), Vec::new());
        Collected {
            shelves: Default::default(),
            names,
            shapes,
            contexts,
            threads: Threads::default(),
            losses,
            notes: Vec::new(),
            devices: Vec::new(),
            renumbered: Vec::new(),
            unwanted: HashSet::new(),
            clock_error_ns: 0,
            owned: None,
        }
    }

    /// Returns the calls, in the order in which they came.
    pub(crate) fn calls(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.on::<{ Role::Call.shelf() }>()
    }

    /// Returns the work, in the order in which it came.
    pub(crate) fn work(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.on::<{ Role::Work.shelf() }>()
    }

    /// Returns everything else, in the order in which it came.
    pub(crate) fn rest(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.on::<{ Role::Overhead.shelf() }>()
    }

    fn on<const SHELF: usize>(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        let blocks = self.shelves.get(SHELF).map(Vec::as_slice).unwrap_or_default();
        let mut blocks = (0..).step_by(BLOCK).zip(blocks);
        let (mut first, mut block, mut at) = (0, [].as_slice(), 0);
        std::iter::from_fn(move || {
            loop {
                if let Some(entry) = Entry::read(SHELF, block, at, place(SHELF, first + at)?) {
                    at += 1 + OWN + more(SHELF) + entry.words.len();
                    return Some(entry);
                }
                let (next, words) = blocks.next()?;
                (first, block, at) = (next, words.as_slice(), 0);
            }
        })
    }

    /// Returns the record at that place.
    #[inline]
    pub(crate) fn entry(&self, at: u32) -> Option<Entry<'_>> {
        let (shelf, word) = (at as usize / SHELF_WORDS, at as usize % SHELF_WORDS);
        Entry::read(shelf, self.shelves.get(shelf)?.get(word / BLOCK)?, word % BLOCK, at)
    }

    /// Returns the device of a context, -1 if no record has said it.
    pub(crate) fn device_of(&self, context: u32) -> i32 {
        self.contexts.iter().find(|(known, _)| *known == context).map_or(-1, |(_, device)| self.shown(*device))
    }

    /// Returns the device of work, or of counters.
    #[inline]
    pub(crate) fn device(&self, entry: &Entry<'_>) -> i32 {
        self.shown(entry.device_or_context().cast_signed())
    }

    /// Returns the number under which a device is shown.
    #[inline]
    fn shown(&self, device: i32) -> i32 {
        self.renumbered.iter().find(|(own, _)| *own == device).map_or(device, |(_, shown)| *shown)
    }

    pub(crate) fn shape(&self, entry: &Entry<'_>) -> Option<&'static dyn RecordLayout> {
        self.shapes.get(usize::from(entry.shape)).copied()
    }

    /// Whether work with that id was launched while the recording was paused.
    #[inline]
    pub(crate) fn was_launched_in_a_pause(&self, correlation: u64) -> bool {
        !self.unwanted.is_empty() && self.unwanted.contains(&correlation)
    }

    /// Returns what the records take in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let filled = |blocks: &Vec<Arc<Vec<u64>>>| blocks.iter().filter(|block| !block.is_empty()).count() as u64;
        self.shelves.iter().map(filled).sum::<u64>() * BLOCK_BYTES
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = self.owned.take() {
            budget.release(bytes);
        }
    }
}

/// The place of a record: its shelf, then the number of its head among all words there.
#[inline]
fn place(shelf: usize, word: usize) -> Option<u32> {
    u32::try_from(shelf * SHELF_WORDS + word).ok().filter(|_| word < SHELF_WORDS)
}

impl<'t> Entry<'t> {
    /// Reads the record of a shelf whose head is the word `at` of a block; its place is `place`.
    #[inline]
    fn read(shelf: usize, block: &'t [u64], at: usize, place: u32) -> Option<Entry<'t>> {
        let (head, rest) = block.get(at..)?.split_first()?;
        let [tag, kind, shape, used] = ((head & 0xFFFF_FFFF) as u32).to_le_bytes();
        let last = if more(shelf) == 0 { 0 } else { *rest.get(OWN)? };
        let words = rest.get(OWN + more(shelf)..OWN + more(shelf) + usize::from(used))?;
        let own = rest.first_chunk()?;
        Some(Entry { at: place, tag, kind, shape, name: Name((head >> 32) as u32), own, last, words })
    }

    /// Its type.
    pub(crate) fn kind(&self) -> ActivityType {
        ActivityType::from_number(self.kind).unwrap_or(ActivityType::Overhead)
    }

    #[inline]
    pub(crate) fn role(&self) -> Role {
        match self.tag & 0xF {
            1 => Role::Call,
            2 => Role::Work,
            3 => Role::Sync,
            4 => Role::Event,
            5 => Role::External,
            7 => Role::Counter,
            8 => Role::Memory,
            _ => Role::Overhead,
        }
    }

    /// When it began, on the collector's clock; of an external id, what call it is of.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.own[0]
    }

    /// When it ended, 0 if it has not; of an external id, the slice.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.own[1]
    }

    #[inline]
    pub(crate) fn correlation(&self) -> u64 {
        if self.tag & OF_SLICE == 0 { self.own[2] } else { 0 }
    }

    /// Of a call: who made it.
    #[inline]
    pub(crate) fn thread(&self) -> Thread {
        match self.tag & BY_HANDLE {
            0 => Thread::Id(self.own[3].cast_signed()),
            _ => Thread::Handle((self.own[3] & 0xFFFF_FFFF) as u32),
        }
    }

    /// Of a call: the slice that it belongs to, 0 if that is not known.
    #[inline]
    pub(crate) fn external(&self) -> u64 {
        self.last
    }

    /// Of a call: whether it is known to launch something.
    #[inline]
    pub(crate) fn launches(&self) -> bool {
        self.tag & LAUNCHES != 0
    }

    /// Of work that belongs to a slice without a call: that slice.
    #[inline]
    pub(crate) fn slice(&self) -> Option<u64> {
        (self.tag & OF_SLICE != 0).then_some(self.own[2])
    }

    /// Of work and counters: their device. Of a wait or an event: its context.
    #[inline]
    pub(crate) fn device_or_context(&self) -> u32 {
        (self.own[3] >> 32) as u32
    }

    /// Of anything but a call.
    #[inline]
    pub(crate) fn stream(&self) -> u32 {
        (self.own[3] & 0xFFFF_FFFF) as u32
    }

    /// Of memory: on which kind of device, and on which.
    pub(crate) fn memory_of(&self) -> (u8, i16) {
        let [kind, _, _, _, low, high, ..] = self.own[3].to_le_bytes();
        (kind, i16::from_le_bytes([low, high]))
    }

    /// Of memory: how much, negative where it is given back. Its address stands for its end.
    pub(crate) fn bytes(&self) -> i64 {
        self.last.cast_signed()
    }

    /// Of a wait or an event.
    #[inline]
    pub(crate) fn event(&self) -> u64 {
        self.last
    }
}
