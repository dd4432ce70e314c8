//! Copies the records of a collector to the live file of its recording, and reads them from there.
//!
//! After each batch, the words that were added to blocks are copied to slots of the file, after the tables and names to which
//! they refer.

use super::arena::Arena;
use super::collected::{ARENAS, Collected, block_entries};
use super::names::NameTable;
use crate::encoding::encode_items;
use crate::live::{JournalKind, LiveBlock, LiveFile};
use crate::time::Ticks;
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
}

/// The blocks of an arena, oldest first.
#[derive(Debug, Default)]
struct LiveArena {
    blocks: VecDeque<LiveBlock>,
    /// How many blocks were begun.
    begun: u64,
}

impl LiveRecords {
    pub(super) fn new(file: Arc<LiveFile>, collector: u64) -> LiveRecords {
        LiveRecords { file, collector, names: 0, tables: [0; 3], arenas: Default::default() }
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

    /// Forgets the oldest blocks of an arena, which were dropped.
    pub(super) fn drop_blocks(&mut self, arena: usize, count: usize) {
        let blocks = self.arenas.get_mut(arena).map(|arena| &mut arena.blocks);
        blocks.into_iter().for_each(|blocks| drop(blocks.drain(..count.min(blocks.len()))));
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
            copies.blocks.get_mut(at).into_iter().for_each(|copy| copy.copy_words(block));
        }
    }

    /// Returns all blocks, whose records were moved out of the collector then, to be written to disk, or at its end.
    pub(super) fn take_blocks(&mut self, moved: Option<Ticks>) -> Vec<LiveBlock> {
        let blocks = self.arenas.iter_mut().flat_map(|arena| arena.blocks.drain(..));
        blocks.inspect(|block| moved.into_iter().for_each(|at| block.set_moved(at))).collect()
    }
}

impl Collected {
    /// Marks the blocks in a live file as moved to disk, with all records until that time.
    pub(crate) fn set_moved(&self, until: Ticks) {
        self.live_blocks.iter().for_each(|block| block.set_moved(until));
    }

    /// Replaces the tables that grow by those from a live file, if these are newer.
    pub(crate) fn set_tables(&mut self, mut tables: Collected) {
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

    /// Adds a block from a live file, without the records that `newer` blocks have too. `None` if there is no such arena.
    pub(crate) fn add_live_block(&mut self, arena: usize, words: Vec<u64>, newer: &[&[u64]]) -> Option<()> {
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
