//! What lived in a device's memory when: PyTorch's memory timeline.

use super::Trace;
use super::memory::{Categories, MemoryRecord, is_replaced};
use crate::buffer::Tag;
use crate::error::Error;
use crate::memory::{Category, Device};
use crate::time::Timestamp;
use crate::write::file::{Destination, FileSystem};
use crate::write::timeline as write;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What lived in a device's memory when, by [`Category`]; made by [`Trace::memory_timeline`].
///
/// As in `torch.profiler`'s `export_memory_timeline`, each row is something that happened to a piece of memory. What was
/// allocated before the recording comes first: a row for each piece that the recording sees freed, and one for the rest,
/// as far as the allocator says its totals, so that the sum of all rows so far is what the allocator had handed out.
#[derive(Clone)]
pub struct MemoryTimeline {
    device: Device,
    rows: Vec<MemoryRow>,
    max_allocated: u64,
    max_reserved: u64,
    gzip_level: u32,
}

impl fmt::Debug for MemoryTimeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTimeline")
            .field("device", &self.device)
            .field("rows", &self.rows.len())
            .field("max_allocated", &self.max_allocated)
            .finish_non_exhaustive()
    }
}

/// Something that happened to a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryRow {
    /// When; `None` for what was there before the recording.
    pub time: Option<Timestamp>,
    /// What happened.
    pub action: MemoryAction,
    /// Which piece of memory: a number of its own from its allocation to its free, not its address.
    pub key: u64,
    /// How often its content had been replaced before that.
    pub version: u32,
    /// How large it is.
    pub bytes: u64,
    /// What it was for until then, or, of a new piece, is for.
    pub category: Category,
    /// What it is for from then on; other than `category` only where a version ends.
    pub next_category: Category,
}

/// What happens to memory; the numbers are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum MemoryAction {
    /// It was there before the recording.
    Preexisting = 1,
    /// It is allocated.
    Create = 2,
    /// Its content is replaced: a record of 0 bytes.
    IncrementVersion = 3,
    /// It is freed.
    Destroy = 4,
}

impl Trace {
    /// Returns the devices of which something was allocated or given back.
    pub fn memory_devices(&self) -> Vec<Device> {
        let mut devices = BTreeSet::new();
        self.memory_records(|_, record, _| {
            devices.insert(record.device);
        });
        devices.into_iter().collect()
    }

    /// Returns what lived in a device's memory when; without rows if nothing was recorded of it.
    ///
    /// It takes some 100 bytes for each allocation.
    pub fn memory_timeline(&self, device: Device) -> MemoryTimeline {
        let mut records = Vec::new();
        self.memory_records(|at, record, category| {
            if record.device == device && !record.is_out_of_memory {
                records.push((at, *record, category));
            }
        });
        // Stable: of one thread, in its order.
        records.sort_by_key(|(at, ..)| *at);
        let mut pieces = Pieces::default();
        for (at, record, category) in &records {
            pieces.add(record, *category, *at);
        }
        let first = records.first().map(|(_, record, _)| record);
        let before = first.map_or(0, |first| i128::from(first.allocated) - i128::from(first.bytes));
        let max = |of: fn(&MemoryRecord) -> u64| records.iter().map(|(_, record, _)| of(record)).max().unwrap_or(0);
        let (rows, peak) = pieces.into_rows(u64::try_from(before).unwrap_or(0));
        let allocated = max(|record| record.allocated);
        MemoryTimeline {
            device,
            rows,
            max_allocated: if allocated == 0 { peak } else { allocated },
            max_reserved: max(|record| record.reserved),
            gzip_level: self.inner.facts.gzip_level,
        }
    }

    /// Calls `each` with when something was allocated or given back, what, and what it is for.
    fn memory_records(&self, mut each: impl FnMut(Timestamp, &MemoryRecord, Category)) {
        let walk = self.walk();
        let sites = walk.sites();
        let (source, mut categories) = (walk.source(&sites), Categories::default());
        for run in &self.index().runs {
            let records = self.inner.recorded.records(*run).filter(|record| record.head.tag == Tag::Memory);
            for (time, record) in records.map(|record| MemoryRecord::of(&record)) {
                if !is_replaced(&record, walk.collections) {
                    each(walk.converter.timestamp(time), &record, categories.of(&record, &source));
                }
            }
        }
        for (collection, linked) in walk.collections.iter().zip(walk.linked) {
            for (at, _, record) in linked.memory(collection, walk.process) {
                each(at, &record, categories.of(&record, &source));
            }
        }
    }

    /// Returns how much of what allocators reported is left out: collectors have recorded the same memory.
    pub(super) fn memory_replaced(&self) -> u64 {
        let collections = &self.inner.collections;
        if !collections.iter().any(|collection| collection.state.as_ref().is_ok_and(|can| can.memory_of.is_some())) {
            return 0;
        }
        let records = self.index().runs.iter().flat_map(|run| self.inner.recorded.records(*run));
        let reported = records.filter(|record| record.head.tag == Tag::Memory);
        reported.filter(|record| is_replaced(&MemoryRecord::of(record).1, collections)).count() as u64
    }
}

/// The pieces of memory, as the records tell of them.
#[derive(Debug, Default)]
struct Pieces {
    live: HashMap<u64, Piece>,
    keys: u64,
    before: Vec<MemoryRow>,
    rows: Vec<MemoryRow>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    key: u64,
    version: u32,
    bytes: u64,
    category: Category,
}

