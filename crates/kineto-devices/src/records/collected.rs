//! The records of a collector in a recording, in the packed form in which they are read.

use super::super::device::DeviceDescription;
use super::super::threads::Threads;
use super::layout::RecordLayout;
use super::names::{Name, NameTable};
use super::record::Thread;
use kineto_base::budget::Budget;
use kineto_base::encoding::encoded;
use kineto_base::live::LiveBlock;
use kineto_base::time::Ticks;
use kineto_model::Loss;
use kineto_model::activity::ActivityType;
use std::collections::HashSet;
use std::sync::Arc;

/// Words in a block.
pub(crate) const BLOCK: usize = 8192;
pub(crate) const BLOCK_BYTES: u64 = (BLOCK * size_of::<u64>()) as u64;

/// The arenas: calls, device work, everything else.
pub(crate) const ARENAS: usize = 3;
/// Words that an arena may hold: a record's place is a 32-bit number, and the arena takes two bits.
pub(crate) const ARENA_WORDS: usize = 1 << 30;

/// The role of a record, which decides its arena and its fixed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// A call of the library's functions.
    Call = 1,
    /// A kernel, copy or fill.
    Work = 2,
    /// A wait.
    Sync = 3,
    /// A point on a stream.
    Event = 4,
    /// A call and the slice that it belongs to.
    External = 5,
    /// Time that the library itself took.
    Overhead = 6,
    /// Values at a time.
    Counter = 7,
    /// An allocation or a free on a device.
    Memory = 8,
}

impl Role {
    /// Returns the arena of records of this role.
    pub(crate) const fn arena_index(self) -> usize {
        match self {
            Role::Call => 0,
            Role::Work => 1,
            _ => 2,
        }
    }
}

/// Words that follow the head of every record.
const FIXED_WORDS: usize = 4;

/// Returns how many further fixed words records of an arena have.
const fn extra_words(arena: usize) -> usize {
    if arena == Role::Work.arena_index() { 0 } else { 1 }
}

/// The flag of a call that launches something.
pub(crate) const LAUNCHES: u8 = 1 << 4;
/// The flag of a call whose thread is identified by its handle.
pub(crate) const BY_HANDLE: u8 = 1 << 5;
/// The flag of work that is linked to a slice directly instead of by a call.
pub(crate) const OF_SLICE: u8 = 1 << 6;

/// The records of a collector in a recording.
#[derive(Debug, Default)]
pub struct Collected {
    pub(crate) arenas: [Vec<Arc<Vec<u64>>>; ARENAS],
    pub names: NameTable,
    pub(crate) shapes: Vec<&'static dyn RecordLayout>,
    pub(crate) contexts: Vec<(u32, i32)>,
    /// The threads that made the calls.
    pub threads: Threads,
    pub losses: Vec<(Loss, u64)>,
    /// The number of device activities that newer records have replaced.
    pub evicted_work: u64,
    /// The highest known correlation id of calls from before these records.
    pub last_call_before: u64,
    pub notes: Vec<String>,
    pub devices: Vec<DeviceDescription>,
    /// Pairs of a device's number in the records and the number it is shown under, since another vendor uses the
    /// first.
    pub(crate) renumbered: Vec<(i32, i32)>,
    /// Correlation ids of launches in pauses. Their work may be recorded before they are.
    pub(crate) unwanted: HashSet<u64>,
    /// The error of the collector's own clock, in nanoseconds.
    pub clock_error_ns: u64,
    pub(crate) owned: Option<(Arc<dyn Budget>, u64)>,
    /// The copies of its blocks in a live file.
    pub(crate) live_blocks: Vec<LiveBlock>,
    /// While a snapshot has it, a live file keeps its blocks.
    pub(crate) hold: Option<Arc<()>>,
}

/// A borrowed record.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'t> {
    /// Its place.
    pub at: u32,
    tag: u8,
    kind: u8,
    shape: u8,
    /// Its name.
    pub name: Name,
    fixed: &'t [u64; FIXED_WORDS],
    /// The last fixed word; 0 for work.
    last: u64,
    /// The words that its layout explains.
    pub words: &'t [u64],
}

