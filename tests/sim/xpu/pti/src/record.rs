//! Records in the layout of the selected version.

use crate::layout::{self, kind};
use crate::link;
use sim_core::record::Record;

/// Creates a record with only its kind set, or none if the version lacks the kind.
pub(crate) fn new_record(kind: u32) -> Option<Record> {
    Some(Record::of_kind(kind, layout::length(kind, link::options())?))
}

/// Makes nonsense of all fields but the kind and the texts, which a reader cannot but follow.
pub(crate) fn scramble(record: &mut Record, nonsense: u8) {
    record.fill(size_of::<u32>(), nonsense, texts(record.kind(), record.bytes().len()));
}

/// Where the pointers to texts are, in a record of that kind and length.
pub(crate) fn texts(kind: u32, length: usize) -> &'static [usize] {
    match kind {
        kind::KERNEL => &[24, 32],
        kind::MEMCPY | kind::MEMCPY_PEER => &[32],
        kind::MEMSET => &[24],
        kind::COMMUNICATION => &[48, 56][if length < 64 { 0..1 } else { 1..2 }],
        _ => &[],
    }
}
