//! Reads a trace from a live file, which a process has left that was killed. The file is untrusted.

use super::folder::BYTES_MAX;
use super::read::{Entries, StoredRecords, read_sealed, read_start, to_words};
use super::{Segment, SegmentFault};
use crate::buffer::{Loss, Tag};
use crate::clock::{Anchor, Converter};
use crate::live::{ENTRY_WORDS, FileHeader, HEADER_WORDS, JournalKind, SLOT_WORDS, SlotUse, slots_start};
use crate::os::folder::Folder;
use crate::recorder::{EvictionCounts, RecordedPart};
use crate::time::Ticks;
use crate::trace::{Recorded, Stretch, Trace, Window, WindowSet};
use kineto_base::fallible::attempt;
use kineto_base::sorted::SortedMap;
use kineto_base::sorting::sort_few;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most slots of a file: 16 TiB.
const SLOTS_MAX: usize = 1 << 28;

/// The contents of a file.
#[derive(Debug, Default)]
struct LiveContents {
    records: StoredRecords,
    journal: BTreeMap<u64, Vec<u64>>,
    /// When a trace was taken that has all records of a chunk and was moved to disk, by the chunk's first id.
    moved_chunks: HashMap<u64, Ticks>,
}

/// What segments have of a recording.
#[derive(Debug, Default)]
struct MovedRecords {
    until: Option<Ticks>,
    /// How many slots of each chunk.
    slots: HashMap<u64, usize>,
}

/// Reads a live file whose first bytes were read already.
///
/// Its older records may be in segments: in the folder `near`, or else in the one that the process had.
pub(super) fn read_live_file(
    header: FileHeader,
    start: Vec<u8>,
    mut file: impl Read,
    near: Option<&Path>,
) -> Result<Segment, SegmentFault> {
    if header.slots > SLOTS_MAX {
        return Err(SegmentFault::DamagedHeader);
    }
    let mut bytes = start;
    let words = read_words(&mut file, &mut bytes, HEADER_WORDS)?;
    let (generation, length) = FileHeader::journal(&words).ok_or(SegmentFault::DamagedHeader)?;
    let used = read_directory(&mut file, header.slots)?;
    let skipped = slots_start(header.slots) - HEADER_WORDS - header.slots * ENTRY_WORDS;
    read_words(&mut file, &mut Vec::new(), skipped)?;
    let mut contents = LiveContents::default();
    let mut slot = Vec::new();
    let mut next = 0;
    for (number, entry) in used {
        // Holes, mostly.
        let unused = (number - next) as u64 * SLOT_WORDS as u64 * 8;
        io::copy(&mut file.by_ref().take(unused), &mut io::sink())?;
        next = number + 1;
        slot.clear();
        let words = read_words(&mut file, &mut slot, SLOT_WORDS)?;
        attempt(|| contents.add_slot(&entry, &words, generation)).map_err(io::Error::from)?;
    }
    let journal = contents.take_journal(length);
    let entries = Entries::new(std::iter::once(journal.as_slice()));
    let recorded = entries.get::<PathBuf>(JournalKind::Segments);
    let moved = recorded.map(|recorded| {
        // Without a path, no segment has what the file has.
        let near = near.filter(|_| !recorded.as_os_str().is_empty());
        let folders = near.into_iter().chain([recorded.as_path()]);
        folders.into_iter().find_map(|folder| read_moved(folder, header.process_uuid)).unwrap_or_default()
    });
    let read = attempt(|| contents.into_trace(&entries, moved)).map_err(io::Error::from)?;
    let (trace, damaged) = read?;
    Ok(Segment::new(trace, &header, false, damaged, 0))
}

/// Returns what the segments of a process in a folder have: the last has the most of each chunk that is still in use. `None` if there
/// are no such segments.
fn read_moved(folder: &Path, process: u128) -> Option<MovedRecords> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "kseg")).collect();
    sort_few(&mut files);
    let folder = Folder::open(folder).ok()?;
    let last = files.iter().rev().find_map(|path| {
        let mut file = folder.open_entry(path.file_name()?, BYTES_MAX).ok()?;
        let header = read_start(&mut file).ok()?.0.ok().filter(|header| header.slots == 0)?;
        let segment = read_sealed(header, file).ok()?;
        (segment.is_complete && segment.process_uuid == process).then_some(segment)
    });
    let last = last?;
    let recorded = &last.trace.contents().recorded;
    let slots = recorded.parts.iter().filter(|part| part.lane().is_none());
    let slots = slots.map(|part| (part.first_id(), part.records().len())).collect();
    Some(MovedRecords { until: Some(recorded.whole.1), slots })
}