encoded! {
    Collected {
        shapes, contexts, threads, losses, evicted_work, last_call_before, notes, devices, renumbered, unwanted, clock_error_ns,
    } + {
        arenas: Default::default(),
        names: NameTable::default(),
        owned: None,
        live_blocks: Vec::new(),
        hold: None,
    }
}

impl Collected {
    /// Makes an empty collection.
    pub fn empty() -> Collected {
        Collected::default()
    }

    /// Marks the blocks in a live file as moved to disk, with all records until that time.
    pub fn set_moved(&self, until: Ticks) {
        self.live_blocks.iter().for_each(|block| block.set_moved(until));
    }

    /// Returns the calls, in order of arrival.
    pub fn calls(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.arena_entries::<{ Role::Call.arena_index() }>()
    }

    /// Returns the device work, in order of arrival.
    pub fn work(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.arena_entries::<{ Role::Work.arena_index() }>()
    }

    /// Returns everything else, in order of arrival.
    pub fn other_records(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.arena_entries::<{ Role::Overhead.arena_index() }>()
    }

    fn arena_entries<const ARENA: usize>(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        let blocks = self.arenas.get(ARENA).map(Vec::as_slice).unwrap_or_default();
        let mut blocks = (0..).step_by(BLOCK).zip(blocks);
        let (mut first, mut block, mut at) = (0, [].as_slice(), 0);
        std::iter::from_fn(move || {
            loop {
                if let Some(entry) = Entry::read_at(ARENA, block, at, pack_place(ARENA, first + at)?) {
                    at += entry.word_count(ARENA);
                    return Some(entry);
                }
                let (next, words) = blocks.next()?;
                (first, block, at) = (next, words.as_slice(), 0);
            }
        })
    }

    /// Returns the record at that place.
    #[inline]
    pub fn entry_at(&self, at: u32) -> Option<Entry<'_>> {
        let (arena, word) = (at as usize / ARENA_WORDS, at as usize % ARENA_WORDS);
        Entry::read_at(arena, self.arenas.get(arena)?.get(word / BLOCK)?, word % BLOCK, at)
    }

    /// Returns the device of a context, -1 if no record named it.
    pub fn device_of(&self, context: u32) -> i32 {
        self.contexts.iter().find(|(known, _)| *known == context).map_or(-1, |(_, device)| self.shown_device(*device))
    }

    /// Returns the device of work or of counters.
    #[inline]
    pub fn entry_device(&self, entry: &Entry<'_>) -> i32 {
        self.shown_device(entry.device_or_context().cast_signed())
    }

    /// Returns the number under which a device is shown.
    #[inline]
    fn shown_device(&self, device: i32) -> i32 {
        self.renumbered.iter().find(|(fixed, _)| *fixed == device).map_or(device, |(_, shown_device)| *shown_device)
    }

    pub fn entry_layout(&self, entry: &Entry<'_>) -> Option<&'static dyn RecordLayout> {
        self.shapes.get(usize::from(entry.shape)).copied()
    }

    /// Returns whether work with that id was launched while the recording was paused.
    #[inline]
    pub fn was_launched_in_a_pause(&self, correlation: u64) -> bool {
        !self.unwanted.is_empty() && self.unwanted.contains(&correlation)
    }

    /// Returns the memory that the records take, in bytes.
    pub fn record_bytes(&self) -> u64 {
        let filled = |blocks: &Vec<Arc<Vec<u64>>>| blocks.iter().filter(|block| !block.is_empty()).count() as u64;
        self.arenas.iter().map(filled).sum::<u64>() * BLOCK_BYTES
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = self.owned.take() {
            budget.release_bytes(bytes);
        }
    }
}

/// Returns the records of a block of an arena, without their places.
pub(super) fn block_entries(arena: usize, block: &[u64]) -> impl Iterator<Item = Entry<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let entry = Entry::read_at(arena, block, at, 0)?;
        at += entry.word_count(arena);
        Some(entry)
    })
}

/// Returns the place of a record: its arena, then the index of its head among all words there.
#[inline]
fn pack_place(arena: usize, word: usize) -> Option<u32> {
    u32::try_from(arena * ARENA_WORDS + word).ok().filter(|_| word < ARENA_WORDS)
}

