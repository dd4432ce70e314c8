//! Records that have only the fields that rows need: NVIDIA's user-defined records.
//!
//! A subscriber that shares libcupti may select the fields of each kind. libcupti then states with each buffer where they
//! are, so no version needs a table of offsets. A record is restored to the form of the first version, in which fields that
//! libcupti lacks are 0, and is read by [`records`](super::records).

use super::records::{Record, selectable_fields, shortest_length};
use super::shared::FieldLayout;
use crate::records::fields::{SelectableField, kind_of};
use std::sync::{Mutex, PoisonError};

/// The field that all records have: their kind.
const KIND_FIELD: i32 = 0;

/// Returns CUPTI's numbers of the fields to record of a kind.
pub(super) fn numbers_of(number: u32) -> Vec<i32> {
    let fields = selectable_fields(number);
    let first = (!fields.is_empty()).then_some(KIND_FIELD);
    first.into_iter().chain(fields.iter().map(|field| field.id)).collect()
}

/// The layouts that libcupti has stated in this recording; callbacks write them, and the reader takes copies.
#[derive(Debug, Default)]
pub(super) struct StatedLayouts {
    by_kind: Mutex<Vec<StatedLayout>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StatedLayout {
    kind: u32,
    record_bytes: usize,
    fields: Vec<FieldLayout>,
    /// It has changed within the recording, so no record of this kind can be trusted.
    is_ambiguous: bool,
}

impl StatedLayouts {
    pub(super) const fn new() -> StatedLayouts {
        StatedLayouts { by_kind: Mutex::new(Vec::new()) }
    }

    /// Forgets all layouts, at the start of a recording.
    pub(super) fn clear(&self) {
        self.by_kind.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Notes the layout of a kind, as a buffer has it.
    pub(super) fn note(&self, kind: u32, record_bytes: usize, fields: &[FieldLayout]) {
        let mut known = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter_mut().find(|layout| layout.kind == kind) {
            Some(layout) => layout.is_ambiguous |= layout.record_bytes != record_bytes || layout.fields != fields,
            None => known.push(StatedLayout { kind, record_bytes, fields: fields.to_vec(), is_ambiguous: false }),
        }
    }
}

/// Restores records of a recording, whose fields are where libcupti states.
#[derive(Debug)]
pub(super) struct RecordRestorer {
    stated: &'static StatedLayouts,
    restorers: Vec<Option<KindRestorer>>,
    /// How many layouts were known when the restorers were made, and how many of them were ambiguous.
    known: (usize, usize),
}

impl RecordRestorer {
    pub(super) fn new(stated: &'static StatedLayouts) -> RecordRestorer {
        RecordRestorer { stated, restorers: Vec::new(), known: (0, 0) }
    }

    /// Takes over the layouts of the buffers that have arrived.
    pub(super) fn update(&mut self) {
        let stated = self.stated.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        let known = (stated.len(), stated.iter().filter(|layout| layout.is_ambiguous).count());
        if known == self.known {
            return;
        }
        self.known = known;
        self.restorers.clear();
        for layout in stated.iter().filter(|layout| !layout.is_ambiguous) {
            let at = layout.kind as usize;
            if self.restorers.len() <= at {
                self.restorers.resize_with(at + 1, || None);
            }
            if let Some(place) = self.restorers.get_mut(at) {
                *place = KindRestorer::new(layout);
            }
        }
    }

    /// Reads a record; returns `None` if its layout is unknown, or the record is too short.
    #[inline]
    pub(super) fn read<'s>(&'s mut self, record: &[u8]) -> Option<Record<'s>> {
        let kind = kind_of(record)?;
        let restorer = self.restorers.get_mut(kind as usize)?.as_mut()?;
        Record::from_bytes(restorer.restore(record)?)
    }
}

/// Restores the records of a kind.
#[derive(Debug)]
struct KindRestorer {
    record_bytes: usize,
    moves: Vec<Move>,
    /// A record in its first form, and a word more.
    restored: Vec<u8>,
}

/// Moves a field of up to eight bytes.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
    /// The bits of the field.
    mask: u64,
}

/// The bytes that a move writes.
const WORD: usize = size_of::<u64>();

