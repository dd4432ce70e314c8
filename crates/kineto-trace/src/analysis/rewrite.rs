//! Writes events to a file again, in the format that its name gives.

use super::events::{Event, Events, RecordingRow, StringId, TrackId};
use crate::Error;
use crate::activity::{Activity, ActivityType, ArgValue, Args, Body, Flow, FlowEnd, Lane, Track};
use crate::analysis::json_reader::{Json, JsonValue};
use crate::hash::HashMap;
use crate::layout::without_margin;
use crate::rows::{AsyncRow, ProcessRow, Rows, SpanRow, ThreadRow};
use crate::sorting::sort_few_by_key;
use crate::time::{Timestamp, base_time};
use crate::write::chrome::{ChromeWriter, Header};
use crate::write::file::{self, FileFormat, Format};
use crate::write::perfetto::PerfettoWriter;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// The key of the header's list of devices.
const DEVICES: &str = "deviceProperties";

impl Events {
    /// Writes the events to a file: Perfetto's format if the name ends with `.pftrace`, else Kineto's JSON; compressed if it
    /// ends with `.gz`.
    ///
    /// The file contains all events, arrows, names of tracks, and the header. What [`notes`](Events::notes) counts as left out is
    /// not in it. An async track lasts from the first slice of its span to the end of the last one. An event of a category
    /// that Kineto does not know becomes a `cpu_op`.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if the file cannot be written; nothing is left of it then.
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for `.zst`, `.zip`, and for `.gz` without the feature `gzip`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        const GZIP_LEVEL: u32 = 1;

