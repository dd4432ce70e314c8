//! The records of collectors in segments and live files.

use super::parts::PartWriter;
use super::read::Entries;
use crate::clock::Converter;
use crate::encoding::{Encoded, encode_items, encode_words};
use crate::live::{JournalKind, SlotUse};
use crate::time::{Ticks, Timestamp};
use crate::trace::{DeviceRecords, WindowSet};
use kineto_base::sorted::SortedMap;
use kineto_base::sorting::{sort_few, sort_few_by_key};
use kineto_devices::{Collection, RecordsPart};
use std::io::{self, Write};
use std::sync::Arc;

/// How far records of devices may lie behind the last time that is known.
const AHEAD_NS: u64 = 1_000_000_000;

/// The blocks of packed records of a file.
#[derive(Debug, Default)]
pub(super) struct StoredBlocks(Vec<FoundBlock>);

/// A block of packed records.
#[derive(Debug)]
struct FoundBlock {
    collector: u32,
    arena: usize,
    place: u64,
    /// When it was moved out of the collector; 0 if it was not.
    moved: Ticks,
    words: Vec<u64>,
}

/// Writes the collectors.
pub(super) fn write_devices(devices: &DeviceRecords, parts: &mut PartWriter<impl Write>) -> io::Result<()> {
    (0_u64..).zip(devices.collections()).try_for_each(|(number, collection)| {
        parts.put(JournalKind::Collection, (number, 0), |out| collection.encode(out))?;
        let mut place = 0;
        collection.records.write_parts(&|entry, each| collection.visit_args(entry, each), &mut |part| match part {
            RecordsPart::Names(first, names) => {
                parts.put(JournalKind::Names, (number, first as u64), |out| encode_items(names.iter(), out))
            }
            RecordsPart::Block(_, []) => Ok(()),
            RecordsPart::Block(arena, words) => {
                place += 1;
                let of = number << 8 | arena as u64;
                parts.put_part(SlotUse::Block, [of, place, words.len() as u64, 0], |out| {
                    encode_words(words.iter().copied(), out);
                })
            }
        })
    })
}

/// Returns the collectors with their tables and names, by their numbers and 0; counts what makes no sense.
fn read_collections(entries: &Entries<'_>, damaged: &mut u64) -> SortedMap<(u64, u64), Collection> {
    let mut collections = entries.all::<Collection>(JournalKind::Collection, damaged);
    for ((number, _), tables) in entries.all(JournalKind::Tables, damaged) {
        if let Some(collection) = collections.get_mut(&(number, 0)) {
            collection.records.set_tables(tables);
        }
    }
    for ((number, _), (last_call, work)) in entries.all(JournalKind::Dropped, damaged) {
        if let Some(collection) = collections.get_mut(&(number, 0)) {
            (collection.records.last_call_before, collection.records.evicted_work) = (last_call, work);
        }
    }
    for ((number, first), names) in entries.all::<Vec<Arc<str>>>(JournalKind::Names, damaged) {
        let added = collections
            .get_mut(&(number, 0))
            .and_then(|collection| collection.records.add_names(usize::try_from(first).ok()?, &names));
        *damaged += u64::from(added.is_none());
    }
    collections
}

impl StoredBlocks {
    /// Adds a block: its collector and arena, its place, and when it was moved out of the collector; 0 if it was not.
    pub(super) fn add_block(&mut self, of: u64, place: u64, moved: Ticks, words: &[u64]) {
        let Ok(collector) = u32::try_from(of >> 8) else { return };
        let arena = usize::try_from(of & 0xFF).unwrap_or(usize::MAX);
        self.0.push(FoundBlock { collector, arena, place, moved, words: words.to_vec() });
    }

    /// Returns the collectors of a segment with their records; counts what makes no sense.
    pub(super) fn into_sealed(self, entries: &Entries<'_>, damaged: &mut u64) -> DeviceRecords {
        let mut collections = read_collections(entries, damaged);
        for block in self.0 {
            let added = collections
                .get_mut(&(block.collector.into(), 0))
                .and_then(|collection| collection.records.add_block(block.arena, block.words));
            *damaged += u64::from(added.is_none());
        }
        DeviceRecords::new(collections.into_iter().map(|(_, collection)| collection).collect())
    }

    /// Returns the collectors of a live file with their windows and records, without the records that were moved to disk `until` that time.
    ///
    /// `numbers` are the collectors of the windows, and `last` is the last known time. Also returns how many things made no sense.
    pub(super) fn into_devices(
        self,
        entries: &Entries<'_>,
        (until, last): (Option<Ticks>, Ticks),
        numbers: &[u64],
        windows: &mut WindowSet,
        converter: &Converter,
    ) -> (DeviceRecords, u64) {
        let (StoredBlocks(mut blocks), mut damaged) = (self, 0);
        let mut places = Vec::with_capacity(blocks.len());
        for block in &blocks {
            places.push(((u64::from(block.collector), block.arena), block.place));
        }
        sort_few(&mut places);
        let places = SortedMap::group(places);
        let mut collections = read_collections(entries, &mut damaged);
        blocks.retain(|block| block.moved == Ticks(0) || until.is_none_or(|until| block.moved > until));
        // Those that were moved are older.
        let age = |block: &FoundBlock| (block.moved == Ticks(0), block.moved);
        sort_few_by_key(&mut blocks, |block| (age(block), block.place));
        for block in &blocks {
            let Some(collection) = collections.get_mut(&(block.collector.into(), 0)) else {
                damaged += 1;
                continue;
            };
            // Work that waits is also in the blocks that follow those that were moved.
            let is_newer = |other: &&FoundBlock| {
                block.moved != Ticks(0)
                    && (other.collector, other.arena) == (block.collector, block.arena)
                    && age(other) > age(block)
            };
            let newer: Vec<_> = blocks.iter().filter(is_newer).map(|other| other.words.as_slice()).collect();
            let added = collection.records.add_live_block(block.arena, block.words.clone(), &newer);
            damaged += u64::from(added.is_none());
        }
        // A device's clock may be ahead, and its work may be known before it has ended.
        let latest = Timestamp::from_nanos(converter.timestamp_of(last).as_nanos().saturating_add(AHEAD_NS));
        let mut found = Vec::new();
        for ((number, _), mut collection) in collections {
            let at = numbers.iter().position(|of| *of == number).unwrap_or(usize::MAX);
            if !windows.gaps.is_empty() {
                let gaps = collection
                    .records
                    .note_missing_blocks(|arena| places.get(&(number, arena)).cloned().unwrap_or_default());
                let ticks_at = |theirs: u64| converter.ticks_at(collection.clock.timestamp_of(theirs));
                gaps.into_iter().for_each(|(from, to)| windows.leave_out_of_device(at, (ticks_at(from), ticks_at(to))));
            }
            (collection.windows, collection.uncut_window) = windows.take_device(at);
            collection.latest = collection.latest.max(latest);
            let open = collection.windows.last_mut().filter(|window| window.1 >= last);
            let latest = converter.ticks_after(last, AHEAD_NS);
            if let Some(window) = open {
                window.1 = latest;
            }
            collection.uncut_window = collection.uncut_window.map(|(start, end)| (start, end.max(latest)));
            found.push(collection);
        }
        (DeviceRecords::new(found), damaged)
    }
}