impl Piece {
    fn row(self, time: Option<Timestamp>, action: MemoryAction, next_category: Category) -> MemoryRow {
        let Piece { key, version, bytes, category } = self;
        MemoryRow { time, action, key, version, bytes, category, next_category }
    }
}

impl Pieces {
    fn new_piece(&mut self, bytes: u64, category: Category) -> Piece {
        self.keys += 1;
        Piece { key: self.keys, version: 0, bytes, category }
    }

    fn add(&mut self, record: &MemoryRecord, category: Category, at: Timestamp) {
        let bytes = record.bytes.unsigned_abs();
        let destroy = |piece: Piece| piece.row(Some(at), MemoryAction::Destroy, piece.category);
        match record.bytes {
            1.. => {
                let piece = self.new_piece(bytes, category);
                // Its address was that of a piece whose free was not recorded.
                let unseen = self.live.insert(record.address, piece);
                self.rows.extend(unseen.map(destroy));
                self.rows.push(piece.row(Some(at), MemoryAction::Create, category));
            }
            0 => {
                if let Some(piece) = self.live.get_mut(&record.address) {
                    self.rows.push(piece.row(Some(at), MemoryAction::IncrementVersion, category));
                    (piece.version, piece.category) = (piece.version + 1, category);
                }
            }
            _ => {
                let piece = self.live.remove(&record.address).unwrap_or_else(|| {
                    let piece = self.new_piece(bytes, Category::Unknown);
                    self.before.push(piece.row(None, MemoryAction::Preexisting, Category::Unknown));
                    piece
                });
                self.rows.push(destroy(piece));
            }
        }
    }

    /// The rows, if so much was allocated before the first of them, and the most that was allocated at a time.
    fn into_rows(mut self, before: u64) -> (Vec<MemoryRow>, u64) {
        let seen = self.before.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
        if before > seen {
            let rest = self.new_piece(before - seen, Category::Unknown);
            self.before.push(rest.row(None, MemoryAction::Preexisting, Category::Unknown));
        }
        self.before.append(&mut self.rows);
        let (mut sum, mut peak) = (0u64, 0u64);
        for row in &self.before {
            match row.action {
                MemoryAction::Preexisting | MemoryAction::Create => sum = sum.saturating_add(row.bytes),
                MemoryAction::Destroy => sum = sum.saturating_sub(row.bytes),
                MemoryAction::IncrementVersion => {}
            }
            peak = peak.max(sum);
        }
        (self.before, peak)
    }
}

impl MemoryAction {
    /// Returns its number in PyTorch's raw export.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl MemoryRow {
    /// Calls `each` with by how much the row changes a category: twice where a version ends.
    pub(crate) fn changes(&self, mut each: impl FnMut(Category, i64)) {
        let bytes = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        match self.action {
            MemoryAction::Preexisting | MemoryAction::Create => each(self.category, bytes),
            MemoryAction::Destroy => each(self.category, -bytes),
            MemoryAction::IncrementVersion => {
                each(self.category, -bytes);
                each(self.next_category, bytes);
            }
        }
    }
}

impl MemoryTimeline {
    /// Returns the device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns what happened: first what was there before, then in order of time.
    pub fn rows(&self) -> &[MemoryRow] {
        &self.rows
    }

    /// Returns the most bytes that were allocated at a time.
    pub fn max_allocated(&self) -> u64 {
        self.max_allocated
    }

    /// Returns the most bytes that the allocator has had from the device at a time; 0 if it does not say.
    pub fn max_reserved(&self) -> u64 {
        self.max_reserved
    }

    /// Writes it to a file, in the form that the name's end asks for, as PyTorch does.
    ///
    /// `.html` is a picture (see [`write_html`](MemoryTimeline::write_html)), `raw.json` the rows
    /// ([`write_raw`](MemoryTimeline::write_raw)), any other name the sizes by time
    /// ([`write_json`](MemoryTimeline::write_json)); `.gz` behind it compresses. The file appears whole or not at all.
    ///
    /// # Errors
    /// Those of [`Trace::save`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.save_to(&FileSystem, path.as_ref()).map(drop)
    }

    /// Writes the timeline for `path` to that destination; returns the name that the file has.
    pub(crate) fn save_to(&self, to: &dyn Destination, path: &Path) -> Result<PathBuf, Error> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        to.write_file(path, self.gzip_level, &mut |_, mut out| {
            if name.ends_with(".html") {
                self.write_html(&mut out)
            } else if name.ends_with("raw.json") {
                self.write_raw(&mut out)
            } else {
                self.write_json(&mut out)
            }
        })
    }

    /// Writes `[times, sizes]`, as PyTorch's `.json`: times in whole microseconds since the Unix epoch, and for each of
    /// them a 0 and the bytes of each category, in the order of [`Category`]'s numbers.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        write::json(self, out)
    }

    /// Writes the rows, as PyTorch's `raw.json.gz`: nanoseconds since the Unix epoch (-1 for what was there before), the
    /// [action](MemoryAction)'s number, bytes with their sign, and the category's number; two where a version ends.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_raw(&self, out: impl Write) -> io::Result<()> {
        write::raw(self, out)
    }

    /// Writes a page with a picture: bytes over time, a colour for each category, with the values below the pointer.
    ///
    /// It needs nothing but a browser, and is light or dark as that is.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_html(&self, out: impl Write) -> io::Result<()> {
        write::html(self, out)
    }
}