        let path = path.as_ref();
        let (format, name) = (FileFormat::from_path(path)?, path.to_string_lossy());
        file::save(path, GZIP_LEVEL, &mut |out| self.write_to(out, format.kind, &name))
    }

    /// Writes the events, not compressed, as [`save`](Self::save) does.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, mut out: impl Write, format: Format) -> io::Result<()> {
        self.write_to(&mut out, format, "")
    }

    fn write_to(&self, out: &mut dyn Write, format: Format, name: &str) -> io::Result<()> {
        let metadata: Vec<_> = self.header.iter().filter(|(key, _)| key != DEVICES).cloned().collect();
        let devices = self.device_properties();
        let (start, end) = self.window();
        let base = u64::try_from(self.file.base_ns).ok().filter(|base| *base > 0);
        let first = self.rows.first().map_or(start, |row| row.start.min(start));
        let base = base.filter(|base| *base <= first.as_nanos());
        let base = base.map_or_else(|| base_time(first), Timestamp::from_nanos);
        let header = Header { metadata: &metadata, device_properties: &devices, base };
        match format {
            Format::Json => {
                let mut writer = ChromeWriter::new(out, &header)?;
                writer.keep_tracks();
                self.write_rows(&mut writer)?;
                writer.finish(end, None, name)?;
            }
            Format::Perfetto => {
                let mut writer = PerfettoWriter::new(out, &header)?;
                writer.keep_tracks();
                self.announce_arrows(&mut writer);
                self.write_rows(&mut writer)?;
                writer.finish(end, None, name)?;
            }
            _ => return Err(format.missing_feature()),
        }
        Ok(())
    }

    /// Returns the events in the order in which they are written.
    fn events_to_write(&self) -> Vec<Event<'_>> {
        let mut events: Vec<_> = self.iter().collect();
        // Of two events that begin at once, Perfetto needs the one first at which an arrow starts.
        events.sort_by_key(|event| (event.start(), event.is_on_device()));
        events
    }

    /// Announces the arrows with several ends: an end belongs to the last start before it, else to the first.
    fn announce_arrows(&self, writer: &mut PerfettoWriter<'_>) {
        let mut arrows: HashMap<(&str, u64), (Flow, Vec<u64>)> = HashMap::default();
        let mut early: HashMap<(&str, u64), u64> = HashMap::default();
        for flow in self.events_to_write().iter().flat_map(Event::flows) {
            let key = (flow.kind.as_str(), flow.id);
            match (flow.end, arrows.get_mut(&key).and_then(|(_, starts)| starts.last_mut())) {
                (FlowEnd::Finish, Some(ends)) => *ends += 1,
                (FlowEnd::Finish, None) => *early.entry(key).or_default() += 1,
                (FlowEnd::Start, _) => {
                    let ends = early.remove(&key).unwrap_or(0);
                    arrows.entry(key).or_insert_with(|| (flow, Vec::new())).1.push(ends);
                }
            }
        }
        for (flow, starts) in arrows.into_values().filter(|(_, starts)| starts.iter().sum::<u64>() > 1) {
            starts.into_iter().for_each(|ends| writer.set_ends(flow, ends));
        }
    }

    /// Returns the devices of the header, one JSON object each.
    fn device_properties(&self) -> Vec<String> {
        let list = self.header.iter().find(|(key, _)| key == DEVICES).map_or("[]", |(_, list)| list);
        let mut devices = Vec::new();
        // The text was valid JSON when it was read.
        let _ = Json::new(list.as_bytes(), 0).read_array(|json| {
            if let JsonValue::Nested(device) = json.read_value()? {
                devices.push(String::from_utf8_lossy(device).into_owned());
            }
            Ok(())
        });
        devices
    }

    fn write_rows(&self, rows: &mut dyn Rows) -> io::Result<()> {
        let (at, end) = self.window();
        for (sort_index, process) in (0..).zip(&self.processes) {
            let (name, label) = (process.name.as_str(), process.label.as_str());
            rows.write_process(&ProcessRow { process: lane_from_id(&process.id), name, label, sort_index, at })?;
        }
        for (sort_index, track) in (0..).zip(&self.tracks).filter(|(_, track)| !track.name.is_empty()) {
            let on = Track { process: lane_from_id(&track.process), thread: lane_from_id(&track.thread) };
            rows.write_thread(&ThreadRow { track: on, name: &track.name, sort_index, continues: None, at })?;
        }
        let mut slices = 0;
        for event in self.events_to_write() {
            slices += u64::from(event.is_slice());
            let value = HardwareCounterArgs(event);
            let has_name = event.is_counter() && event.kind() == Some(ActivityType::HardwareCounters);
            let activity = activity_from_event(&event, if has_name { &value } else { &event });
            rows.write_activity(&activity)?;
            // The first arrow is part of the activity.
            event.flows().skip(1).try_for_each(|flow| rows.write_flow(event.start(), activity.track, flow))?;
        }
        self.write_async_tracks(rows)?;
        let of_recording = RecordingRow { name: "tracing-kineto (0)".to_owned(), start: at, end };
        let recordings = if self.recordings.is_empty() { &[of_recording] } else { self.recordings.as_slice() };
        recordings.iter().try_for_each(|row| {
            let (name, iteration) = name_and_iteration(&row.name);
            rows.write_span(&SpanRow { name, iteration, start: row.start, end: row.end, op_count: slices })
        })
    }

    fn write_async_tracks(&self, rows: &mut dyn Rows) -> io::Result<()> {
        let mut spans: BTreeMap<u64, (Event<'_>, Timestamp)> = BTreeMap::new();
        if self.async_spans.is_empty() {
            return Ok(());
        }
        for slice in self.iter().filter(|event| event.is_slice() && event.is_async()) {
            if let Some(span) = slice.span() {
                let (_, end) = spans.entry(span).or_insert((slice, slice.end()));
                *end = slice.end().max(*end);
            }
        }
        let mut spans: Vec<_> = spans.into_iter().collect();
        sort_few_by_key(&mut spans, |(_, (first, end))| (first.start(), Reverse(*end)));
        for (span, (first, end)) in spans {
            let args = OtherArguments(first);
            let (name, on, start) = (first.name(), track_from_event(&first), first.start());
            rows.write_async_track(&AsyncRow { name, span, track: span, on, start, end, args: &args })?;
        }
        Ok(())
    }
}

