//! Platforms without such files.

use super::{SharedFile, Unusable};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU64;

impl SharedFile {
    pub fn create(_path: &Path, _words: usize) -> Result<&'static SharedFile, Unusable> {
        Err(Unusable::NotInMemory)
    }

    pub fn replace(&self, _path: &Path) -> Result<(), Unusable> {
        Err(Unusable::NotInMemory)
    }

    pub fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    pub fn unlock(&self) {}

    pub fn is_own(&self) -> bool {
        false
    }

    pub fn allocate(&self, _words: Range<usize>) -> bool {
        false
    }

    pub fn release(&self, _words: Range<usize>) {}
}
