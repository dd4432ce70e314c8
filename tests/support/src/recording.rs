//! Records a closure, reads the written file back, and formats it as text to compare.

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::thread::{Scope, ScopedJoinHandle};
use tracing::Dispatch;
use tracing_kineto::activity::Flow;
use tracing_kineto::analysis::{Event, Events, Note};
use tracing_kineto::integration::{CollectorReport, Unavailable};
use tracing_kineto::{Format, KinetoGuard, KinetoLayer, KinetoLayerBuilder, Loss, Trace};
use tracing_subscriber::layer::SubscriberExt;

/// A trace and the file that it makes.
pub struct File {
    pub trace: Trace,
    pub json: Value,
    /// The name of the thread that recorded, shown as "main".
    main: String,
    slices: Vec<Slice>,
}

/// A slice of the file.
#[derive(Clone, Debug)]
pub struct Slice {
    pub name: String,
    pub cat: String,
    pub tid: u64,
    /// The row's name; empty for a thread without a name.
    pub row: String,
    /// Nanoseconds.
    pub start: u64,
    pub end: u64,
    pub args: Value,
}

/// Returns a layer without an output, and its guard.
pub fn layer(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder) -> (KinetoLayer, KinetoGuard) {
    configure(KinetoLayer::builder().no_output()).build().unwrap()
}

/// Records `work` on a registry with our layer alone.
pub fn record(work: impl FnOnce()) -> File {
    record_with(|builder| builder, work)
}

/// Records `work` with these settings.
pub fn record_with(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder, work: impl FnOnce()) -> File {
    let (layer, guard) = layer(configure);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    File::of(guard.finish().unwrap())
}

/// Records `work` with settings that include a `post_process`, whose changes are made when events are written.
pub fn record_edited_with(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(),
) -> File {
    let (layer, guard) = layer(configure);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    File::of_edited(guard.finish().unwrap())
}

/// Records `work` and compares the slices of the file, thread by thread, with `expected`.
#[track_caller]
pub fn check(work: impl FnOnce(), expected: &str) {
    assert_eq!(record(work).tree(&[]), dedent(expected));
}

/// Records `work` and compares each slice's name and the name of its parent with `expected`, in order of time.
#[track_caller]
pub fn check_parents(work: impl FnOnce(), expected: &str) {
    assert_eq!(record(work).parents(), expected);
}

/// Starts a named thread with the caller's subscriber.
pub fn spawn<'s, 'e, T: Send + 's>(
    scope: &'s Scope<'s, 'e>,
    name: &str,
    work: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn_scoped(scope, move || tracing::dispatcher::with_default(&dispatch, work)).unwrap()
}

/// Runs `work` on a new named thread and joins it.
pub fn on_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| spawn(scope, name, work).join().unwrap())
}

/// Enters a span without a guard, like code that keeps the guard elsewhere.
pub fn enter(span: &tracing::Span) {
    span.with_subscriber(|(id, dispatch)| dispatch.enter(id));
}

/// Exits a span that [`enter`] has entered, on any thread.
pub fn exit(span: &tracing::Span) {
    span.with_subscriber(|(id, dispatch)| dispatch.exit(id));
}

/// Removes the common indent and the first line.
pub fn dedent(text: &str) -> String {
    let lines: Vec<&str> = text.trim_start_matches('\n').trim_end().lines().collect();
    let indent = lines.first().map_or(0, |line| line.len() - line.trim_start().len());
    lines.iter().map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n").collect()
}

/// Files above this size are not read back, which would take longer than the test.
const READ_BACK_MAX: usize = 4 << 20;

/// Checks that a file read back equals its trace; `before` is the header from before the file was written.
#[track_caller]
fn check_read_back(trace: &Trace, before: &[(String, String)], text: &[u8]) {
    let (recorded, read) = (trace.events(), Events::from_reader(text).unwrap());
    let all = |event: Event<'_>| {
        let place = (event.device_index(), event.stream(), event.process(), event.thread(), event.is_async());
        let flows: Vec<_> = event.flows().collect();
        let ids = (event.id(), event.linked(), event.correlation(), event.span(), event.parent_span());
        format!("{event:?} {:?} {ids:?} {flows:?} {place:?} {}", event.track(), event.metadata_json())
    };
    let both = |events: &Events| events.iter().map(all).collect::<Vec<_>>();
    let (ours, theirs) = (both(&recorded), both(&read));
    // Only the first difference, since there may be many events.
    ours.iter().zip(&theirs).for_each(|(one, other)| assert_eq!(one, other));
    assert_eq!(ours.len(), theirs.len());
    assert_eq!((recorded.tracks(), recorded.processes()), (read.tracks(), read.processes()));
    assert_eq!((recorded.window(), recorded.accelerator()), (read.window(), read.accelerator()));
    // A thread that notices a stop late is counted then, maybe between two reads.
    let metadata = |events: &Events| events.metadata().map(|(k, v)| format!("{k}: {v}")).collect::<Vec<_>>();
    if before == trace.metadata() {
        assert_eq!(metadata(&recorded), metadata(&read));
    }
    // A file may have an arrow with one end; async tracks have no events.
    let notes = |events: &Events| events.notes().filter(|(note, _)| *note != Note::AsyncTrack).collect::<Vec<_>>();
    assert_eq!(notes(&recorded), notes(&read));
}

