//! A collector's records of device memory, in order, with running totals.

use super::records::CollectionRecords;
use super::{LinkedCollection, RecordCounts, overlaps_any};
use crate::link::{Links, RecordHandle, RecordSource as _, Spans, Work};
use crate::memory::{Category, Device};
use crate::time::Timestamp;
use crate::trace::memory::MemoryRecord;
use kineto_base::fallible::List;
use kineto_base::sorted::SortedMap;
use kineto_base::sorting::{sort_in_place_by, sort_in_place_by_key};
use kineto_devices::{Collection, Role};

/// An allocation or a free.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryChange {
    at: Timestamp,
    /// The record.
    place: u32,
    /// The call that caused it, if known.
    thread: Option<u32>,
    /// The slice around it; 0 for none.
    slice: u64,
    /// The bytes allocated on its device afterwards.
    allocated: u64,
}

/// Returns all changes in order, with their callers and totals; counts those outside the recording.
pub(super) fn memory_changes(
    records: &CollectionRecords<'_>,
    reach: &[(Timestamp, Timestamp)],
    links: &Links,
    spans: &impl Spans,
    counts: &mut RecordCounts,
) -> List<MemoryChange> {
    let collection = records.collection;
    let mut changes = List::new();
    for entry in collection.records.other_records().filter(|entry| entry.role() == Role::Memory) {
        let at = collection.entry_times(&entry).0;
        if overlaps_any(reach, (at, at)) {
            changes.push(MemoryChange { at, place: entry.at, thread: None, slice: 0, allocated: 0 });
        } else {
            counts.count_outside((at, at));
        }
    }
    sort_in_place_by_key(&mut changes, |change| (change.at, change.place));
    find_callers(&mut changes, records, links, spans);
    add_up(&mut changes, collection);
    changes
}

/// Finds the call with each change's correlation id, and its slice.
fn find_callers(changes: &mut [MemoryChange], records: &CollectionRecords<'_>, links: &Links, spans: &impl Spans) {
    let mut questions = List::new();
    for (number, change) in changes.iter_mut().enumerate() {
        let correlation = records.collection.records.entry_at(change.place).map_or(0, |entry| entry.correlation_id());
        let work = Work { at: RecordHandle(change.place), correlation, start: change.at, ..Work::default() };
        let Some(call) = links.launch_of(&work).map(|call| records.call_at(call)) else { continue };
        (change.thread, change.slice) = (Some(call.thread), links.slice_of(&call));
        if change.slice == 0 {
            questions.push((call.thread, change.at, number));
        }
    }
    sort_in_place_by(&mut questions, Ord::cmp);
    let asked: List<_> = questions.iter().map(|(thread, at, _)| (*thread, *at)).collect();
    let answers = if asked.is_empty() { List::new() } else { spans.innermost_slices(&asked) };
    for ((.., number), slice) in questions.iter().zip(answers) {
        if let Some(change) = changes.get_mut(*number) {
            change.slice = slice;
        }
    }
}

/// Computes the totals. Memory that is freed but was not allocated here counts as allocated before the recording.
fn add_up(changes: &mut [MemoryChange], collection: &Collection) {
    let mut totals: SortedMap<_, (i64, i64)> = SortedMap::new();
    let bytes = |change: &MemoryChange| {
        collection.records.entry_at(change.place).map(|entry| (entry.memory_of(), entry.memory_bytes()))
    };
    for (device, bytes) in changes.iter().filter_map(bytes) {
        let (total, least) = totals.get_or_insert_with(device, Default::default);
        *total = total.saturating_add(bytes);
        *least = (*least).min(*total);
    }
    totals.values_mut().for_each(|(total, least)| *total = least.saturating_neg());
    for change in changes {
        let Some((device, bytes)) = bytes(change) else { continue };
        if let Some((total, _)) = totals.get_mut(&device) {
            *total = total.saturating_add(bytes);
            change.allocated = u64::try_from(*total).unwrap_or(0);
        }
    }
}

impl LinkedCollection {
    /// Returns allocations and frees in order: time, thread and record.
    pub(super) fn memory_records<'t>(
        &'t self,
        collection: &'t Collection,
        process: i64,
    ) -> impl Iterator<Item = (Timestamp, i64, MemoryRecord)> + 't {
        self.memory.iter().filter_map(move |change| {
            let entry = collection.records.entry_at(change.place).filter(|entry| entry.role() == Role::Memory)?;
            let (kind, index) = entry.memory_of();
            // The process's first thread has the process's id.
            let thread = change.thread.map_or(process, |thread| self.threads.thread_id(thread));
            let record = MemoryRecord {
                slice: change.slice,
                address: entry.end(),
                bytes: entry.memory_bytes(),
                allocated: change.allocated,
                reserved: 0,
                device: Device::of(kind, index),
                category: Category::Unknown,
                is_out_of_memory: false,
            };
            Some((change.at, thread, record))
        })
    }
}
