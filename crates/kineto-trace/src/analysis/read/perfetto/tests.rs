//! Tests of the reader: files of this crate's writer, and packets made by hand.

use super::*;
use crate::activity::{Activity, ActivityType, Body, CorrelationId, Flow, FlowEnd, FlowKind, Track};
use crate::analysis::{ErrorKind, Event, ReadOptions};
use crate::rows::Rows;
use crate::time::Timestamp;
use crate::write::chrome::{ChromeWriter, Header};
use crate::write::perfetto::PerfettoWriter;
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Returns the events of a file that the library's writer makes of `events`.
fn rewritten(events: &Events, name: &str) -> Events {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    events.save(&path).unwrap();
    Events::read(&path).unwrap()
}

/// Removes white space, spellings of numbers and the order of keys from a nested value.
fn normalized(json: &str) -> Value {
    fn plain(value: Value) -> Value {
        match value {
            Value::Null => Value::from("null"),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Value::from(number),
                None => Value::from(number.as_f64().map_or_else(|| number.to_string(), |float| float.to_string())),
            },
            Value::Array(list) => list.into_iter().map(plain).collect(),
            Value::Object(object) => {
                let mut members: Vec<_> = object.into_iter().map(|(key, value)| (key, plain(value))).collect();
                members.sort_by(|a, b| a.0.cmp(&b.0));
                members.into_iter().collect()
            }
            other => other,
        }
    }
    plain(serde_json::from_str(json).unwrap())
}

/// Formats everything that a reader sees of an event.
fn shown(event: &Event<'_>) -> String {
    let times = (event.start(), event.end(), event.id(), event.linked(), event.is_async());
    let phase = (event.is_slice(), event.is_instant(), event.is_counter());
    let mut flows: Vec<String> = event.flows().map(|flow| format!("{flow:?}")).collect();
    flows.sort();
    let args = normalized(&event.metadata_json());
    format!("{} {} {phase:?} {times:?} {flows:?} {:?} {args}", event.name(), event.category(), event.track())
}

/// Returns the paths of the reference traces; none if they are not on this machine.
fn reference_traces() -> Vec<PathBuf> {
    fn find(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match path.is_dir() {
                true if name != "invalid" => find(&path, found),
                false if name.ends_with(".json") || cfg!(feature = "gzip") && name.ends_with(".json.gz") => {
                    found.push(path)
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    find(&root.join("traces"), &mut found);
    if root.join("analysis/edge/edge.pt.trace.json").exists() {
        found.push(root.join("analysis/edge/edge.pt.trace.json"));
    }
    found.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../kineto-model/tests/data/libkineto_cpp_writer.json"));
    found
}

/// Figures of the file itself, which another format cannot have.
const OF_FILE: [&str; 2] = ["json_bytes", "trace_events"];

/// Returns all figures but those of the file's format. Times since the base are `None` for a file without one, since the writer
/// chooses one.
fn figures(events: &Events, has_base: bool) -> (Value, Option<Value>) {
    let mut figures: Value = serde_json::from_str(&events.summary().to_json()).unwrap();
    let load = figures["load"].as_object_mut().unwrap();
    OF_FILE.iter().for_each(|key| drop(load.remove(*key)));
    let first = load.remove("first_ts_ns");
    (figures, first.filter(|_| has_base))
}

fn compare(path: &str, found: &Value, expected: &Value, differences: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for key in found.keys().chain(expected.keys()) {
                let null = Value::Null;
                let path = format!("{path}.{key}");
                compare(&path, found.get(key).unwrap_or(&null), expected.get(key).unwrap_or(&null), differences);
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                compare(&format!("{path}[{at}]"), found, expected, differences);
            }
        }
        _ if found == expected => {}
        _ => differences.push(format!("{path}: {found}, expected {expected}")),
    }
}

#[test]
fn reference_traces_have_the_same_figures_and_events() {
    for path in reference_traces() {
        let original = Events::read(&path).unwrap();
        let (copy, has_base) = (
            rewritten(&original, if cfg!(feature = "gzip") { "copy.pftrace.gz" } else { "copy.pftrace" }),
            original.file.base_ns != 0,
        );
        let (expected, found) = (figures(&original, has_base), figures(&copy, has_base));
        let mut differences = Vec::new();
        compare("", &found.0, &expected.0, &mut differences);
        assert!(differences.is_empty(), "{}:\n{}", path.display(), differences.join("\n"));
        assert_eq!(found.1, expected.1, "{}", path.display());
        // Both writers move some waits to rows of their own.
        let events = rewritten(&original, "copy.json");
        assert_equal(&events, &copy, &path.display().to_string());
    }
}

#[track_caller]
fn assert_equal(events: &Events, copy: &Events, about: &str) {
    let all = |events: &Events| {
        let mut all: Vec<_> = events.iter().map(|event| shown(&event)).collect();
        all.sort();
        all
    };
    let (expected, found) = (all(events), all(copy));
    let first = expected.iter().zip(&found).find(|(expected, found)| expected != found);
    assert!(first.is_none(), "{about}: {first:#?}");
    assert_eq!((expected.len(), events.window()), (found.len(), copy.window()), "{about}");
    let header =
        |events: &Events| events.metadata().map(|(key, value)| (key.to_owned(), normalized(value))).collect::<Vec<_>>();
    assert_eq!(header(events), header(copy), "{about}");
}

/// Appends a number that is encoded as a varint.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn number(field: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, field << 3);
    varint(&mut out, value);
    out
}

