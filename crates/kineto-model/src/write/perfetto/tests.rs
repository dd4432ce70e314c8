//! Tests that decode files as Perfetto does, and compare them with the written rows.

use super::fields::{annotation, clock, event, interned, packet, track};
use super::*;
use crate::activity::{CorrelationId, FlowKind};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The value of a field.
#[derive(Clone, Debug)]
enum Value {
    Int(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message, in order.
#[derive(Clone, Debug, Default)]
struct Message(Vec<(u32, Value)>);

impl Message {
    fn decode(mut bytes: &[u8]) -> Message {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let (first, rest) = bytes.split_first().unwrap();
                *bytes = rest;
                value |= u64::from(first & 0x7f) << shift;
                shift += 7;
                if first & 0x80 == 0 {
                    return value;
                }
            }
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = match tag & 7 {
                0 => Value::Int(varint(&mut bytes)),
                1 => {
                    let (value, rest) = bytes.split_first_chunk::<8>().unwrap();
                    bytes = rest;
                    Value::Int(u64::from_le_bytes(*value))
                }
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Value::Bytes(value.to_vec())
                }
                wire => panic!("wire type {wire}"),
            };
            fields.push((u32::try_from(tag >> 3).unwrap(), value));
        }
        Message(fields)
    }

    fn ints(&self, field: u32) -> Vec<u64> {
        self.0
            .iter()
            .filter_map(|(of, value)| if let Value::Int(int) = value { (*of == field).then_some(*int) } else { None })
            .collect()
    }

    fn int(&self, field: u32) -> Option<u64> {
        self.ints(field).first().copied()
    }

    fn all(&self, field: u32) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(move |(of, value)| match value {
            Value::Bytes(bytes) if *of == field => Some(&bytes[..]),
            _ => None,
        })
    }

    fn messages(&self, field: u32) -> Vec<Message> {
        self.all(field).map(Message::decode).collect()
    }

    fn message(&self, field: u32) -> Option<Message> {
        self.messages(field).into_iter().next()
    }

    fn text(&self, field: u32) -> Option<String> {
        self.all(field).next().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }
}

/// The state of a sequence while decoding.
#[derive(Debug, Default)]
struct SequenceState {
    time: u64,
    track: u64,
    texts: BTreeMap<(u32, u64), String>,
}

impl SequenceState {
    fn text(&self, message: &Message, inline: u32, number: u32, field: u32) -> String {
        message.text(inline).or(message.int(number).map(|iid| self.texts[&(field, iid)].clone())).unwrap_or_default()
    }

    fn annotation(&self, message: &Message) -> String {
        let name = self.text(message, annotation::NAME, annotation::NAME_ID, interned::ANNOTATION_NAMES);
        let nested =
            |field| message.messages(field).iter().map(|nested| self.annotation(nested)).collect::<Vec<_>>().join(" ");
        let value = message.0.iter().find_map(|(field, value)| match (*field, value) {
            (annotation::BOOL, Value::Int(value)) => Some((*value == 1).to_string()),
            (annotation::INT, Value::Int(value)) => Some(value.cast_signed().to_string()),
            (annotation::UINT, Value::Int(value)) => Some(format!("{value}u")),
            (annotation::DOUBLE, Value::Int(value)) => Some(format!("{:?}", f64::from_bits(*value))),
            (annotation::STRING, Value::Bytes(text)) => Some(format!("{:?}", String::from_utf8(text.clone()).unwrap())),
            (annotation::STRING_ID, Value::Int(iid)) => {
                Some(format!("{:?}", self.texts[&(interned::ANNOTATION_STRINGS, *iid)]))
            }
            (annotation::DICT_ENTRIES, _) => Some(format!("{{{}}}", nested(annotation::DICT_ENTRIES))),
            (annotation::ARRAY_VALUES, _) => Some(format!("[{}]", nested(annotation::ARRAY_VALUES))),
            _ => None,
        });
        let value = value.unwrap_or_default();
        if name.is_empty() { value } else { format!("{name}={value}") }
    }
}

/// A decoded slice, instant or counter value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DecodedEvent {
    track: String,
    name: String,
    category: String,
    start: u64,
    end: u64,
    args: String,
    value: Option<u64>,
    flows: Vec<u64>,
    ended_flows: Vec<u64>,
}

