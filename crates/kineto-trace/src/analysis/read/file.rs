//! Reads a whole file: its header and its list of events.

use super::list::EventList;
use super::parallel::{Parallelism, read_blocks};
use super::source::ValueReader;
use super::time::round_to_integer;
use crate::analysis::events::{Events, FileFigures, Note};
use crate::analysis::fault::{Cause, Fault};
use crate::analysis::json_reader::{Json, JsonValue, Result};
use crate::write::chrome::INCOMPLETE;
use std::io::Read;
use std::time::Duration;

/// Builds events from a file.
#[derive(Debug)]
pub(super) struct FileReader {
    list: EventList,
    /// How the list is read on several threads; `None` to read it on this one.
    parallelism: Option<Parallelism>,
    /// The origin of all times; it may come after the events in the file.
    base: i64,
    has_base: bool,
    /// Whether the time limit has passed; the remaining elements are skipped.
    is_over_time_limit: bool,
}

/// Header keys that concern only the file's format.
const ABOUT_FILE: [&str; 3] = ["schemaVersion", "displayTimeUnit", "traceName"];

impl FileReader {
    /// Returns a reader that stops after `limit`; with a limit, the list is read on this thread alone.
    pub(super) fn new(limit: Option<Duration>, parallelism: Option<Parallelism>) -> FileReader {
        FileReader {
            list: EventList::with_time_limit(limit),
            parallelism: parallelism.filter(|_| limit.is_none()),
            base: 0,
            has_base: false,
            is_over_time_limit: false,
        }
    }

    /// Reads the whole file.
    pub(super) fn read_file(&mut self, source: &mut ValueReader<impl Read>) -> Result<()> {
        match source.skip_mark_and_peek()? {
            None => return Err(Fault::new(Cause::NotATrace("it is empty"), 0)),
            Some(b'[') => self.read_events(source, true)?,
            Some(b'{') => self.read_object(source)?,
            Some(_) => return Err(Fault::new(Cause::OtherFormat, source.position())),
        }
        if source.skip_space_and_peek()?.is_some() {
            return Err(Fault::new(Cause::NotJson("nothing more"), source.position()));
        }
        if self.list.elements > 0 && self.list.phase_count == 0 && !self.is_over_time_limit {
            return Err(Fault::new(Cause::NotATrace("nothing in its list is an event"), source.position()));
        }
        Ok(())
    }

    pub(super) fn has_events(&self) -> bool {
        self.list.phase_count > 0
    }

    /// Records that the file was truncated.
    pub(super) fn cut_off(&mut self) {
        self.list.count_note(Note::CutOff);
    }

