//! Records that outlive their chunk, because newer records or live spans need them.
//!
//! These are slices that have not ended, the records that define spans, and what was recorded about either later: values,
//! errors, counts, and the spans that it follows from.

use super::CopiedSlots;
use super::ring::{References, remove_reference};
use crate::buffer::{Chunk, CommittedRecord, ReservedBytes, Tag, flag};
use crate::time::Ticks;
use kineto_base::fallible::List;
use kineto_base::hash::{HashMap, HashSet};
use kineto_model::fields::decode_values;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A record that outlived its chunk, with those in front of it that belong to it.
#[derive(Debug)]
pub(crate) struct RetainedRecord {
    pub(super) copied: CopiedSlots,
    /// The slot of the record itself.
    at: usize,
    key: RetainedKey,
    /// The id of its payload, if that is large.
    large_payload: u64,
    _reserved: ReservedBytes,
}

/// Identifies what a record says; a newer record with the same key replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RetainedKey {
    /// The span or slice that it is about.
    subject: u64,
    /// 0 for the slice or definition itself, else a hash.
    detail: u64,
}

/// Records of an evicted chunk that newer records refer to, and the ends of slices in other chunks.
#[derive(Debug, Default)]
pub(super) struct NeededRecords {
    pub(super) records: Vec<RetainedRecord>,
    pub(super) ends: Vec<(u64, Ticks)>,
}

/// The key of a record, and the record unless it was dropped.
pub(super) type RetainedChange = ((u64, u64), Option<Arc<RetainedRecord>>);

/// The records that outlived their chunks.
#[derive(Debug, Default)]
pub(super) struct RetainedRecords {
    records: HashMap<RetainedKey, Arc<RetainedRecord>>,
    bytes: u64,
    /// How many bytes were needed at the last check.
    needed_bytes: u64,
    /// What was inserted, changed or dropped since that was noted in a live file.
    changed: HashSet<RetainedKey>,
    /// Whether there is such a file.
    has_live_file: bool,
}

impl NeededRecords {
    /// Finds the needed records of an evicted chunk: those that something refers to, and what was recorded later about records of
    /// chunks that are kept. Calls `unneeded` for the others.
    pub(super) fn of_chunk(
        chunk: &Chunk,
        is_referred: &dyn Fn(u64) -> bool,
        is_kept: &dyn Fn(u64) -> bool,
        unneeded: &mut dyn FnMut(&CommittedRecord<'_>),
    ) -> NeededRecords {
        let mut needed = NeededRecords::default();
        let records = chunk.committed_slots(chunk.committed_len());
        let (mut all, mut inside) = (Vec::new(), HashSet::default());
        for record in records.records_from(0) {
            all.push(record);
        }
        // What records refer to precedes them, so a search from the end finds all that needed ones need.
        for record in all.iter().rev() {
            let id = record.id();
            if record.is_open_slice() || inside.contains(&id) || is_referred(id) {
                inside.insert(id);
                let [one, other] = record.references();
                inside.insert(one);
                inside.insert(other);
            }
        }
        inside.remove(&0);
        let (mut lane, mut from) = (0, None);
        for record in &all {
            let [a, b, _] = record.words;
            let key = match record.head.tag {
                _ if is_before_slice(record) => {
                    from.get_or_insert(record.slot);
                    continue;
                }
                Tag::Lane => {
                    lane = a;
                    continue;
                }
                Tag::End => {
                    needed.ends.push((a, Ticks(b)));
                    continue;
                }
                Tag::Slice | Tag::Span => Some(RetainedKey { subject: record.id(), detail: 0 }),
                Tag::Values | Tag::Follows | Tag::Error | Tag::Counts => {
                    Some(RetainedKey { subject: a, detail: content_of(record) })
                }
                _ => None,
            };
            let start = from.take().unwrap_or(record.slot);
            let must_stay = |key: &RetainedKey| {
                inside.contains(&key.subject) || key.detail != 0 && (is_referred(key.subject) || is_kept(key.subject))
            };
            match key.filter(must_stay) {
                Some(key) => needed.records.push(RetainedRecord::copy(record, start, lane, chunk.epoch(), key)),
                None => unneeded(record),
            }
        }
        needed
    }
}

impl RetainedRecord {
    fn copy(record: &CommittedRecord<'_>, from: usize, lane: u64, epoch: u64, key: RetainedKey) -> RetainedRecord {
        let slots = record.copy_slots(from);
        let at = slots.len() - record.head.slot_count();
        let first_id = record.id() - at as u64;
        RetainedRecord {
            copied: CopiedSlots { first_id, epoch, lane: Some(lane), new_from: None, slots },
            at,
            key,
            large_payload: large_payload_of(record),
            _reserved: ReservedBytes::default(),
        }
    }

