//! Reads a whole file: its header and its list of events.

use super::element::Element;
use super::fault::{Cause, Fault};
use super::json::{JsonValue, Result};
use super::source::ValueReader;
use super::time::round_to_integer;
use crate::activity::{FlowEnd, FlowKind};
use crate::analysis::events::{
    Builder, EventDraft, Events, FileFigures, Note, Phase, RecordingRow, StringId, TrackId, absolute_timestamp,
    relative_timestamp,
};
use crate::write::chrome::INCOMPLETE;
use std::io::Read;
use std::time::Duration;

/// Builds events from a file.
#[derive(Debug, Default)]
pub(super) struct FileReader {
    builder: Builder,
    /// The origin of all times; it may come after the events in the file.
    base: i64,
    has_base: bool,
    /// Whether the time limit has passed; the remaining elements are skipped.
    is_over_time_limit: bool,
    start: Option<i64>,
    /// The names, starts and ends of the rows of whole recordings.
    recordings: Vec<(StringId, i64, i64)>,
    window_end: Option<i64>,
    /// The number of elements in the list, and of those with a phase.
    elements: u64,
    phase_count: u64,
}

/// Header keys that concern only the file's format.
const ABOUT_FILE: [&str; 3] = ["schemaVersion", "displayTimeUnit", "traceName"];

impl FileReader {
    /// Returns a reader that stops after `limit`.
    pub(super) fn with_time_limit(limit: Option<Duration>) -> FileReader {
        FileReader { builder: Builder::with_time_limit(limit), ..FileReader::default() }
    }

    /// Reads the whole file.
    pub(super) fn read_file(&mut self, source: &mut ValueReader<impl Read>) -> Result<()> {
        // A byte order mark is not JSON, but some editors write one.
        for mark in [0xef, 0xbb, 0xbf] {
            if source.skip_space_and_peek()? == Some(mark) {
                source.skip_byte();
            }
        }
        match source.skip_space_and_peek()? {
            None => return Err(Fault::new(Cause::NotATrace("it is empty"), 0)),
            Some(b'[') => self.read_events(source)?,
            Some(b'{') => self.read_object(source)?,
            Some(_) => return Err(Fault::new(Cause::OtherFormat, source.position())),
        }
        if source.skip_space_and_peek()?.is_some() {
            return Err(Fault::new(Cause::NotJson("nothing more"), source.position()));
        }
        if self.elements > 0 && self.phase_count == 0 && !self.is_over_time_limit {
            return Err(Fault::new(Cause::NotATrace("nothing in its list is an event"), source.position()));
        }
        Ok(())
    }

    pub(super) fn has_events(&self) -> bool {
        self.phase_count > 0
    }

    /// Records that the file was truncated.
    pub(super) fn cut_off(&mut self) {
        self.count_note(Note::CutOff);
    }

    pub(super) fn finish(mut self, bytes: u64) -> Events {
        self.builder.events.file =
            FileFigures { bytes, elements: self.elements, base_ns: self.base, is_perfetto: false };
        let start = self.recordings.iter().map(|(_, start, _)| *start).min().or(self.start);
        let end = self.window_end.or(self.recordings.iter().map(|(.., end)| *end).max());
        let mut events = self.builder.finish(self.base, (start, end));
        let at = |ns| absolute_timestamp(relative_timestamp(ns), self.base).0;
        let row = |(name, start, end)| RecordingRow {
            name: events.strings.get(name).to_owned(),
            start: at(start),
            end: at(end),
        };
        events.recordings = self.recordings.into_iter().map(row).collect();
        events
    }

    fn count_note(&mut self, note: Note) {
        self.builder.events.notes.add(note, 1);
    }