    pub(super) fn finish(mut self, bytes: u64) -> Events {
        self.list.apply_names();
        let EventList { mut builder, elements, .. } = self.list;
        builder.events.file = FileFigures { bytes, elements, base_ns: self.base, is_perfetto: false };
        builder.finish(self.base)
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
                if source.skip_if(b'}')? {
                    self.list.count_note(Note::InvalidJson);
                    break;
                }
            }
        }
        if has_list { Ok(()) } else { Err(Fault::new(Cause::NotATrace("`traceEvents` is missing"), source.position())) }
    }

    /// Reads a member of the top level; returns whether it was the list of events.
    fn read_member(&mut self, source: &mut ValueReader<impl Read>) -> Result<bool> {
        let at = source.position();
        let (key, repairs) = source.next_json(b"}")?;
        self.list.add_notes(Note::InvalidJson, repairs);
        let JsonValue::Text(key) = Json::new(&key, at).read_value()? else {
            return Err(Fault::new(Cause::NotJson("a text"), at));
        };
        let key = key.decode_text().0.into_owned();
        source.take_one_of(b":", "a colon")?;
        if key == "traceEvents" {
            if source.skip_space_and_peek()?.is_some_and(|byte| byte != b'[') {
                return Err(Fault::new(Cause::NotATrace("`traceEvents` is not a list"), source.position()));
            }
            self.read_events(source, false)?;
            return Ok(true);
        }
        let (json, repairs) = source.next_json(b"}")?;
        self.list.add_notes(Note::InvalidJson, repairs);
        let text = String::from_utf8_lossy(&json).into_owned();
        let value = Json::new(&json, at).read_value()?;
        match (key.as_str(), value) {
            ("baseTimeNanoseconds", value) => self.set_time_base(&value),
            (INCOMPLETE, _) => self.list.count_note(Note::Incomplete),
            (key, _) if ABOUT_FILE.contains(&key) => self.list.builder.is_kinetos |= key == "schemaVersion",
            _ => self.list.builder.add_header_entry(key, text),
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
            None => self.list.count_note(Note::UnknownBase),
        }
    }

    /// Reads the list of events. Chrome's format allows a list that is the whole file to have no end.
    fn read_events(&mut self, source: &mut ValueReader<impl Read>, is_file: bool) -> Result<()> {
        source.take_one_of(b"[", "a list")?;
        if source.skip_space_and_peek()? == Some(b']') {
            source.skip_byte();
            return Ok(());
        }
        // Only the first list: a file may have any number, each of which would read ahead.
        match self.parallelism.take() {
            Some(parallelism) if read_blocks(&mut self.list, source, parallelism) => Ok(()),
            _ => self.read_elements(source, is_file),
        }
    }

    /// Reads elements one after another, and the list's end.
    fn read_elements(&mut self, source: &mut ValueReader<impl Read>, is_file: bool) -> Result<()> {
        let closers: &[u8] = if is_file { b"]" } else { b"]}" };
        loop {
            let is_object = source.skip_space_and_peek()? == Some(b'{');
            if !self.is_over_time_limit && self.list.builder.deadline.is_over() {
                self.is_over_time_limit = true;
                self.list.count_note(Note::TimeLimit);
                if self.has_base {
                    self.list.elements += 1;
                    return Err(Fault::new(Cause::TimeLimit, source.position()));
                }
            }
            if is_object && !self.is_over_time_limit {
                let ((), repairs) = source.read_with(closers, |json| self.list.read_element(json))?;
                self.list.add_notes(Note::InvalidJson, repairs);
            } else {
                let mut json = source.next_value()?;
                json.skip_value()?;
                json.expect_end()?;
                if !self.is_over_time_limit {
                    self.list.count_note(Note::NotAnEvent);
                }
                self.list.elements += 1;
            }
            if self.list.builder.is_full() {
                return Err(Fault::new(
                    Cause::TooLarge("more than four billion events or arguments"),
                    source.position(),
                ));
            }
            if !self.has_more_elements(source, is_file)? {
                return Ok(());
            }
        }
    }

    /// Reads what follows an element: a comma, the list's end, both, or nothing if the file may end there.
    fn has_more_elements(&mut self, source: &mut ValueReader<impl Read>, is_file: bool) -> Result<bool> {
        let may_end = |source: &ValueReader<_>| is_file && !source.is_cut();
        if source.skip_space_and_peek()?.is_none() && may_end(source) {
            self.list.count_note(Note::OpenList);
            return Ok(false);
        }
        if source.take_one_of(b",]", "a comma or the list's end")? == b']' {
            return Ok(false);
        }
        if source.skip_if(b']')? {
            self.list.count_note(Note::InvalidJson);
            return Ok(false);
        }
        if source.skip_space_and_peek()?.is_none() && may_end(source) {
            self.list.count_note(Note::OpenList);
            return Ok(false);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReadOptions;
    use super::*;
    use crate::activity::{ActivityType, CorrelationId, FlowKind};
    use crate::analysis::Event;
    use crate::analysis::events::TrackId;

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
        assert_eq!(shown(&events), "x@0+8000 out@1000+2000 in@2000+1000 other@2500+6500");
        assert_eq!(notes(&events), "end_without_begin=1 begin_without_end=1");
        assert_eq!(events.get(1).unwrap().metadata_json(), r#"{"a":1,"b":3,"c":4}"#);
    }

    #[test]
    fn async_rows_are_paired_by_id_name_and_category() {
        let row = |ph: &str, name: &str, id: &str, ts: u32| {
            format!(r#"{{"ph":"{ph}","cat":"app::db","name":"{name}","pid":1,"tid":{ts},{id},"ts":{ts}}},"#)
        };
        let (one, two) = (r#""id":1"#, r#""id2":{"local":"0x2"}"#);
        let text = row("b", "request", one, 1)
            + &row("b", "query", one, 2)
            + &row("b", "request", two, 3)
            + &row("b", "fetch", one, 4)
            + &row("n", "retry", one, 5)
            + &row("e", "query", one, 6)
            + &row("e", "request", two, 7)
            + &row("e", "fetch", one, 8)
            + &row("e", "other", one, 9)
            + r#"{"ph":"b","cat":"other","name":"fetch","id":1,"pid":1,"tid":9,"ts":9},{"ph":"b","name":"no id","ts":9},"#
            + row("e", "request", one, 20).trim_end_matches(',');
        let events = read(&text);
        assert_eq!(
            shown(&events),
            "request@1000+19000 query@2000+4000 request@3000+4000 fetch@4000+4000 retry@5000+0 fetch@9000+11000"
        );
        assert_eq!(notes(&events), "async_track=1 end_without_begin=1 begin_without_end=1");
        let tracks: Vec<_> = events.iter().map(|event| event.track().thread.to_string()).collect();
        assert_eq!(tracks, ["async 1", "async 1", "async 0x2", "async 1", "async 1", "async 1"]);
    }

    #[test]
    fn slices_of_other_tools_are_operations() {
        let foreign = r#"{"ph":"B","cat":"app","name":"out","tid":1,"ts":1}, {"ph":"i","cat":"app","name":"now","tid":1,"ts":2},
            {"ph":"X","cat":"app::db","name":"in","tid":1,"ts":2,"dur":1}, {"ph":"E","tid":1,"ts":9}"#;
        let kinds = |events: &Events| events.iter().map(|event| event.kind()).collect::<Vec<_>>();
        let events = read(foreign);
        assert_eq!(kinds(&events), [Some(ActivityType::CpuOp), Some(ActivityType::CpuOp), None]);
        assert_eq!(events.get(1).unwrap().category(), "app::db");
        let known = foreign.to_owned() + r#", {"ph":"X","cat":"kernel","name":"gemm","tid":1,"ts":10,"dur":1}"#;
        assert_eq!(kinds(&read(&known)), [None, None, None, Some(ActivityType::ConcurrentKernel)]);
        // One of PyTorch with the work of a device that Kineto does not know.
        let text = format!(r#"{{"schemaVersion": 1, "traceEvents": [{foreign}]}}"#);
        assert_eq!(kinds(&Events::from_reader(text.as_bytes()).unwrap()), [None; 3]);
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
            br#"{"baseTimeNanoseconds":1000,"traceEvents":[7, {}, {"ph":"X"}, {"ph":"X","ts":1}, {"ph":"X","ts":"x","dur":1}, {"ph":"D","ts":1}, {"ph":"b","ts":1},
                {"ph":"X","name":"a","ts":-5,"dur":-1,"args":{"n":1,"n":NaN}}, {"ph":"i","name":"p","ts":7,"args":[]},
                {"ph":"X","name":"\ud800"#
                .as_slice(),
            b"\xff",
            br#"","ts":8,"dur":1,"tid":"seven","pid":"x","args":null}]}"#,
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
        let text = include_str!("../../../../kineto-model/tests/data/libkineto_cpp_writer.json");
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
