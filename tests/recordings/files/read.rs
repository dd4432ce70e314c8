//! Reading traces of other programs: each file in `shared` against its known figures.
#![cfg(feature = "gzip")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use support::traces::{are_available, folder};
use tracing_kineto::Timestamp;
use tracing_kineto::activity::{CorrelationId, DeviceType, FlowEnd, FlowKind, RecordScope};
use tracing_kineto::analysis::ErrorKind;
use tracing_kineto::analysis::{Event, Events, Note, Shape};

/// A file with known figures.
struct KnownTrace {
    trace: String,
    events: Events,
    /// The file's base time, which the figures do not include.
    base: u64,
    figures: Value,
}

/// Returns all of them, read once since unoptimized reading is slow.
fn all() -> &'static [KnownTrace] {
    static ALL: LazyLock<Vec<KnownTrace>> = LazyLock::new(|| {
        let files = std::fs::read_dir(folder().join("../analysis/expected")).unwrap();
        let all: Vec<_> = files.map(|entry| known(&entry.unwrap().path())).collect();
        assert!(all.len() >= 12, "{} traces", all.len());
        all
    });
    if are_available() { &ALL } else { &[] }
}

fn known(figures: &Path) -> KnownTrace {
    let figures: Value = serde_json::from_slice(&std::fs::read(figures).unwrap()).unwrap();
    let trace = figures["trace"].as_str().unwrap().to_owned();
    let text = text(&folder().join("..").join(&trace));
    let base = text.split_once("\"baseTimeNanoseconds\": ").map_or("0", |(_, behind)| behind);
    let base = base.split_once(|c: char| !c.is_ascii_digit()).map_or(0, |(base, _)| base.parse().unwrap());
    KnownTrace { events: Events::from_reader(text.as_bytes()).unwrap(), base, trace, figures }
}

/// Returns the text of a file.
fn text(path: &Path) -> String {
    std::io::read_to_string(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())).unwrap()
}

/// Converts microseconds with three decimals to nanoseconds.
fn nanos(value: &Value) -> u64 {
    format!("{:.0}", value.as_f64().unwrap() * 1000.0).parse().unwrap()
}

#[test]
fn traces_have_the_known_slices_times_and_categories() {
    for KnownTrace { trace, events, base, figures } in all() {
        let load = &figures["load"];
        let slices: Vec<_> = events.iter().filter(|event| event.is_slice()).collect();
        assert_eq!(slices.len() as u64, load["slices"].as_u64().unwrap(), "{trace}");
        let mut categories: BTreeMap<&str, u64> = BTreeMap::new();
        slices.iter().for_each(|event| *categories.entry(event.category()).or_default() += 1);
        assert_eq!(serde_json::to_value(&categories).unwrap(), load["cats"], "{trace}");
        let start = slices.iter().map(|event| event.start()).min().unwrap();
        let end = slices.iter().map(|event| event.end()).max().unwrap();
        assert_eq!(start.as_nanos(), base + load["first_ts_ns"].as_u64().unwrap(), "{trace}");
        assert_eq!(end.since(start), nanos(&load["span"]), "{trace}");
        assert_eq!(
            slices.iter().filter(|event| event.is_device_work()).count() as u64,
            load["device_events"],
            "{trace}"
        );
        let noted = |note| events.notes().find(|(found, _)| *found == note).map_or(0, |(_, count)| count);
        assert_eq!(noted(Note::NegativeDuration), load["negative_durations"].as_u64().unwrap(), "{trace}");
        assert_eq!(noted(Note::WithoutTime), load["slices_without_time"].as_u64().unwrap(), "{trace}");
        let all: u64 = events.notes().map(|(_, count)| count).sum();
        assert_eq!(all, 0, "{trace}: {:?}", events.notes().collect::<Vec<_>>());
        assert!(events.iter().map(|event| event.start()).is_sorted());
        assert!(events.window().0 > Timestamp::default() && events.window().0 < events.window().1);
    }
}

#[test]
fn device_work_is_attributed_to_the_known_operations() {
    for KnownTrace { trace, events, figures, .. } in all() {
        let counts = events.attribution().counts();
        let mut ours = BTreeMap::from([
            ("same", counts.same),
            ("external_id_differs", counts.external_id_differs),
            ("external_id_only", counts.external_id_only),
            ("nesting_only", counts.nesting_only),
            ("none", counts.none),
            ("external_id_refused", counts.external_id_refused),
        ]);
        ours.retain(|_, count| *count > 0);
        assert_eq!(serde_json::to_value(&ours).unwrap(), figures["ops_total"]["attribution"], "{trace}");
        let work = events.iter().filter(|event| event.is_device_work());
        let attribution = events.attribution();
        let launched = work.filter(|event| attribution.launch(*event).is_some()).count() as u64;
        assert_eq!(launched, figures["launch"]["count"], "{trace}");
    }
}