/// Returns the path of each track, by uuid.
fn paths(packets: &[Message]) -> BTreeMap<u64, String> {
    let mut tracks: BTreeMap<u64, (String, Option<u64>)> = BTreeMap::new();
    for descriptor in packets.iter().filter_map(|packet| packet.message(packet::TRACK_DESCRIPTOR)) {
        let process = descriptor.message(track::PROCESS).and_then(|process| process.text(track::PROCESS_NAME));
        let thread = descriptor.message(track::THREAD).map(|thread| {
            let number = |field| thread.int(field).unwrap();
            format!(
                "{}/{} {}",
                number(track::THREAD_PROCESS_ID),
                number(track::THREAD_ID),
                thread.text(track::THREAD_NAME).unwrap()
            )
        });
        let name = descriptor.text(track::NAME).or(process).or(thread).unwrap();
        let known = tracks.insert(descriptor.int(track::UUID).unwrap(), (name, descriptor.int(track::PARENT)));
        assert!(known.is_none(), "a track is described twice");
    }
    let path = |(name, parent): &(String, Option<u64>)| {
        parent.map_or(name.clone(), |parent| format!("{} > {name}", tracks[&parent].0))
    };
    tracks.iter().map(|(uuid, track)| (*uuid, path(track))).collect()
}

/// Decodes a file; times are relative to the base.
fn decode(file: &[u8], base: u64) -> Vec<DecodedEvent> {
    let packets = Message::decode(file).messages(packet::PACKET);
    let paths = paths(&packets);
    let (mut states, mut found) = (BTreeMap::<u64, SequenceState>::new(), Vec::<DecodedEvent>::new());
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    // Perfetto sorts by time; packets of equal times keep the order of the file.
    let mut events = Vec::new();
    for packet in &packets {
        let Some(sequence) = packet.int(packet::SEQUENCE_ID) else { continue };
        let state = states.entry(sequence).or_default();
        if let Some(defaults) = packet.message(packet::DEFAULTS) {
            assert_eq!(packet.int(packet::SEQUENCE_FLAGS), Some(packet::STATE_CLEARED));
            state.track = defaults.message(packet::DEFAULT_TRACK_EVENT).unwrap().int(event::TRACK_UUID).unwrap();
            let snapshot = packet.message(packet::CLOCK_SNAPSHOT).unwrap();
            let clocks = snapshot.messages(clock::CLOCKS);
            assert!(clocks.iter().all(|clock| clock.int(clock::TIMESTAMP) == Some(base)));
            continue;
        }
        if let Some(new) = packet.message(packet::INTERNED_DATA) {
            for (field, value) in &new.0 {
                let Value::Bytes(bytes) = value else { panic!("not an entry") };
                let entry = Message::decode(bytes);
                let known =
                    state.texts.insert((*field, entry.int(interned::ID).unwrap()), entry.text(interned::TEXT).unwrap());
                assert!(known.is_none(), "a number has two texts");
            }
        }
        state.time += packet.int(packet::TIMESTAMP).unwrap();
        let event = packet.message(packet::TRACK_EVENT).unwrap();
        let args: Vec<String> =
            event.messages(event::DEBUG_ANNOTATIONS).iter().map(|arg| state.annotation(arg)).collect();
        let shown = DecodedEvent {
            track: paths[&state.track].clone(),
            name: state.text(&event, event::NAME, event::NAME_ID, interned::NAMES),
            category: state.text(&event, event::CATEGORIES, event::CATEGORY_IDS, interned::CATEGORIES),
            start: state.time,
            end: state.time,
            args: args.join(" "),
            value: event.int(event::COUNTER_VALUE).or(event.int(event::DOUBLE_COUNTER_VALUE)),
            flows: event.ints(event::FLOW_IDS),
            ended_flows: event.ints(event::TERMINATING_FLOW_IDS),
        };
        events.push((state.time, state.track, event.int(event::TYPE).unwrap(), shown));
    }
    events.sort_by_key(|(time, ..)| *time);
    for (time, track, kind, shown) in events {
        let open = open.entry(track).or_default();
        if kind == event::SLICE_END {
            found[open.pop().expect("a slice is open")].end = time;
        } else {
            if kind == event::SLICE_BEGIN {
                open.push(found.len());
            }
            found.push(shown);
        }
    }
    assert!(open.values().all(Vec::is_empty), "a slice never ends");
    found
}

const BASE: u64 = 1_000_000;

fn ns(ns: u64) -> Timestamp {
    Timestamp::from_nanos(BASE + ns)
}