/// Reads the directory; returns the numbers of the slots in use, with their entries.
fn read_directory(file: &mut impl Read, slots: usize) -> io::Result<Vec<(usize, [u64; ENTRY_WORDS])>> {
    /// A hostile file may name many slots that it does not have.
    const AT_ONCE: usize = 8192;
    let (mut used, mut bytes) = (Vec::new(), Vec::new());
    for first in (0..slots).step_by(AT_ONCE) {
        bytes.clear();
        let words = read_words(file, &mut bytes, AT_ONCE.min(slots - first) * ENTRY_WORDS)?;
        if words.is_empty() {
            break;
        }
        let entries: &[[u64; ENTRY_WORDS]] = words.as_chunks().0;
        let in_use = |(_, entry): &(usize, [u64; ENTRY_WORDS])| SlotUse::from_number(entry[0]).is_some();
        attempt(|| used.extend((first..).zip(entries.iter().copied()).filter(in_use))).map_err(io::Error::from)?;
    }
    Ok(used)
}

/// Reads words after those in `bytes`, as far as the file goes.
fn read_words(file: &mut impl Read, bytes: &mut Vec<u8>, words: usize) -> io::Result<Vec<u64>> {
    let missing = (words * 8).saturating_sub(bytes.len()) as u64;
    file.take(missing).read_to_end(bytes)?;
    Ok(to_words(bytes))
}

impl LiveContents {
    /// Adds what a slot holds.
    fn add_slot(&mut self, entry: &[u64; ENTRY_WORDS], words: &[u64], generation: u64) {
        let [kind, a, b, c, d, ..] = *entry;
        match SlotUse::from_number(kind) {
            Some(SlotUse::Chunk) => {
                if let Some(chunk) = self.records.add_chunk(words) {
                    let moved = (a > 0).then_some((chunk.first_id, Ticks(a)));
                    self.moved_chunks.remove(&chunk.first_id);
                    self.moved_chunks.extend(moved);
                }
            }
            Some(SlotUse::Journal) if a == generation => drop(self.journal.insert(b, words.to_vec())),
            Some(SlotUse::Block) => {
                let Some(words) = usize::try_from(c).ok().and_then(|length| words.get(..length)) else { return };
                self.records.blocks.add_block(a, b, Ticks(d), words);
            }
            Some(SlotUse::Journal | SlotUse::End) | None => {}
        }
    }

