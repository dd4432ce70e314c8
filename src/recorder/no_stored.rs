//! Stub of records in a file, for builds without the feature `segments`: no file has any.

use crate::buffer::CommittedSlots;

/// Records that were read from a file.
#[derive(Debug)]
pub(crate) enum StoredPart {}

impl StoredPart {
    pub(crate) fn first_id(&self) -> u64 {
        match *self {}
    }

    pub(super) fn epoch(&self) -> u64 {
        match *self {}
    }

    pub(super) fn lane(&self) -> Option<u64> {
        match *self {}
    }

    pub(super) fn new_from(&self) -> Option<usize> {
        match *self {}
    }

    pub(super) fn records(&self) -> CommittedSlots<'_> {
        match *self {}
    }

    pub(crate) fn bytes(&self) -> u64 {
        match *self {}
    }
}
