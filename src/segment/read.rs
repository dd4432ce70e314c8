//! Reads a trace from a segment, or what it has in common with a live file. Files are untrusted.

use super::devices::StoredBlocks;
use super::parts::{Part, PartReader, SEALED_WORDS, read_header};
use super::{Segment, SegmentFault, killed};
use crate::callsite::SiteDescription;
use crate::clock::Converter;
use crate::encoding::Encoded;
use crate::live::{FileHeader, JournalKind, SlotUse, journal_entries};
use crate::recorder::{CopiedSlots, LaneRow, LargePayload, RecordedPart};
use crate::time::{Ticks, Timestamp};
use crate::trace::{CpuTrace, CpuTraceBuilder, Recorded, Trace, TraceInfo, TraceMetadata};
use kineto_base::fallible::attempt;
use kineto_base::sorted::SortedMap;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The records of a file.
#[derive(Debug, Default)]
pub(super) struct StoredRecords {
    /// By their first ids.
    pub(super) chunks: BTreeMap<u64, CopiedSlots>,
    pub(super) blocks: StoredBlocks,
    /// What makes no sense: slots behind the records of chunks, and parts.
    pub(super) damaged: u64,
}

/// The entries of a journal, of which later ones replace earlier ones.
pub(super) struct Entries<'j> {
    by_key: SortedMap<(u32, u64, u64), &'j [u8]>,
    /// How many are of kinds that this version does not know.
    unknown: u64,
}

/// What is read first of a file: its header, or why it has none, and its first bytes.
pub(super) type FileStart = (Result<FileHeader, SegmentFault>, Vec<u8>);

/// Reads the start of a file.
pub(super) fn read_start(file: &mut impl Read) -> io::Result<FileStart> {
    let mut start = Vec::new();
    file.take(SEALED_WORDS as u64 * 8).read_to_end(&mut start)?;
    Ok((read_header(&start), start))
}

/// Reads a segment or a live file; the segments of the latter may lie in the folder `near`.
pub(super) fn read_segment(mut file: impl Read, near: Option<&Path>) -> Result<Segment, SegmentFault> {
    let (header, start) = read_start(&mut file)?;
    let header = header?;
    if header.slots > 0 { killed::read_live_file(header, start, file, near) } else { read_sealed(header, file) }
}

/// Reads a segment whose header was read already.
pub(super) fn read_sealed(header: FileHeader, file: impl Read) -> Result<Segment, SegmentFault> {
    let (mut parts, mut records) = (PartReader::new(file, header.number), StoredRecords::default());
    let (mut journal, mut is_complete) = (Vec::new(), false);
    while let Some(Part { holds, words, body }) = parts.next_part()? {
        attempt(|| match SlotUse::from_number(holds) {
            Some(SlotUse::Journal) => journal.push(body.to_vec()),
            Some(SlotUse::End) => is_complete = true,
            Some(SlotUse::Chunk) => records.add_new_chunk(&to_words(body), words),
            Some(SlotUse::Block) => records.blocks.add_block(words[0], words[1], Ticks(words[3]), &to_words(body)),
            // Of a later version.
            None => records.damaged += 1,
        })
        .map_err(io::Error::from)?;
    }
    let lost = parts.lost;
    let read = attempt(|| records.into_trace(&Entries::new(journal.iter().map(Vec::as_slice))));
    let (trace, damaged) = read.map_err(io::Error::from)??;
    Ok(Segment::new(trace, &header, is_complete, lost.parts.saturating_add(damaged), lost.bytes))
}

/// Returns the words of bytes.
pub(super) fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

impl StoredRecords {
    /// Adds a chunk, unless there is one of its id with as many records.
    pub(super) fn add_chunk(&mut self, words: &[u64]) -> Option<&mut CopiedSlots> {
        let (chunk, damaged) = CopiedSlots::of_chunk(words)?;
        self.damaged += damaged;
        let id = chunk.first_id;
        if self.chunks.get(&id).is_some_and(|known| known.bytes() >= chunk.bytes()) {
            return None;
        }
        self.chunks.insert(id, chunk);
        self.chunks.get_mut(&id)
    }

    /// Adds a chunk of a segment.
    fn add_new_chunk(&mut self, words: &[u64], [new_from, ..]: [u64; 4]) {
        match self.add_chunk(words) {
            Some(chunk) => chunk.new_from = new_from.checked_sub(1).and_then(|at| usize::try_from(at).ok()),
            None => self.damaged += 1,
        }
    }

    /// Makes the trace of a segment; also returns how many things of the file made no sense.
    fn into_trace(self, entries: &Entries<'_>) -> Result<(Trace, u64), SegmentFault> {
        let (_, info, metadata) = entries.info()?;
        let sealed = entries.get::<(Converter, Recorded)>(JournalKind::Sealed);
        let (converter, mut recorded) = sealed.ok_or(SegmentFault::Missing("clock and windows"))?;
        let mut damaged = self.damaged + entries.unknown;
        let retained = entries.all::<RecordedPart>(JournalKind::Retained, &mut damaged).into_iter();
        let chunks = self.chunks.into_values().map(RecordedPart::Stored);
        let parts = chunks.chain(retained.map(|(_, part)| part)).collect();
        let strays = entries.complete(&mut recorded, parts, &mut damaged);
        damaged += strays;
        let devices = self.blocks.into_sealed(entries, &mut damaged);
        let pushed = entries.pushed(&mut damaged);
        Ok((Trace::new(recorded, devices, pushed, converter, Arc::new(metadata), info), damaged))
    }
}

