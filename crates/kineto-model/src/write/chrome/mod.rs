//! The Chrome trace writer: JSON in the format of PyTorch's profiler.

mod header;
mod ids;
mod point;
mod slice;
mod span;

use std::io::{self, Write};

pub use self::header::spaced_rank;
pub use self::header::{Header, INCOMPLETE, PRIVATE_USE1_KEY, is_reserved, resolution_ns};
use self::slice::SyncRows;
use self::span::RenderCache;
use super::buffer::Buffer;
use crate::activity::{Activity, ArgValue, Args, Body, Flow, Lane, Track};
use crate::rows::{AsyncRow, ProcessRow, Rows, SliceRow, SpanRow, ThreadRow};
use kineto_base::time::Timestamp;

/// Writes a trace as libkineto's `ChromeTraceLogger` does, one row per line.
///
/// The members of rows are exactly libkineto's. In addition it writes host counters, async tracks ("b", "e") and arrows
/// of kind "`follows_from`". The category of a row is the name of its kind, whatever its phase. Strings are escaped and
/// keep their UTF-8. Every slice has an args object, except those of kind overhead without args. The only white space
/// is line ends and the space after `"rank":`, which `HolisticTraceAnalysis` requires. The writer holds a buffer of 256
/// KiB and a few hundred bytes per callsite, however long the trace.
#[derive(Debug)]
pub struct ChromeWriter<'w> {
    out: Buffer<'w>,
    shared: RenderCache,
    base: Timestamp,
    sync_rows: SyncRows,
    /// Whether the tracks are those of a file already.
    keeps_tracks: bool,
    has_distributed_info: bool,
    /// The number of values that the format cannot hold and that were skipped: counter values that are not finite numbers, args
    /// called "External id" in addition to the activity's own, and metadata under a reserved key.
    pub(in crate::write) skipped: u64,
    /// The number of rows written and of all rows, if they differ.
    incomplete: Option<(u64, u64)>,
}

impl<'w> ChromeWriter<'w> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// If `out` fails; the same holds for all other methods.
    pub fn new(out: &'w mut dyn Write, header: &Header<'_>) -> io::Result<Self> {
        let mut writer = ChromeWriter {
            out: Buffer::new(out),
            shared: RenderCache::default(),
            base: header.base,
            sync_rows: SyncRows::default(),
            keeps_tracks: false,
            has_distributed_info: false,
            skipped: 0,
            incomplete: None,
        };
        writer.put_header(header);
        writer.out.end_row()?;
        Ok(writer)
    }

    /// Writes the end of the file, and flushes the writer.
    ///
    /// `distributed` is a JSON object; it is ignored if the metadata has that key. Without this call the file is
    /// incomplete.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self, window_end: Timestamp, distributed: Option<&str>, trace_name: &str) -> io::Result<()> {
        self.put_trailer(window_end, distributed, trace_name);
        self.out.finish()
    }

    /// Keeps the tracks of activities as they are, since they were read from a file: no row of waits, and no absolute ids.
    pub fn keep_tracks(&mut self) {
        self.keeps_tracks = true;
    }

    /// Marks the file as containing only the first `rows` of `of` rows.
    pub fn mark_incomplete(&mut self, rows: u64, of: u64) {
        self.incomplete = Some((rows, of));
    }

    /// Appends a time relative to the base; times before the base become 0.
    #[inline]
    fn put_time(&mut self, at: Timestamp) {
        self.out.put_piece(|piece| piece.put_micros(at.since(self.base)));
    }

    /// Appends the track and time after a comma: `,"pid":…,"tid":…,"ts":…`.
    fn place_and_time(&mut self, track: Track<'_>, at: Timestamp) {
        put_track(&mut self.out, track, self.keeps_tracks);
        self.put_time(at);
    }

    /// Appends `"args":{…}` after a comma, or nothing if there are no args.
    fn args_if_any(&mut self, args: &dyn Args) {
        let out = &mut self.out;
        let mut any = false;
        args.visit(&mut |key, value| {
            if !any {
                out.put_literal(b",\"args\":{");
            }
            out.put_member(!any, key, &value);
            any = true;
        });
        if any {
            out.put_literal(b"}");
        }
    }

    /// Writes a metadata row with one arg.
    fn put_metadata_row(&mut self, what: &str, track: Track<'_>, at: Timestamp, arg: (&str, ArgValue<'_>)) {
        self.out.put_literal(b"\n{\"ph\":\"M\",\"name\":\"");
        self.out.put_verbatim(what.as_bytes());
        self.out.put_literal(b"\"");
        self.place_and_time(track, at);
        self.out.put_literal(b",\"args\":{");
        self.out.put_member(true, arg.0, &arg.1);
        self.out.put_literal(b"}},");
    }

    /// Writes one end of an async track, up to its args.
    fn put_async_row(&mut self, ph: u8, row: &AsyncRow<'_>, at: Timestamp) {
        self.out.put_literal(b"\n{\"ph\":\"");
        self.out.put_literal(&[ph]);
        self.out.put_literal(b"\",\"cat\":\"async\",\"name\":");
        self.out.put_string(row.name);
        self.out.put_literal(b",\"id2\":{\"local\":\"0x");
        self.out.put_piece(|piece| piece.put_hex(row.track));
        self.out.put_literal(b"\"}");
        self.place_and_time(row.on, at);
    }
}