fn bytes(field: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let (mut out, content) = (Vec::new(), content.as_ref());
    varint(&mut out, field << 3 | 2);
    varint(&mut out, content.len() as u64);
    out.extend(content);
    out
}

fn fixed(field: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, field << 3 | 1);
    out.extend(value.to_le_bytes());
    out
}

fn message(field: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    bytes(field, parts.concat())
}

/// Encodes a packet of sequence 1 with a track event.
fn event(time: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    message(1, &[number(8, time), number(10, 1), message(11, parts)])
}

fn descriptor(parts: &[Vec<u8>]) -> Vec<u8> {
    message(1, &[message(60, parts)])
}

fn read(packets: &[Vec<u8>]) -> Events {
    Events::from_reader(packets.concat().as_slice()).unwrap()
}

fn notes(events: &Events) -> String {
    events.notes().map(|(note, count)| format!("{note}={count}")).collect::<Vec<_>>().join(" ")
}

/// Formats events as name@start+duration on their row.
fn places(events: &Events) -> Vec<String> {
    let place = |event: Event<'_>| {
        let track = event.track();
        let id = |id: &TrackId| match id {
            TrackId::Id(id) => id.to_string(),
            TrackId::Name(name) => format!("{name:?}"),
        };
        let (process, thread) = (id(&track.process), id(&track.thread));
        format!("{}@{}+{} {process}/{thread}", event.name(), event.start().as_nanos(), event.duration_ns())
    };
    events.iter().map(place).collect()
}

#[test]
fn interned_data_and_defaults_belong_to_a_sequence() {
    let name = |sequence: u64, flags: u64, text: &str| {
        let interned = message(12, &[message(2, &[number(1, 1), bytes(2, text)])]);
        let defaults = message(59, &[message(11, &[number(11, 100 + sequence)])]);
        message(1, &[number(10, sequence), number(13, flags), interned, defaults])
    };
    let slice = |sequence: u64, time: u64, kind: u64| {
        let event = message(11, &[number(9, kind), number(10, 1), number(9999, 1)]);
        // The event may precede the data that it refers to.
        message(1, &[event, number(8, time), number(10, sequence), number(13, 2), bytes(9998, "unknown")])
    };
    let thread = |uuid: u64, id: u64| descriptor(&[number(1, uuid), message(4, &[number(1, 7), number(2, id)])]);
    let events = read(&[
        slice(2, 1, 1),
        name(1, 1, "one"),
        name(2, 1, "two"),
        slice(2, 10, 1),
        slice(1, 11, 1),
        slice(1, 12, 2),
        name(1, 1, "again"),
        slice(1, 13, 1),
        slice(1, 14, 2),
        slice(2, 20, 2),
        thread(101, 5),
        thread(102, 6),
    ]);
    assert_eq!(places(&events), ["two@10+10 7/6", "one@11+1 7/5", "again@13+1 7/5"]);
    assert_eq!(notes(&events), "lost_state=1");
    let lost = message(1, &[number(8, 30), number(10, 2), number(13, 2), number(42, 1), message(11, &[number(9, 1)])]);
    let events = read(&[name(2, 1, "two"), slice(2, 10, 1), slice(2, 20, 2), lost, slice(2, 40, 1)]);
    assert_eq!((places(&events).len(), notes(&events)), (1, "lost_state=2".to_owned()));
}