impl KindRestorer {
    /// Returns `None` if the layout contradicts itself.
    fn new(layout: &StatedLayout) -> Option<KindRestorer> {
        /// The longest record that is plausible.
        const MOST: usize = 4096;
        let fits =
            |field: &FieldLayout| field.at.checked_add(field.bytes).is_some_and(|end| end <= layout.record_bytes);
        let first = layout.fields.first()?;
        let begins_with_kind = first.id == KIND_FIELD && first.at == 0 && first.bytes >= size_of::<u32>();
        if !begins_with_kind || layout.record_bytes > MOST || !layout.fields.iter().all(fits) {
            return None;
        }
        let stated = |selected: &SelectableField| layout.fields.iter().find(|field| field.id == selected.id).copied();
        // Each move writes eight bytes, and the next one overwrites the surplus: they are in the order of their targets.
        let mut moves = Vec::new();
        // A field that libcupti lacks is missing at the end, as in the records of an older version.
        let mut length = shortest_length(layout.kind)?;
        for selected in selectable_fields(layout.kind) {
            let Some(field) = stated(selected) else { continue };
            let (to, bytes) = (selected.at, selected.bytes);
            let unused_bits = u64::BITS - u8::BITS * u32::try_from(field.bytes.min(bytes)).ok()?;
            moves.push(Move { from: field.at, to, mask: u64::MAX.checked_shr(unused_bits).unwrap_or(0) });
            length = length.max(to + bytes);
        }
        let mut restored = vec![0; length + WORD];
        restored.get_mut(..size_of::<u32>())?.copy_from_slice(&layout.kind.to_ne_bytes());
        Some(KindRestorer { record_bytes: layout.record_bytes, moves, restored })
    }

    #[inline]
    fn restore(&mut self, record: &[u8]) -> Option<&[u8]> {
        let record = record.get(..self.record_bytes)?;
        for step in &self.moves {
            let value = word_at(record, step.from) & step.mask;
            self.restored.get_mut(step.to..)?.first_chunk_mut()?.clone_from(&value.to_le_bytes());
        }
        self.restored.get(..self.restored.len() - WORD)
    }
}

