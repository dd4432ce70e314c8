//! The records of collectors in segments and live files.

use super::frame::{FrameKind, FrameWriter};
use super::live::Entries;
use crate::clock::Converter;
use crate::encoding::{Encoded, decode_words, encode_items, encode_words};
use crate::live::JournalKind;
use crate::time::{Ticks, Timestamp};
use crate::trace::{DeviceRecords, WindowSet};
use kineto_base::sorted::SortedMap;
use kineto_base::sorting::{sort_few, sort_few_by_key};
use kineto_devices::{Collection, RecordsPart};
use std::io::{self, Write};
use std::sync::Arc;

/// How far records of devices may lie behind the last time that is known.
const AHEAD_NS: u64 = 1_000_000_000;

/// The collectors of a segment, as far as they were read, by their numbers in the file.
#[derive(Default)]
pub(super) struct StoredDevices(SortedMap<u32, Collection>);

/// The blocks of a live file.
#[derive(Debug, Default)]
pub(super) struct LiveBlocks(Vec<FoundBlock>);

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

/// Writes the collectors. Each frame has the number of its own, so that a damaged one does no harm to another.
pub(super) fn write_devices(devices: &DeviceRecords, frames: &mut FrameWriter<impl Write>) -> io::Result<()> {
    (0_u32..).zip(devices.collections()).try_for_each(|(number, collection)| {
        frames.write_frame(FrameKind::COLLECTION, |out| {
            number.encode(out);
            collection.encode(out);
        })?;
        collection.records.write_parts(&|entry, each| collection.visit_args(entry, each), &mut |part| match part {
            RecordsPart::Names(first, names) => frames.write_frame(FrameKind::NAMES, |out| {
                (number, first).encode(out);
                encode_items(names.iter(), out);
            }),
            RecordsPart::Block(_, []) => Ok(()),
            RecordsPart::Block(arena, words) => frames.write_frame(FrameKind::BLOCK, |out| {
                (number, arena).encode(out);
                encode_words(words.iter().copied(), out);
            }),
        })
    })
}

impl StoredDevices {
    /// Adds the contents of a frame; `None` if it makes no sense, or belongs to a frame that was lost.
    pub(super) fn add_frame(&mut self, kind: FrameKind, from: &mut &[u8]) -> Option<()> {
        if kind == FrameKind::COLLECTION {
            self.0.insert(u32::decode(from)?, Encoded::decode(from)?);
            return Some(());
        }
        let (number, place) = <(u32, usize)>::decode(from)?;
        let records = &mut self.0.get_mut(&number)?.records;
        match kind {
            FrameKind::NAMES => records.add_names(place, &Vec::decode(from)?),
            _ => records.add_block(place, decode_words(from, |[word]| word)?),
        }
    }

    pub(super) fn into_devices(self) -> DeviceRecords {
        DeviceRecords::new(self.0.into_iter().map(|(_, collection)| collection).collect())
    }
}

impl LiveBlocks {
    /// Adds a block: its collector and arena, its place, and when it was moved out of the collector; 0 if it was not.
    pub(super) fn add_block(&mut self, of: u64, place: u64, moved: Ticks, words: &[u64]) {
        let Ok(collector) = u32::try_from(of >> 8) else { return };
        let arena = usize::try_from(of & 0xFF).unwrap_or(usize::MAX);
        self.0.push(FoundBlock { collector, arena, place, moved, words: words.to_vec() });
    }

    /// Returns the collectors with their windows and records, without the records that were moved to disk `until` that time.
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
        let (LiveBlocks(mut blocks), mut damaged) = (self, 0);
        let mut places = Vec::with_capacity(blocks.len());
        for block in &blocks {
            places.push(((u64::from(block.collector), block.arena), block.place));
        }
        sort_few(&mut places);
        let places = SortedMap::group(places);
        let mut collections = entries.all::<Collection>(JournalKind::Collection, &mut damaged);
        for ((number, _), tables) in entries.all(JournalKind::Tables, &mut damaged) {
            if let Some(collection) = collections.get_mut(&(number, 0)) {
                collection.records.set_tables(tables);
            }
        }
        for ((number, _), (last_call, work)) in entries.all(JournalKind::Dropped, &mut damaged) {
            if let Some(collection) = collections.get_mut(&(number, 0)) {
                (collection.records.last_call_before, collection.records.evicted_work) = (last_call, work);
            }
        }
        for ((number, first), names) in entries.all::<Vec<String>>(JournalKind::Names, &mut damaged) {
            let added = collections.get_mut(&(number, 0)).and_then(|collection| {
                let names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
                collection.records.add_names(usize::try_from(first).ok()?, &names)
            });
            damaged += u64::from(added.is_none());
        }
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
