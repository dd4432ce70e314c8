//! The blocks of records of some roles.

use super::collected::{ARENA_WORDS, BLOCK};
use kineto_base::clock;
use kineto_base::os::memory;
use kineto_base::time::Ticks;
use std::collections::VecDeque;
use std::sync::Arc;

/// The blocks of records of some roles.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    pub(super) full: VecDeque<FullBlock>,
    pub(super) open: Vec<u64>,
}

/// A full block, and when it became full.
#[derive(Clone, Debug)]
pub(super) struct FullBlock {
    pub(super) words: Arc<Vec<u64>>,
    pub(super) full_at: Ticks,
}

impl Arena {
    /// Returns the words of all blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &[u64]> {
        self.full.iter().map(|block| block.words.as_slice()).chain([self.open.as_slice()])
    }

    /// Replaces the words of each block by what `change` returns, if anything.
    pub(super) fn for_each_block(&mut self, mut change: impl FnMut(&[u64]) -> Option<Vec<u64>>) {
        for block in &mut self.full {
            if let Some(words) = change(&block.words) {
                block.words = Arc::new(words);
            }
        }
        if let Some(words) = change(&self.open) {
            self.open = words;
        }
    }

    /// Returns whether that many words fit into the open block.
    pub(super) fn has_room(&self, words: usize) -> bool {
        self.open.capacity() - self.open.len() >= words
    }

    /// Takes the oldest block if it was full by then.
    pub(super) fn take_block(&mut self, until: Ticks) -> Option<Arc<Vec<u64>>> {
        self.full.front().filter(|block| block.full_at <= until)?;
        self.full.pop_front().map(|block| block.words)
    }

    /// Returns whether offsets reach no further block.
    pub(super) fn is_full(&self) -> bool {
        self.full.len() >= ARENA_WORDS / BLOCK - 1
    }

    /// Starts another block; returns `false` if the allocator has no memory.
    pub(super) fn begin_block(&mut self) -> bool {
        let Some(open) = memory::try_vec_with_capacity(BLOCK) else { return false };
        let full = std::mem::replace(&mut self.open, open);
        memory::populate_spare(&mut self.open);
        if full.capacity() > 0 {
            self.full.push_back(FullBlock { words: Arc::new(full), full_at: clock::now() });
        }
        true
    }
}
