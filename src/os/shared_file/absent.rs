//! Platforms without such files.

use super::{SharedFile, Unusable};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU64;

impl SharedFile {
    pub(crate) fn create(_path: &Path, _words: usize) -> Result<&'static SharedFile, Unusable> {
        Err(Unusable::NotInMemory)
    }

    pub(crate) fn replace(&self, _path: &Path) -> Result<(), Unusable> {
        Err(Unusable::NotInMemory)
    }

    pub(crate) fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    pub(crate) fn unlock(&self) {}

    pub(crate) fn is_own(&self) -> bool {
        false
    }

    pub(crate) fn allocate(&self, _words: Range<usize>) -> bool {
        false
    }

    pub(crate) fn release(&self, _words: Range<usize>) {}
}