/// Returns the events that `write` writes, without metadata.
fn written(write: impl FnOnce(&mut PerfettoWriter<'_>)) -> Vec<DecodedEvent> {
    let header = Header { metadata: &[], device_properties: &[], base: ns(0) };
    let mut file = Vec::new();
    let mut writer = PerfettoWriter::new(&mut file, &header).unwrap();
    let process = ProcessRow { process: Lane::Id(1), name: "app", label: "CPU", sort_index: 1, at: ns(0) };
    writer.write_process(&process).unwrap();
    writer.write_process(&ProcessRow { process: Lane::Id(0), name: "app", label: "GPU 0", ..process }).unwrap();
    write(&mut writer);
    writer.finish(ns(0), None, "").unwrap();
    let mut found = decode(&file, BASE);
    found.retain(|event| event.name != "trace_metadata");
    found
}

fn slice(start: u64, end: u64) -> Activity<'static> {
    Activity::new(ActivityType::CpuOp, "op", Track::new(1, 2), Body::Slice { start: ns(start), end: ns(end) })
}

/// Returns tracks and times, sorted.
fn places(found: &[DecodedEvent]) -> Vec<(String, u64, u64)> {
    let mut places: Vec<_> = found.iter().map(|event| (event.track.clone(), event.start, event.end)).collect();
    places.sort();
    places
}

#[test]
fn nested_slices_share_a_lane() {
    let slices = [(0, 100), (0, 100), (0, 50), (50, 50), (50, 100), (100, 101), (100, 100)];
    let found =
        written(|writer| slices.iter().for_each(|(start, end)| writer.write_activity(&slice(*start, *end)).unwrap()));
    let mut expected = slices.map(|(start, end)| ("1/2 ".to_owned(), start, end));
    expected.sort();
    assert_eq!(places(&found), expected);
}

#[test]
fn overlapping_slices_keep_their_length() {
    let slices = [(0, 10), (5, 15), (7, 12), (20, 30)];
    let found =
        written(|writer| slices.iter().for_each(|(start, end)| writer.write_activity(&slice(*start, *end)).unwrap()));
    let (thread, further) = ("1/2 ".to_owned(), "1/2  > overlapping".to_owned());
    let expected = [(thread.clone(), 0, 10), (thread, 20, 30), (further.clone(), 5, 15), (further, 7, 12)];
    assert_eq!(places(&found), expected);
    let kernels = written(|writer| {
        for (start, end) in slices {
            writer
                .write_activity(&Activity {
                    kind: ActivityType::ConcurrentKernel,
                    track: Track::new(0, 7),
                    ..slice(start, end)
                })
                .unwrap();
        }
    });
    assert!(kernels.iter().all(|kernel| kernel.track == "GPU 0 > stream 7" && kernel.category == "kernel"));
}

#[test]
fn additional_rows_of_a_stream_have_its_name() {
    let found = written(|writer| {
        for stream in [7, 10_000_007] {
            writer.write_activity(&Activity { track: Track::new(0, stream), ..slice(0, 10) }).unwrap();
            let continues = (stream > 7).then_some(Track::new(0, 7));
            let name = if stream > 7 { "stream 7 (2)" } else { "stream 7" };
            writer
                .write_thread(&ThreadRow { track: Track::new(0, stream), name, sort_index: 7, continues, at: ns(0) })
                .unwrap();
        }
    });
    assert_eq!(places(&found), [("GPU 0 > stream 7".to_owned(), 0, 10), ("GPU 0 > stream 7".to_owned(), 0, 10)]);
}

