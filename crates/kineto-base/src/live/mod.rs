//! The live file: a file in shared memory that holds the records of a running recording, so that they outlive the process.
//!
//! Threads write their chunks in its slots. A journal in further slots holds what chunks refer to: callsites, lanes, windows,
//! anchors, large payloads, records that outlived their chunk, and the tables of collectors, whose blocks are copied to slots.
//! Everything is a plain store to memory that the kernel keeps when the process is killed. `segment` reads the file.
//!
//! The file lives while the recording runs, then as long as its [`LiveOwner`], which is part of the trace, and until that is saved.

mod journal;
mod kind;
mod layout;
mod queue;
mod slot_file;

pub use kind::JournalKind;
pub use layout::{FileHeader, GENERATION, JournalEntry, encode_entry, journal_entries};

use crate::diag::diag;
use crate::encoding::Encoded;
use crate::fallible::List;
use crate::os::shared_file::Unusable;
use crate::os::{fork, platform, process};
use crate::time::{Ticks, Timestamp};
use journal::Journal;
use queue::{Backoff, EntryQueue};
pub use slot_file::{ENTRY_WORDS, HEADER_WORDS, SLOT_WORDS, SlotFile, SlotUse, slots_start};
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// How the names of live files end.
pub const EXTENSION: &str = "klive";

/// A live file. It is removed when this or its [`LiveOwner`] is dropped.
#[derive(Debug)]
pub struct LiveFile {
    path: PathBuf,
    file: &'static SlotFile,
    journal: Journal,
    /// Entries that the journal has no room for: small ones, and those of the kinds that may be large.
    small: EntryQueue,
    large: EntryQueue,
    /// Whether entries were lost since all of them were noted again, and when that may be done.
    has_lost: AtomicBool,
    backoff: Mutex<Backoff>,
    /// A [`FileFate`].
    fate: AtomicU8,
    /// Read-locked while records are dropped and noted as lost.
    evictions: RwLock<()>,
    /// How many entries could neither be noted nor queued, that were not reported yet.
    missed: AtomicU64,
}

/// The right to drop records from a live file.
#[derive(Debug)]
pub struct LiveEviction<'f>(#[expect(dead_code, reason = "it is released")] RwLockReadGuard<'f, ()>);

/// What becomes of a live file. One state, because two threads may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum FileFate {
    /// It is removed with its trace.
    Removable,
    /// Its trace could not be written, so that it stays unless that succeeds later.
    Unsaved,
    /// Nothing else has some of its records, so that it stays.
    Kept,
    Removed,
}

/// The owner of the live file of a recording that has ended: removes it when dropped, or keeps it if its trace could not be written. Other
/// threads may still have the file.
#[derive(Debug)]
pub struct LiveOwner(Arc<LiveFile>);

/// What a live file lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveGaps {
    /// The entries that were lost since the last call, and those that wait for room.
    pub entries: u64,
    /// The chunks and blocks that were refused since the last call.
    pub slots: u64,
    /// Whether the journal has as many slots as it may have.
    pub is_journal_full: bool,
    /// Whether there is room again after entries were lost: all are to be noted again.
    pub has_room_again: bool,
}

/// The live file of a layer's current recording, if there is one; a forked child has none.
#[derive(Clone, Debug, Default)]
pub struct LiveHandle(Arc<LivePlace>);

#[derive(Debug, Default)]
struct LivePlace {
    file: fork::Own<Option<Arc<LiveFile>>>,
    /// Whether there is a file: without one, nothing is locked.
    is_set: AtomicBool,
}

/// A block of packed records in a live file; its slot is freed when this is dropped.
#[derive(Debug)]
pub struct LiveBlock {
    file: &'static SlotFile,
    slot: usize,
    words: &'static [AtomicU64],
    length: usize,
}

/// The word of a block's entry that holds its length.
const LENGTH_OF_BLOCK: usize = 2;

/// The journal may take that part of the limit in addition to it, and some slots more.
const PART_FOR_JOURNAL: usize = 2;
const SLOTS_FOR_JOURNAL: usize = 64;