    fn read_object(&mut self, source: &mut ValueReader<impl Read>) -> Result<()> {
        source.take_one_of(b"{", "an object or a list")?;
        let mut has_list = false;
        if source.skip_space_and_peek()? == Some(b'}') {
            source.skip_byte();
        } else {
            loop {
                has_list |= self.read_member(source)?;
                if source.take_one_of(b",}", "a comma or the object's end")? == b'}' {
                    break;
                }
            }
        }
        if has_list { Ok(()) } else { Err(Fault::new(Cause::NotATrace("`traceEvents` is missing"), source.position())) }
    }

    /// Reads a member of the top level; returns whether it was the list of events.
    fn read_member(&mut self, source: &mut ValueReader<impl Read>) -> Result<bool> {
        let mut json = source.next_value()?;
        let JsonValue::Text(key) = json.read_value()? else { return json.expected_error("a text") };
        json.expect_end()?;
        let key = key.decode_text().0.into_owned();
        source.take_one_of(b":", "a colon")?;
        if key == "traceEvents" {
            if source.skip_space_and_peek()?.is_some_and(|byte| byte != b'[') {
                return Err(Fault::new(Cause::NotATrace("`traceEvents` is not a list"), source.position()));
            }
            self.read_events(source)?;
            return Ok(true);
        }
        let mut json = source.next_value()?;
        let text = String::from_utf8_lossy(json.whole_text()).into_owned();
        let value = json.read_value()?;
        json.expect_end()?;
        match (key.as_str(), value) {
            ("baseTimeNanoseconds", value) => self.set_time_base(&value),
            (INCOMPLETE, _) => self.count_note(Note::Incomplete),
            (key, _) if ABOUT_FILE.contains(&key) => {}
            _ => {
                let header = &mut self.builder.events.header;
                header.retain(|(known, _)| *known != key);
                header.push((key, text));
            }
        }
        Ok(false)
    }

    /// Sets the origin of times.
    fn set_time_base(&mut self, value: &JsonValue<'_>) {
        let text = match value {
            JsonValue::Number(number) => Some(number.as_str()),
            JsonValue::Text(text) => text.as_plain_str(),
            _ => None,
        };
        match text.and_then(round_to_integer) {
            Some(base) => (self.base, self.has_base) = (base, true),
            None => self.count_note(Note::UnknownBase),
        }
    }

    fn read_events(&mut self, source: &mut ValueReader<impl Read>) -> Result<()> {
        source.take_one_of(b"[", "a list")?;
        if source.skip_space_and_peek()? == Some(b']') {
            source.skip_byte();
            return Ok(());
        }
        loop {
            let is_object = source.skip_space_and_peek()? == Some(b'{');
            if !self.is_over_time_limit && self.builder.deadline.is_over() {
                self.is_over_time_limit = true;
                self.count_note(Note::TimeLimit);
                if self.has_base {
                    self.elements += 1;
                    return Err(Fault::new(Cause::TimeLimit, source.position()));
                }
            }
            if is_object && !self.is_over_time_limit {
                source.read_with(|json| {
                    let line = Element::read(json, &mut self.builder)?;
                    self.handle_line(&line);
                    Ok(())
                })?;
            } else {
                let mut json = source.next_value()?;
                json.skip_value()?;
                json.expect_end()?;
                if !self.is_over_time_limit {
                    self.count_note(Note::NotAnEvent);
                }
            }
            self.elements += 1;
            if self.builder.events.arguments.is_full() || self.builder.events.rows.len() >= u32::MAX as usize {
                return Err(Fault::new(
                    Cause::TooLarge("more than four billion events or arguments"),
                    source.position(),
                ));
            }
            if source.take_one_of(b",]", "a comma or the list's end")? == b']' {
                return Ok(());
            }
        }
    }

