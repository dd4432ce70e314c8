//! A program's own records: in a separate file, and within a recording.

use serde_json::Value;
use support::virtual_time;
use support::wait::{sleep, wall};
use support::{File, layer, record};
use tracing::info_span;
use tracing_kineto::activity::{
    Activity, ActivityType, ArgValue, Body, CorrelationId, Flow, FlowEnd, FlowKind, Lane, NO_ARGS, Track,
};
use tracing_kineto::analysis::Events;
use tracing_kineto::integration::CpuTraceBuilder;
use tracing_kineto::torch::{Libkineto, TorchOptions};
use tracing_kineto::{ActivityTypes, ErrorKind, Format, Loss, Timestamp, Trace};
use tracing_subscriber::layer::SubscriberExt;

/// Returns the time `us` microseconds after a fixed time in 2026.
fn at(us: u64) -> Timestamp {
    Timestamp::from_nanos(1_790_857_026_000_000_000 + us * 1000)
}

fn slice(kind: ActivityType, name: &str, thread: i64, from: u64, to: u64) -> Activity<'_> {
    Activity::new(kind, name, Track::new(0, thread), Body::Slice { start: at(from), end: at(to) })
}

fn op(name: &str, thread: i64, from: u64, to: u64) -> Activity<'_> {
    slice(ActivityType::CpuOp, name, thread, from, to)
}

/// Returns the file; checks that reading it back gives the trace.
fn file_of(trace: &Trace) -> Value {
    File::of(trace.clone()).json
}

fn rows<'f>(file: &'f Value, name: &str) -> Vec<&'f Value> {
    file["traceEvents"].as_array().unwrap().iter().filter(|row| row["name"] == name).collect()
}