    /// Returns the bytes of the journal, which has so many words.
    fn take_journal(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, (index, words)) in (0..).zip(std::mem::take(&mut self.journal)) {
            if at != index {
                break;
            }
            bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        }
        let wanted = length.saturating_mul(8);
        self.records.damaged += u64::from(bytes.len() < wanted);
        bytes.truncate(wanted);
        bytes
    }

    /// Makes the trace; also returns how many things of the file made no sense. If records were `moved` to disk, those until
    /// that time are left out.
    fn into_trace(mut self, entries: &Entries<'_>, moved: Option<MovedRecords>) -> Result<(Trace, u64), SegmentFault> {
        let (by_counter, mut info, metadata) = entries.info()?;
        self.records.damaged += entries.unknown();
        let anchors: Vec<Anchor> =
            entries.all(JournalKind::Anchor, &mut self.records.damaged).into_iter().map(|(_, anchor)| anchor).collect();
        let last_anchor = anchors.iter().map(|anchor| if by_counter { anchor.counter } else { anchor.monotonic }).max();
        let last_anchor = last_anchor.ok_or(SegmentFault::Missing("clock"))?;
        let converter = Converter::of_other_process(anchors, by_counter);
        let retained = self.take_retained(entries);
        if let Some(moved) = &moved {
            let all_are_moved = |first_id| self.moved_chunks.get(first_id).copied() <= moved.until;
            let in_segment = |first_id| match moved.slots.get(first_id) {
                _ if self.moved_chunks.contains_key(first_id) && all_are_moved(first_id) => usize::MAX,
                slots => slots.copied().unwrap_or(0),
            };
            self.records.chunks.iter_mut().for_each(|(first_id, chunk)| chunk.new_from = Some(in_segment(first_id)));
        }
        let StoredRecords { chunks, blocks, mut damaged } = self.records;
        let mut parts: Vec<_> = chunks.into_values().map(RecordedPart::Stored).chain(retained).collect();
        let last = parts.iter().filter_map(last_time).max().unwrap_or_default().max(last_anchor);
        let damaged = &mut damaged;
        let evicted = entries.get::<(EvictionCounts, Vec<Stretch>)>(JournalKind::Evicted);
        let (evicted, held) = evicted.unwrap_or_default();
        let until = moved.as_ref().and_then(|moved| moved.until);
        for ((end, _), losses) in entries.all::<[u64; Loss::ALL.len()]>(JournalKind::PartLosses, damaged) {
            let is_on_disk = until.is_some_and(|until| Ticks(end) <= until);
            let counts = info.losses.iter_mut().zip(losses).filter(|_| !is_on_disk);
            counts.for_each(|(count, of_part)| *count = count.saturating_add(of_part));
        }
        let windows = entries.all::<(Ticks, Option<Ticks>)>(JournalKind::Window, damaged);
        let windows = windows.into_iter();
        let host = windows.map(|((epoch, _), (start, end))| Window::new(epoch, start, end.unwrap_or(last).max(start)));
        let windows_of_devices = entries.all::<(Ticks, Option<Ticks>)>(JournalKind::DeviceWindow, damaged).into_iter();
        let devices = windows_of_devices
            .map(|((collector, _), (start, end))| (collector, (start, end.unwrap_or(last).max(start))))
            .collect();
        let (numbers, devices): (Vec<u64>, Vec<Vec<Stretch>>) = SortedMap::group(devices).into_iter().unzip();
        let mut windows = WindowSet::new(host.collect(), devices, last);
        windows = match moved {
            // Records that were to be moved are shown also where others are missing. Windows contain their ends.
            Some(_) => windows.cut_to_segment(until.map(|until| Ticks(until.0.saturating_add(1)))),
            None => windows.cut_to_stretches(&complete_stretches(held, evicted.horizon)),
        };
        let (devices, lost) = blocks.into_devices(entries, (until, last), &numbers, &mut windows, &converter);
        *damaged += lost;
        let mut recorded = Recorded::of_live_file(windows, evicted);
        // Records of threads that had not noticed the end of an earlier recording.
        parts.retain(|part| part.records().len() > 0);
        entries.complete(&mut recorded, parts, damaged);
        Ok((Trace::new(recorded, devices, Vec::new(), converter, Arc::new(metadata), info), *damaged))
    }

    /// Returns the records that outlived their chunks.
    fn take_retained(&mut self, entries: &Entries<'_>) -> Vec<RecordedPart> {
        let retained = entries.all::<RecordedPart>(JournalKind::Retained, &mut self.records.damaged);
        let is_in_chunk = |part: &RecordedPart| {
            let before = self.records.chunks.range(..=part.first_id()).next_back();
            before.is_some_and(|(_, chunk)| part.first_id() < chunk.end_id())
        };
        // The process was killed before it freed their chunk, which may lack an end that was stored since.
        let (in_chunks, retained): (Vec<_>, Vec<_>) = retained.into_iter().map(|(_, part)| part).partition(is_in_chunk);
        for part in &in_chunks {
            for record in part.records().records_from(0).filter(|record| record.head.tag == Tag::Slice) {
                let chunk = self.records.chunks.range(..=record.id()).next_back();
                if let Some((_, chunk)) = chunk {
                    chunk.set_end(record.id(), record.words[1]);
                }
            }
        }
        retained
    }
}

/// Returns the stretches of time whose records are complete: what traces held, and all since the horizon.
fn complete_stretches(held: Vec<Stretch>, horizon: Option<Ticks>) -> Vec<Stretch> {
    let mut complete: Vec<Stretch> = Vec::new();
    let Some(horizon) = horizon else { return complete };
    let mut all: Vec<_> = held.into_iter().filter(|(start, end)| start < end && *start < horizon).collect();
    sort_few(&mut all);
    for (start, end) in all.into_iter().chain([(horizon, Ticks(u64::MAX))]) {
        match complete.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => complete.push((start, end)),
        }
    }
    complete
}

/// Returns the latest time in the records of a part.
fn last_time(part: &RecordedPart) -> Option<Ticks> {
    let time_of = |record: crate::buffer::CommittedRecord<'_>| {
        let [a, b, _] = record.words;
        match record.head.tag {
            Tag::Slice => a.max(b),
            Tag::End | Tag::Values | Tag::Close => b,
            Tag::Instant | Tag::Counter | Tag::Memory => a,
            _ => 0,
        }
    };
    part.records().records_from(0).map(time_of).max().map(Ticks)
}