    /// Handles an element of the list. The space of its arguments is released unless an event uses them.
    fn handle_line(&mut self, line: &Element<'_>) {
        let Some(phase) = line.phase else { return self.drop_line(line, Note::NotAnEvent) };
        self.phase_count += 1;
        let at = line.time;
        match (phase, at) {
            ('X', Some(at)) => self.add_slice(line, at),
            ('i' | 'I', Some(at)) => self.add_instant(line, at),
            ('C', Some(at)) => self.add_event(line, Phase::Counter, at, Some(at)),
            ('B', Some(at)) => self.add_event(line, Phase::Slice, at, None),
            ('E', Some(at)) => {
                let track = self.line_track_number(line);
                self.builder.end_slice(track, at, line.arguments);
            }
            ('M', _) => self.apply_metadata(line),
            ('s' | 'f', Some(at)) => self.add_arrow(line, phase, at),
            ('b' | 'e' | 'n', _) => {
                if line.category == Some(StringId::ASYNC) {
                    self.builder.async_span_of(line.arguments, line.local_id());
                }
                self.drop_line(line, Note::AsyncTrack);
            }
            ('X' | 'i' | 'I' | 'C' | 'B' | 'E' | 's' | 'f', None) => self.drop_line(line, Note::WithoutTime),
            _ => self.drop_line(line, Note::OtherPhase),
        }
    }

    fn drop_line(&mut self, line: &Element<'_>, note: Note) {
        self.count_note(note);
        self.release_arguments(line);
    }

    fn release_arguments(&mut self, line: &Element<'_>) {
        self.builder.events.arguments.rewind_to(line.mark);
    }

    fn add_slice(&mut self, line: &Element<'_>, at: i64) {
        let Some(lasted) = line.duration else { return self.drop_line(line, Note::WithoutTime) };
        let end = at.saturating_add(lasted.max(0));
        if line.category == Some(StringId::TRACE) {
            self.recordings.push((line.name, at, end));
            return self.release_arguments(line);
        }
        if lasted < 0 {
            self.count_note(Note::NegativeDuration);
        }
        self.add_event(line, Phase::Slice, at, Some(end));
    }

    fn add_instant(&mut self, line: &Element<'_>, at: i64) {
        let is_in = |group: &str| matches!(&line.process, TrackId::Name(name) if name == group);
        let name = self.builder.events.strings.get(line.name);
        if is_in("") && name == "Record Window End" {
            self.window_end = Some(at);
            self.release_arguments(line);
        } else if is_in("Traces") && name.starts_with("Iteration Start") {
            self.start = Some(self.start.map_or(at, |start| start.min(at)));
            self.release_arguments(line);
        } else {
            self.add_event(line, Phase::Instant, at, Some(at));
        }
    }

    fn add_event(&mut self, line: &Element<'_>, phase: Phase, start: i64, end: Option<i64>) {
        let track = self.line_track_number(line);
        let category = line.category.map_or(StringId::EMPTY, |category| self.current_category(category));
        let (name, arguments) = (line.name, line.arguments);
        self.builder.push(&EventDraft { phase, track, start, end, category, name, arguments, external: None });
    }

    fn line_track_number(&mut self, line: &Element<'_>) -> u32 {
        match (&line.process, &line.thread) {
            (TrackId::Id(process), TrackId::Id(thread)) => self.builder.track_of_ids(*process, *thread),
            (process, thread) => self.builder.track_number(process.clone(), thread.clone()),
        }
    }

    /// Returns the current name of a category.
    fn current_category(&mut self, category: StringId) -> StringId {
        let strings = &mut self.builder.events.strings;
        renamed_category(strings.get(category)).map_or(category, |current| strings.intern(current))
    }

    /// Handles a metadata row, which only names others.
    fn apply_metadata(&mut self, line: &Element<'_>) {
        self.release_arguments(line);
        let Some(text) = line.display_name() else { return };
        match self.builder.events.strings.get(line.name) {
            "thread_name" => self.builder.name_track(line.process.clone(), line.thread.clone(), &text),
            "process_name" => self.builder.process_entry(line.process.clone()).name = text.into_owned(),
            "process_labels" => self.builder.process_entry(line.process.clone()).label = text.into_owned(),
            _ => {}
        }
    }