impl LiveHandle {
    /// Returns the file.
    pub fn current(&self) -> Option<Arc<LiveFile>> {
        if self.is_set() { self.0.file.lock().clone() } else { None }
    }

    fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }

    /// Returns whether that is the file.
    pub fn is_current(&self, file: Option<&Arc<LiveFile>>) -> bool {
        if !self.is_set() {
            return file.is_none();
        }
        match (&*self.0.file.lock(), file) {
            (Some(current), Some(file)) => Arc::ptr_eq(current, file),
            (current, file) => current.is_none() && file.is_none(),
        }
    }

    /// Replaces the file; returns the one before.
    pub fn replace(&self, file: Option<Arc<LiveFile>>) -> Option<Arc<LiveFile>> {
        let mut place = self.0.file.lock();
        self.0.is_set.store(file.is_some(), Ordering::Release);
        std::mem::replace(&mut *place, file)
    }

    /// Notes an entry in the journal, if there is a file. A later one of the same key replaces it.
    pub fn put(&self, kind: JournalKind, key: (u64, u64), encode: impl FnOnce(&mut List<u8>)) {
        if let Some(file) = self.current() {
            file.put(kind, key, encode);
        }
    }
}

impl LiveFile {
    /// Creates a file in a folder for a recording that takes so many bytes.
    ///
    /// # Errors
    /// Why that folder cannot hold it, and how many bytes it would need.
    pub fn create(folder: &Path, bytes_max: u64) -> Result<Arc<LiveFile>, (Unusable, u64)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let chunks = usize::try_from(bytes_max).unwrap_or(usize::MAX).div_ceil(SLOT_WORDS * 8);
        let for_journal = chunks / PART_FOR_JOURNAL + SLOTS_FOR_JOURNAL;
        let slots = chunks.saturating_add(for_journal);
        let needed = (slots as u64).saturating_mul(SLOT_WORDS as u64 * 8);
        // Containers that share the folder have processes of the same number, so names are random, and a name that is taken is
        // not used.
        const TRIES: u32 = 16;
        let mut tries = 0;
        let (path, file) = loop {
            let random = process::uuid() & 0xFFFF_FFFF;
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("kineto-{}-{}-{random:08x}-{number}.{EXTENSION}", program(), platform::process_id());
            let path = folder.join(name);
            tries += 1;
            match SlotFile::create(&path, slots) {
                Ok(file) => break (path, file),
                Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {}
                Err(why) => return Err((why, needed)),
            }
        };
        let journal = Journal::new(file, for_journal);
        let now = u64::try_from(platform::unix_time().as_nanos()).unwrap_or(u64::MAX);
        FileHeader::of_process(slots, 0, Timestamp::from_nanos(now)).store(file.header());
        Ok(Arc::new(LiveFile {
            path,
            file,
            journal,
            small: EntryQueue::new(),
            large: EntryQueue::new(),
            has_lost: AtomicBool::new(false),
            backoff: Mutex::new(Backoff::new()),
            fate: AtomicU8::new(FileFate::Removable as u8),
            evictions: RwLock::new(()),
            missed: AtomicU64::new(0),
        }))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file in which chunks lie.
    pub fn slot_file(&self) -> &'static SlotFile {
        self.file
    }

    /// Notes an entry in the journal. A later one of the same key replaces it.
    /// Returns `false` if it is lost.
    pub fn put(&self, kind: JournalKind, key: (u64, u64), encode: impl FnOnce(&mut List<u8>)) -> bool {
        self.append(&[LiveFile::entry(kind, key, encode)])
    }

    /// Returns the words of an entry, for [`append`](LiveFile::append); `None` if memory is short.
    pub fn entry(kind: JournalKind, key: (u64, u64), encode: impl FnOnce(&mut List<u8>)) -> Option<Vec<u64>> {
        layout::entry_to_words(kind, key, Some(encode))
    }

    /// Returns the words of an entry that removes those of its key.
    pub fn removal(kind: JournalKind, key: (u64, u64)) -> Option<Vec<u64>> {
        layout::entry_to_words(kind, key, None::<fn(&mut List<u8>)>)
    }

    /// Notes a value; returns `false` if it is lost.
    pub fn put_value(&self, kind: JournalKind, key: (u64, u64), value: &impl Encoded) -> bool {
        self.put(kind, key, |out| value.encode(out))
    }

    /// Removes an entry from the journal.
    pub fn remove(&self, kind: JournalKind, key: (u64, u64)) {
        self.append(&[LiveFile::removal(kind, key)]);
    }

    /// Notes entries, together if the journal has room for them; else they wait until it has room. Returns `false` if some are
    /// lost.
    pub fn append(&self, entries: &[Option<Vec<u64>>]) -> bool {
        if !self.file.is_own() {
            return true;
        }
        let all = || entries.iter().flatten();
        let mut lost = entries.iter().filter(|entry| entry.is_none()).count() as u64;
        let is_direct = !self.small.has_entries() && !self.large.has_entries();
        if !is_direct || !self.journal.append(all(), all().any(|entry| is_large(entry))) {
            let is_of_large = |entry: &&Vec<u64>| entry.first().is_some_and(|first| layout::is_of_large_kind(*first));
            lost += self.small.append(all().filter(|entry| !is_of_large(entry)), |entry| self.append_one(entry));
            lost += self.large.append(all().filter(is_of_large), |entry| self.append_one(entry));
        }
        if lost > 0 {
            self.missed.fetch_add(lost, Ordering::Relaxed);
            self.has_lost.store(true, Ordering::Relaxed);
        }
        lost == 0
    }

    fn append_one(&self, entry: &Vec<u64>) -> bool {
        self.journal.append(std::iter::once(entry), is_large(entry))
    }

    /// Compacts the journal if it has grown enough, and notes what waits for room. Returns what the file lacks.
    pub fn maintain(&self) -> LiveGaps {
        let mut has_room_again = false;
        if self.file.is_own() {
            self.journal.compact_if_due();
            let is_drained = self.small.flush(|entry| self.append_one(entry));
            let is_drained = self.large.flush(|entry| self.append_one(entry)) && is_drained;
            if is_drained && self.has_lost.load(Ordering::Relaxed) {
                let mut backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
                has_room_again = backoff.is_over();
                if has_room_again {
                    self.has_lost.store(false, Ordering::Relaxed);
                    backoff.note_try(false);
                }
            }
        }
        let entries = self.missed.swap(0, Ordering::Relaxed) + self.small.count() + self.large.count();
        LiveGaps { entries, slots: self.file.take_refused(), is_journal_full: self.journal.is_full(), has_room_again }
    }

    /// Removes the file, unless it is kept: its trace has been written, or is not wanted.
    pub fn remove_file(&self) {
        if self.file.is_own() && self.decide_fate(FileFate::Removed) {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Notes that the trace could not be written: the file stays unless it is written later.
    pub fn set_unsaved(&self) {
        self.decide_fate(FileFate::Unsaved);
    }

    /// Changes what becomes of the file, unless it is kept or removed; returns whether this call has changed it.
    fn decide_fate(&self, fate: FileFate) -> bool {
        let is_open = |now: u8| (now < FileFate::Kept as u8).then_some(fate as u8);
        self.fate.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_open).is_ok()
    }

    fn has_fate(&self, fate: FileFate) -> bool {
        self.fate.load(Ordering::Acquire) == fate as u8
    }

    /// Returns whether the file is kept.
    pub fn is_kept(&self) -> bool {
        self.has_fate(FileFate::Kept)
    }

    /// Returns the right to drop records from the file and to note them as lost; [`keep`](Self::keep) waits until it is dropped.
    /// `None` if the file is kept, and in a forked child.
    pub fn begin_eviction(&self) -> Option<LiveEviction<'_>> {
        // In a forked child, the thread that held the lock may not exist.
        let right = self.file.is_own().then(|| self.evictions.read().unwrap_or_else(PoisonError::into_inner));
        right.filter(|_| !self.is_kept()).map(LiveEviction)
    }

    /// Keeps the file and all that is in it now, because nothing else has some of its records; returns whether it is kept.
    /// Waits for an eviction in progress.
    ///
    /// A process keeps one file: if its traces cannot be written, memory is short.
    pub fn keep(&self) -> bool {
        static HAS_KEPT: fork::Own<bool> = fork::Own::of_first(false);
        if !self.file.is_own() {
            return self.is_kept();
        }
        let mut has_kept = HAS_KEPT.lock();
        if self.is_kept() {
            return true;
        }
        let evictions = self.evictions.write().unwrap_or_else(PoisonError::into_inner);
        if *has_kept || !self.decide_fate(FileFate::Kept) {
            return false;
        }
        *has_kept = true;
        drop(has_kept);
        self.file.keep();
        // The program's log may record.
        drop(evictions);
        let path = self.path.display();
        diag!(Warning, "live", "the records that were not written are in {path}; run `kineto repair {path}`");
        true
    }

    /// Removes the file, or keeps it if its trace could not be written.
    fn settle(&self) {
        if !self.has_fate(FileFate::Unsaved) || !self.keep() {
            self.remove_file();
        }
    }

    /// Takes a slot for a block of packed records; `None` if all slots are in use.
    pub fn new_block(&self) -> Option<LiveBlock> {
        let (slot, words) = self.file.take_slot()?;
        Some(LiveBlock { file: self.file, slot, words, length: 0 })
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        self.settle();
        if !self.is_kept() {
            self.file.close();
        }
    }
}

