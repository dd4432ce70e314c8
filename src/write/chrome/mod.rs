//! The Chrome trace writer: a trace as the JSON that PyTorch's profiler writes.

mod header;
mod point;
mod prefix;
mod slice;

use std::io::{self, Write};

pub(crate) use self::header::{Header, base_time, is_reserved};
use self::prefix::Prefixes;
use self::slice::SyncRows;
use super::buffer::Buffer;
use crate::activity::{Activity, ArgValue, Args, Body, Flow, Lane, Track};
use crate::time::Timestamp;
use crate::trace::rows::{AsyncRow, ProcessRow, Rows, SpanRow, ThreadRow};

/// Writes a trace as libkineto's `ChromeTraceLogger` does, row by row, each on a line of its own.
///
/// The rows are libkineto's to the member; beyond them it writes counters of the host, async tracks ("b", "e") and
/// arrows of kind "`follows_from`". The category of a row is its kind's name, whatever its ph. Strings are escaped and
/// keep their UTF-8; an args object stands on every slice but those of kind overhead that have none; there is no white
/// space but the line ends and the blank after `"rank":`, by which `HolisticTraceAnalysis` finds the rank. The writer
/// holds little more than 1 MiB, whatever the trace.
#[derive(Debug)]
pub(crate) struct ChromeWriter<W> {
    out: Buffer<W>,
    prefixes: Prefixes,
    base: Timestamp,
    sync_rows: SyncRows,
    has_distributed_info: bool,
    skipped: u64,
}

impl<W: Write> ChromeWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// What `out` reports; so do all other methods.
    pub(crate) fn new(out: W, header: &Header<'_>) -> io::Result<Self> {
        let mut writer = ChromeWriter {
            out: Buffer::new(out),
            prefixes: Prefixes::new(),
            base: header.base,
            sync_rows: SyncRows::default(),
            has_distributed_info: false,
            skipped: 0,
        };
        writer.header(header);
        writer.out.end_row()?;
        Ok(writer)
    }

    /// Writes the end of the file, flushes `W` and gives it back.
    ///
    /// `distributed` is a JSON object; it is passed over if the metadata has that key. Without this call the file is
    /// not whole.
    pub(crate) fn finish(
        mut self,
        window_end: Timestamp,
        distributed: Option<&str>,
        trace_name: &str,
    ) -> io::Result<W> {
        self.trailer(window_end, distributed, trace_name);
        self.out.finish()
    }

    /// Returns how many values the file has no place for, so that they were not written: values of counters that are no
    /// finite numbers, args called "External id" beside the activity's own, metadata under a reserved key.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Appends a time, relative to the base; what lies before the base is at 0.
    #[inline]
    fn time(&mut self, at: Timestamp) {
        self.out.micros(at.since(self.base));
    }

    /// Appends where and when: `"pid":…,"tid":…,"ts":…`.
    fn place(&mut self, track: Track<'_>, at: Timestamp) {
        self.out.raw(b"\"pid\":");
        match track.process {
            Lane::Id(id) => self.out.int(id),
            Lane::Name(name) => self.out.string(name),
        }
        self.out.raw(b",\"tid\":");
        match track.thread {
            Lane::Id(id) => self.out.uint(thread_id(id)),
            Lane::Name(name) => self.out.string(name),
        }
        self.out.raw(b",\"ts\":");
        self.time(at);
    }

    /// Appends `"args":{…}` after a comma, or nothing if there are none.
    fn args_if_any(&mut self, args: &dyn Args) {
        let out = &mut self.out;
        let mut any = false;
        args.visit(&mut |key, value| {
            if !any {
                out.raw(b",\"args\":{");
            }
            out.member(!any, key, value);
            any = true;
        });
        if any {
            out.raw(b"}");
        }
    }

    /// Writes the metadata row `what`, which has one arg.
    fn about(&mut self, what: &str, track: Track<'_>, at: Timestamp, arg: (&str, ArgValue<'_>)) {
        self.out.raw(b"\n{\"ph\":\"M\",\"name\":\"");
        self.out.verbatim(what);
        self.out.raw(b"\",");
        self.place(track, at);
        self.out.raw(b",\"args\":{");
        self.out.member(true, arg.0, arg.1);
        self.out.raw(b"}},");
    }

    /// Writes one end of an async track, up to its args.
    fn async_end(&mut self, ph: u8, row: &AsyncRow<'_>, track: Track<'_>, at: Timestamp) {
        self.out.raw(b"\n{\"ph\":\"");
        self.out.raw(&[ph]);
        self.out.raw(b"\",\"cat\":\"async\",\"name\":");
        self.out.string(row.name);
        self.out.raw(b",\"id2\":{\"local\":\"0x");
        self.out.hex(row.id);
        self.out.raw(b"\"},");
        self.place(track, at);
    }
}