    fn record(&self) -> Option<CommittedRecord<'_>> {
        self.copied.records().read_record(self.at)
    }

    /// Returns the time of late values, 0 for other records.
    fn value_time(&self) -> u64 {
        self.record().filter(|record| record.head.tag == Tag::Values).map_or(0, |record| record.words[1])
    }

    /// Returns when the slice began, if it is one.
    pub(super) fn slice_start(&self) -> Option<Ticks> {
        self.record().filter(|record| record.head.tag == Tag::Slice).map(|record| Ticks(record.words[0]))
    }

    /// Returns when the slice ended, 0 if it has not.
    fn slice_end(&self) -> Ticks {
        Ticks(self.record().map_or(0, |record| record.words[1]))
    }

    /// Returns how many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        // With the entry of the map, and what the allocator adds.
        const AROUND: usize = size_of::<RetainedRecord>() + size_of::<RetainedKey>() + 48;
        self.copied.bytes() + AROUND as u64
    }

    /// Returns the ids that it refers to, other than that of its subject.
    fn references(&self) -> impl Iterator<Item = u64> {
        let (subject, all) = (self.key.subject, self.record().map_or([0; 2], |record| record.references()));
        all.into_iter().filter(move |id| *id != 0 && *id != subject)
    }
}

impl RetainedRecords {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Calls `each` for every record.
    pub(super) fn visit(&self, each: &mut dyn FnMut(&Arc<RetainedRecord>)) {
        for record in self.records.values() {
            each(record);
        }
    }

    /// Sets whether changes are noted in a live file.
    pub(super) fn set_live(&mut self, has_live_file: bool) {
        if std::mem::replace(&mut self.has_live_file, has_live_file) && !has_live_file {
            self.changed.clear();
        }
    }

    /// Marks all records as changed.
    pub(super) fn mark_all_changed(&mut self) {
        if self.has_live_file {
            for key in self.records.keys() {
                self.changed.insert(*key);
            }
        }
    }

    fn mark_changed(&mut self, key: RetainedKey) {
        if self.has_live_file {
            self.changed.insert(key);
        }
    }

    /// Returns what has changed since the last call: keys, each with its record unless that was dropped.
    pub(super) fn take_changed(&mut self) -> Vec<RetainedChange> {
        let mut changes = Vec::with_capacity(self.changed.len());
        for key in std::mem::take(&mut self.changed) {
            changes.push(((key.subject, key.detail), self.records.get(&key).cloned()));
        }
        changes
    }

    /// Returns whether unneeded records should be dropped, if all may take `most` bytes. A check reads all records, so it
    /// waits until they have doubled.
    pub(super) fn is_check_due(&self, most: u64) -> bool {
        self.bytes > (self.needed_bytes * 2).clamp(most / 16, most / 8 * 7)
    }