/// Returns the word at an offset, filled up with zeros at the end of the record.
#[inline]
fn word_at(record: &[u8], at: usize) -> u64 {
    let rest = record.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::kind;
    use super::*;
    use proptest::prelude::*;

    fn field(id: i32, at: usize, bytes: usize) -> FieldLayout {
        FieldLayout::of(id, at, bytes)
    }

    /// Lays out all fields of a kind in the order of their numbers, each in `bytes` bytes, by default as many as are read.
    fn natural_layout(kind: u32, bytes: Option<usize>) -> (usize, Vec<FieldLayout>) {
        let (mut fields, mut end) = (vec![field(KIND_FIELD, 0, 4)], 4usize);
        for selected in selectable_fields(kind) {
            let bytes = bytes.unwrap_or(selected.bytes);
            let at = end.next_multiple_of(bytes);
            fields.push(field(selected.id, at, bytes));
            end = at + bytes;
        }
        (end.next_multiple_of(8), fields)
    }

    fn restorer_of(stated: &'static StatedLayouts) -> RecordRestorer {
        let mut restorer = RecordRestorer::new(stated);
        restorer.update();
        restorer
    }

    /// Makes a record in which each field has its own number as its value.
    fn numbered(kind: u32, bytes: usize, fields: &[FieldLayout]) -> Vec<u8> {
        let mut record = vec![0xFF; bytes];
        for field in fields {
            let value = if field.id == KIND_FIELD { kind.into() } else { u64::try_from(field.id).unwrap() };
            record[field.at..field.at + field.bytes].copy_from_slice(&value.to_le_bytes()[..field.bytes]);
        }
        record
    }

    #[test]
    fn kernels_need_about_half_of_the_bytes() {
        let bytes = |kind| natural_layout(kind, None).0;
        assert_eq!((bytes(kind::CONCURRENT_KERNEL), bytes(kind::DRIVER), bytes(kind::MEMCPY)), (104, 40, 72));
    }

    #[test]
    fn fields_are_read_from_any_layout() {
        for width in [None, Some(8)] {
            for (number, ..) in kind::ALL.iter().filter(|(kind, ..)| !selectable_fields(*kind).is_empty()) {
                let stated = Box::leak(Box::new(StatedLayouts::new()));
                let (bytes, fields) = natural_layout(*number, width);
                stated.note(*number, bytes, &fields);
                let record = numbered(*number, bytes, &fields);
                let mut restorer = restorer_of(stated);
                let of_kind = restorer.restorers[*number as usize].as_mut().unwrap();
                let restored = of_kind.restore(&record).unwrap().to_vec();
                for selected in selectable_fields(*number) {
                    let (at, bytes) = (selected.at, selected.bytes);
                    let expected = u64::try_from(selected.id).unwrap().to_le_bytes();
                    assert_eq!(restored[at..at + bytes], expected[..bytes], "{number}: {selected:?}");
                }
                assert!(restorer.read(&record).is_some(), "{number}");
            }
        }
    }

    #[test]
    fn field_that_is_missing_is_zero() {
        let stated = Box::leak(Box::new(StatedLayouts::new()));
        let (bytes, mut fields) = natural_layout(kind::CONCURRENT_KERNEL, None);
        fields.retain(|field| ![12, 45].contains(&field.id));
        stated.note(kind::CONCURRENT_KERNEL, bytes, &fields);
        let record = numbered(kind::CONCURRENT_KERNEL, bytes, &fields);
        let mut restorer = restorer_of(stated);
        let Some(Record::Kernel(kernel)) = restorer.read(&record) else { panic!() };
        assert_eq!((kernel.stream(), kernel.priority(), kernel.grid_x(), kernel.context()), (0, None, 13, 11));
    }

    #[test]
    fn changed_layout_is_not_read() {
        let stated = Box::leak(Box::new(StatedLayouts::new()));
        let (bytes, fields) = natural_layout(kind::DRIVER, None);
        stated.note(kind::DRIVER, bytes, &fields);
        stated.note(kind::RUNTIME, bytes, &fields);
        let mut restorer = restorer_of(stated);
        let record = numbered(kind::DRIVER, bytes, &fields);
        assert!(restorer.read(&record).is_some() && restorer.read(&record[..bytes - 1]).is_none());
        stated.note(kind::DRIVER, bytes, &fields);
        stated.note(kind::DRIVER, bytes + 8, &fields);
        restorer.update();
        assert!(restorer.read(&record).is_none() && restorer.read(&numbered(kind::RUNTIME, bytes, &fields)).is_some());
    }

    #[test]
    #[ignore = "measures: cargo test --release --lib selected_fields -- --ignored --nocapture"]
    #[allow(clippy::print_stderr, reason = "a measurement")]
    fn time_of_a_restored_kernel() {
        use super::super::shapes::kernel_words;
        use std::hint::black_box;
        use std::time::Instant;
        const TIMES: u32 = 3_000_000;
        let stated = Box::leak(Box::new(StatedLayouts::new()));
        let (bytes, fields) = natural_layout(kind::CONCURRENT_KERNEL, None);
        stated.note(kind::CONCURRENT_KERNEL, bytes, &fields);
        let selected = numbered(kind::CONCURRENT_KERNEL, bytes, &fields);
        let mut whole = vec![0; 248];
        whole[..4].copy_from_slice(&kind::CONCURRENT_KERNEL.to_ne_bytes());
        let mut restorer = restorer_of(stated);
        let words = |record: Option<Record<'_>>| match record {
            Some(Record::Kernel(kernel)) => _ = black_box(kernel_words(&kernel)),
            _ => panic!(),
        };
        for _ in 0..3 {
            let start = Instant::now();
            (0..TIMES).for_each(|_| words(Record::from_bytes(black_box(&whole))));
            let of_whole = start.elapsed() / TIMES;
            let start = Instant::now();
            (0..TIMES).for_each(|_| words(restorer.read(black_box(&selected))));
            eprintln!("whole, 248 bytes: {of_whole:?}; selected, {bytes} bytes: {:?}", start.elapsed() / TIMES);
        }
    }

    proptest! {
        #[test]
        fn any_layout_and_record_are_harmless(
            bytes in 0usize..6000,
            fields in proptest::collection::vec((0i32..50, any::<usize>(), any::<usize>(), 0usize..300), 0..30),
            record in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let stated = Box::leak(Box::new(StatedLayouts::new()));
            let place = |(id, at, size, small): (i32, usize, usize, usize)| {
                if small % 2 == 0 { field(id, small, 1 << (small % 4)) } else { field(id, at, size) }
            };
            let fields: Vec<_> = [field(KIND_FIELD, 0, 4)].into_iter().chain(fields.into_iter().map(place)).collect();
            for (number, ..) in kind::ALL {
                stated.note(*number, bytes, &fields);
                let record = [&number.to_ne_bytes()[..], &record].concat();
                let _ = restorer_of(stated).read(&record);
            }
        }
    }
}