impl<W: Write> Rows for ChromeWriter<W> {
    fn process(&mut self, row: &ProcessRow<'_>) -> io::Result<()> {
        let track = Track { process: row.process, thread: Lane::Id(0) };
        self.about("process_name", track, row.at, ("name", ArgValue::Str(row.name)));
        if !row.label.is_empty() {
            self.about("process_labels", track, row.at, ("labels", ArgValue::Str(row.label)));
        }
        self.about("process_sort_index", track, row.at, ("sort_index", ArgValue::I64(row.sort_index)));
        self.out.end_row()
    }

    fn thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        self.about("thread_name", row.track, row.at, ("name", ArgValue::Str(row.name)));
        self.about("thread_sort_index", row.track, row.at, ("sort_index", ArgValue::I64(row.sort_index)));
        self.out.end_row()
    }

    #[inline]
    fn activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        let (track, at) = match activity.body {
            Body::Slice { start, end } => (self.slice(activity, start, end), start),
            Body::Instant { at } => {
                self.instant(activity, at);
                (activity.track, at)
            }
            Body::Counter { at } => {
                self.counter(activity, at);
                (activity.track, at)
            }
        };
        if let Some(flow) = activity.flow {
            self.arrow(at, track, flow);
        }
        self.out.end_row()
    }

    fn flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        self.arrow(at, track, flow);
        self.out.end_row()
    }

    fn async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()> {
        self.async_end(b'b', row, row.begin, row.start);
        self.args_if_any(row.args);
        self.out.raw(b"},");
        self.async_end(b'e', row, row.finish, row.end.max(row.start));
        self.out.raw(b"},");
        self.out.end_row()
    }

    fn span(&mut self, row: &SpanRow<'_>) -> io::Result<()> {
        /// Where the group stands, as in libkineto: below all devices.
        const SORT_INDEX: i64 = 0x2000_0000;

        let group = Lane::Name("Spans");
        self.out.raw(b"\n{\"ph\":\"X\",\"cat\":\"Trace\",\"name\":");
        self.out.string(&format!("{} ({})", row.name, row.iteration));
        self.out.raw(b",");
        self.place(Track { process: group, thread: Lane::Name(row.name) }, row.start);
        self.out.raw(b",\"dur\":");
        self.out.micros(row.end.since(row.start));
        self.out.raw(b",\"args\":{\"Op count\":");
        self.out.wide(row.op_count);
        self.out.raw(b"}},");
        let track = Track { process: group, thread: Lane::Id(0) };
        self.about("process_sort_index", track, row.start, ("sort_index", ArgValue::I64(SORT_INDEX)));
        self.out.raw(b"\n{\"ph\":\"i\",\"s\":\"g\",\"name\":");
        self.out.string(&format!("Iteration Start: {}", row.name));
        self.out.raw(b",");
        let thread = format!("Trace {}", row.name);
        self.place(Track { process: Lane::Name("Traces"), thread: Lane::Name(&thread) }, row.start);
        self.out.raw(b"},");
        self.out.end_row()
    }
}

/// The tid of a thread, stream or device, without its sign, as libkineto prints it.
#[inline]
fn thread_id(id: i64) -> u64 {
    id.checked_abs().map_or(0, i64::unsigned_abs)
}