#[test]
fn rows_follow_from_processes_threads_and_names() {
    let slice = |uuid: u64| {
        [event(uuid, &[number(9, 1), number(11, uuid), bytes(23, "s")]), event(uuid, &[number(9, 2), number(11, uuid)])]
            .concat()
    };
    let named = |uuid: u64, parent: u64, name: &str| {
        descriptor(&[number(1, uuid), number(5, parent), bytes(2, name), number(12, 90 - uuid)])
    };
    let process = [number(1, 42), bytes(6, "app"), bytes(8, "CPU")];
    let events = read(&[
        (2..=10).flat_map(&slice).collect::<Vec<u8>>(),
        descriptor(&[number(1, 1), message(3, &process)]),
        descriptor(&[number(1, 2), number(5, 1), message(4, &[number(1, 42), number(2, 43), bytes(5, "main")])]),
        named(3, 2, "overlapping"),
        descriptor(&[number(1, 20), number(5, 1), bytes(2, "GPU 3"), number(11, 3)]),
        named(4, 20, "stream 7"),
        named(5, 20, "stream 7"),
        named(6, 20, "copies"),
        named(7, 1, "custom"),
        named(8, 8, "circle"),
        named(9, 0, "alone"),
    ]);
    let rows =
        ["42/43", "42/43", "3/7", "3/7", "3/\"copies\"", "42/\"custom\"", "\"circle\"/\"circle\"", "\"\"/\"alone\""];
    let mut expected: Vec<_> = (2..).zip(rows).map(|(at, row)| format!("s@{at}+0 {row}")).collect();
    expected.push("s@10+0 \"undescribed\"/\"track 8\"".to_owned());
    assert_eq!(places(&events), expected);
    let processes: Vec<_> = events.processes().iter().map(|p| format!("{:?} {} {}", p.id, p.name, p.label)).collect();
    assert_eq!(processes, ["Id(42) app CPU", "Id(3)  GPU 3"]);
    let names: Vec<_> = events.tracks().iter().map(|track| track.name.as_str()).filter(|name| name.len() > 5).collect();
    // The children of "GPU 3" are sorted by their ranks.
    assert_eq!(
        names,
        ["custom", "circle", "copies", "stream 7"]
            .iter()
            .filter(|name| names.contains(*name))
            .copied()
            .collect::<Vec<_>>()
    );
}

#[test]
fn annotations_become_typed_arguments() {
    let annotation = |name: &str, value: Vec<u8>| message(4, &[bytes(10, name), value]);
    let item = |value: Vec<u8>| bytes(12, value);
    let entry = |name: &str, value: Vec<u8>| message(11, &[bytes(10, name), value]);
    let chrome = message(8, &[number(1, 1), bytes(2, "k"), message(3, &[number(5, 3)])]);
    let args = [
        annotation("bool", number(2, 1)),
        annotation("uint", number(3, 7)),
        annotation("large", number(3, u64::MAX)),
        annotation("int", number(4, (-2_i64).cast_unsigned())),
        annotation("double", fixed(5, 0.5_f64.to_bits())),
        annotation("text", bytes(6, "a\"b")),
        annotation("pointer", number(7, 255)),
        annotation("json", bytes(9, "[1, {}]")),
        annotation("not json", bytes(9, "[1, {]")),
        annotation("chrome", chrome),
        annotation("list", [item(number(4, 1)), item(bytes(6, "x")), item(Vec::new())].concat()),
        annotation("dict", [entry("a", number(2, 0)), entry("b", item(number(4, 5)))].concat()),
        annotation("none", Vec::new()),
        annotation("bool", number(2, 0)),
        annotation("invalid", bytes(6, b"\xff")),
    ];
    let start = [vec![number(9, 1), bytes(22, "cpu_op"), bytes(23, "s")], args.to_vec()].concat();
    let events = read(&[event(1, &start), event(5, &[number(9, 2), annotation("end", number(4, 9))])]);
    let expected = r#"{"bool":false,"uint":7,"large":"18446744073709551615","int":-2,"double":0.5,"text":"a\"b","pointer":255,"json":[1, {}],"not json":"[1, {]","chrome":{"k":3},"list":[1,"x",[]],"dict":{"a":false,"b":[5]},"none":[],"invalid":"�","end":9}"#;
    assert_eq!(events.get(0).unwrap().metadata_json(), expected);
    assert_eq!(notes(&events), "invalid_text=1 duplicate_argument=1");
    let deep = (0..200).fold(number(4, 1), |inner, _| bytes(12, inner));
    let packets = event(1, &[number(9, 1), annotation("deep", deep)]);
    let error = Events::from_reader(packets.as_slice()).unwrap_err();
    assert!(error.kind() == ErrorKind::TooLarge && error.to_string().contains("128 levels deep"), "{error}");
}

