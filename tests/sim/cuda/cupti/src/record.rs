//! Records in the layout of the selected version.

use crate::layout::{self, kind};
use crate::link;
use sim_core::record::Record;

/// Creates a record with only its kind set, or none if the version lacks the kind.
pub(crate) fn new_record(kind: u32) -> Option<Record> {
    Some(Record::of_kind(kind, layout::length(kind, link::options().cupti)?))
}

/// Returns the offsets of text pointers in a record of that kind, which a reader follows.
fn texts(kind: u32) -> &'static [usize] {
    if matches!(kind, kind::KERNEL | kind::CONCURRENT_KERNEL) { &[104] } else { &[] }
}

/// Replaces all fields but the kind and the texts by garbage.
pub(crate) fn scramble(record: &mut Record, nonsense: u8) {
    record.fill(size_of::<u32>(), nonsense, texts(record.kind()));
}

/// Puts extreme or random numbers into a few places that `random` chooses, except the kind and the texts.
pub(crate) fn mutate(record: &mut Record, mut random: impl FnMut() -> u64) {
    let texts = texts(record.kind());
    let bytes = record.bytes_mut();
    for _ in 0..random() % 4 {
        let width = [1, 4, 8][(random() % 3) as usize];
        let at = 4 + (random() as usize % bytes.len().saturating_sub(4).max(1)) / 4 * 4;
        let value = match random() % 6 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX - 1,
            4 => 1 << 63,
            _ => random(),
        };
        let is_text = texts.iter().any(|text| at < text + 8 && at + width > *text);
        if at + width <= bytes.len() && !is_text {
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
}
