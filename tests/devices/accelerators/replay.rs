//! Rows of a real MTIA trace, delivered by a plugin and written again unchanged.

use super::plugins::{all, headings, report, rows};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;
use support::plugins::compile;
use support::{File, traces};
use tracing_kineto::{Devices, KinetoLayer, integration::EventType};

const DEVICE: i64 = 17;

/// A row without its time and without its lane among those of its thread or stream.
type Row = (String, String, bool, u64, Map<String, Value>);

/// The rows of a file, with their first and last time.
struct RealTrace {
    events: Vec<Value>,
    first: u64,
    last: u64,
}

fn real() -> RealTrace {
    let path = traces::folder().join("gpu/mtia_inference.pt.trace.json.gz");
    let text = std::io::read_to_string(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let events: Vec<Value> = json["traceEvents"].as_array().unwrap().clone();
    let times: Vec<_> = events.iter().filter(|event| is_mtia(event)).map(between).collect();
    let (first, last) = (times.iter().map(|(start, _)| *start).min(), times.iter().map(|(_, end)| *end).max());
    RealTrace { events, first: first.unwrap(), last: last.unwrap() }
}

fn is_mtia(event: &Value) -> bool {
    event["ph"] == "X" && event["cat"].as_str().is_some_and(|cat| cat.starts_with("mtia"))
}

/// Returns the start and end in nanoseconds.
fn between(event: &Value) -> (u64, u64) {
    let nanos = |key: &str| format!("{:.0}", event[key].as_f64().unwrap() * 1000.0).parse::<u64>().unwrap();
    (nanos("ts"), nanos("ts") + nanos("dur"))
}

fn row(event: &Value) -> Row {
    let text = |key: &str| event[key].as_str().unwrap().to_owned();
    let (start, end) = between(event);
    let mut args = event["args"].as_object().unwrap().clone();
    // The slice's id, absent here since no span was open.
    args.remove("External id");
    // The thread of a row that does not nest in the thread's lane.
    args.remove("thread id");
    (text("cat"), text("name"), event["pid"] == DEVICE, end - start, args)
}

impl RealTrace {
    /// Returns the file that the plugin reads.
    fn script(&self) -> String {
        let mut script = String::new();
        let (starts, ends) = (self.arrows("s", |_| true), self.arrows("f", |_| true));
        for event in self.events.iter().filter(|event| is_mtia(event)) {
            let (start, end) = between(event);
            let is_runtime = event["cat"] == "mtia_runtime";
            let kind = if is_runtime { EventType::MtiaRuntime } else { EventType::MtiaCcpEvents };
            let on_device = event["pid"] == DEVICE;
            // The recording begins a moment after the plugin.
            let from_start = |at: u64| at - self.first + 20_000_000;
            let (start, end, tid) = (from_start(start), from_start(end), &event["tid"]);
            let device = if on_device { DEVICE } else { 0 };
            let correlation = event["args"]["correlation"].as_i64().unwrap_or(0);
            // An arrow that ends here has a minus sign.
            let arrow = match on_device {
                false if starts.contains(&correlation) => correlation,
                true if ends.contains(&correlation) => -correlation,
                _ => 0,
            };
            let (number, name) = (kind.number(), event["name"].as_str().unwrap());
            write!(script, "E\t{number}\t{start}\t{end}\t{device}\t{tid}\t{arrow}\t{name}").unwrap();
            for (key, value) in event["args"].as_object().unwrap() {
                write!(script, "\t{key}\t{value}").unwrap();
            }
            script.push('\n');
        }
        writeln!(script, "D\t{DEVICE}\tMTIA {DEVICE}\tMTIA {DEVICE}").unwrap();
        for event in self.events.iter().filter(|event| event["name"] == "thread_name" && event["pid"] == DEVICE) {
            let (tid, name) = (&event["tid"], event["args"]["name"].as_str().unwrap());
            writeln!(script, "R\t{DEVICE}\t{tid}\t{tid}\t{name}").unwrap();
        }
        script
    }

    fn arrows(&self, ph: &str, of: impl Fn(&Value) -> bool) -> BTreeSet<i64> {
        let arrows = self.events.iter().filter(|event| event["ph"] == ph && event["cat"] == "ac2g");
        arrows.filter(|event| of(event)).map(|event| event["id"].as_i64().unwrap()).collect()
    }
}

fn counted(rows: impl Iterator<Item = Row>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(format!("{row:?}")).or_default() += 1;
    }
    counts
}

#[test]
fn rows_of_a_real_mtia_are_written_unchanged() {
    if !traces::are_available() {
        return;
    }
    let (real, folder) = (real(), tempfile::tempdir().unwrap());
    let script = folder.path().join("rows");
    std::fs::write(&script, real.script()).unwrap();
    compile(
        "tests/devices/accelerators/replay.c",
        folder.path(),
        "replay",
        &[&format!("-DROWS=\"{}\"", script.display())],
    );
    let (_layer, guard) = all(KinetoLayer::builder().devices(Devices::new().plugins(folder.path()))).build().unwrap();
    // The recording must last as long as the rows.
    std::thread::sleep(Duration::from_nanos(real.last - real.first) + Duration::from_millis(70));
    let file = File::of(guard.finish().unwrap());
    assert_eq!(report(&file, "replay").notes, [""; 0]);

    let theirs = counted(real.events.iter().filter(|event| is_mtia(event)).map(row));
    let ours = counted(file.events().filter(|event| is_mtia(event)).map(row));
    assert_eq!(theirs.values().sum::<usize>(), 2136);
    let missing: Vec<_> = theirs.iter().filter(|(row, count)| ours.get(*row) != Some(count)).collect();
    assert!(missing.is_empty() && ours.len() == theirs.len(), "{} differ, such as {:?}", missing.len(), missing[0]);

    let unnested = file.events().filter(|event| is_mtia(event) && event["args"].get("thread id").is_some()).count();
    assert_eq!(unnested, 9, "calls that overlap another of their thread without nesting");

    // Names of the device and its parts.
    let headings = headings(&file, DEVICE);
    assert_eq!((&headings["process_name"], &headings["process_labels"]), (&"MTIA 17".into(), &"MTIA 17".into()));
    let named = real.events.iter().filter(|event| event["name"] == "thread_name" && event["pid"] == DEVICE);
    // Their trace also names parts without rows.
    let did = |tid: &Value| real.events.iter().any(|event| is_mtia(event) && event["tid"] == *tid);
    for event in named.filter(|event| did(&event["tid"])) {
        assert_eq!(headings[&format!("thread_name {}", event["tid"])], event["args"]["name"]);
    }
    // Some of their arrows have one end, or join calls of two threads; ours go from a call to a device.
    let (starts, ends) = (real.arrows("s", |_| true), real.arrows("f", |event| event["pid"] == DEVICE));
    let drawn = |ph: &str| {
        let rows = rows(&file, ph, "ac2g");
        rows.iter().map(|row| row["id"].as_u64().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!(drawn("s").len(), starts.intersection(&ends).count());
    assert!(drawn("s") == drawn("f"));
}