/// Reads a handmade trace of all special cases.
#[test]
fn handmade_trace_of_special_cases_has_the_known_figures() {
    if !are_available() {
        return;
    }
    let edge = folder().join("../analysis/edge");
    let events = Events::read(edge.join("edge.pt.trace.json")).unwrap();
    let figures: Value = serde_json::from_slice(&std::fs::read(edge.join("edge.expected.json")).unwrap()).unwrap();
    let load = &figures["figures"]["load"];
    assert_eq!(events.iter().filter(|event| event.is_slice()).count() as u64, load["slices"]);
    assert_eq!(events.iter().filter(|event| event.is_device_work()).count() as u64, load["device_events"]);
    let negative = events.notes().find(|(note, _)| *note == Note::NegativeDuration).map_or(0, |(_, count)| count);
    assert_eq!(negative, load["negative_durations"].as_u64().unwrap());
    let counts = events.attribution().counts();
    let attribution = &figures["figures"]["ops_total"]["attribution"];
    for (name, count) in [
        ("same", counts.same),
        ("nesting_only", counts.nesting_only),
        ("none", counts.none),
        ("external_id_refused", counts.external_id_refused),
    ] {
        assert_eq!(count, attribution[name].as_u64().unwrap_or(0), "{name}");
    }
}

#[test]
fn file_is_refused_at_the_right_byte_when_it_is_not_json() {
    if !are_available() {
        return;
    }
    let path = folder().join("invalid/torch215_metadata_quote.pt.trace.json.gz");
    let error = Events::read(&path).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Json, Some(path.as_path())));
    let place = text(&path).find("/\"world/").unwrap() + 2;
    assert!(error.to_string().contains(&format!("(byte {place})")), "{error}");
}

/// Returns the events of a file, if it exists.
fn read(trace: &str) -> Option<Events> {
    are_available().then(|| Events::read(folder().join(format!("{trace}.pt.trace.json.gz"))).unwrap())
}

