//! Segments: traces in binary, as they were recorded, from which every other form can be written; and live files, which killed processes have
//! left.
//!
//! Both are of one format ([`live`](crate::live)), and have what a [`Trace`] owns: the records of threads and collectors, unchanged, and a
//! journal of what they refer to. Tables precede the records of a segment that use them, so one that was cut off is read as far as it goes. Each of its parts
//! has a checksum; a damaged one is skipped and counted.
//!
//! Return addresses mean nothing to another process, so their symbols are resolved when a segment is written. The same holds
//! for the layouts of a program's own collectors: such records have their arguments by value. The callback that changes events
//! ([`post_process`](crate::KinetoLayerBuilder::post_process)) and registered writers stay with the program.

#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "no_devices.rs"]
mod devices;
pub(crate) mod folder;
mod killed;
mod parts;
mod read;
mod write;

use crate::error::{Error, ErrorKind};
use crate::live::FileHeader;
use crate::os::folder::open_entry;
use crate::text::{count_with_noun, escaped_path};
use crate::time::Timestamp;
use crate::trace::Trace;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// A segment that was read: its trace, and what of it could not be read.
///
/// ```no_run
/// use tracing_kineto::Trace;
///
/// let segment = Trace::read_segment("seg-000001.kseg")?;
/// if !segment.is_whole() {
///     println!("of process {}: {segment}", segment.process_id);
/// }
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Segment {
    /// The trace.
    pub trace: Trace,
    /// Its number among the segments of its recording.
    pub number: u32,
    /// The id of the process that wrote it, which another process may have by now.
    pub process_id: u32,
    /// A number that identifies the process that wrote it.
    pub process_uuid: u128,
    /// A number that identifies the machine's start before it was written; 0 if that was not known.
    pub boot_id: u128,
    /// When its trace begins.
    pub start: Timestamp,
    /// Whether the file has its end. If not, its process was killed while it wrote the file.
    pub is_complete: bool,
    /// The number of parts and tables that were missing or damaged, that referred to such a part, or that a later version added.
    pub lost_frames: u64,
    /// The number of bytes that belonged to no intact part.
    pub lost_bytes: u64,
    /// The number of kinds of device records whose arguments this build does not know, because a feature is off.
    pub unknown_layouts: u64,
    /// The number of collectors whose records this build does not read, because the feature `devices` is off.
    pub unread_collectors: u64,
}

impl Segment {
    /// Creates the result of reading a file; the trace's metadata says if it is not whole.
    fn new(trace: Trace, header: &FileHeader, is_complete: bool, lost_frames: u64, lost_bytes: u64) -> Segment {
        let devices = &trace.contents().devices;
        let (unknown_layouts, unread_collectors) = (devices.unknown_layouts(), devices.unread_collectors());
        let FileHeader { number, process_id, process_uuid, boot_id, start, .. } = *header;
        let segment = Segment {
            trace,
            number,
            process_id,
            process_uuid,
            boot_id,
            start,
            is_complete,
            lost_frames,
            lost_bytes,
            unknown_layouts,
            unread_collectors,
        };
        if !segment.is_whole() {
            segment.trace.contents().metadata.mark_incomplete(&segment.to_string());
        }
        segment
    }

    /// Returns whether everything was read.
    pub fn is_whole(&self) -> bool {
        let unread = (self.unknown_layouts, self.unread_collectors);
        self.is_complete && (self.lost_frames, self.lost_bytes) == (0, 0) && unread == (0, 0)
    }
}

/// Writes "whole", or what could not be read.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            return f.write_str("whole");
        }
        let mut faults = Vec::new();
        if !self.is_complete {
            faults.push("its end is missing".to_owned());
        }
        if (self.lost_frames, self.lost_bytes) != (0, 0) {
            let [parts, bytes] =
                [(self.lost_frames, "part"), (self.lost_bytes, "byte")].map(|(n, what)| count_with_noun(n, what));
            faults.push(format!("{parts} and {bytes} could not be read"));
        }
        if self.unknown_layouts > 0 {
            let kinds = count_with_noun(self.unknown_layouts, "kind");
            faults.push(format!("the arguments of {kinds} of device records are not known to this build"));
        }
        if self.unread_collectors > 0 {
            let collectors = count_with_noun(self.unread_collectors, "collector");
            faults.push(format!("the records of {collectors} need tracing-kineto's feature `devices`, which is off"));
        }
        write!(f, "incomplete: {}", faults.join(", "))
    }
}

