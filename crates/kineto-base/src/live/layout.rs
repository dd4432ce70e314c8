//! The layout of files of records: the header, and the journal's entries.
//!
//! A live file and a segment hold the same parts: chunks, blocks of packed records, and a journal of entries by key. In a live file they lie
//! in slots of a mapping, which a directory describes. A segment is sealed: the parts follow each other, each behind its entry of the
//! directory, with a checksum.
//!
//! The number of a kind, and what a kind says, never change: a new fact has a new kind, or is appended to the facts about the trace. So a
//! reader reads all older files, and of newer ones what it knows.

use super::JournalKind;
use crate::fallible::{List, attempt};
use crate::os::{platform, process};
use crate::time::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bumped only if older readers would misunderstand a file.
const VERSION: u64 = 3;

/// The oldest version that is read.
const FIRST_VERSION: u64 = 3;

/// The words of the header of a live file after those of its [`FileHeader`]: the journal's generation, and the words that the last two
/// generations have.
pub const GENERATION: usize = 16;
pub(super) const LENGTHS: [usize; 2] = [17, 18];

/// Who made a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The number of slots of a live file; 0 for a segment.
    pub slots: usize,
    /// The number of a segment among those of its recording.
    pub number: u32,
    /// The process's number in its namespace.
    pub process_id: u32,
    /// The process's random number.
    pub process_uuid: u128,
    /// The kernel's number of this boot.
    pub boot_id: u128,
    /// The namespace of the process's number.
    pub namespace: u64,
    /// When the file was created, or its trace begins.
    pub start: Timestamp,
}

/// An entry of a journal. An entry without a body removes those of its key.
#[derive(Clone, Copy, Debug)]
pub struct JournalEntry<'j> {
    /// The number of its [`JournalKind`].
    pub kind: u32,
    /// The key; a later entry replaces those of its kind and key.
    pub key: (u64, u64),
    /// The value.
    pub body: Option<&'j [u8]>,
}

/// Words of an entry before its body: kind and length, key.
pub(super) const HEAD_WORDS: usize = 3;
const REMOVES: u64 = 1 << 31;

/// Returns the lower and the upper half.
fn halves(number: u128) -> [u64; 2] {
    let lower = u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
    [lower, u64::try_from(number >> 64).unwrap_or(0)]
}

impl FileHeader {
    /// The first bytes of a live file, and of a segment.
    pub const MAGIC: [[u8; 8]; 2] = [*b"KINELIVE", *b"KINESEAL"];
    /// The words that hold a header.
    pub const WORDS: usize = 11;

    /// Returns the header of a file of this process.
    pub fn of_process(slots: usize, number: u32, start: Timestamp) -> FileHeader {
        FileHeader {
            slots,
            number,
            process_id: platform::process_id(),
            process_uuid: process::uuid(),
            boot_id: process::boot_id(),
            namespace: process::id_namespace(),
            start,
        }
    }

    /// Returns the words, the magic first.
    pub fn words(&self) -> [u64; FileHeader::WORDS] {
        let ([uuid, uuid_high], [boot, boot_high]) = (halves(self.process_uuid), halves(self.boot_id));
        let (slots, number, process) = (self.slots as u64, self.number.into(), self.process_id.into());
        let ([live, sealed], start) = (FileHeader::MAGIC.map(u64::from_le_bytes), self.start.as_nanos());
        let magic = if self.slots > 0 { live } else { sealed };
        [magic, VERSION, slots, number, process, uuid, uuid_high, boot, boot_high, start, self.namespace]
    }

    /// Stores the words in a mapping, the magic last.
    pub(super) fn store(&self, places: &[AtomicU64]) {
        // Release: the other words precede the magic.
        places.iter().zip(self.words()).rev().for_each(|(place, word)| place.store(word, Ordering::Release));
    }