/// Returns an event as the activity that a writer turns into the same event.
fn activity_from_event<'t>(event: &Event<'t>, args: &'t dyn Args) -> Activity<'t> {
    let kind = event.kind().unwrap_or(ActivityType::CpuOp);
    let (start, end) = match kind {
        ActivityType::GpuUserAnnotation => without_margin(event.start(), event.end()),
        _ => (event.start(), event.end()),
    };
    let body = if event.is_slice() {
        Body::Slice { start, end }
    } else if event.is_counter() {
        Body::Counter { at: event.start() }
    } else {
        Body::Instant { at: event.start() }
    };
    let mut activity = Activity::new(kind, event.name(), track_from_event(event), body);
    activity.id = event.id().unwrap_or(activity.id);
    activity.linked = event.linked().unwrap_or(activity.linked);
    activity.flow = event.flow();
    activity.args = args;
    activity
}

/// Splits the name of a recording's row, such as "PyTorch Profiler (0)".
fn name_and_iteration(row: &str) -> (&str, i64) {
    let parts = row.strip_suffix(')').and_then(|row| row.rsplit_once(" ("));
    let number = parts.and_then(|(name, number)| Some((name, number.parse().ok()?)));
    number.unwrap_or((row, 0))
}

fn track_from_event<'t>(event: &Event<'t>) -> Track<'t> {
    let track = event.track();
    Track { process: lane_from_id(&track.process), thread: lane_from_id(&track.thread) }
}

fn lane_from_id(id: &TrackId) -> Lane<'_> {
    match id {
        TrackId::Id(id) => Lane::Id(*id),
        TrackId::Name(name) => Lane::Name(name),
    }
}

/// The value of a hardware counter, under the counter's name, from which a writer makes an event of its own.
struct HardwareCounterArgs<'e>(Event<'e>);

impl Args for HardwareCounterArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.0.visit(&mut |_, value| each(self.0.name(), value));
    }
}

/// The arguments of a slice but those that an async track has by itself.
struct OtherArguments<'e>(Event<'e>);