#[test]
fn arguments_keep_their_types() {
    let grid = [1, -2];
    let nested: [(&str, ArgValue<'_>); 1] = [("deep", ArgValue::Bool(true))];
    let args: [(&str, ArgValue<'_>); 13] = [
        ("a.b", ArgValue::I64(-1)),
        ("u", ArgValue::U64(7)),
        ("large", ArgValue::U64(u64::MAX)),
        ("f", ArgValue::F64(0.5)),
        ("nan", ArgValue::F64(f64::NAN)),
        ("i128", ArgValue::I128(-1 << 100)),
        ("u128", ArgValue::U128(8)),
        ("text", ArgValue::Str("ä\"\\")),
        ("grid", ArgValue::Ints(&grid)),
        ("names", ArgValue::Strs(&["x", "y"])),
        ("dims", ArgValue::Json("[[1, 2.5], {\"k\": null}]")),
        ("not", ArgValue::Json("json")),
        ("dict", ArgValue::Dict(&nested)),
    ];
    let activity = Activity { id: CorrelationId(9), args: &args, ..slice(0, 1) };
    let expected = "External id=9 a.b=-1 u=7 large=18446744073709551615u f=0.5 nan=NaN \
                    i128=\"-1267650600228229401496703205376\" u128=8 text=\"ä\\\"\\\\\" grid=[1 -2] names=[\"x\" \"y\"] \
                    dims=[[1 2.5] {k=\"null\"}] not=\"json\" dict={deep=true}";
    assert_eq!(written(|writer| writer.write_activity(&activity).unwrap())[0].args, expected);
    let long = "x".repeat(1 << 20);
    let args: [(&str, ArgValue<'_>); 1] = [(&long, ArgValue::Str(&long))];
    assert_eq!(
        written(|writer| writer.write_activity(&Activity { args: &args, name: &long, ..activity }).unwrap())[0].name,
        long
    );
}

#[test]
fn arrow_with_several_ends_is_an_arrow_to_each() {
    let start = Flow { kind: FlowKind::AsyncCpuToGpu, id: 5, end: FlowEnd::Start };
    let finish = Flow { end: FlowEnd::Finish, ..start };
    let found = written(|writer| {
        writer.set_ends(start, 3);
        writer.write_activity(&Activity { flow: Some(start), name: "launch", ..slice(0, 1) }).unwrap();
        for node in 1..=3 {
            writer.write_activity(&Activity { track: Track::new(0, 7), ..slice(node * 10, node * 10 + 1) }).unwrap();
            writer.write_flow(ns(node * 10), Track::new(0, 7), finish).unwrap();
        }
        let other = Flow { id: 6, ..start };
        writer.write_activity(&Activity { flow: Some(other), name: "other", ..slice(50, 51) }).unwrap();
    });
    let launch = found.iter().find(|event| event.name == "launch").unwrap();
    let ends: Vec<u64> = found.iter().flat_map(|event| event.ended_flows.clone()).collect();
    assert_eq!((launch.flows.len(), &launch.flows), (3, &ends));
    let other = found.iter().find(|event| event.name == "other").unwrap();
    assert!(other.flows.len() == 1 && !ends.contains(&other.flows[0]));
}

#[test]
fn starts_of_one_arrow_share_no_ids() {
    const STARTS: u64 = 40;

    let start = Flow { kind: FlowKind::AsyncCpuToGpu, id: 5, end: FlowEnd::Start };
    let finish = Flow { end: FlowEnd::Finish, ..start };
    // Before the first start comes an end; each start but the last has two.
    let found = written(|writer| {
        (0..STARTS).for_each(|at| writer.set_ends(start, if at + 1 < STARTS { 2 + u64::from(at == 0) } else { 0 }));
        let write = |writer: &mut PerfettoWriter<'_>, at, flow| {
            writer.write_activity(&Activity { flow: Some(flow), ..slice(at, at + 1) }).unwrap();
        };
        write(writer, 0, finish);
        for at in 1..=STARTS {
            write(writer, 10 * at, start);
            (1..=2).filter(|_| at < STARTS).for_each(|end| write(writer, 10 * at + end, finish));
        }
    });
    let starts: Vec<_> =
        found.iter().filter(|event| !event.flows.is_empty()).map(|event| event.flows.clone()).collect();
    assert_eq!(starts.iter().map(Vec::len).collect::<Vec<_>>(), [&[3][..], &[2; 38], &[1]].concat());
    // Each end is that of the start before it; the last start leads nowhere.
    let mut ids = starts.concat();
    assert!(!found.iter().any(|event| event.ended_flows.contains(&ids[ids.len() - 1])));
    ids.pop();
    assert_eq!(found.iter().flat_map(|event| event.ended_flows.clone()).collect::<Vec<_>>(), ids);
}

#[test]
fn separate_arrow_end_has_an_instant() {
    let finish = Flow { kind: FlowKind::FollowsFrom, id: 5, end: FlowEnd::Finish };
    let found = written(|writer| {
        writer.write_activity(&slice(0, 10)).unwrap();
        writer.write_activity(&slice(20, 30)).unwrap();
        writer.write_flow(ns(40), Track::new(1, 2), finish).unwrap();
    });
    assert_eq!(found.iter().map(|event| event.ended_flows.len()).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!((found[2].name.as_str(), found[2].start), ("follows_from", 40));
}

#[test]
fn counter_values_in_any_order_share_one_track() {
    let found = written(|writer| {
        for at in [5, 3, 9, 1] {
            let args: [(&str, ArgValue<'_>); 3] =
                [("depth", ArgValue::U64(at)), ("load", ArgValue::F64(0.5)), ("text", ArgValue::Str("no number"))];
            let body = Body::Counter { at: ns(at) };
            writer.write_activity(&Activity { body, args: &args, name: "queue", ..slice(0, 0) }).unwrap();
        }
    });
    let depths: Vec<_> = found
        .iter()
        .filter(|event| event.track == "app > queue depth")
        .map(|event| (event.start, event.value.unwrap()))
        .collect();
    assert_eq!(depths, [(1, 1), (3, 3), (5, 5), (9, 9)]);
    let loads =
        found.iter().filter(|event| event.track == "app > queue load" && event.value == Some(0.5_f64.to_bits()));
    assert_eq!((loads.count(), found.len()), (4, 8));
}

#[test]
fn allocations_become_counters_of_their_device() {
    let args: [(&str, ArgValue<'_>); 4] = [
        ("Device Type", ArgValue::I64(1)),
        ("Device Id", ArgValue::I64(2)),
        ("Total Allocated", ArgValue::I64(512)),
        ("Bytes", ArgValue::I64(-8)),
    ];
    let instant = Activity { name: "[memory]", body: Body::Instant { at: ns(4) }, args: &args, ..slice(0, 0) };
    let found = written(|writer| writer.write_activity(&instant).unwrap());
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].track.as_str(), found[0].value), ("app > Total Allocated (GPU 2)", Some(512)));
    assert_eq!((found[1].track.as_str(), found[1].name.as_str()), ("1/2 ", "[memory]"));
}

#[test]
fn successive_spans_of_one_name_share_lanes() {
    let on = Track { process: Lane::Name("Async spans"), thread: Lane::Id(0) };
    let row =
        |track, start, end| AsyncRow { name: "get", span: 7, track, on, start: ns(start), end: ns(end), args: NO_ARGS };
    let rows = [row(1, 0, 100), row(2, 10, 20), row(1, 20, 50), row(3, 30, 40), row(4, 100, 110)];
    let mut bytes = Vec::new();
    let found = written(|writer| {
        rows.iter().for_each(|row| writer.write_async_track(row).unwrap());
        bytes.push(writer.tracks.sequences);
    });
    assert_eq!(bytes, [2]);
    assert!(found.iter().all(|event| event.track == "Async spans > get" && event.category == "async"));
    assert_eq!(
        places(&found).iter().map(|(_, start, end)| (*start, *end)).collect::<Vec<_>>(),
        [(0, 100), (10, 20), (20, 50), (30, 40), (100, 110)]
    );
}

#[test]
fn slices_too_deep_for_perfetto_take_another_lane() {
    let found =
        written(|writer| (0..2000).for_each(|depth| writer.write_activity(&slice(depth, 10_000 - depth)).unwrap()));
    let expected: Vec<_> = (0..2000).map(|depth| (depth, 10_000 - depth)).collect();
    let mut times: Vec<_> = found.iter().map(|event| (event.start, event.end)).collect();
    times.sort_unstable();
    assert_eq!(times, expected);
    let deepest = found.iter().filter(|event| event.track == "1/2 ").count();
    assert!(deepest <= 512, "{deepest}");
}

#[test]
fn metadata_is_a_separate_instant() {
    let metadata =
        [("host_name".to_owned(), "\"vm\"".to_owned()), ("distributedInfo".to_owned(), "{\"rank\": 1}".to_owned())];
    let devices = ["{\"id\": 0, \"name\": \"H200\"}".to_owned()];
    let header = Header { metadata: &metadata, device_properties: &devices, base: ns(0) };
    let mut file = Vec::new();
    let mut writer = PerfettoWriter::new(&mut file, &header).unwrap();
    writer.mark_incomplete(3, 9);
    let seed = writer.tracks.seed;
    writer.finish(ns(5), Some("{\"rank\": 2}"), "a.pftrace").unwrap();
    let found = decode(&file, BASE);
    assert_eq!((found.len(), found[0].track.as_str()), (1, "Trace metadata"));
    let seed = if i64::try_from(seed).is_ok() { seed.to_string() } else { format!("{seed}u") };
    let expected = format!(
        "deviceProperties=[{{id=0 name=\"H200\"}}] host_name=\"vm\" distributedInfo={{rank=1}} \
                    tracing_kineto_incomplete={{of=9 rows=3}} traceName=\"a.pftrace\" tracing_kineto_file={{flow_seed={seed} window_end_ns=1000005}}"
    );
    let sorted = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    // The order of keys depends on a feature of serde_json.
    assert_eq!(sorted(&found[0].args), sorted(&expected), "{}", found[0].args);
}

#[test]
fn metadata_is_at_the_earliest_event() {
    let header = Header { metadata: &[], device_properties: &[], base: ns(0) };
    let mut file = Vec::new();
    let mut writer = PerfettoWriter::new(&mut file, &header).unwrap();
    for (start, end) in [(7_000, 8_000), (6_000, 6_500)] {
        writer.write_activity(&slice(start, end)).unwrap();
    }
    writer.finish(ns(0), None, "").unwrap();
    let found = decode(&file, BASE);
    assert_eq!(found.iter().find(|event| event.name == "trace_metadata").unwrap().start, 6_000);
}

#[test]
fn files_of_two_recordings_can_be_joined() {
    let file = |id: &str| {
        let metadata = [("trace_id".to_owned(), format!("\"{id}\""))];
        let header = Header { metadata: &metadata, device_properties: &[], base: ns(0) };
        let mut file = Vec::new();
        let mut writer = PerfettoWriter::new(&mut file, &header).unwrap();
        writer.write_activity(&slice(0, 5)).unwrap();
        writer.finish(ns(0), None, "").unwrap();
        Message::decode(&file)
    };
    let uuids = |file: &Message| -> Vec<_> {
        let packets = file.messages(packet::PACKET);
        packets.iter().filter_map(|packet| packet.message(packet::TRACK_DESCRIPTOR)?.int(track::UUID)).collect()
    };
    let (one, other) = (uuids(&file("a")), uuids(&file("b")));
    assert!(one.len() == 3 && one.iter().all(|uuid| !other.contains(uuid)), "{one:?} {other:?}");
    assert_eq!(one, uuids(&file("a")));
}

#[test]
fn write_error_reaches_the_caller() {
    struct FailingWriter;
    impl Write for FailingWriter {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let header = Header { metadata: &[], device_properties: &[], base: ns(0) };
    let mut file = FailingWriter;
    let mut writer = PerfettoWriter::new(&mut file, &header).unwrap();
    let failed = (0..100_000).find_map(|at| writer.write_activity(&slice(at, at)).err());
    assert_eq!(failed.unwrap().kind(), io::ErrorKind::StorageFull);
    let mut file = FailingWriter;
    let writer = PerfettoWriter::new(&mut file, &header).unwrap();
    assert_eq!(writer.finish(ns(0), None, "").err().unwrap().kind(), io::ErrorKind::StorageFull);
}

proptest! {
    #[test]
    fn any_slices_round_trip(
        mut slices in prop::collection::vec((0..50_u64, 0..50_u64, 0..3_i64, any::<String>(), any::<i64>()), 0..60),
        is_sorted in any::<bool>(),
    ) {
        if is_sorted {
            slices.sort_by_key(|(start, length, ..)| (*start, std::cmp::Reverse(*length)));
        }
        let found = written(|writer| {
            for (start, length, thread, text, number) in &slices {
                let args: [(&str, ArgValue<'_>); 2] = [("text", ArgValue::Str(text)), ("number", ArgValue::I64(*number))];
                let track = Track::new(1, *thread);
                writer.write_activity(&Activity { name: text, args: &args, track, ..slice(*start, start + length) }).unwrap();
            }
        });
        let show = |(start, length, thread, text, number): &(u64, u64, i64, String, i64)| {
            (*start, start + length, format!("1/{thread} "), name_in_file(text).into_owned(), format!("text={text:?} number={number}"))
        };
        let mut expected: Vec<_> = slices.iter().map(show).collect();
        let mut actual: Vec<_> = found
            .iter()
            .map(|event| {
                let thread = event.track.split(" > ").next().unwrap().to_owned();
                (event.start, event.end, thread, event.name.clone(), event.args.clone())
            })
            .collect();
        expected.sort();
        actual.sort();
        prop_assert_eq!(actual, expected);
    }
}