impl<'j> Entries<'j> {
    /// Takes the parts of a journal, each of whole entries.
    pub(super) fn new(parts: impl Iterator<Item = &'j [u8]>) -> Entries<'j> {
        let mut unknown = 0;
        let entries = parts.flat_map(journal_entries).filter(|entry| {
            let is_known = JournalKind::is_known(entry.kind);
            unknown += u64::from(!is_known);
            is_known
        });
        let entries = entries.map(|entry| ((entry.kind, entry.key.0, entry.key.1), entry.body));
        let last: SortedMap<_, _> = entries.collect();
        let by_key = last.into_iter().filter_map(|(key, body)| Some((key, body?))).collect();
        Entries { by_key, unknown }
    }

    /// Returns how many entries are of kinds that this version does not know.
    pub(super) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Returns the entry of a kind that has but one. Later versions may append to its value, and to all others.
    pub(super) fn get<T: Encoded>(&self, kind: JournalKind) -> Option<T> {
        T::decode(&mut { *self.by_key.get(&(kind as u32, 0, 0))? })
    }

    /// Returns the keys and values of a kind, in order.
    fn of_kind(&self, kind: JournalKind) -> impl Iterator<Item = ((u64, u64), &'j [u8])> {
        let of_kind = self.by_key.iter().filter(move |((of, ..), _)| *of == kind as u32);
        of_kind.map(|((_, key, detail), body)| ((*key, *detail), *body))
    }

    /// Returns all entries of a kind, by key; counts those that make no sense.
    pub(super) fn all<T: Encoded>(&self, kind: JournalKind, damaged: &mut u64) -> SortedMap<(u64, u64), T> {
        let mut all = SortedMap::new();
        for (key, mut body) in self.of_kind(kind) {
            match T::decode(&mut body) {
                Some(value) => drop(all.insert(key, value)),
                None => *damaged += 1,
            }
        }
        all
    }

    /// Returns the entries of a kind that are numbered from 0; a missing one is `unknown`.
    fn list<T: Encoded>(&self, kind: JournalKind, damaged: &mut u64, unknown: fn() -> T) -> Vec<T> {
        let all = self.all(kind, damaged);
        // A hostile file may have one of any number.
        let most = all.len() * 2 + 1024;
        let mut list = Vec::new();
        for ((number, _), value) in all {
            // It may also have two of one number.
            let free = list.len()..most;
            let Some(number) = usize::try_from(number).ok().filter(|number| free.contains(number)) else {
                *damaged += 1;
                continue;
            };
            *damaged += (number - list.len()) as u64;
            list.resize_with(number, unknown);
            list.push(value);
        }
        list
    }

    /// Returns whether ticks are those of the processor's counter, the facts about the trace, and its metadata.
    pub(super) fn info(&self) -> Result<(bool, TraceInfo, TraceMetadata), SegmentFault> {
        let info = self.get::<(bool, (TraceMetadata, TraceInfo))>(JournalKind::Info);
        info.map(|(by_counter, (metadata, info))| (by_counter, info, metadata))
            .ok_or(SegmentFault::Missing("facts about the trace"))
    }

    /// Adds the parts, and what they refer to; returns how many belong to no window.
    pub(super) fn complete(&self, recorded: &mut Recorded, parts: Vec<RecordedPart>, damaged: &mut u64) -> u64 {
        let lanes = self.all::<LaneRow>(JournalKind::Lane, damaged).into_iter();
        // A lane is found by its number.
        recorded.lanes = lanes.filter(|((number, _), lane)| lane.number == *number).map(|(_, lane)| lane).collect();
        recorded.sites = self.list(JournalKind::Site, damaged, SiteDescription::unknown);
        let payloads = self.all::<Arc<LargePayload>>(JournalKind::LargePayload, damaged);
        recorded.add_stored(parts, payloads.into_iter().map(|((id, _), payload)| (id, payload)).collect())
    }

    /// Returns the records that the program pushed.
    fn pushed(&self, damaged: &mut u64) -> Vec<Arc<CpuTrace>> {
        let mut builders = self.all::<(CpuTraceBuilder, Timestamp)>(JournalKind::Pushed, damaged);
        for ((number, _), mut piece) in self.of_kind(JournalKind::PushedPiece) {
            let builder = builders.get_mut(&(number, 0));
            *damaged += u64::from(builder.and_then(|(builder, _)| builder.add_piece(&mut piece)).is_none());
        }
        builders.into_iter().map(|(_, (builder, end))| Arc::new(builder.close(end))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::encode_entry;
    use kineto_base::fallible::List;

    #[test]
    fn second_entry_of_a_number_is_damaged() {
        let mut journal = List::new();
        for key in [(0, 0), (2, 0), (2, 1), (3, 0)] {
            assert!(encode_entry(&mut journal, JournalKind::Site, key, Some(|out: &mut List<u8>| 7_u64.encode(out))));
        }
        let mut damaged = 0;
        let list = Entries::new(std::iter::once(&*journal)).list::<u64>(JournalKind::Site, &mut damaged, || 0);
        // The one without an entry, and the second of number 2.
        assert_eq!((list, damaged), (vec![7, 0, 7, 7], 2));
    }
}