    /// Keeps a record; returns `false` if there is no room for it.
    pub(super) fn insert(
        &mut self,
        record: RetainedRecord,
        most: u64,
        room: &mut ReservedBytes,
        references: &mut References,
        mut forget_payload: impl FnMut(u64),
    ) -> bool {
        // Chunks may be evicted in another order than values were recorded.
        if self.records.get(&record.key).is_some_and(|known| known.value_time() > record.value_time()) {
            forget_payload(record.large_payload);
            return true;
        }
        let bytes = record.bytes();
        let reserved = if self.bytes + bytes > most { None } else { room.split_off(bytes) };
        let Some(reserved) = reserved else {
            forget_payload(record.large_payload);
            return false;
        };
        self.bytes += bytes;
        record.references().for_each(|id| *references.entry(id).or_default() += 1);
        self.mark_changed(record.key);
        let record = Arc::new(RetainedRecord { _reserved: reserved, ..record });
        if let Some(replaced) = self.records.insert(record.key, record) {
            self.forget(&replaced, references);
            forget_payload(replaced.large_payload);
        }
        true
    }

    fn forget(&mut self, dropped: &RetainedRecord, references: &mut References) {
        self.bytes -= dropped.bytes();
        dropped.references().for_each(|id| remove_reference(references, id));
    }

    /// Stores the end of a slice; returns `false` if the slice is not among the records.
    pub(super) fn end_slice(&mut self, slice: u64, end: Ticks) -> bool {
        let key = RetainedKey { subject: slice, detail: 0 };
        let found = self.records.get(&key);
        let place = found.and_then(|record| record.copied.slots.get(record.at));
        // Relaxed: the word is independent; a trace that reads it sees the old or the new one.
        if let Some([_, _, word, _]) = place {
            word.store(end.0, Ordering::Relaxed);
        }
        let is_found = place.is_some();
        if is_found {
            self.mark_changed(key);
        }
        is_found
    }

    /// Drops the records that are not needed; calls `dropped` with the id of a large payload, or 0, and the start of a slice.
    ///
    /// Slices of epochs other than `epochs` are not open any more. Ended ones stay if `is_held` of their times.
    pub(super) fn retain_needed(
        &mut self,
        epochs: &HashSet<u64>,
        is_needed: impl Fn(u64, &References) -> bool,
        is_held: impl Fn(Ticks, Ticks) -> bool,
        references: &mut References,
        mut dropped: impl FnMut(u64, Option<Ticks>),
    ) {
        let is_needed = |record: &RetainedRecord| {
            let is_open = || record.record().is_some_and(|record| record.is_open_slice());
            let is_held = || record.slice_start().is_some_and(|start| is_held(start, record.slice_end()));
            is_needed(record.key.subject, references) || epochs.contains(&record.copied.epoch) && is_open() || is_held()
        };
        let mut unneeded = Vec::new();
        self.visit(&mut |record| {
            if !is_needed(record) {
                unneeded.push(record.clone());
            }
        });
        for record in unneeded {
            self.records.remove(&record.key);
            self.mark_changed(record.key);
            self.forget(&record, references);
            dropped(record.large_payload, record.slice_start());
        }
        self.needed_bytes = self.bytes;
    }
}

/// Returns whether a record belongs to the slice that is recorded next.
fn is_before_slice(record: &CommittedRecord<'_>) -> bool {
    record.head.tag == Tag::Stack || record.head.tag == Tag::Counts && record.words[0] == 0
}

pub(super) fn large_payload_of(record: &CommittedRecord<'_>) -> u64 {
    if record.head.flags & flag::LARGE == 0 { 0 } else { record.payload_words().next().unwrap_or(0) }
}

/// Identifies what a record adds to its span or slice; not 0. Values of the same fields replace each other.
fn content_of(record: &CommittedRecord<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (record.head.tag as u8, record.head.site).hash(&mut hasher);
    match record.head.tag {
        Tag::Follows => record.words[1].hash(&mut hasher),
        // The fields of a large payload are not known here.
        Tag::Values if record.head.flags & flag::LARGE != 0 => large_payload_of(record).hash(&mut hasher),
        Tag::Values => {
            let words: List<_> = record.payload_words().map(u64::to_le_bytes).collect();
            decode_values(&words).for_each(|value| value.field.hash(&mut hasher));
        }
        _ => {}
    }
    hasher.finish() | 1
}