#[test]
fn flows_become_arrows_by_the_events_they_connect() {
    let slice = |time: u64, category: &str, flow: Vec<u8>| {
        let track = number(11, time);
        let begin = [number(9, 1), track.clone(), bytes(22, category), bytes(23, format!("s{time}")), flow];
        [event(time, &begin), event(time + 100, &[number(9, 2), track])].concat()
    };
    let events = read(&[
        slice(1, "cuda_runtime", [fixed(47, 900), fixed(47, 901)].concat()),
        slice(2, "kernel", fixed(48, 900)),
        slice(3, "kernel", fixed(47, 901)),
        slice(4, "cpu_op", number(36, 5)),
        slice(5, "cpu_op", number(42, 5)),
        slice(6, "user_annotation", fixed(47, 7)),
        slice(7, "cpu_op", fixed(48, 7)),
        slice(8, "cpu_op", fixed(48, 8)),
    ]);
    let shown = |event: Event<'_>| {
        let flows = event.flows().map(|flow| format!("{}{}{:?}", flow.kind.as_str(), flow.id, flow.end));
        format!("{} {}", event.name(), flows.collect::<Vec<_>>().join(" "))
    };
    let found: Vec<_> = events.iter().map(shown).collect();
    let expected = [
        "s1 ac2g4Start ac2g5Start",
        "s2 ac2g4Finish",
        "s3 ac2g5Finish",
        "s4 fwdbwd1Start",
        "s5 fwdbwd1Finish",
        "s6 follows_from2Start",
        "s7 follows_from2Finish",
        "s8 follows_from3Finish",
    ];
    assert_eq!(found, expected);
}

/// Encodes the tracks of PyTorch's encoder: devices are processes, and streams threads.
fn torch_tracks() -> Vec<u8> {
    let process =
        |uuid: u64, id: u64, name: &str| descriptor(&[number(1, uuid), message(3, &[number(1, id), bytes(6, name)])]);
    let thread = |uuid: u64, parent: u64, pid: u64, tid: u64, name: &str| {
        descriptor(&[number(1, uuid), number(5, parent), message(4, &[number(1, pid), number(2, tid), bytes(5, name)])])
    };
    let tracks = [
        process(1, 42, "python"),
        thread(2, 1, 42, 43, "main"),
        process(6, 0, "GPU 0"),
        thread(3, 6, 0, 7, "stream 7"),
        process(4, 0x7fff_ffff, "Overhead"),
        thread(5, 4, 0x7fff_ffff, 0, "Overhead"),
    ];
    tracks.concat()
}

