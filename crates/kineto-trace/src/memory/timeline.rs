//! What lived in a device's memory when: PyTorch's memory timeline.

use super::{Category, Device};
use crate::error::Error;
use crate::time::Timestamp;
use crate::write::file;
use crate::write::timeline as write;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// What lived in a device's memory when, by [`Category`]; made by `tracing_kineto::Trace::memory_timeline`.
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

impl MemoryRow {
    /// Makes one of an empty piece of unknown use, which can be set.
    #[doc(hidden)]
    pub const fn new(time: Option<Timestamp>, action: MemoryAction, key: u64) -> MemoryRow {
        const UNKNOWN: Category = Category::Unknown;
        MemoryRow { time, action, key, version: 0, bytes: 0, category: UNKNOWN, next_category: UNKNOWN }
    }
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

impl MemoryAction {
    /// Returns its number in PyTorch's raw export.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl MemoryRow {
    /// Calls `each` with by how much the row changes a category: twice where a version ends.
    pub fn changes(&self, mut each: impl FnMut(Category, i64)) {
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
    /// Makes one of its rows, which are in order.
    #[doc(hidden)]
    pub fn new(
        device: Device,
        rows: Vec<MemoryRow>,
        max_allocated: u64,
        max_reserved: u64,
        gzip_level: u32,
    ) -> MemoryTimeline {
        MemoryTimeline { device, rows, max_allocated, max_reserved, gzip_level }
    }

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
    /// If the file cannot be written, its folder is missing, or the disk is full.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        file::save(path, self.gzip_level, |out| self.write_for(path, out))
    }

    /// Writes it in the form that a path asks for.
    ///
    /// # Errors
    /// Those of `out`.
    #[doc(hidden)]
    pub fn write_for(&self, path: &Path, out: impl Write) -> io::Result<()> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        if name.ends_with(".html") {
            self.write_html(out)
        } else if name.ends_with("raw.json") {
            self.write_raw(out)
        } else {
            self.write_json(out)
        }
    }

    /// Returns how strongly [`save`](MemoryTimeline::save) compresses, 0 to 9.
    #[doc(hidden)]
    pub fn gzip_level(&self) -> u32 {
        self.gzip_level
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