    fn add_arrow(&mut self, line: &Element<'_>, phase: char, at: i64) {
        let kind = line.category.and_then(|category| arrow_kind(self.builder.events.strings.get(category)));
        let (Some(kind), Some(id)) = (kind, line.id) else { return self.drop_line(line, Note::LooseArrow) };
        self.release_arguments(line);
        let track = self.line_track_number(line);
        let end = if phase == 's' { FlowEnd::Start } else { FlowEnd::Finish };
        self.builder.add_flow(track, at, crate::activity::Flow { kind, id, end });
    }
}

/// Returns the kind of arrow of a category; older versions of Kineto had other names for those of launches.
fn arrow_kind(category: &str) -> Option<FlowKind> {
    const KINDS: [FlowKind; 3] = [FlowKind::ForwardBackward, FlowKind::AsyncCpuToGpu, FlowKind::FollowsFrom];
    match category {
        "async" | "async_cpu_to_gpu" | "async_gpu" => Some(FlowKind::AsyncCpuToGpu),
        category => KINDS.into_iter().find(|kind| kind.as_str() == category),
    }
}

/// Returns the current name of a category if this one is old.
fn renamed_category(category: &str) -> Option<&'static str> {
    match category {
        "Operator" => Some("cpu_op"),
        "Runtime" => Some("cuda_runtime"),
        "Kernel" => Some("kernel"),
        "Memcpy" => Some("gpu_memcpy"),
        "Memset" => Some("gpu_memset"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReadOptions;
    use super::*;
    use crate::activity::CorrelationId;
    use crate::analysis::Event;

    fn read(events: &str) -> Events {
        Events::from_reader(format!("{{\"baseTimeNanoseconds\": 1000000, \"traceEvents\": [{events}]}}").as_bytes())
            .unwrap()
    }

    /// Formats all events as "name@start+duration", in nanoseconds after the base.
    fn shown(events: &Events) -> String {
        let show = |event: Event<'_>| {
            let start = event.start().as_nanos().wrapping_sub(1_000_000).cast_signed();
            format!("{}@{start}+{}", event.name(), event.duration_ns())
        };
        events.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    fn notes(events: &Events) -> String {
        events.notes().map(|(note, count)| format!("{note}={count}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn times_are_exact_and_the_base_may_come_last() {
        let list = r#"[{"ph":"X","name":"b","ts":2.0015,"dur":1e-3},{"ph":"X","name":"a","ts":"1.5","dur":0.0005}]"#;
        let first = format!("{{\"baseTimeNanoseconds\": 1000000, \"traceEvents\": {list}}}");
        let last = format!("\u{feff}{{\"traceEvents\": {list}, \"baseTimeNanoseconds\": 1000000}}\n");
        for text in [first, last] {
            assert_eq!(shown(&Events::from_reader(text.as_bytes()).unwrap()), "a@1500+0 b@2002+1");
        }
        assert_eq!(shown(&Events::from_reader(list.as_bytes()).unwrap()), "a@-998500+0 b@-997998+1");
    }

    #[test]
    fn base_may_be_a_float_or_a_text() {
        let read = |base: &str| {
            let text = format!(r#"{{"baseTimeNanoseconds": {base}, "traceEvents": [{{"ph":"i","name":"a","ts":1}}]}}"#);
            let events = Events::from_reader(text.as_bytes()).unwrap();
            let header: Vec<_> = events.metadata().map(|(key, _)| key.to_owned()).collect();
            assert!(header.is_empty(), "{header:?}");
            (events.get(0).unwrap().start().as_nanos(), notes(&events))
        };
        for base in
            ["1759000000000000000", "1.759e18", "1759000000000000000.0", "\"1759000000000000000\"", "\"1.759e18\""]
        {
            assert_eq!(read(base), (1_759_000_000_000_001_000, String::new()), "{base}");
        }
        for base in ["null", "\"today\"", "[1]", "1e30", "true"] {
            assert_eq!(read(base), (1000, "unknown_base=1".to_owned()), "{base}");
        }
    }

    #[test]
    fn old_launch_arrows_are_recognized() {
        for category in ["ac2g", "async", "async_cpu_to_gpu", "async_gpu"] {
            let events = read(&format!(
                r#"{{"ph":"X","cat":"Runtime","name":"launch","tid":1,"ts":1,"dur":1}},
                   {{"ph":"X","cat":"Kernel","name":"gemm","tid":7,"ts":5,"dur":1}},
                   {{"ph":"s","cat":"{category}","id":3,"tid":1,"ts":1}}, {{"ph":"f","cat":"{category}","id":3,"tid":7,"ts":5}}"#
            ));
            let flows: Vec<_> =
                events.iter().flat_map(|event| event.flows()).map(|flow| (flow.kind, flow.id)).collect();
            assert_eq!(flows, [(FlowKind::AsyncCpuToGpu, 3); 2], "{category}");
            assert_eq!(notes(&events), "");
        }
    }

    #[test]
    fn begin_and_end_rows_are_paired() {
        let events = read(
            r#"{"ph":"B","name":"out","tid":1,"ts":1,"args":{"a":1,"b":2}}, {"ph":"B","name":"in","tid":1,"ts":2},
               {"ph":"E","tid":1,"ts":3}, {"ph":"B","name":"other","tid":2,"ts":2.5}, {"ph":"E","tid":3,"ts":9},
               {"ph":"E","tid":1,"ts":3,"args":{"b":3,"c":4}}, {"ph":"X","name":"x","tid":1,"ts":0,"dur":8}"#,
        );
        assert_eq!(shown(&events), "x@0+8000 out@1000+2000 in@2000+1000 other@2500+5500");
        assert_eq!(notes(&events), "end_without_begin=1 begin_without_end=1");
        assert_eq!(events.get(1).unwrap().metadata_json(), r#"{"a":1,"b":3,"c":4}"#);
    }

    #[test]
    fn arrows_bind_to_previous_or_innermost_slice() {
        let x =
            |name: &str, ts: u32, dur: u32| format!(r#"{{"ph":"X","name":"{name}","tid":1,"ts":{ts},"dur":{dur}}},"#);
        let arrow = |ph: &str, cat: &str, id: &str, ts: u32| {
            format!(r#"{{"ph":"{ph}","cat":"{cat}","name":"{cat}","id":{id},"tid":1,"ts":{ts},"bp":"e"}},"#)
        };
        let text = x("out", 1, 9)
            + &arrow("s", "fwdbwd", "7", 1)
            + &x("in", 1, 2)
            + &arrow("f", "ac2g", "\"8\"", 6)
            + &arrow("s", "ac2g", "9", 2)
            + &arrow("f", "ac2g", "9", 50)
            + &arrow("s", "mine", "1", 2)
            + r#"{"ph":"X","name":"late","tid":1,"ts":40,"dur":1}"#;
        let events = read(&text);
        let flows: Vec<String> = events
            .iter()
            .map(|event| {
                let flows: Vec<_> = event.flows().map(|flow| format!("{}{:?}", flow.id, flow.end)).collect();
                format!("{} {}", event.name(), flows.join(" "))
            })
            .collect();
        assert_eq!(flows, ["out 7Start 8Finish", "in 9Start", "late "]);
        assert_eq!(notes(&events), "loose_arrow=2");
    }

    #[test]
    fn old_names_are_mapped_and_ids_classified() {
        let events = read(
            r#"{"ph":"X","cat":"Operator","ts":1,"dur":1,"args":{"external id":"5"}},
               {"ph":"X","cat":"Runtime","ts":2,"dur":1,"args":{"external id":5,"correlation":9}},
               {"ph":"X","cat":"Kernel","ts":3,"dur":1,"args":{"External id":5,"correlation":9}},
               {"ph":"X","cat":"cuda_sync","ts":4,"dur":1,"args":{"External id":9,"correlation":9}},
               {"ph":"X","cat":"gpu_user_annotation","ts":5,"dur":1,"args":{"External id":18446744073709551615}},
               {"ph":"X","cat":"mine","ts":6,"dur":1,"args":{"External id":"x"}}"#,
        );
        let all: Vec<_> = events.iter().map(|event| (event.category(), event.id(), event.linked())).collect();
        let id = |id| Some(CorrelationId(id));
        let expected = [
            ("cpu_op", id(5), None),
            ("cuda_runtime", None, id(5)),
            ("kernel", None, id(5)),
            ("cuda_sync", id(9), None),
            ("gpu_user_annotation", None, id(u64::MAX)),
            ("mine", None, None),
        ];
        assert_eq!(all, expected);
        let kept: Vec<_> = events.iter().map(|event| event.arg("External id").is_some()).collect();
        assert_eq!(kept, [false, false, false, false, false, true]);
    }

    #[test]
    fn omissions_and_repairs_are_counted() {
        let text = [
            br#"[7, {}, {"ph":"X"}, {"ph":"X","ts":1}, {"ph":"X","ts":"x","dur":1}, {"ph":"D","ts":1}, {"ph":"b","ts":1},
                {"ph":"X","name":"a","ts":-5,"dur":-1,"args":{"n":1,"n":NaN}}, {"ph":"i","name":"p","ts":7,"args":[]},
                {"ph":"X","name":"\ud800"#
                .as_slice(),
            b"\xff",
            br#"","ts":8,"dur":1,"tid":"seven","pid":"x","args":null}]"#,
        ]
        .concat();
        let events = Events::from_reader(text.as_slice()).unwrap();
        let expected = "other_phase=1 async_track=1 not_an_event=2 without_time=3 negative_duration=1 before_epoch=1 \
                        invalid_text=1 duplicate_argument=1 malformed_arguments=1";
        assert_eq!(notes(&events), expected);
        let names: Vec<_> = events.iter().map(|event| event.name()).collect();
        assert_eq!(names, ["a", "p", "\u{fffd}\u{fffd}"]);
        assert_eq!(events.get(0).unwrap().metadata_json(), r#"{"n":"nan"}"#);
        let track = events.get(2).unwrap().track();
        assert_eq!((&track.process, &track.thread), (&TrackId::Name("x".into()), &TrackId::Name("seven".into())));
    }

    #[test]
    fn libkineto_file_is_read() {
        let text = include_str!("../../../tests/data/libkineto_cpp_writer.json");
        let events = Events::from_reader(text.as_bytes()).unwrap();
        assert_eq!(notes(&events), "");
        let names: Vec<_> = events.iter().map(|event| event.name()).collect();
        let slices = ["aten::mm", "cudaLaunchKernel", "unknown", "Kernel", "MmBackward0", "Stream Sync"];
        assert_eq!(names, [slices.as_slice(), &["[memory]", "sm__cycles_active.avg", "HBM"]].concat());
        let device = events.processes().iter().find(|process| process.id == TrackId::Id(0)).unwrap();
        assert_eq!((device.name.as_str(), device.label.as_str()), ("python", "GPU 0"));
        let sync = events.get(5).unwrap();
        assert_eq!(
            (sync.track().name.as_str(), sync.track().thread.clone()),
            ("stream 7 (sync)", TrackId::Id(1_000_007))
        );
        assert_eq!(events.get(7).unwrap().arg("").map(|value| format!("{value:?}")), Some("1.25".to_owned()));
        let header: Vec<_> = events.metadata().map(|(key, _)| key).collect();
        assert_eq!(header, ["deviceProperties", "trace_id", "record_shapes", "host_name", "PT_PROFILER_JOB_NAME"]);
        let (start, end) = events.window();
        assert_eq!(end.since(start), 9_998_000);
        let cut = &text.as_bytes()[..text.len() / 2];
        assert!(Events::from_reader(cut).is_err());
        let part = ReadOptions::new().partial(true).from_reader(cut).unwrap();
        assert!(notes(&part) == "cut_off=1" && !part.is_empty() && part.len() < events.len());
    }
}
