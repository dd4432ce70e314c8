//! The records of a collection as a file has them.
//!
//! A reader knows the layouts of this crate. Records of other layouts get their arguments by value: their words become keys and
//! values, as those of a plugin's records are from the start.

use super::collected::{BLOCK, Collected, Entry, Role, block_entries};
use super::names::{Name, NameTable};
use super::pairs::{PAIRS_MAX, pack_pair};
use crate::registry::{is_unknown, layout_name};
use kineto_model::activity::ArgValue;
use std::io;
use std::sync::Arc;

/// A part of a collection's records. Names precede the records that use them.
#[derive(Debug)]
pub enum RecordsPart<'t> {
    /// Further names, and the number of the first.
    Names(usize, &'t [Arc<str>]),
    /// A block of an arena.
    Block(usize, &'t [u64]),
}

/// Calls a function with a record's arguments.
pub(crate) type VisitArgs<'a> = &'a dyn Fn(&Entry<'_>, &mut dyn FnMut(&str, ArgValue<'_>));

/// Receives the parts of a file.
pub(crate) type WritePart<'w> = &'w mut dyn FnMut(RecordsPart<'_>) -> io::Result<()>;

/// How many names are written at once.
const NAMES_AT_ONCE: usize = 1024;

impl Collected {
    /// Calls `write` with all names and records, in order; `args` visits the arguments of records with foreign layouts.
    pub fn write_parts(&self, args: VisitArgs<'_>, write: WritePart<'_>) -> io::Result<()> {
        write_names(0, self.names.texts(), write)?;
        let is_foreign = |layout: &_| layout_name(*layout).is_none();
        if !self.shapes.iter().any(is_foreign) {
            let blocks = self.arenas.iter().enumerate();
            let mut blocks = blocks.flat_map(|(arena, blocks)| blocks.iter().map(move |block| (arena, block)));
            return blocks.try_for_each(|(arena, block)| write(RecordsPart::Block(arena, block)));
        }
        let mut names = AddedNames { known: &self.names, added: NameTable::default(), written: 0 };
        for (arena, blocks) in self.arenas.iter().enumerate() {
            let mut packed = Vec::new();
            for entry in blocks.iter().flat_map(|block| block_entries(arena, block)) {
                let has_args = entry.role().has_layout(&entry);
                let by_value = has_args && self.entry_layout(&entry).as_ref().is_some_and(is_foreign);
                let words = if by_value { names.pack_args(&entry, args) } else { entry.words.to_vec() };
                let before = packed.len();
                entry.write_with(&words, arena, &mut packed);
                if packed.len() > BLOCK {
                    names.write_new(write)?;
                    write(RecordsPart::Block(arena, packed.get(..before).unwrap_or_default()))?;
                    packed.drain(..before);
                }
            }
            names.write_new(write)?;
            write(RecordsPart::Block(arena, &packed))?;
        }
        Ok(())
    }

    /// Adds names from a file; returns `None` if the names before them are missing, so that their numbers would be others.
    pub fn add_names(&mut self, first: usize, names: &[Arc<str>]) -> Option<()> {
        (first == self.names.texts().len()).then(|| names.iter().for_each(|name| _ = self.names.add(name)))
    }

    /// Adds a block from a file; returns `None` if it is too long, or if there is no such arena.
    pub fn add_block(&mut self, arena: usize, words: Vec<u64>) -> Option<()> {
        let blocks = self.arenas.get_mut(arena).filter(|_| words.len() <= BLOCK)?;
        blocks.push(Arc::new(words));
        Some(())
    }

    /// Returns how many layouts of its records this build lacks.
    pub fn unknown_layouts(&self) -> u64 {
        self.shapes.iter().filter(|layout| is_unknown(**layout)).count() as u64
    }
}

impl Role {
    /// Returns whether a record of this role has a layout; an overhead has one if it has words.
    fn has_layout(self, entry: &Entry<'_>) -> bool {
        match self {
            Role::External | Role::Memory => false,
            Role::Overhead => !entry.words.is_empty(),
            Role::Call | Role::Work | Role::Sync | Role::Event | Role::Counter => true,
        }
    }
}

/// The names of a collection, and those that values need in addition.
struct AddedNames<'t> {
    known: &'t NameTable,
    added: NameTable,
    /// How many of the added names are written.
    written: usize,
}

impl AddedNames<'_> {
    fn name(&mut self, text: &str) -> Name {
        let known = self.known.texts().len();
        self.known.find(text).unwrap_or_else(|| {
            let Name(number) = self.added.find(text).unwrap_or_else(|| self.added.add(text));
            Name(number.saturating_add(u32::try_from(known).unwrap_or(u32::MAX)))
        })
    }

    /// Returns the words of a record's arguments.
    fn pack_args(&mut self, entry: &Entry<'_>, args: VisitArgs<'_>) -> Vec<u64> {
        let mut words = Vec::new();
        args(entry, &mut |key, value| {
            if words.len() < PAIRS_MAX * 2 {
                words.extend(pack_pair(key, value, |text| self.name(text)));
            }
        });
        words
    }

    fn write_new(&mut self, write: WritePart<'_>) -> io::Result<()> {
        let new = self.added.texts().get(self.written..).unwrap_or_default();
        let first = self.known.texts().len() + self.written;
        self.written += new.len();
        write_names(first, new, write)
    }
}

fn write_names(first: usize, names: &[Arc<str>], write: WritePart<'_>) -> io::Result<()> {
    let mut firsts = (first..).step_by(NAMES_AT_ONCE).zip(names.chunks(NAMES_AT_ONCE));
    firsts.try_for_each(|(first, names)| write(RecordsPart::Names(first, names)))
}
