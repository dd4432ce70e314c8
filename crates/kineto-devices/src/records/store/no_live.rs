//! Stub of a store's copy in a live file for builds without the feature `segments`: there are no live files.

use super::super::collected::Collected;
use super::StoreState;
use kineto_base::live::{LiveBlock, LiveFile};
use std::sync::Arc;

/// The copy of a store in a live file: there is none.
#[derive(Debug, Default)]
pub(super) struct LiveCopy(());

/// A snapshot that holds blocks of a live file.
#[derive(Clone, Debug)]
pub(super) enum HoldingSnapshot {}

impl StoreState {
    pub(super) fn set_live(&mut self, _copy: &LiveCopy, file: Arc<LiveFile>, _collector: u64) {
        match *file {}
    }

    pub(super) fn copy_to_live(&mut self, _copy: &LiveCopy) {}

    pub(super) fn note_snapshot(&mut self, _copy: &LiveCopy) -> Option<Arc<()>> {
        None
    }

    pub(super) fn take_live(&self, _copy: &LiveCopy) -> Vec<LiveBlock> {
        Vec::new()
    }

    pub(super) fn move_live(&mut self, _copy: &LiveCopy) -> Vec<LiveBlock> {
        Vec::new()
    }

    /// Only a live file asks for the tables without records.
    pub(super) fn tables(&self) -> Collected {
        Collected::empty()
    }
}