/// Checks that a file in Perfetto's format read back has the events and the window of its trace.
///
/// Counters with nothing else at their time may change places, and nested JSON keeps its values, not its spelling.
#[track_caller]
fn check_native_read_back(trace: &Trace) {
    let mut file = Vec::new();
    trace.write(&mut file, Format::Perfetto).unwrap();
    let (recorded, read) = (trace.events(), Events::from_reader(file.as_slice()).unwrap());
    // Arrows with a number of 2^40 or more, those of a second collector, have other numbers and kinds there.
    let is_renumbered = recorded.iter().flat_map(|event| event.flows()).any(|flow| flow.id >= 1 << 40);
    let shown = |flow: Flow| if is_renumbered { format!("{:?}", flow.end) } else { format!("{flow:?}") };
    let all = |event: Event<'_>| {
        let place = (event.device_index(), event.stream(), event.process(), event.thread(), event.is_async());
        let mut flows: Vec<_> = event.flows().map(shown).collect();
        flows.sort();
        flows.dedup();
        let ids = (event.id(), event.linked(), event.correlation(), event.span(), event.parent_span());
        let args: Value = serde_json::from_str(&event.metadata_json()).unwrap();
        (format!("{event:?} {:?} {ids:?} {flows:?} {place:?}", event.track()), args)
    };
    let both = |events: &Events| {
        let mut both: Vec<_> = events.iter().map(all).collect();
        both.sort_by(|a, b| (&a.0, a.1.to_string()).cmp(&(&b.0, b.1.to_string())));
        both
    };
    let (ours, theirs) = (both(&recorded), both(&read));
    ours.iter().zip(&theirs).for_each(|(one, other)| assert_eq!(one, other));
    assert_eq!((ours.len(), recorded.window()), (theirs.len(), read.window()));
}

/// Checks that a trace makes the same file after it was written as a segment and read back.
#[track_caller]
fn check_segment(trace: &Trace) {
    let file = |trace: &Trace| {
        let mut file = Vec::new();
        trace.write(&mut file, Format::Json).unwrap();
        file
    };
    let (before, mut segment) = (trace.metadata(), Vec::new());
    trace.write_segment(1, &mut segment).unwrap();
    if segment.len() > READ_BACK_MAX {
        return;
    }
    let segment = Trace::read_segment_from(segment.as_slice(), "memory").unwrap();
    assert!(segment.is_whole(), "{segment}");
    let [text, read] = [trace, &segment.trace].map(file);
    // A thread that notices a stop late is counted then, and a slice that ended before a snapshot may be committed after it.
    let unfinished = |trace: &Trace| trace.stats().lost(Loss::Unfinished);
    if before == trace.metadata() && unfinished(trace) == unfinished(&segment.trace) && text != read {
        let [text, read] = [&text, &read].map(|text| String::from_utf8_lossy(text));
        // Only the first difference, since a file is long.
        text.lines().zip(read.lines()).for_each(|(line, read)| assert_eq!(line, read));
        panic!("one file is longer: {} and {} bytes", text.len(), read.len());
    }
}

impl File {
    /// Writes a trace, reads it back, and runs the checks for every trace.
    #[track_caller]
    pub fn of(trace: Trace) -> File {
        let file = File::of_edited(trace);
        check_segment(&file.trace);
        file
    }