impl LiveOwner {
    /// Takes over a file.
    pub fn new(file: Arc<LiveFile>) -> LiveOwner {
        LiveOwner(file)
    }
}

impl Deref for LiveOwner {
    type Target = LiveFile;

    fn deref(&self) -> &LiveFile {
        &self.0
    }
}

impl Drop for LiveOwner {
    fn drop(&mut self) {
        self.settle();
    }
}

impl LiveBlock {
    /// Copies the words that were added to the block, of which these are all.
    pub fn copy_words(&mut self, all: &[u64]) {
        // The collector of a forked child may continue in its copy of the parent's block.
        if !self.file.is_own() {
            return;
        }
        let added = all.get(self.length..).unwrap_or_default();
        let places = self.words.get(self.length..).unwrap_or_default();
        places.iter().zip(added).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
        self.length = all.len().min(self.words.len());
        self.file.set_word(self.slot, LENGTH_OF_BLOCK, self.length as u64);
    }

    /// Says where the block belongs: its collector and arena, and its place among the blocks there.
    pub fn set_place(&self, owner: u64, place: u64) {
        self.file.set_use(self.slot, SlotUse::Block, [owner, place, self.length as u64, 0]);
    }

    /// Notes that its records were moved out of the collector then.
    pub fn set_moved(&self, at: Ticks) {
        self.file.set_word(self.slot, LENGTH_OF_BLOCK + 1, at.0);
    }
}

