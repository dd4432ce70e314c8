//! PyTorch's memory timeline: allocations on a device over time.

use super::{Category, Device};
use crate::error::Error;
use crate::write::file;
use crate::write::timeline as write;
use kineto_base::time::Timestamp;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// The allocations of a device over time, by [`Category`]; made by `tracing_kineto::Trace::memory_timeline`.
///
/// As in `torch.profiler`'s `export_memory_timeline`, each row is an event of one allocation. Memory allocated before
/// the recording comes first: a row for each allocation that is freed during the recording, and one row for the rest.
/// The rest is known only as far as the allocator reports totals. The sum of all rows so far is the allocated memory.
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

/// An event of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryRow {
    /// The time; `None` for memory from before the recording.
    pub time: Option<Timestamp>,
    /// The kind of event.
    pub action: MemoryAction,
    /// The allocation's number, unique from allocation to free; not its address.
    pub key: u64,
    /// How often the content had been replaced before.
    pub version: u32,
    /// The size in bytes.
    pub bytes: u64,
    /// The category before the event, or of a new allocation.
    pub category: Category,
    /// The category after the event; it differs from `category` only when the version changes.
    pub next_category: Category,
}

impl MemoryRow {
    /// Returns a row of size 0 and unknown category.
    #[doc(hidden)]
    pub const fn new(time: Option<Timestamp>, action: MemoryAction, key: u64) -> MemoryRow {
        const UNKNOWN: Category = Category::Unknown;
        MemoryRow { time, action, key, version: 0, bytes: 0, category: UNKNOWN, next_category: UNKNOWN }
    }
}

/// An event of an allocation; the numbers are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum MemoryAction {
    /// It existed before the recording.
    Preexisting = 1,
    /// It is allocated.
    Create = 2,
    /// Its content is replaced: a record of 0 bytes.
    IncrementVersion = 3,
    /// It is freed.
    Destroy = 4,
}

/// The format of a [`MemoryTimeline`]'s file, as in PyTorch.
///
/// ```
/// use kineto_trace::memory::TimelineFormat;
/// use std::path::Path;
///
/// assert_eq!(TimelineFormat::from_path(Path::new("memory.HTML")), TimelineFormat::Html);
/// assert_eq!(TimelineFormat::from_path(Path::new("memory.raw.json.gz")), TimelineFormat::Raw);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimelineFormat {
    /// `[times, sizes]`, for all other extensions: times in whole microseconds since the Unix epoch, and for each time a 0
    /// and the bytes of each category, by [`Category`] number.
    Json,
    /// The rows, for `raw.json`: nanoseconds since the Unix epoch (-1 for memory from before the recording), the
    /// [action](MemoryAction)'s number, signed bytes, and the category's number. A change of version takes two entries.
    Raw,
    /// An HTML page, for `.html`, with a stacked area chart of bytes over time, by category, and values at the pointer.
    ///
    /// The page needs no other files, and follows the browser's light or dark mode.
    Html,
}

impl TimelineFormat {
    /// Returns the format that the extension of `path` selects, ignoring case and `.gz`.
    pub fn from_path(path: &Path) -> TimelineFormat {
        let name = path.to_string_lossy().to_ascii_lowercase();
        match name.strip_suffix(".gz").unwrap_or(&name) {
            name if name.ends_with(".html") => TimelineFormat::Html,
            name if name.ends_with("raw.json") => TimelineFormat::Raw,
            _ => TimelineFormat::Json,
        }
    }
}

impl MemoryAction {
    /// Returns its number in PyTorch's raw export.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl MemoryRow {
    /// Calls `each` with the change of a category in bytes; twice if the version changes.
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
    /// Returns a timeline of these rows, which must be in order.
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

    /// Returns the rows: first memory from before the recording, then in order of time.
    pub fn rows(&self) -> &[MemoryRow] {
        &self.rows
    }

    /// Returns the maximum number of allocated bytes.
    pub fn max_allocated(&self) -> u64 {
        self.max_allocated
    }

    /// Returns the maximum number of bytes that the allocator reserved on the device; 0 if unknown.
    pub fn max_reserved(&self) -> u64 {
        self.max_reserved
    }

    /// Writes the timeline to a file, in the [format](TimelineFormat::from_path) that the extension selects.
    ///
    /// A further `.gz` compresses. The file appears only when it is complete.
    ///
    /// # Errors
    /// If the file cannot be written, its folder is missing, or the disk is full.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        file::save(path, self.gzip_level, &mut |out| self.write(out, TimelineFormat::from_path(path)))
    }

    /// Writes the timeline, not compressed.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, mut out: impl Write, format: TimelineFormat) -> io::Result<()> {
        match format {
            TimelineFormat::Json => write::write_json(self, &mut out),
            TimelineFormat::Raw => write::write_raw(self, &mut out),
            TimelineFormat::Html => write::write_html(self, &mut out),
        }
    }

    /// Returns the gzip level of [`save`](MemoryTimeline::save), 0 to 9.
    #[doc(hidden)]
    pub fn gzip_level(&self) -> u32 {
        self.gzip_level
    }
}