impl Trace {
    /// Reads a segment, which [`write_segment`](Trace::write_segment) wrote in this or another process.
    ///
    /// A file that is damaged or cut off is read as far as possible; the result says what is missing. The live file that a killed
    /// process has left ([`shm_folder`](crate::KinetoLayerBuilder::shm_folder)) is read too: its trace ends with the last record,
    /// where slices that were open are cut off.
    ///
    /// # Errors
    /// [`AlreadyActive`](ErrorKind::AlreadyActive) if the process of a live file still runs. [`Io`](ErrorKind::Io) if the file cannot
    /// be read. [`NotATrace`](ErrorKind::NotATrace) if it is no segment, or if a part is damaged without which the others mean
    /// nothing. [`Unsupported`](ErrorKind::Unsupported) if it is of another version of the format.
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    ///
    /// ```no_run
    /// use tracing_kineto::Trace;
    ///
    /// let segment = Trace::read_segment("seg-000001.kseg")?;
    /// println!("{segment}");
    /// segment.trace.save("whole.pt.trace.json.gz")?;
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    pub fn read_segment(path: impl AsRef<Path>) -> Result<Segment, Error> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| cannot_read(path, error))?;
        read_open_segment(file, path.parent().unwrap_or(Path::new("")), path)
    }

    /// Does the same with one of the [files](Segment::files_in) in a folder of segments, which may have been moved or copied.
    ///
    /// Unlike a path of [`read_segment`](Trace::read_segment), it must be a regular file and no link. A live file has the
    /// records that are not in these segments. If the folder has no segments of its process, those are used that are where
    /// the process has written them.
    ///
    /// # Errors
    /// Those of [`read_segment`](Trace::read_segment).
    pub fn read_segment_in(folder: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Segment, Error> {
        let path = path.as_ref();
        let file = open_entry(path, folder::BYTES_MAX).map_err(|error| cannot_read(path, error))?;
        read_open_segment(file, folder.as_ref(), path)
    }

    /// Reads a segment from a reader, such as bytes in memory; `path` names it in errors.
    ///
    /// # Errors
    /// Those of [`read_segment`](Trace::read_segment).
    pub fn read_segment_from(reader: impl Read, path: impl AsRef<Path>) -> Result<Segment, Error> {
        read::read_segment(reader, None).map_err(|fault| fault.into_error(path.as_ref()))
    }

    /// Writes the trace as it was recorded, as the segment of that number: a fraction of the time that other formats take, for
    /// [`read_segment`](Trace::read_segment) in any process.
    ///
    /// Changes of events by [`post_process`](crate::KinetoLayerBuilder::post_process) are not included. `out` should be
    /// unbuffered: it gets whole parts.
    ///
    /// # Errors
    /// Those of `out`, and [`OutOfMemory`](io::ErrorKind::OutOfMemory), after which it can be written again.
    pub fn write_segment(&self, number: u32, out: impl Write) -> io::Result<()> {
        write::write_trace(self, number, out)
    }
}

/// Reads a segment or a live file; the segments of the latter may lie in the folder `near`.
fn read_open_segment(mut file: File, near: &Path, path: &Path) -> Result<Segment, Error> {
    // A pipe is read once.
    let (header, start) = read::read_start(&mut file).map_err(|error| cannot_read(path, error))?;
    if let Some(header) = header.ok().filter(|header| folder::is_live_file_in_use(&file, header)) {
        let why = format!("process {} still records into {}; wait for its end", header.process_id, escaped_path(path));
        return Err(Error::new(ErrorKind::AlreadyActive, why));
    }
    read::read_segment(start.as_slice().chain(file), Some(near)).map_err(|fault| fault.into_error(path))
}

fn cannot_read(path: &Path, error: io::Error) -> Error {
    Error::io("read", path, error, "name a segment file that you may read")
}

/// Why a file yields no trace.
#[derive(Debug)]
enum SegmentFault {
    Io(io::Error),
    NoSegment,
    OtherVersion(u64),
    DamagedHeader,
    /// A table is missing without which the others mean nothing.
    Missing(&'static str),
}

impl From<io::Error> for SegmentFault {
    fn from(error: io::Error) -> SegmentFault {
        SegmentFault::Io(error)
    }
}

impl SegmentFault {
    fn into_error(self, path: &Path) -> Error {
        let file = escaped_path(path);
        let (kind, why) = match self {
            SegmentFault::Io(error) => return cannot_read(path, error),
            SegmentFault::NoSegment => {
                (ErrorKind::NotATrace, "it is not a segment; name a file that `write_segment` wrote".to_owned())
            }
            SegmentFault::OtherVersion(version) => {
                let advice = "read it with the version of tracing-kineto that wrote it";
                (ErrorKind::Unsupported, format!("its format is version {version}; {advice}"))
            }
            SegmentFault::DamagedHeader => {
                (ErrorKind::NotATrace, "its header is damaged; read another copy of the file".to_owned())
            }
            SegmentFault::Missing(table) => {
                (ErrorKind::NotATrace, format!("its {table} cannot be read; read another copy of the file"))
            }
        };
        Error::new(kind, format!("cannot read {file}: {why}"))
    }
}