    /// Reads a header. Of a file of a version that is not read, returns that; `None` if the words are no header.
    pub fn read(words: &[u64]) -> Option<Result<FileHeader, u64>> {
        let [magic, version, slots, number, process, uuid, uuid_high, boot, boot_high, start, namespace, ..] = *words
        else {
            return None;
        };
        let [live, sealed] = FileHeader::MAGIC.map(u64::from_le_bytes);
        if magic != live && magic != sealed {
            return None;
        }
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Some(Err(version));
        }
        if (magic == live) != (slots > 0) {
            return None;
        }
        let whole = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        Some(Ok(FileHeader {
            slots: usize::try_from(slots).ok()?,
            number: u32::try_from(number).ok()?,
            process_id: u32::try_from(process).ok()?,
            process_uuid: whole(uuid, uuid_high),
            boot_id: whole(boot, boot_high),
            namespace,
            start: Timestamp::from_nanos(start),
        }))
    }

    /// Returns the journal's generation, and how many words it has.
    pub fn journal(words: &[u64]) -> Option<(u64, usize)> {
        let generation = *words.get(GENERATION)?;
        let length = *words.get(*LENGTHS.get((generation & 1) as usize)?)?;
        Some((generation, usize::try_from(length).ok()?))
    }
}

/// Appends an entry; `false` if its value is too long. Without a value it removes those of its key.
pub fn encode_entry(
    out: &mut List<u8>,
    kind: JournalKind,
    key: (u64, u64),
    value: Option<impl FnOnce(&mut List<u8>)>,
) -> bool {
    let (start, removes) = (out.len(), if value.is_some() { 0 } else { REMOVES });
    out.resize(start + HEAD_WORDS * 8, 0);
    if let Some(encode) = value {
        encode(out);
    }
    let length = u32::try_from(out.len() - start - HEAD_WORDS * 8);
    out.resize(out.len().next_multiple_of(8), 0);
    let Ok(length) = length else { return false };
    let head = [u64::from(length) << 32 | kind as u64 | removes, key.0, key.1];
    let places = out.get_mut(start..).unwrap_or_default().iter_mut();
    places.zip(head.into_iter().flat_map(u64::to_le_bytes)).for_each(|(place, byte)| *place = byte);
    true
}

/// Returns the words of an entry; `None` if memory is short.
pub(super) fn entry_to_words(
    kind: JournalKind,
    key: (u64, u64),
    value: Option<impl FnOnce(&mut List<u8>)>,
) -> Option<Vec<u64>> {
    attempt(|| {
        let (mut bytes, mut words) = (List::new(), Vec::new());
        let fits = encode_entry(&mut bytes, kind, key, value) && words.try_reserve_exact(bytes.len() / 8).is_ok();
        fits.then(|| words.extend(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))))?;
        Some(words)
    })
    .ok()
    .flatten()
}

/// Returns whether an entry may take much memory, by its first word.
pub(super) fn is_large(first: u64) -> bool {
    is_of_large_kind(first) && !entry_kind(first).1
}

/// Returns whether an entry is of a kind whose entries may take much memory, by its first word.
pub(super) fn is_of_large_kind(first: u64) -> bool {
    let (kind, _) = entry_kind(first);
    [JournalKind::Retained, JournalKind::LargePayload].into_iter().any(|large| large as u32 == kind)
}

/// Returns how many words an entry has, by its first word.
pub(super) fn entry_words(first: u64) -> usize {
    HEAD_WORDS + usize::try_from(first >> 32).unwrap_or(0).div_ceil(8)
}

/// Returns the kind of an entry, and whether it removes others, by its first word.
pub(super) fn entry_kind(first: u64) -> (u32, bool) {
    ((first & (REMOVES - 1)) as u32, first & REMOVES != 0)
}

/// Returns the entries of a journal, in order, up to one that is damaged.
pub fn journal_entries(mut journal: &[u8]) -> impl Iterator<Item = JournalEntry<'_>> {
    std::iter::from_fn(move || {
        let (head, rest) = journal.split_first_chunk::<{ HEAD_WORDS * 8 }>()?;
        let (words, _) = head.as_chunks();
        let [first, key, detail] = *words else { return None };
        let (first, key) = (u64::from_le_bytes(first), (u64::from_le_bytes(key), u64::from_le_bytes(detail)));
        let padded = entry_words(first).checked_sub(HEAD_WORDS)?.checked_mul(8)?;
        let (body, rest) = rest.split_at_checked(padded)?;
        journal = rest;
        let (kind, removes) = entry_kind(first);
        let body = body.get(..usize::try_from(first >> 32).ok()?)?;
        Some(JournalEntry { kind, key, body: (!removes).then_some(body) })
    })
}