/// Encodes packets as PyTorch's encoder does: one sequence, work as render stages, links by `GpuCorrelation`.
fn torch_packets() -> Vec<Vec<u8>> {
    let clock = |id: u64| message(1, &[number(1, id), number(2, 1_000_000)]);
    let text = |field: u64, id: u64, text: &str| message(field, &[number(1, id), bytes(2, text)]);
    let interned = message(
        12,
        &[
            text(2, 1, "cudaLaunchKernel"),
            text(2, 2, "gemm"),
            text(1, 1, "cuda_runtime"),
            text(24, 1, "Kernel"),
            text(24, 2, "Memcpy"),
            text(24, 100, "[07] stream 7"),
            text(1001, 1, "registers_per_thread"),
        ],
    );
    let launch = [
        number(9, 1),
        number(11, 2),
        number(10, 1),
        number(3, 1),
        message(4, &[bytes(10, "correlation"), number(4, 55)]),
        message(3000, &[number(1, 1), number(1, 2)]),
    ];
    let stage = |time: u64, parts: &[Vec<u8>]| message(1, &[number(8, time), number(10, 1), message(53, parts)]);
    let extra = |name: &str, value: &str| message(6, &[bytes(1, name), bytes(2, value)]);
    let size = |field: u64, x: u64| message(field, &[number(1, x), number(2, 1), number(3, 1)]);
    let dims = message(21, &[size(1, 8), size(2, 128), message(3, &[number(1, 1), number(4, 96)])]);
    let of_stream = [number(11, 0), number(13, 100), number(5, 1)].concat();
    let kernel = [
        number(1, 1),
        number(2, 40),
        number(14, 1),
        number(20, 2),
        of_stream.clone(),
        extra("correlation", "55"),
        extra("stream id", "7"),
        extra("device id", "0"),
        extra("Collective name", "allreduce"),
        dims,
    ];
    let copy = [number(1, 2), number(2, 5), number(14, 2), of_stream, extra("bytes", "64"), number(18, 1)];
    let wait = [
        number(9, 1),
        number(11, 3),
        bytes(23, "Stream Sync"),
        message(4, &[bytes(10, "cuda_sync_kind"), bytes(6, "Stream Sync")]),
    ];
    let overhead = [number(9, 1), number(11, 5), bytes(23, "Buffer Flush")];
    let spec = message(1, &[message(1, &[number(1, 4), bytes(2, "Power (W)")])]);
    let counter = message(52, &[number(3, 0), spec, message(2, &[number(1, 4), fixed(3, 250.5_f64.to_bits())])]);
    vec![
        message(1, &[message(6, &[clock(6), clock(1)])]),
        message(1, &[number(10, 1), number(13, 1), interned]),
        torch_tracks(),
        event(1_000_100, &launch),
        event(1_000_110, &[number(9, 2), number(11, 2)]),
        stage(1_000_200, &kernel),
        stage(1_000_250, &copy),
        event(1_000_300, &wait),
        event(1_000_310, &[number(9, 2), number(11, 3)]),
        event(1_000_320, &overhead),
        event(1_000_330, &[number(9, 2), number(11, 5)]),
        message(1, &[number(8, 1_000_400), number(10, 1), counter]),
        message(1, &[message(126, &[message(1, &[bytes(1, "host"), bytes(3, "vm")])])]),
    ]
}

#[test]
fn traces_of_pytorch_are_read() {
    let events = read(&torch_packets());
    let expected = [
        "cudaLaunchKernel@1000100+10 42/43",
        "gemm@1000200+40 0/7",
        "Memcpy@1000250+5 0/7",
        "Stream Sync@1000300+10 0/7",
        "Buffer Flush@1000320+10 2147483647/0",
        "Power (W)@1000400+0 \"GPU 0 Counters\"/0",
    ];
    assert_eq!((places(&events), notes(&events)), (expected.map(str::to_owned).to_vec(), String::new()));
    let categories: Vec<_> = events.iter().map(|event| event.category()).collect();
    assert_eq!(categories, ["cuda_runtime", "kernel", "gpu_memcpy", "cuda_sync", "overhead", ""]);
    let kernel = events.get(1).unwrap();
    let metadata = kernel.metadata();
    assert_eq!(
        (metadata.grid(), metadata.block(), metadata.registers_per_thread()),
        (Some([8, 1, 1]), Some([128, 1, 1]), Some(96))
    );
    assert_eq!((kernel.correlation(), kernel.stream(), kernel.device_index()), (Some(55), Some(7), Some(0)));
    assert_eq!(metadata.collective_name(), Some("allreduce"));
    let flow = |kind, id, end| Flow { kind, id, end };
    let ac2g = FlowKind::AsyncCpuToGpu;
    let flows: Vec<Vec<Flow>> = events.iter().take(3).map(|event| event.flows().collect()).collect();
    let (one, two, wait) = (1, 2, 1 << 40);
    assert_eq!(flows[0], [flow(ac2g, one, FlowEnd::Start), flow(ac2g, two, FlowEnd::Start)]);
    assert_eq!(flows[1], [flow(ac2g, one, FlowEnd::Finish), flow(ac2g, wait, FlowEnd::Start)]);
    assert_eq!(flows[2], [flow(ac2g, two, FlowEnd::Finish), flow(ac2g, wait, FlowEnd::Finish)]);
    assert_eq!(events.attribution().launch(kernel).map(|launch| launch.name()), Some("cudaLaunchKernel"));
    assert_eq!(events.metadata().collect::<Vec<_>>(), [("host", "\"vm\"")]);
    assert_eq!(events.get(5).unwrap().metadata_json(), "{\"\":250.5}");
}

