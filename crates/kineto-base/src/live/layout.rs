//! The layout of a live file's header and of its journal.

use super::JournalKind;
use crate::fallible::{List, attempt};
use crate::os::{platform, process};
use crate::time::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"KINELIVE");

/// Bumped whenever the layout or an entry changes: only the same version reads a file.
const VERSION: u64 = 2;

/// The words of the header after those that [`LiveHeader`] lists: the journal's generation, and the words that the last two
/// generations have.
pub const GENERATION: usize = 16;
pub(super) const LENGTHS: [usize; 2] = [17, 18];

/// Who made a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveHeader {
    /// The number of slots.
    pub slots: usize,
    /// The process's number in its namespace.
    pub process_id: u32,
    /// The process's random number.
    pub process_uuid: u128,
    /// The kernel's number of this boot.
    pub boot_id: u128,
    /// The namespace of the process's number.
    pub namespace: u64,
    /// When the file was created.
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

impl LiveHeader {
    /// Returns the header of a file of this process.
    pub(super) fn of_process(slots: usize, start: Timestamp) -> LiveHeader {
        LiveHeader {
            slots,
            process_id: platform::process_id(),
            process_uuid: process::uuid(),
            boot_id: process::boot_id(),
            namespace: process::id_namespace(),
            start,
        }
    }

    /// Writes the header, the magic last.
    pub(super) fn write(&self, words: &[AtomicU64]) {
        let ([uuid, uuid_high], [boot, boot_high]) = (halves(self.process_uuid), halves(self.boot_id));
        let process = u64::from(self.process_id);
        let fields = [
            VERSION,
            self.slots as u64,
            process,
            uuid,
            uuid_high,
            boot,
            boot_high,
            self.start.as_nanos(),
            self.namespace,
        ];
        let Some((magic, places)) = words.split_first() else { return };
        places.iter().zip(fields).for_each(|(place, field)| place.store(field, Ordering::Relaxed));
        magic.store(MAGIC, Ordering::Release);
    }

    /// Reads a header. Of a file of another version returns that version; `None` if the words are no header.
    pub fn read(words: &[u64]) -> Option<Result<LiveHeader, u64>> {
        let [MAGIC, version, slots, process, uuid, uuid_high, boot, boot_high, start, namespace, ..] = *words else {
            return None;
        };
        if version != VERSION {
            return Some(Err(version));
        }
        let whole = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        Some(Ok(LiveHeader {
            slots: usize::try_from(slots).ok()?,
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

impl JournalEntry<'_> {
    /// Returns the words of an entry, with a body or to remove others; `None` if memory is short.
    pub(super) fn encode(
        kind: JournalKind,
        key: (u64, u64),
        body: Option<impl FnOnce(&mut List<u8>)>,
    ) -> Option<Vec<u64>> {
        let removes = if body.is_some() { 0 } else { REMOVES };
        attempt(|| {
            let mut bytes = List::new();
            if let Some(encode) = body {
                encode(&mut bytes);
            }
            let length = u32::try_from(bytes.len()).ok()?;
            let mut words = Vec::new();
            words.try_reserve_exact(HEAD_WORDS + bytes.len().div_ceil(8)).ok()?;
            words.extend([u64::from(length) << 32 | kind as u64 | removes, key.0, key.1]);
            let (whole, rest) = bytes.as_chunks();
            words.extend(whole.iter().map(|bytes| u64::from_le_bytes(*bytes)));
            if !rest.is_empty() {
                let mut last = [0; 8];
                last.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
                words.push(u64::from_le_bytes(last));
            }
            Some(words)
        })
        .ok()
        .flatten()
    }
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