impl Rows for ChromeWriter<'_> {
    fn write_process(&mut self, row: &ProcessRow<'_>) -> io::Result<()> {
        let track = Track { process: row.process, thread: Lane::Id(0) };
        self.put_metadata_row("process_name", track, row.at, ("name", ArgValue::Str(row.name)));
        if !row.label.is_empty() {
            self.put_metadata_row("process_labels", track, row.at, ("labels", ArgValue::Str(row.label)));
        }
        self.put_metadata_row("process_sort_index", track, row.at, ("sort_index", ArgValue::I64(row.sort_index)));
        self.out.end_row()
    }

    fn write_thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        self.put_metadata_row("thread_name", row.track, row.at, ("name", ArgValue::Str(row.name)));
        self.put_metadata_row("thread_sort_index", row.track, row.at, ("sort_index", ArgValue::I64(row.sort_index)));
        self.out.end_row()
    }

    fn write_slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        self.span_slice(slice);
        self.out.end_row()
    }

    #[inline]
    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        let (track, at) = match activity.body {
            Body::Slice { start, end } => (self.put_slice(activity, start, end), start),
            Body::Instant { at } => {
                self.put_instant(activity, at);
                (activity.track, at)
            }
            Body::Counter { at } => {
                self.put_counter(activity, at);
                (activity.track, at)
            }
        };
        if let Some(flow) = activity.flow {
            self.put_arrow(at, track, flow);
        }
        self.out.end_row()
    }

    fn write_flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        self.put_arrow(at, track, flow);
        self.out.end_row()
    }

    fn write_async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()> {
        self.put_async_row(b'b', row, row.start);
        self.args_if_any(row.args);
        self.out.put_literal(b"},");
        self.put_async_row(b'e', row, row.end.max(row.start));
        self.out.put_literal(b"},");
        self.out.end_row()
    }

    fn write_span(&mut self, row: &SpanRow<'_>) -> io::Result<()> {
        /// The position of the group as in libkineto: below all devices.
        const SORT_INDEX: i64 = 0x2000_0000;

        let group = Lane::Name("Spans");
        self.out.put_literal(b"\n{\"ph\":\"X\",\"cat\":\"Trace\",\"name\":");
        self.out.put_string(&format!("{} ({})", row.name, row.iteration));
        self.place_and_time(Track { process: group, thread: Lane::Name(row.name) }, row.start);
        self.out.put_literal(b",\"dur\":");
        self.out.put_piece(|piece| piece.put_micros(row.end.since(row.start)));
        self.out.put_literal(b",\"args\":{\"Op count\":");
        self.out.put_wide_uint(row.op_count);
        self.out.put_literal(b"}},");
        let track = Track { process: group, thread: Lane::Id(0) };
        self.put_metadata_row("process_sort_index", track, row.start, ("sort_index", ArgValue::I64(SORT_INDEX)));
        self.out.put_literal(b"\n{\"ph\":\"i\",\"s\":\"g\",\"name\":");
        self.out.put_string(&format!("Iteration Start: {}", row.name));
        let thread = format!("Trace {}", row.name);
        self.place_and_time(Track { process: Lane::Name("Traces"), thread: Lane::Name(&thread) }, row.start);
        self.out.put_literal(b"},");
        self.out.end_row()
    }
}