fn first<'e>(events: &'e Events, wanted: impl Fn(&Event<'e>) -> bool) -> Event<'e> {
    events.iter().find(wanted).unwrap()
}

#[test]
fn kernels_have_their_collectors_values() {
    let Some(events) = read("gpu/nccl_training_rank") else { return };
    let reduce = first(&events, |event| event.is_device_work() && event.correlation() == Some(60047));
    let metadata = reduce.metadata();
    assert_eq!((metadata.grid(), metadata.block()), (Some([8, 1, 1]), Some([544, 1, 1])));
    assert_eq!((metadata.registers_per_thread(), metadata.shared_memory()), (Some(96), Some(87568)));
    assert_eq!((metadata.blocks_per_sm(), metadata.estimated_occupancy_percent()), (Some(0.074074), Some(0)));
    assert_eq!((metadata.collective_name(), metadata.group_size()), (Some("allreduce"), Some(2)));
    assert_eq!((metadata.process_group_ranks(), metadata.dtype()), (Some("[0, 1]"), Some("Float")));
    assert_eq!((metadata.bytes(), metadata.graph_id(), metadata.occupancy()), (None, None, None));
    assert_eq!(
        (reduce.device_type(), reduce.device_index(), reduce.stream()),
        (Some(DeviceType::Cuda), Some(0), Some(40))
    );
    assert_eq!((reduce.process(), reduce.thread(), reduce.correlation()), (None, None, Some(60047)));
    assert_eq!(
        (reduce.id(), reduce.linked(), reduce.external_id()),
        (None, Some(CorrelationId(12945)), reduce.linked())
    );
    let flow = reduce.flow().unwrap();
    assert_eq!((flow.kind, flow.id, flow.end), (FlowKind::AsyncCpuToGpu, 60047, FlowEnd::Finish));
    let launch = events.attribution().launch(reduce).unwrap();
    assert_eq!((launch.name(), launch.device_index(), launch.stream()), ("cudaLaunchKernelExC", None, None));
    assert_eq!(launch.flow().map(|flow| (flow.id, flow.end)), Some((60047, FlowEnd::Start)));
    // Every arrow has its slice, and a launch and its kernel have the same arrow.
    assert_eq!(events.iter().map(|event| event.flows().count()).sum::<usize>(), 8652 + 3862 + 2 * 543);
    let attribution = events.attribution();
    for kernel in events.iter().filter(|event| event.is_device_work()) {
        let id = kernel.flow().unwrap().id;
        assert!(attribution.launch(kernel).unwrap().flows().any(|flow| flow.id == id), "{kernel:?}");
    }
}

#[test]
fn device_waits_copies_and_annotations_have_values() {
    let Some(events) = read("gpu/cuda_event_sync_multi_stream") else { return };
    let wait = first(&events, |event| event.name() == "Stream Wait Event");
    let metadata = wait.metadata();
    assert_eq!((metadata.wait_on_stream(), metadata.wait_on_record()), (Some(20), Some(1385)));
    assert_eq!((wait.stream(), wait.id(), wait.linked()), (Some(24), Some(CorrelationId(1389)), None));
    let sync = first(&events, |event| event.name() == "Event Sync");
    assert_eq!((sync.stream(), sync.linked(), sync.metadata().wait_on_record()), (None, Some(CorrelationId(2)), None));

    let Some(events) = read("gpu/h100_bert_inference") else { return };
    let copy = first(&events, |event| event.category() == "gpu_memcpy");
    assert_eq!((copy.bytes(), copy.metadata().bandwidth_gb_s()), (Some(1), Some(0.0004464285714285714)));
    let annotation = first(&events, |event| event.category() == "gpu_user_annotation");
    let on_host = first(&events, |event| event.id() == annotation.linked());
    assert_eq!((on_host.name(), on_host.scope()), ("ProfilerStep#6", Some(RecordScope::UserScope)));
    assert_eq!(events.tree().parent(annotation).map(|parent| parent.index()), Some(on_host.index()));
    let memory = first(&events, |event| event.name() == "[memory]");
    assert!(memory.is_instant() && memory.id().is_none() && memory.duration_ns() == 0);
    assert_eq!((memory.bytes(), memory.address()), (Some(144_384), Some(128_184_607_182_336)));
    assert_eq!((memory.device_type(), memory.device_index()), (Some(DeviceType::Cuda), Some(0)));
    assert_eq!((memory.total_allocated(), memory.total_reserved()), (Some(91_505_152), Some(121_634_816)));
    assert!(events.metadata().any(|(key, value)| key == "with_stack" && value == "1"));
}

#[test]
fn operations_have_torchs_values() {
    let Some(events) = read("torch215_cpu/cpu_steps_all") else { return };
    let count = |with: fn(&Event<'_>) -> bool| events.iter().filter(with).count();
    assert_eq!(count(|event| event.input_dims().is_some()), 360);
    assert_eq!(count(|event| event.forward_thread().is_some()), 36);
    let backward = first(&events, |event| event.name() == "autograd::engine::evaluate_function: SumBackward0");
    assert_eq!((backward.sequence_number(), backward.forward_thread()), (Some(221), Some(1)));
    assert_eq!((backward.id(), backward.linked()), (Some(CorrelationId(3109)), None));
    assert_eq!((backward.process(), backward.thread(), backward.device_index()), (Some(2402), Some(2402), None));
    let mm = first(&events, |event| event.name() == "aten::addmm");
    let dims = mm.input_dims().unwrap();
    assert!(
        matches!(&dims[..3], [Shape::Tensor(bias), Shape::Tensor(a), Shape::Tensor(b)] if (bias.len(), a.len(), b.len()) == (1, 2, 2))
    );
    assert_eq!((mm.input_types().unwrap().len(), mm.concrete_inputs().unwrap().len()), (dims.len(), dims.len()));
    assert_eq!((mm.stack().count(), mm.backend(), mm.scope()), (0, None, None));
    let frame = first(&events, |event| event.python_id() == Some(2));
    assert_eq!((frame.call_from(), frame.python_parent_id()), (Some("gen_reference.py:72"), Some(1)));
    let memory = first(&events, |event| event.name() == "[memory]");
    assert_eq!((memory.device_type(), memory.device_index()), (Some(DeviceType::Cpu), None));
    let tree = events.tree();
    assert_eq!(tree.depth_first().count(), events.len());
    assert_eq!(tree.parent(frame).and_then(|parent| parent.python_id()), Some(1));
    let ancestor = |name: &str| tree.ancestors(mm).any(|around| around.name() == name);
    assert!(ancestor("aten::linear"), "{:?}", tree.ancestors(mm).collect::<Vec<_>>());
}

#[test]
fn truncated_file_has_a_note() {
    let file = |more: &str| {
        let slice = r#"{"ph":"X","cat":"cpu_op","name":"work","pid":1,"tid":1,"ts":1,"dur":2,"args":{}}"#;
        format!(r#"{{"traceEvents":[{slice}]{more}}}"#)
    };
    let read = |text: String| Events::from_reader(text.as_bytes()).unwrap();
    let events = read(file(r#","tracing_kineto_incomplete":{"rows":1,"of":7}"#));
    assert_eq!(events.notes().collect::<Vec<_>>(), [(Note::Incomplete, 1)]);
    assert!(events.key_averages().table().to_string().ends_with("Data loss: closed_early: 1\n"));
    assert!(!read(file("")).key_averages().table().to_string().contains("Data loss"));
}
