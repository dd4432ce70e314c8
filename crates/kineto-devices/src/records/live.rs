//! Copies the records of a collector to the live file of its recording, and reads them from there.
//!
//! After each batch, the words that were added to blocks are copied to slots of the file, after the tables and names to which
//! they refer.

use super::arena::Arena;
use super::collected::{ARENAS, Collected, Role, block_entries};
use super::names::NameTable;
use kineto_base::encoding::encode_items;
use kineto_base::live::{JournalKind, LiveBlock, LiveFile};
use kineto_base::time::Ticks;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// What a live file has of a collector's records.
#[derive(Debug)]
pub(super) struct LiveRecords {
    file: Arc<LiveFile>,
    /// The collector's number.
    collector: u64,
    names: usize,
    /// How many entries the tables have that were noted.
    tables: [usize; 3],
    arenas: [LiveArena; ARENAS],
    /// What was noted last about dropped blocks.
    dropped: (u64, u64),
    /// The dropped blocks that a snapshot holds: their arenas, and their numbers among the dropped blocks there.
    held: Vec<((usize, u64), LiveBlock)>,
}

/// The blocks of an arena, oldest first.
#[derive(Debug, Default)]
struct LiveArena {
    blocks: VecDeque<LiveBlock>,
    /// How many blocks were begun, and dropped.
    begun: u64,
    dropped: u64,
}

impl LiveRecords {
    pub(super) fn new(file: Arc<LiveFile>, collector: u64) -> LiveRecords {
        LiveRecords {
            file,
            collector,
            names: 0,
            tables: [0; 3],
            arenas: Default::default(),
            dropped: (0, 0),
            held: Vec::new(),
        }
    }

    /// Begins after so many blocks of each arena were dropped.
    pub(super) fn begin_after(&mut self, dropped: [u64; ARENAS]) {
        self.arenas.iter_mut().zip(dropped).for_each(|(arena, dropped)| arena.dropped = dropped);
    }

    /// Notes the tables, unless tables with so many entries were noted.
    pub(super) fn put_tables(&mut self, lengths: [usize; 3], tables: impl FnOnce() -> Collected) {
        if self.tables != lengths && self.file.put_value(JournalKind::Tables, (self.collector, 0), &tables()) {
            self.tables = lengths;
        }
    }

    /// Notes the names that were added.
    pub(super) fn put_names(&mut self, names: &NameTable) {
        let added = names.texts().get(self.names..).unwrap_or_default();
        if !added.is_empty() {
            let key = (self.collector, self.names as u64);
            if self.file.put(JournalKind::Names, key, |out| encode_items(added.iter(), out)) {
                self.names += added.len();
            }
        }
    }

    /// Notes the highest id of the calls in dropped blocks, and how much work these had.
    pub(super) fn put_dropped(&mut self, last_call: u64, work: u64) {
        if self.dropped != (last_call, work)
            && self.file.put_value(JournalKind::Dropped, (self.collector, 0), &(last_call, work))
        {
            self.dropped = (last_call, work);
        }
    }

    /// Forgets the oldest blocks of an arena, of which so many were dropped, except those that a snapshot holds.
    pub(super) fn drop_blocks(&mut self, number: usize, dropped: u64, is_held: impl Fn(usize, u64) -> bool) {
        let Some(arena) = self.arenas.get_mut(number) else { return };
        while arena.dropped < dropped {
            let key = (number, arena.dropped);
            let block = arena.blocks.pop_front().filter(|_| is_held(key.0, key.1));
            self.held.extend(block.map(|block| (key, block)));
            arena.dropped += 1;
        }
    }

    /// Forgets the dropped blocks that no snapshot holds any more.
    pub(super) fn release_held(&mut self, is_held: impl Fn(usize, u64) -> bool) {
        self.held.retain(|((arena, number), _)| is_held(*arena, *number));
    }

    /// Copies the words that were added to an arena.
    pub(super) fn copy_added(&mut self, number: usize, arena: &Arena) {
        let Some(copies) = self.arenas.get_mut(number) else { return };
        let done = copies.blocks.len().saturating_sub(1);
        for (at, block) in arena.blocks().enumerate().skip(done).filter(|(_, block)| !block.is_empty()) {
            if at == copies.blocks.len() {
                let Some(copy) = self.file.new_block() else { return };
                copies.begun += 1;
                copy.set_place(self.collector << 8 | number as u64, copies.begun);
                copies.blocks.push_back(copy);
            }
            if let Some(copy) = copies.blocks.get_mut(at) {
                copy.copy_words(block);
            }
        }
    }

    /// Returns all blocks, whose records were moved out of the collector then, to be written to disk, or at its end.
    pub(super) fn take_blocks(&mut self, moved: Option<Ticks>) -> Vec<LiveBlock> {
        let blocks = self.arenas.iter_mut().flat_map(|arena| arena.blocks.drain(..));
        blocks.inspect(|block| moved.into_iter().for_each(|at| block.set_moved(at))).collect()
    }
}

impl Collected {
    /// Replaces the tables that grow by those from a live file, if these are newer.
    pub fn set_tables(&mut self, mut tables: Collected) {
        if tables.shapes.len() > self.shapes.len() {
            self.shapes = std::mem::take(&mut tables.shapes);
        }
        if tables.contexts.len() > self.contexts.len() {
            self.contexts = std::mem::take(&mut tables.contexts);
        }
        if tables.threads.count() > self.threads.count() {
            self.threads = std::mem::take(&mut tables.threads);
        }
    }

    /// Notes which blocks are missing between those that snapshots held and the newest ones; `places` returns the numbers of the blocks
    /// of an arena. Returns the stretches of time without their calls or work, on the collector's clock.
    pub fn note_missing_blocks(&mut self, places: impl Fn(usize) -> Vec<u64>) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        for arena in [Role::Call, Role::Work].map(Role::arena_index) {
            let blocks = self.arenas.get(arena).map(Vec::as_slice).unwrap_or_default();
            let entries = |block: usize| blocks.get(block).into_iter().flat_map(|words| block_entries(arena, words));
            let places = places(arena);
            let missing = (1..).zip(places.windows(2)).filter(|(_, pair)| matches!(pair, [a, b] if b - a > 1));
            let mut held = 0;
            for (block, _) in missing {
                let from = entries(block - 1).map(|entry| entry.start().max(entry.end())).max();
                let to = entries(block).map(|entry| entry.start()).filter(|start| *start > 0).min();
                gaps.extend(from.zip(to).filter(|(from, to)| from < to));
                held = block;
            }
            if arena == Role::Work.arena_index() {
                let held = (0..held).flat_map(entries).count() as u64;
                self.evicted_work = self.evicted_work.saturating_sub(held);
            }
        }
        gaps
    }

    /// Adds a block from a live file, without the records that `newer` blocks have too. `None` if there is no such arena.
    pub fn add_live_block(&mut self, arena: usize, words: Vec<u64>, newer: &[&[u64]]) -> Option<()> {
        if newer.is_empty() {
            return self.add_block(arena, words);
        }
        let copy = |entry: super::collected::Entry<'_>| {
            let mut words = Vec::new();
            entry.write_with(entry.words, arena, &mut words);
            words
        };
        let also: HashSet<_> = newer.iter().flat_map(|block| block_entries(arena, block)).map(copy).collect();
        let kept = block_entries(arena, &words).map(copy).filter(|entry| !also.contains(entry));
        let kept = kept.flatten().collect();
        self.add_block(arena, kept)
    }
}
