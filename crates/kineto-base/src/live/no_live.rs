//! Stub of live files for builds without the feature `segments`: no recording has one.
//!
//! The types of a file have no values, so the code that would use one is there and never compiled into a program.

#[path = "kind.rs"]
mod kind;

use crate::fallible::List;
use crate::time::Ticks;
pub use kind::JournalKind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A live file.
#[derive(Debug)]
pub enum LiveFile {}

/// The owner of the live file of a recording that has ended.
pub type LiveOwner = LiveFile;

/// The live file of a layer's current recording: there is none.
#[derive(Clone, Debug, Default)]
pub struct LiveHandle;

/// A block of packed records in a live file.
#[derive(Debug)]
pub enum LiveBlock {}

/// The right to drop records from a live file.
#[derive(Debug)]
pub enum LiveEviction {}

/// A file of slots.
#[derive(Debug)]
pub enum SlotFile {}

/// What a slot of the file holds.
#[derive(Debug)]
pub enum SlotUse {
    /// A thread's chunk.
    Chunk,
}

impl LiveHandle {
    /// Returns no file.
    pub fn current(&self) -> Option<Arc<LiveFile>> {
        None
    }

    /// Returns whether that is no file.
    pub fn is_current(&self, file: Option<&Arc<LiveFile>>) -> bool {
        file.is_none()
    }

    /// Notes nothing.
    pub fn put(&self, _kind: JournalKind, _key: (u64, u64), _encode: impl FnOnce(&mut List<u8>)) {}
}

impl LiveFile {
    /// Returns no right.
    pub fn begin_eviction(&self) -> Option<LiveEviction> {
        match *self {}
    }

    /// Returns no entry.
    pub fn entry(_kind: JournalKind, _key: (u64, u64), _encode: impl FnOnce(&mut List<u8>)) -> Option<Vec<u64>> {
        None
    }

    /// Returns no entry.
    pub fn removal(_kind: JournalKind, _key: (u64, u64)) -> Option<Vec<u64>> {
        None
    }

    /// Notes an entry.
    pub fn put(&self, _kind: JournalKind, _key: (u64, u64), _encode: impl FnOnce(&mut List<u8>)) -> bool {
        match *self {}
    }

    /// Notes a value.
    pub fn put_value<T>(&self, _kind: JournalKind, _key: (u64, u64), _value: &T) -> bool {
        match *self {}
    }

    /// Removes an entry.
    pub fn remove(&self, _kind: JournalKind, _key: (u64, u64)) {
        match *self {}
    }

    /// Notes entries.
    pub fn append(&self, _entries: &[Option<Vec<u64>>]) -> bool {
        match *self {}
    }

    /// Removes the file.
    pub fn remove_file(&self) {
        match *self {}
    }

    /// Notes that the trace could not be written.
    pub fn set_unsaved(&self) {
        match *self {}
    }

    /// Keeps the file.
    pub fn keep(&self) -> bool {
        match *self {}
    }
}

impl LiveBlock {
    /// Notes that its records were moved out of the collector.
    pub fn set_moved(&self, _at: Ticks) {
        match *self {}
    }
}

impl SlotFile {
    /// Returns whether slots may be taken.
    pub fn is_open(&self) -> bool {
        match *self {}
    }

    /// Returns whether this is the process that made it.
    pub fn is_own(&self) -> bool {
        match *self {}
    }

    /// Takes a slot.
    pub fn take_slot(&self) -> Option<(usize, &'static [AtomicU64])> {
        match *self {}
    }

    /// Says what a slot holds.
    pub fn set_use(&self, _slot: usize, _holds: SlotUse, _words: [u64; 4]) {
        match *self {}
    }

    /// Sets a word of a slot's entry.
    pub fn set_word(&self, _slot: usize, _at: usize, _word: u64) {
        match *self {}
    }

    /// Frees a slot.
    pub fn free_slot(&self, _slot: usize) {
        match *self {}
    }
}