impl Args for OtherArguments<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let strings = &self.0.events.strings;
        let span = strings.get(StringId::SPAN);
        self.0.visit(&mut |key, value| {
            if key != span {
                each(key, value);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Note;

    const TEXT: &str = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}, {"id": 1}], "job": "seven",
        "baseTimeNanoseconds": 1759000000000000000, "traceEvents": [
        {"ph":"M","name":"process_name","pid":1,"tid":0,"ts":0,"args":{"name":"app"}},
        {"ph":"M","name":"process_labels","pid":0,"tid":0,"ts":0,"args":{"labels":"GPU 0"}},
        {"ph":"M","name":"thread_name","pid":1,"tid":2,"ts":0,"args":{"name":"main \"thread\""}},
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":2,"ts":1.5,"dur":20.25,"args":{"External id":3,"a":1.5,"b":[1,"x"]}},
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":2,"ts":2,"dur":3,"args":{"correlation":7,"External id":3}},
        {"ph":"s","cat":"ac2g","id":7,"pid":1,"tid":2,"ts":2},
        {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":9,"ts":6,"dur":4.001,"args":{"correlation":7,"External id":3,"device":0,"stream":9}},
        {"ph":"f","bp":"e","cat":"ac2g","id":7,"pid":0,"tid":9,"ts":6},
        {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":9,"ts":11,"dur":4,"args":{"correlation":7,"device":0,"stream":9}},
        {"ph":"f","bp":"e","cat":"ac2g","id":7,"pid":0,"tid":9,"ts":11},
        {"ph":"X","cat":"gpu_user_annotation","name":"step","pid":0,"tid":9,"ts":5.999,"dur":10.002,"args":{}},
        {"ph":"X","cat":"cpu_op","name":"fetch","pid":1,"tid":2,"ts":30,"dur":1,"args":{"External id":20,"span id":20}},
        {"ph":"X","cat":"cpu_op","name":"fetch","pid":1,"tid":2,"ts":40,"dur":1,"args":{"External id":21,"span id":20}},
        {"ph":"b","cat":"async","name":"fetch","id2":{"local":"0x14"},"pid":1,"tid":2,"ts":30,"args":{"span id":20}},
        {"ph":"e","cat":"async","name":"fetch","id2":{"local":"0x14"},"pid":1,"tid":2,"ts":41},
        {"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":2,"ts":12,"args":{"Bytes":64,"Device Type":0}},
        {"ph":"C","cat":"hardware_counters","name":"power","pid":"GPU 0 Counters","tid":0,"ts":13,"args":{"":250.5}},
        {"ph":"X","cat":"Trace","name":"PyTorch Profiler (3)","pid":"Spans","tid":"PyTorch Profiler","ts":0,"dur":77,"args":{"Op count":1}},
        {"ph":"X","cat":"of another tool","name":"theirs","pid":1,"tid":2,"ts":50,"dur":1}
    ]}"#;

    /// Formats all that a reader sees of the events.
    fn shown(events: &Events) -> Vec<String> {
        let event = |event: Event<'_>| {
            let times = (event.start().as_nanos(), event.duration_ns(), event.id(), event.linked(), event.is_async());
            let flows: Vec<Flow> = event.flows().collect();
            let track = event.track();
            format!("{} {} {times:?} {flows:?} {track:?} {}", event.name(), event.category(), event.metadata_json())
        };
        let header = events.metadata().map(|(key, value)| format!("{key}: {}", value.replace([' ', '\n'], "")));
        events
            .iter()
            .map(event)
            .chain(header)
            .chain(events.processes().iter().map(|process| format!("{process:?}")))
            .collect()
    }

    #[test]
    fn saved_json_is_read_as_the_same_events() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a copy.json");
        let events = Events::from_reader(TEXT.as_bytes()).unwrap();
        events.save(&path).unwrap();
        let copy = Events::read(&path).unwrap();
        let expected: Vec<_> =
            shown(&events).into_iter().map(|line| line.replace("theirs of another tool", "theirs cpu_op")).collect();
        let found = shown(&copy);
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found);
        }
        assert_eq!(expected.len(), found.len());
        assert!(copy.notes().all(|(note, _)| note == Note::AsyncTrack), "{:?}", copy.notes().collect::<Vec<_>>());
        assert!(events.iter().any(|event| event.is_async()));
        let recording =
            copy.recordings.iter().map(|row| (row.name.as_str(), row.end.since(row.start))).collect::<Vec<_>>();
        assert_eq!((recording, copy.window()), (vec![("PyTorch Profiler (3)", 77_000)], events.window()));
    }

    #[test]
    fn tracks_keep_their_ids() {
        let row = |cat: &str, name: &str, pid: i64, tid: i64, ts: u32| {
            format!(
                r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":1,"args":{{"device":0}}}}"#
            )
        };
        let rows = [
            row("cuda_sync", "Stream Sync", 0, 7, 1),
            row("cuda_sync", "Stream Sync", 0, 1_000_007, 3),
            row("cuda_sync", "Context Sync", 0, -1, 5),
            row("cpu_op", "op", 2_910_249, -549_452_224, 7),
            r#"{"ph":"C","name":"queue","pid":1,"tid":-3,"ts":9,"args":{"depth":1}}"#.to_owned(),
        ];
        let events = Events::from_reader(format!("[{}]", rows.join(",")).as_bytes()).unwrap();
        let tracks = |events: &Events| events.iter().map(|event| event.track().thread.clone()).collect::<Vec<_>>();
        assert_eq!(tracks(&events), [7, 1_000_007, -1, -549_452_224, -3].map(TrackId::Id));
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.json", "a.pftrace"] {
            let path = folder.path().join(name);
            events.save(&path).unwrap();
            assert_eq!(tracks(&Events::read(&path).unwrap()), tracks(&events), "{name}");
        }
    }

    #[test]
    fn name_gives_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let events = Events::from_reader(TEXT.as_bytes()).unwrap();
        let save = |name: &str| {
            let path = folder.path().join(name);
            events.save(&path).map(|()| std::fs::read(&path).unwrap())
        };
        let native = save("a.pftrace").unwrap();
        assert!(!native.starts_with(b"{"));
        #[cfg(feature = "gzip")]
        assert!(save("a.json.gz").unwrap().starts_with(&[0x1f, 0x8b]));
        assert!(save("a.json.zst").unwrap_err().to_string().contains("use .json.gz"));
    }
}