impl<'t> Entry<'t> {
    /// Reads the record of an arena whose head is the word `at` of a block; its place is `place`.
    #[inline]
    fn read_at(arena: usize, block: &'t [u64], at: usize, place: u32) -> Option<Entry<'t>> {
        let (head, rest) = block.get(at..)?.split_first()?;
        let [tag, kind, shape, used] = ((head & 0xFFFF_FFFF) as u32).to_le_bytes();
        let last = if extra_words(arena) == 0 { 0 } else { *rest.get(FIXED_WORDS)? };
        let words = rest.get(FIXED_WORDS + extra_words(arena)..FIXED_WORDS + extra_words(arena) + usize::from(used))?;
        let fixed = rest.first_chunk()?;
        Some(Entry { at: place, tag, kind, shape, name: Name((head >> 32) as u32), fixed, last, words })
    }

    /// Returns how many words it takes in its arena.
    pub(super) fn word_count(&self, arena: usize) -> usize {
        1 + FIXED_WORDS + extra_words(arena) + self.words.len()
    }

    /// Appends the record with other words.
    pub(super) fn write_with(&self, words: &[u64], arena: usize, out: &mut Vec<u64>) {
        let used = u8::try_from(words.len()).unwrap_or(u8::MAX);
        let head = u32::from_le_bytes([self.tag, self.kind, self.shape, used]);
        out.push(u64::from(self.name.0) << 32 | u64::from(head));
        out.extend(self.fixed);
        out.extend((extra_words(arena) > 0).then_some(self.last));
        out.extend(words.iter().take(used.into()));
    }

    /// Returns its type.
    pub fn kind(&self) -> ActivityType {
        ActivityType::from_number(self.kind).unwrap_or(ActivityType::Overhead)
    }

    /// Returns its role.
    #[inline]
    pub fn role(&self) -> Role {
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

    /// Returns when it began, on the collector's clock; for an external id, the call's correlation id.
    #[inline]
    pub fn start(&self) -> u64 {
        self.fixed[0]
    }

    /// Returns when it ended, 0 if it has not; for an external id, the slice.
    #[inline]
    pub fn end(&self) -> u64 {
        self.fixed[1]
    }

    /// Returns the number that joins a launch and its work; 0 if there is none.
    #[inline]
    pub fn correlation_id(&self) -> u64 {
        if self.tag & OF_SLICE == 0 { self.fixed[2] } else { 0 }
    }

    /// Returns the thread of a call.
    #[inline]
    pub fn thread(&self) -> Thread {
        match self.tag & BY_HANDLE {
            0 => Thread::Id(self.fixed[3].cast_signed()),
            _ => Thread::Handle((self.fixed[3] & 0xFFFF_FFFF) as u32),
        }
    }

    /// Returns the slice that a call belongs to, 0 if that is not known.
    #[inline]
    pub fn call_slice(&self) -> u64 {
        self.last
    }

    /// Returns whether a call is known to launch work.
    #[inline]
    pub fn launches_work(&self) -> bool {
        self.tag & LAUNCHES != 0
    }

    /// Returns the slice of work that is linked without a call.
    #[inline]
    pub fn work_slice(&self) -> Option<u64> {
        (self.tag & OF_SLICE != 0).then_some(self.fixed[2])
    }

    /// Returns the device of work and counters, or the context of a wait or an event.
    #[inline]
    pub fn device_or_context(&self) -> u32 {
        (self.fixed[3] >> 32) as u32
    }

    /// Returns the stream of anything but a call.
    #[inline]
    pub fn stream(&self) -> u32 {
        (self.fixed[3] & 0xFFFF_FFFF) as u32
    }

    /// Returns the kind and number of the device of a memory record.
    pub fn memory_of(&self) -> (u8, i16) {
        let [kind, _, _, _, low, high, ..] = self.fixed[3].to_le_bytes();
        (kind, i16::from_le_bytes([low, high]))
    }

    /// Returns the bytes of a memory record, negative for a free. Its end holds the address.
    pub fn memory_bytes(&self) -> i64 {
        self.last.cast_signed()
    }

    /// Returns the event of a wait or of an event record.
    #[inline]
    pub fn event_id(&self) -> u64 {
        self.last
    }
}