#[virtual_time]
fn trace_builder_writes_a_file_without_a_layer() {
    let mut builder = CpuTraceBuilder::new(at(0), "PyTorch Profiler");
    let hosts = ActivityType::ALL.iter().copied().filter(|kind| kind.is_cpu());
    for (number, kind) in (0u64..).zip(hosts) {
        builder.push(&slice(kind, kind.as_str(), 7, 10 * number, 10 * number + 5)).unwrap();
    }
    let kinds = builder.len();
    let args: [(&str, ArgValue<'_>); 3] =
        [("Bytes", ArgValue::I64(-512)), ("Input Dims", ArgValue::Json("[[2,3]]")), ("text", ArgValue::Str("a \"b\""))];
    let mut instant =
        Activity::new(ActivityType::CpuInstantEvent, "[memory]", Track::new(0, 8), Body::Instant { at: at(3) });
    instant.args = &args;
    builder.push(&instant).unwrap();
    let mut linked = op("linked", 8, 20, 30);
    (linked.id, linked.linked) = (CorrelationId(u64::MAX), CorrelationId(0));
    linked.flow = Some(Flow { kind: FlowKind::ForwardBackward, id: 3, end: FlowEnd::Start });
    let number = builder.push(&linked).unwrap();
    builder.set_arg(number, "Call stack", ArgValue::Str("main.rs(3): main")).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.json");
    let trace = builder.finish(at(1000));
    trace.save(&path).unwrap();
    let events = Events::read(&path).unwrap();
    assert_eq!(events.len(), kinds + 2);
    for kind in ActivityType::ALL.iter().copied().filter(|kind| kind.is_cpu()) {
        let event = events.iter().find(|event| event.name() == kind.as_str()).unwrap();
        assert_eq!((event.kind(), event.duration_ns()), (Some(kind), 5000));
    }
    let found = events.iter().find(|event| event.name() == "linked").unwrap();
    assert_eq!(found.id(), Some(CorrelationId(u64::MAX)));

    let file = file_of(&trace);
    let instant = rows(&file, "[memory]")[0];
    assert_eq!((&instant["ph"], &instant["dur"], &instant["tid"]), (&"i".into(), &Value::Null, &8.into()));
    assert_eq!(instant["args"].to_string(), r#"{"Bytes":-512,"Input Dims":[[2,3]],"text":"a \"b\""}"#);
    let linked = rows(&file, "linked")[0];
    assert_eq!(linked["args"]["External id"], u64::MAX.to_string());
    assert_eq!(linked["args"]["Call stack"], "main.rs(3): main");
    assert_eq!(
        (linked["ts"].as_f64(), linked["pid"].as_u64()),
        (rows(&file, "[memory]")[0]["ts"].as_f64().map(|ts| ts + 17.0), Some(std::process::id().into()))
    );
    assert_eq!(rows(&file, "fwdbwd")[0]["ph"], "s");
    // One row for the whole trace: the builder's.
    let spans: Vec<_> = file["traceEvents"].as_array().unwrap().iter().filter(|row| row["cat"] == "Trace").collect();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0]["name"], "PyTorch Profiler (0)");
    assert_eq!((spans[0]["dur"].as_f64(), &spans[0]["args"]["Op count"]), (Some(1000.0), &(kinds + 2).into()));
    assert_eq!(trace.why_empty(), None);
    let stats = trace.stats();
    assert_eq!((stats.slices, stats.events), (kinds as u64 + 1, 1));
    assert!(stats.recorded.is_empty() && trace.window() == (at(0), at(1000)));
}

#[virtual_time]
fn unfinished_slices_reach_the_end_and_overlaps_get_rows() {
    let mut builder = CpuTraceBuilder::new(at(0), "x");
    // In any order.
    for activity in
        [op("c", 7, 50, 80), op("open", 9, 40, 0), op("b", 7, 20, 60), op("a", 7, 10, 100), op("b in", 7, 20, 30)]
    {
        builder.push(&activity).unwrap();
    }
    let named = Track { process: Lane::Name("remote"), thread: Lane::Name("worker") };
    for (from, to) in [(1, 5), (3, 9)] {
        let mut activity = op("named", 0, from, to);
        activity.track = named;
        builder.push(&activity).unwrap();
    }
    let trace = builder.finish(at(200));
    let mut bytes = Vec::new();
    trace.write(&mut bytes, Format::Json).unwrap();
    let file: Value = serde_json::from_slice(&bytes).unwrap();
    let open = rows(&file, "open")[0];
    assert_eq!((open["dur"].as_f64(), &open["args"]["finished"]), (Some(160.0), &false.into()));
    let tid = |name: &str| rows(&file, name)[0]["tid"].as_u64().unwrap();
    assert_eq!((tid("a"), tid("b"), tid("b in"), tid("c")), (7, 7, 7, 10_000_007));
    assert_eq!(rows(&file, "c")[0]["args"]["thread id"], 7);
    let workers: Vec<_> = rows(&file, "named").iter().map(|row| row["tid"].as_str().unwrap().to_owned()).collect();
    assert_eq!(workers, ["worker", "worker (2)"]);
    let loss = |loss| trace.stats().losses.iter().find(|(which, _)| *which == loss).map_or(0, |(_, count)| *count);
    assert_eq!((loss(Loss::Overlapping), loss(Loss::Unfinished)), (2, 1));
}

#[virtual_time]
fn full_builder_returns_an_error_and_counts_losses() {
    let mut builder = CpuTraceBuilder::new(at(0), "x").limit_bytes(4000);
    let refused = (0..100).filter(|_| builder.push(&op("op", 1, 1, 2)).is_err()).count() as u64;
    assert!(refused > 0 && refused < 100);
    assert_eq!(builder.push(&op("op", 1, 1, 2)).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(builder.finish(at(9)).stats().losses.contains(&(Loss::SlicesOverLimit, refused + 1)));
}

#[virtual_time]
fn transferred_records_join_the_recording() {
    let (layer, guard) = layer(|builder| builder);
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    let filled = |name: &str| {
        let mut builder = CpuTraceBuilder::new(at(0), name);
        builder.push(&op("pushed", 77, 10, 20)).unwrap();
        builder
    };
    let trace = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("span").in_scope(|| {});
        libkineto.transfer(filled("engine"), at(30)).unwrap();
        assert_eq!(profiler.snapshot().unwrap().events().iter().filter(|event| event.name() == "pushed").count(), 1);
        libkineto.transfer(filled("engine"), at(30)).unwrap();
        libkineto.transfer(filled("other"), at(30)).unwrap();
        guard.finish().unwrap()
    });
    let file = file_of(&trace);
    assert_eq!((rows(&file, "pushed").len(), rows(&file, "span").len()), (3, 1));
    let whole: Vec<_> = file["traceEvents"].as_array().unwrap().iter().filter(|row| row["cat"] == "Trace").collect();
    let names: Vec<_> = whole.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tracing-kineto (0)", "engine (0)", "engine (1)", "other (0)"]);
    assert_eq!(libkineto.transfer(filled("late"), at(30)).unwrap_err().kind(), ErrorKind::NotActive);
    // The next recording starts without them.
    profiler.start().unwrap();
    assert!(profiler.stop().unwrap().events().is_empty());
}