impl Drop for LiveBlock {
    fn drop(&mut self) {
        self.file.free_slot(self.slot);
    }
}

fn is_large(entry: &[u64]) -> bool {
    entry.first().is_some_and(|first| layout::is_large(*first))
}

/// Returns the program's name, as far as it suits a file's name.
fn program() -> String {
    const LONGEST: usize = 32;
    let name = process::program_name();
    let fitting = |char: char| if char.is_ascii_alphanumeric() || "._".contains(char) { char } else { '_' };
    name.chars().map(fitting).take(LONGEST).collect()
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn file_is_either_kept_or_removed() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let create = || LiveFile::create(folder.path(), 1 << 20).unwrap();
        let removed = create();
        removed.remove_file();
        removed.set_unsaved();
        assert!(!removed.keep() && !removed.path().exists());
        loop {
            let file = create();
            let start = std::sync::Barrier::new(2);
            let is_kept = std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    file.remove_file();
                });
                start.wait();
                file.keep()
            });
            assert_eq!((is_kept, file.is_kept()), (file.path().exists(), is_kept));
            if is_kept {
                break;
            }
        }
        let unsaved = create();
        unsaved.set_unsaved();
        assert!(!unsaved.keep(), "a process keeps one file");
        drop(LiveOwner::new(unsaved.clone()));
        assert!(!unsaved.path().exists());
    }
}