/// Appends the track after a comma: `,"pid":…,"tid":…,"ts":`.
fn put_track(out: &mut Buffer<'_>, track: Track<'_>, keeps_ids: bool) {
    out.put_literal(b",\"pid\":");
    match track.process {
        Lane::Id(id) => out.put_int(id),
        Lane::Name(name) => out.put_string(name),
    }
    out.put_literal(b",\"tid\":");
    match track.thread {
        Lane::Id(id) if keeps_ids => out.put_int(id),
        Lane::Id(id) => out.put_uint(thread_id(id)),
        Lane::Name(name) => out.put_string(name),
    }
    out.put_literal(b",\"ts\":");
}

/// Returns the absolute value of an id, as libkineto prints it.
#[inline]
fn thread_id(id: i64) -> u64 {
    id.checked_abs().map_or(0, i64::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::activity::{ActivityType, CorrelationId, NO_ARGS};
    use crate::layout::name_in_file;

    pub(super) const HEADER: Header<'_> =
        Header { metadata: &[], device_properties: &[], base: Timestamp::from_nanos(1000) };
    pub(super) const SLICE: Activity<'_> = Activity {
        kind: ActivityType::CpuOp,
        name: "op",
        track: Track::new(1, 2),
        body: Body::Slice { start: Timestamp::from_nanos(3500), end: Timestamp::from_nanos(4000) },
        id: CorrelationId(7),
        linked: CorrelationId(0),
        flow: None,
        args: NO_ARGS,
    };

    pub(super) fn ns(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    /// Returns the lines that `rows` writes.
    pub(super) fn lines(rows: impl FnOnce(&mut ChromeWriter<'_>)) -> Vec<String> {
        let mut file = Vec::new();
        let mut writer = ChromeWriter::new(&mut file, &HEADER).unwrap();
        rows(&mut writer);
        writer.finish(ns(0), None, "").unwrap();
        let text = String::from_utf8(file).unwrap();
        serde_json::from_str::<Value>(&text).unwrap();
        let (_, events) = text.split_once("\"traceEvents\":[\n").unwrap();
        let (events, _) = events.split_once("{\"ph\":\"i\",\"s\":\"g\",\"name\":\"Record Window End\"").unwrap();
        events.lines().map(|line| line.strip_suffix(',').unwrap().to_owned()).collect()
    }

    pub(super) fn of(activity: Activity<'_>) -> Vec<String> {
        lines(|writer| writer.write_activity(&activity).unwrap())
    }

    #[test]
    fn rows_may_have_names_instead_of_ids() {
        let track = Track { process: Lane::Name("a \"b\""), thread: Lane::Name("c\n") };
        assert!(of(Activity { track, ..SLICE })[0].contains(r#""pid":"a \"b\"","tid":"c\n","ts":"#));
        assert!(of(Activity { track: Track::new(-5, i64::MIN), ..SLICE })[0].contains(r#""pid":-5,"tid":0,"#));
    }

    #[test]
    fn async_tracks_match_byte_for_byte() {
        let args: [(&str, ArgValue<'_>); 1] = [("busy", ArgValue::U64(1))];
        let on = Track { process: Lane::Name("Async spans"), thread: Lane::Id(0) };
        let row = AsyncRow { name: "get", span: 7, track: 0xabc, on, start: ns(2000), end: ns(5000), args: &args };
        let b = r#"{"ph":"b","cat":"async","name":"get","id2":{"local":"0xabc"},"pid":"Async spans","tid":0,"ts":1.000,"args":{"busy":1}}"#;
        let e =
            r#"{"ph":"e","cat":"async","name":"get","id2":{"local":"0xabc"},"pid":"Async spans","tid":0,"ts":4.000}"#;
        assert_eq!(lines(|writer| writer.write_async_track(&row).unwrap()), [b, e]);
        let backwards = lines(|writer| writer.write_async_track(&AsyncRow { end: ns(1), ..row }).unwrap());
        assert!(backwards[1].contains(r#""ts":1.000"#));
    }

    #[test]
    fn unfinished_span_has_duration_0() {
        let row = SpanRow { name: "a \"b\"", iteration: 3, start: ns(2000), end: ns(0), op_count: 9 };
        let span = r#"{"ph":"X","cat":"Trace","name":"a \"b\" (3)","pid":"Spans","tid":"a \"b\"","ts":1.000,"dur":0.000,"args":{"Op count":9}}"#;
        let written = lines(|writer| writer.write_span(&row).unwrap());
        assert_eq!(written.len(), 3);
        assert_eq!(written[0], span);
    }

    #[test]
    fn long_names_and_values_of_4_mib_are_written() {
        let name = "\"\\\u{1}🦀漢".repeat(1 << 13);
        let value = "\n".repeat(4 << 20);
        let args: [(&str, ArgValue<'_>); 2] = [(&name, ArgValue::Str(&value)), ("k", ArgValue::Str(&name))];
        let track = Track { process: Lane::Name(&name), thread: Lane::Name(&name) };
        let written = of(Activity { name: &name, args: &args, track, ..SLICE });
        let event: Value = serde_json::from_str(&written[0]).unwrap();
        assert_eq!(event["name"], name.as_str());
        assert_eq!(event["pid"], name.as_str());
        assert_eq!(event["args"][&name], value.as_str());
        assert_eq!(event["args"]["k"], name.as_str());
    }

    #[test]
    fn write_error_reaches_the_caller() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut file = Full;
        let mut writer = ChromeWriter::new(&mut file, &HEADER).unwrap();
        let failed = (0..100_000).find_map(|_| writer.write_activity(&SLICE).err());
        assert_eq!(failed.unwrap().kind(), io::ErrorKind::StorageFull);
        let mut file = Full;
        let writer = ChromeWriter::new(&mut file, &HEADER).unwrap();
        assert_eq!(writer.finish(ns(0), None, "").err().unwrap().kind(), io::ErrorKind::StorageFull);
    }

    proptest! {
        #[test]
        fn any_slice_round_trips(
            (name, key, text) in any::<(String, String, String)>(),
            (pid, tid, id) in any::<(i64, i64, u64)>(),
            (start, lasted) in any::<(u64, u64)>(),
            (number, index) in (any::<f64>(), 0..29_u8),
        ) {
            let kind = ActivityType::from_number(index).unwrap();
            let (start, lasted) = (start >> 1, lasted >> 1);
            let body = Body::Slice { start: ns(start), end: ns(start + lasted) };
            let args: [(&str, ArgValue<'_>); 2] = [(&key, ArgValue::Str(&text)), ("number\t", ArgValue::F64(number))];
            let activity =
                Activity { kind, name: &name, track: Track::new(pid, tid), body, id: CorrelationId(id), args: &args, ..SLICE };
            let event: Value = serde_json::from_str(&of(activity)[0]).unwrap();
            prop_assert_eq!(&event["name"], &*name_in_file(&name));
            prop_assert_eq!(&event["cat"], kind.as_str());
            prop_assert_eq!(event["pid"].as_i64(), Some(pid));
            prop_assert_eq!(event["tid"].as_u64(), Some(tid.unsigned_abs() & (u64::MAX >> 1)));
            prop_assert_eq!(&event["args"][&key], text.as_str());
            if number.is_finite() {
                prop_assert_eq!(event["args"]["number\t"].as_f64(), Some(number));
            }
            if kind != ActivityType::GpuUserAnnotation {
                prop_assert_eq!(event["dur"].to_string(), format!("{}.{:03}", lasted / 1000, lasted % 1000));
            }
        }
    }
}