#[virtual_time]
fn transfer_respects_selected_types_and_the_limit() {
    let annotations: ActivityTypes = ActivityType::UserAnnotation.into();
    let (_layer, guard) = layer(|builder| builder.activities(annotations).buffer_limit_bytes(4 << 20));
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    let mut builder = CpuTraceBuilder::new(at(0), "x");
    builder.push(&op("op", 1, 1, 2)).unwrap();
    builder.push(&slice(ActivityType::UserAnnotation, "note", 1, 1, 2)).unwrap();
    libkineto.transfer(builder, at(9)).unwrap();
    let mut large = CpuTraceBuilder::new(at(0), "large");
    let text = "x".repeat(5 << 20);
    large.push(&op(&text, 1, 1, 2)).unwrap();
    assert_eq!(libkineto.transfer(large, at(9)).unwrap_err().kind(), ErrorKind::TooLarge);
    let names: Vec<_> = guard.finish().unwrap().events().iter().map(|event| event.name().to_owned()).collect();
    assert_eq!(names, ["note"]);
}

#[virtual_time]
fn reported_slice_keeps_its_thread_and_times() {
    let (layer, guard) = layer(|builder| builder);
    let profiler = guard.profiler();
    let trace = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let outer = info_span!("outer").entered();
        let before = info_span!("before").entered();
        drop(before);
        let start = wall();
        sleep(std::time::Duration::from_millis(2));
        let end = wall();
        let args: [(&str, ArgValue<'_>); 1] = [("Debug handle", ArgValue::I64(-1))];
        profiler.record_slice("conv2d", "xnnpack", start.into(), end.into(), &args).unwrap();
        sleep(std::time::Duration::from_millis(2));
        info_span!("after").in_scope(|| {});
        drop(outer);
        guard.finish().unwrap()
    });
    let file = file_of(&trace);
    let times = |name: &str| {
        let row = rows(&file, name)[0];
        let start = row["ts"].as_f64().unwrap();
        (start, start + row["dur"].as_f64().unwrap())
    };
    let conv = rows(&file, "conv2d")[0];
    assert_eq!((&conv["tid"], &conv["cat"]), (&rows(&file, "outer")[0]["tid"], &"cpu_op".into()));
    assert!(times("outer").0 <= times("conv2d").0 && times("conv2d").1 <= times("outer").1);
    assert!(times("before").1 <= times("conv2d").1 && times("conv2d").1 <= times("after").0);
    assert_eq!(conv["args"].to_string(), r#"{"Backend":"xnnpack","Debug handle":-1}"#);
    let refused = profiler.record_slice("late", "", at(1), at(2), NO_ARGS).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotActive);
}

#[virtual_time]
fn pushed_operations_are_execution_trace_nodes() {
    let (_layer, guard) = layer(|builder| builder.torch(TorchOptions::new().execution_trace(true)));
    let profiler = guard.profiler();
    let mut builder = CpuTraceBuilder::new(at(0), "x");
    let args: [(&str, ArgValue<'_>); 1] = [("Record function id", ArgValue::I64(31))];
    let ids = [("outer", 5, 0, 100), ("inner", 6, 10, 20)].map(|(name, id, from, to)| {
        let mut activity = op(name, 7, from, to);
        activity.id = CorrelationId(id);
        activity.args = if name == "inner" { &args } else { NO_ARGS };
        builder.push(&activity).unwrap()
    });
    assert_eq!(ids, [0, 1]);
    Libkineto::of(&profiler).transfer(builder, at(100)).unwrap();
    let trace = guard.finish().unwrap();
    let file = file_of(&trace);
    let ids = ["outer", "inner"].map(|name| rows(&file, name)[0]["args"]["Record function id"].as_u64());
    assert_eq!(ids, [Some(5), Some(31)]);
    let mut bytes = Vec::new();
    trace.write_execution_trace(&mut bytes).unwrap();
    let execution: Value = serde_json::from_slice(&bytes).unwrap();
    let nodes: Vec<_> = execution["nodes"].as_array().unwrap().iter().skip(2).collect();
    let shown = nodes
        .iter()
        .map(|node| (node["name"].as_str(), node["ctrl_deps"].as_u64(), node["attrs"][0]["value"].as_u64()));
    let expected = [(Some("outer"), Some(2), Some(5)), (Some("inner"), Some(3), Some(31))];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[virtual_time]
fn reported_records_are_absent_from_other_recordings() {
    let file = record(|| info_span!("span").in_scope(|| {}));
    let spans = file.json["traceEvents"].as_array().unwrap().iter().filter(|row| row["cat"] == "Trace");
    assert_eq!(spans.count(), 1);
}