#[cfg(feature = "gzip")]
#[test]
fn compressed_packets_are_read() {
    use std::io::Write;
    let packets = torch_packets();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&packets[2..].concat()).unwrap();
    let packed = message(1, &[bytes(50, zlib.finish().unwrap())]);
    let events = read(&[packets[..2].concat(), packed.clone()]);
    assert_eq!(places(&events), places(&read(&packets)));
    let cut = &packed[..packed.len() - 8];
    let broken = message(1, &[bytes(50, &cut[8..])]);
    let error = Events::from_reader([packets.concat(), broken].concat().as_slice()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

/// Returns a small file of this crate's writer with everything that it writes.
fn small_file() -> Vec<u8> {
    let text = include_bytes!("../../../../../kineto-model/tests/data/libkineto_cpp_writer.json");
    let events = Events::from_reader(text.as_slice()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pftrace");
    events.save(&path).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn truncated_files_are_read_up_to_their_last_packet() {
    let file = small_file();
    let whole = Events::from_reader(file.as_slice()).unwrap();
    let (mut parts, mut cuts) = (0, 0);
    for length in 1..file.len() {
        let cut = &file[..length];
        match Events::from_reader(cut) {
            // A cut between two packets is not noticed.
            Ok(_) => continue,
            Err(error) if error.kind() == ErrorKind::Truncated => {
                assert!(error.to_string().contains(&format!("cut off at byte {length}")), "{error}");
                cuts += 1;
            }
            Err(error) => assert!(matches!(error.kind(), ErrorKind::NotATrace | ErrorKind::Json), "{length}: {error}"),
        }
        if let Ok(part) = ReadOptions::new().partial(true).from_reader(cut) {
            assert!(part.notes().any(|(note, _)| note == Note::CutOff) && part.len() <= whole.len());
            parts += 1;
        }
    }
    assert!(parts > file.len() / 2 && cuts > parts, "{parts} parts, {cuts} cuts of {}", file.len());
}

#[test]
fn damaged_files_never_panic_and_errors_name_the_byte() {
    for file in [small_file(), torch_packets().concat()] {
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= [0x01, 0x80, 0x7f, 0xff, 0x40][at % 5];
            match ReadOptions::new().partial(at % 2 == 0).from_reader(damaged.as_slice()) {
                Ok(events) => {
                    assert!(events.iter().all(|event| event.start() <= event.end()));
                    let _ = events.summary();
                }
                Err(error) => assert!(error.to_string().contains("byte"), "{error}"),
            }
        }
    }
}

#[test]
fn limits_of_the_options_apply() {
    let file = small_file();
    let half = file.len() as u64 / 2;
    let error = ReadOptions::new().max_bytes(half).from_reader(file.as_slice()).unwrap_err();
    assert!(
        error.kind() == ErrorKind::TooLarge && error.to_string().contains("when unpacked, the reader's limit"),
        "{error}"
    );
    let late = ReadOptions::new().time_limit(Duration::ZERO).from_reader(file.as_slice()).unwrap();
    assert_eq!((late.len(), notes(&late)), (0, "time_limit=1".to_owned()));
    assert!(late.metadata().any(|(key, _)| key == "host_name") && !late.processes().is_empty());
    let reports = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let target = reports.clone();
    let options = ReadOptions::new().on_progress(move |bytes| target.lock().unwrap().push(bytes));
    options.from_reader(file.as_slice()).unwrap();
    assert_eq!(reports.lock().unwrap().last(), Some(&(file.len() as u64)));
    let system = message(1, &[number(8, 5), bytes(1, "ftrace")]);
    let error = Events::from_reader(system.as_slice()).unwrap_err();
    assert!(error.kind() == ErrorKind::NotATrace && error.to_string().contains("no track events"), "{error}");
    let huge = [event(1, &[number(9, 3)]), b"\x0a\xff\xff\xff\xff\x7f".to_vec()].concat();
    assert_eq!(Events::from_reader(huge.as_slice()).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// The times and shape of a slice, instant or counter.
type AnyEvent = (u8, (u64, u64), (i64, i64), (String, String), (i64, f64), (u8, u64, bool), u8);

fn any_event() -> impl Strategy<Value = AnyEvent> {
    let times = (0..40_u64, 0..40_u64);
    let flow = (0..4_u8, 0..5_u64, any::<bool>());
    (0..3_u8, times, (0..2_i64, 1..4_i64), any::<(String, String)>(), any::<(i64, f64)>(), flow, 0..29_u8)
}

/// Returns a file in the other format, and one in this, of the same rows.
fn both_files(all: &[AnyEvent]) -> [Vec<u8>; 2] {
    let header = Header { metadata: &[], device_properties: &[], base: Timestamp::from_nanos(1_000_000) };
    let mut json_file = Vec::new();
    let mut json = ChromeWriter::new(&mut json_file, &header).unwrap();
    let mut native_file = Vec::new();
    let mut native = PerfettoWriter::new(&mut native_file, &header).unwrap();
    let mut writers: [&mut dyn Rows; 2] = [&mut json, &mut native];
    for rows in &mut writers {
        for (phase, (start, length), place, (name, text), (int, float), flow, kind) in all {
            let at = |ns: u64| Timestamp::from_nanos(1_000_010 + ns);
            let nested: [(&str, ArgValue<'_>); 1] = [(text, ArgValue::F64(*float))];
            let (ints, texts) = ([*int, 1], [text.as_str(), "\\"]);
            let args: [(&str, ArgValue<'_>); 6] = [
                ("text", ArgValue::Str(text)),
                ("int", ArgValue::I64(*int)),
                ("float", ArgValue::F64(*float)),
                ("ints", ArgValue::Ints(&ints)),
                ("texts", ArgValue::Strs(&texts)),
                ("dict", ArgValue::Dict(&nested)),
            ];
            let body = match phase {
                0 => Body::Slice { start: at(*start), end: at(start + length) },
                1 => Body::Instant { at: at(*start) },
                _ => Body::Counter { at: at(*start) },
            };
            // Counters of one process and name share a track, and so a type.
            let (kind, counter) = (ActivityType::ALL[usize::from(*kind)], format!("{kind} {name}"));
            let kinds = [FlowKind::ForwardBackward, FlowKind::AsyncCpuToGpu, FlowKind::FollowsFrom];
            let end = if flow.2 { FlowEnd::Start } else { FlowEnd::Finish };
            let flow = kinds.get(usize::from(flow.0)).map(|kind| Flow { kind: *kind, id: flow.1, end });
            let name = if *phase == 2 { &counter } else { name };
            let mut activity = Activity::new(kind, name, Track::new(place.0, place.1), body);
            activity.id = CorrelationId(start + 1);
            activity.flow = flow.filter(|_| *phase == 0);
            activity.args = &args;
            rows.write_activity(&activity).unwrap();
        }
    }
    let end = Timestamp::from_nanos(2_000_000);
    json.finish(end, None, "").unwrap();
    native.finish(end, None, "").unwrap();
    [json_file, native_file]
}

proptest! {
    #[test]
    fn both_formats_read_as_the_same_events(all in prop::collection::vec(any_event(), 1..20)) {
        let [json, native] = both_files(&all);
        let (json, native) = (Events::from_reader(json.as_slice()).unwrap(), Events::from_reader(native.as_slice()).unwrap());
        let shown = |events: &Events| {
            let mut shown: Vec<_> = events.iter().map(|event| shown(&event)).collect();
            shown.sort();
            shown
        };
        prop_assert_eq!(shown(&json), shown(&native));
    }

    #[test]
    fn arbitrary_packets_never_panic(content in prop::collection::vec(any::<u8>(), 0..80), field in 1..130_u64) {
        let packets = [event(1, &[number(9, 3)]), message(1, &[number(8, 1), number(10, 1), bytes(field, &content)]), bytes(1, &content)];
        if let Ok(events) = ReadOptions::new().partial(true).from_reader(packets.concat().as_slice()) {
            prop_assert!(events.iter().all(|event| event.start() <= event.end()));
        }
    }
}