    /// Does the same for a trace with a `post_process`, whose changes a segment does not have.
    #[track_caller]
    fn of_edited(trace: Trace) -> File {
        let (before, mut text) = (trace.metadata(), Vec::new());
        trace.write(&mut text, Format::Json).unwrap();
        let json = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&text)));
        let main = std::thread::current().name().unwrap_or_default().to_owned();
        if text.len() < READ_BACK_MAX {
            check_read_back(&trace, &before, &text);
            check_native_read_back(&trace);
        }
        let mut file = File { trace, json, main, slices: Vec::new() };
        file.slices = file.read_slices();
        file.check_nesting();
        file.check_ids();
        file
    }

    pub fn events(&self) -> impl Iterator<Item = &Value> {
        self.json["traceEvents"].as_array().unwrap().iter()
    }

    /// Returns the program's events of a phase, without rows about the recording itself.
    pub fn rows(&self, ph: &str) -> Vec<&Value> {
        let about = |event: &&Value| matches!(event["pid"].as_str(), Some("Spans" | "Traces" | ""));
        self.events().filter(|event| event["ph"] == ph).filter(|event| !about(event)).collect()
    }

    /// Returns the report of the collector with that name.
    #[track_caller]
    pub fn collector_report(&self, collector: &str) -> CollectorReport {
        let mut reports = self.trace.stats().collectors.into_iter();
        let found = reports.find(|report| report.name == collector);
        found.unwrap_or_else(|| panic!("the trace has no report of the {collector} collector"))
    }

    /// Returns why that collector recorded nothing; checks that the header has the same reason.
    #[track_caller]
    pub fn unavailable_reason(&self, collector: &str) -> Unavailable {
        let reason = self.collector_report(collector).state.expect_err("a reason");
        assert_eq!(self.json["tracing_kineto"]["collectors"][collector]["unavailable"], reason.to_string());
        reason
    }

    fn row_names(&self) -> HashMap<u64, String> {
        let names = self.events().filter(|event| event["ph"] == "M" && event["name"] == "thread_name");
        names
            .map(|event| {
                let tid = event["tid"].as_u64().unwrap();
                let name = event["args"]["name"].as_str().unwrap();
                // "worker", "worker (2)"; a thread without a name is called "thread 1234".
                let is_number = |text: &str| text.trim_end_matches(')').parse::<u32>().is_ok();
                let (first, second) = match name.rsplit_once(" (") {
                    Some((first, number)) if is_number(number) => (first, format!(" ({number}")),
                    _ => (name, String::new()),
                };
                let first = if first == format!("thread {tid}") { "" } else { first };
                (tid, if first == self.main { "main".to_owned() } else { first.to_owned() } + &second)
            })
            .collect()
    }

    /// Returns all slices of spans, in the order of the file.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    fn read_slices(&self) -> Vec<Slice> {
        let names = self.row_names();
        let slice = |event: &Value| {
            let tid = event["tid"].as_u64().unwrap();
            let start = nanos(&event["ts"]);
            Slice {
                name: event["name"].as_str().unwrap().to_owned(),
                cat: event["cat"].as_str().unwrap().to_owned(),
                tid,
                row: names.get(&tid).cloned().unwrap_or_else(|| panic!("row {tid} has no name")),
                start,
                end: start + nanos(&event["dur"]),
                args: event["args"].clone(),
            }
        };
        // Rows of collectors have no span.
        self.rows("X").into_iter().filter(|event| event["args"].get("span id").is_some()).map(slice).collect()
    }

    /// Returns all slices of that name, by their start.
    pub fn all(&self, name: &str) -> Vec<Slice> {
        let mut slices: Vec<_> = self.slices.iter().filter(|slice| slice.name == name).cloned().collect();
        slices.sort_by_key(|slice| slice.start);
        slices
    }

    /// Returns the only slice of that name.
    #[track_caller]
    pub fn slice(&self, name: &str) -> Slice {
        let mut all = self.all(name);
        assert_eq!(all.len(), 1, "slices called {name} in\n{}", self.tree(&[]));
        all.remove(0)
    }

    /// Returns the field args of the only slice of that name, as JSON text.
    #[track_caller]
    pub fn fields(&self, name: &str) -> String {
        self.slice(name).fields()
    }

    /// Returns the slices of each row as an indented list, with the args that `marks` names.
    pub fn tree(&self, marks: &[&str]) -> String {
        let mut rows: HashMap<u64, Vec<(usize, &Slice)>> = HashMap::new();
        let mut open: HashMap<u64, Vec<u64>> = HashMap::new();
        for slice in self.slices() {
            let open = open.entry(slice.tid).or_default();
            while open.pop_if(|end| *end <= slice.start).is_some() {}
            let depth = open.len();
            open.push(slice.end);
            rows.entry(slice.tid).or_default().push((depth + 1, slice));
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        // Threads of one name are sorted by their start, since the kernel reuses their ids.
        rows.sort_by_key(|slices| {
            let first = slices[0].1;
            (!first.row.starts_with("main"), first.row.clone(), first.start)
        });
        let mut text = String::new();
        let mut before = None;
        for slices in rows {
            let row = &slices[0].1.row;
            if before.replace(row) != Some(row) {
                writeln!(text, "{row}").unwrap();
            }
            for (depth, slice) in slices {
                write!(text, "{:1$}{2}", "", depth * 2, slice.name).unwrap();
                let marked = marks.iter().filter(|mark| slice.args.get(mark).is_some());
                marked.for_each(|mark| write!(text, " {mark}={}", slice.args[mark]).unwrap());
                writeln!(text).unwrap();
            }
        }
        text
    }

    /// Returns "child<parent" for each slice, in order of time; a parent without a slice is "?".
    pub fn parents(&self) -> String {
        let mut slices: Vec<_> = self.slices.iter().collect();
        slices.sort_by_key(|slice| slice.start);
        let name = |id: &Value| match id.as_u64() {
            None => "",
            Some(id) => slices.iter().find(|slice| slice.span() == id).map_or("?", |slice| &slice.name),
        };
        let pairs: Vec<_> = slices.iter().map(|s| format!("{}<{}", s.name, name(&s.args["parent id"]))).collect();
        pairs.join(" ")
    }

    pub fn lost(&self, loss: Loss) -> u64 {
        self.trace.stats().lost(loss)
    }

    /// Checks that the slices of a row nest or are disjoint.
    #[track_caller]
    pub fn check_nesting(&self) {
        /// Start and end of a slice, and its event.
        type Row<'f> = Vec<(u64, std::cmp::Reverse<u64>, &'f Value)>;
        let mut rows: HashMap<String, Row<'_>> = HashMap::new();
        for event in self.rows("X") {
            let start = nanos(&event["ts"]);
            let slice = (start, std::cmp::Reverse(start + nanos(&event["dur"])), event);
            rows.entry(format!("{} {}", event["pid"], event["tid"])).or_default().push(slice);
        }
        for slices in rows.values_mut() {
            slices.sort_by_key(|(start, end, _)| (*start, *end));
            let mut open: Vec<(u64, &Value)> = Vec::new();
            for (start, std::cmp::Reverse(end), slice) in slices.iter() {
                while open.pop_if(|(around, _)| *around <= *start).is_some() {}
                if let Some((around, other)) = open.last() {
                    assert!(end <= around, "{slice}\noverlaps\n{other}");
                }
                open.push((*end, slice));
            }
        }
    }

    /// Checks that each slice has a distinct id and a span, and that its parent is another span.
    #[track_caller]
    fn check_ids(&self) {
        let mut seen = HashSet::new();
        for slice in self.slices() {
            let id = slice.args["External id"].as_u64();
            if !slice.cat.ends_with("_runtime") && !slice.cat.ends_with("_driver") {
                assert!(id.is_some_and(|id| id != 0 && seen.insert(id)), "{slice:?}");
            }
            assert_ne!(slice.span(), 0);
            assert_ne!(slice.args["parent id"].as_u64(), Some(slice.span()), "{slice:?} is its own parent");
        }
    }
}

impl Slice {
    pub fn span(&self) -> u64 {
        self.args["span id"].as_u64().unwrap()
    }

    pub fn parent(&self) -> u64 {
        self.args["parent id"].as_u64().unwrap_or(0)
    }

    /// Returns the args from the span's fields, as JSON text.
    pub fn fields(&self) -> String {
        fields(&self.args)
    }
}

/// Returns the args of a row that come from fields, as JSON text.
pub fn fields(args: &Value) -> String {
    let own = ["External id", "span id", "parent id", "request id", "target", "level", "finished", "clipped"];
    let own = [&own[..], &["thread id", "enters", "reentered"]].concat();
    let args = args.as_object().unwrap().iter().filter(|(key, _)| !own.contains(&key.as_str()));
    Value::Object(args.map(|(key, value)| (key.clone(), value.clone())).collect()).to_string()
}

/// Converts the file's microseconds to nanoseconds.
pub fn nanos(micros: &Value) -> u64 {
    let text = micros.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, "0"));
    whole.parse::<u64>().unwrap() * 1000 + format!("{part:0<3}").parse::<u64>().unwrap()
}
