//! A program's own collectors: their records are linked to spans, drawn, counted and described.

use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};
use support::virtual_time;
use support::wait::{sleep, wall};
use support::{File, enter, exit, layer, nanos, on_thread, record_with};
use tracing::{info_span, subscriber};
use tracing_kineto::activity::CorrelationId;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{
    ApiCall, Attempt, Capabilities, CollectorReport, CounterSample, DeviceDescription, DeviceWork, Name, Overhead,
    RecordLayout, RecordSink, RecordView, Recording, Selection, Thread, Unavailable, Why,
};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ActivityType, ActivityTypes, ArgValue, Collective, Loss, ProcessGroup, Timestamp, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// A fake device: work begins when its launch returns and takes a microsecond.
#[derive(Clone, Debug, Default)]
struct Toy {
    state: Arc<State>,
    refuses: Option<Unavailable>,
}

#[derive(Debug, Default)]
struct State {
    sink: Mutex<Option<RecordSink>>,
    correlation: AtomicU64,
    starts: AtomicU64,
    stops: AtomicU64,
}

thread_local! {
    static PUSHED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct ToyShape;

impl RecordLayout for ToyShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("correlation", ArgValue::U64(record.correlation));
        if record.device_id >= 0 {
            each("device", ArgValue::I64(record.device_id.into()));
            each("stream", ArgValue::U64(record.stream.into()));
            each("blocks", ArgValue::U64(record.word(0)));
            each("memory", ArgValue::I64(record.device.and_then(|device| device.property("totalGlobalMem")).unwrap()));
        }
    }
}

/// A number and a share in percent.
#[derive(Debug)]
struct ToyCounters;

impl RecordLayout for ToyCounters {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("cycles", ArgValue::U64(record.word(0)));
        each("busy", ArgValue::F64(f64::from_bits(record.word(1))));
    }
}

impl Collector for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::CudaDriver)
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let mut can = Capabilities::default();
        can.types = self.types();
        can.metadata = vec![("toy_version".to_owned(), "3".to_owned())];
        self.refuses.clone().map_or(Ok(can), Err)
    }
    fn start(&self, _: &Selection, sink: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        self.state.starts.fetch_add(1, Ordering::Relaxed);
        let can = self.probe()?;
        *self.state.sink.lock().unwrap() = Some(sink);
        Ok((can, Box::new(self.clone())))
    }
}

impl Recording for Toy {
    fn push(&self, id: CorrelationId) -> bool {
        PUSHED.with_borrow_mut(|pushed| pushed.push(id.0));
        true
    }
    fn pop(&self) {
        PUSHED.with_borrow_mut(|pushed| pushed.pop()).expect("pop without a push");
    }
    fn stop(&self, _: Timestamp, _: Instant) {
        self.state.stops.fetch_add(1, Ordering::Relaxed);
        self.state.sink.lock().unwrap().take();
    }
    fn devices(&self) -> Vec<DeviceDescription> {
        let mut device = DeviceDescription::new(0, "Toy \"1\"");
        device.properties = vec![("totalGlobalMem".into(), 1024)];
        vec![device]
    }
}

fn now() -> u64 {
    u64::try_from(wall().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

impl Toy {
    /// Launches a kernel on a stream. Each work item is `(start, length)` in nanoseconds; `start` counts from the end of the
    /// call, or back from its begin if negative.
    fn launch(&self, kernel: &str, stream: u32, work: &[(i64, u64)]) -> u64 {
        let start = now();
        let correlation = self.state.correlation.fetch_add(1, Ordering::Relaxed) + 1;
        let external = PUSHED.with_borrow(|pushed| pushed.last().copied().unwrap_or(0));
        while now() < start + 2000 {}
        let end = now();
        let sink = self.state.sink.lock().unwrap();
        let Some(sink) = &*sink else { return correlation };
        sink.record(|batch| {
            let name: Name = batch.name("cuLaunchKernel");
            let thread = Thread::Id(thread_id());
            let call = ApiCall::new(ActivityType::CudaDriver, name, thread, (start, end), &ToyShape);
            batch.call(&ApiCall { correlation, external, launches: true, ..call });
            let name = batch.name(kernel);
            for (after, length) in work {
                let start = if *after < 0 { start } else { end }.saturating_add_signed(*after);
                let (kind, end) = (ActivityType::ConcurrentKernel, if *length == 0 { 0 } else { start + length });
                let work = DeviceWork::new(kind, name, (0, stream), (start, end), &ToyShape);
                batch.work(&DeviceWork { correlation, words: &[5, 0], ..work });
            }
        });
        correlation
    }
}

/// Accepts every second slice, and makes spans during the call.
#[derive(Clone, Debug, Default)]
struct EverySecondSlice {
    asked: Arc<AtomicU64>,
    pushed: Arc<AtomicU64>,
}

impl Collector for EverySecondSlice {
    fn name(&self) -> &'static str {
        "picky"
    }
    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::ConcurrentKernel)
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let mut can = Capabilities::default();
        can.metadata = [("toy_version", "4"), ("odd", "{")].map(|(key, json)| (key.to_owned(), json.to_owned())).into();
        Ok(can)
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for EverySecondSlice {
    fn push(&self, _: CorrelationId) -> bool {
        let takes = info_span!("of the collector").in_scope(|| self.asked.fetch_add(1, Ordering::Relaxed) % 2 == 1);
        self.pushed.fetch_add(u64::from(takes), Ordering::Relaxed);
        takes
    }
    fn pop(&self) {
        let before = info_span!("of the collector").in_scope(|| self.pushed.fetch_sub(1, Ordering::Relaxed));
        assert!(before > 0, "pop without a push");
    }
    fn stop(&self, _: Timestamp, _: Instant) {}
}

/// Panics in one of its methods.
#[derive(Clone, Debug)]
struct PanickingCollector(&'static str);

impl PanickingCollector {
    fn panic_in(&self, method: &str) {
        assert_ne!(self.0, method, "on purpose");
    }
}

impl Collector for PanickingCollector {
    fn name(&self) -> &'static str {
        self.panic_in("name");
        "broken"
    }
    fn types(&self) -> ActivityTypes {
        self.panic_in("types");
        ActivityTypes::from(ActivityType::ConcurrentKernel)
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.panic_in("probe");
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        self.panic_in("start");
        Ok((Capabilities::default(), Box::new(self.clone())))
    }
    fn attempts(&self) -> Vec<Attempt> {
        self.panic_in("attempts");
        Vec::new()
    }
}

impl Recording for PanickingCollector {
    fn push(&self, _: CorrelationId) -> bool {
        self.panic_in("push");
        true
    }
    fn pop(&self) {
        self.panic_in("pop");
    }
    fn drain(&self, _: Duration) {
        self.panic_in("drain");
    }
    fn stop(&self, _: Timestamp, _: Instant) {
        self.panic_in("stop");
    }
    fn devices(&self) -> Vec<DeviceDescription> {
        self.panic_in("devices");
        Vec::new()
    }
    fn clock(&self) -> Option<u64> {
        self.panic_in("clock");
        None
    }
}

fn thread_id() -> i64 {
    std::fs::read_link("/proc/thread-self").unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn events<'f>(file: &'f File, ph: &str, cat: &str) -> Vec<&'f Value> {
    let events = file.json["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == ph && event["cat"] == cat).collect()
}

fn record(toy: &Toy, work: impl FnOnce()) -> File {
    let toy = toy.clone();
    record_with(|builder| builder.collector(toy), work)
}

fn spin() {
    let from = now();
    while now() < from + 3000 {}
}

#[virtual_time]
fn work_is_linked_to_the_span_that_launched_it() {
    let toy = Toy::default();
    let file = record(&toy, || {
        let _step = annotate!("step {}", 1).entered();
        info_span!("forward").in_scope(|| {
            spin();
            toy.launch("gemm", 7, &[(1000, 5000)]);
            spin();
        });
        toy.launch("graph", 7, &[(9000, 90), (9100, 90), (9200, 90)]);
        spin();
    });
    let slice = |name: &str| file.slices().iter().find(|slice| slice.name == name).unwrap().clone();
    let (step, forward) = (slice("step 1"), slice("forward"));
    let calls = events(&file, "X", "cuda_driver");
    let kernels = events(&file, "X", "kernel");
    assert_eq!((calls.len(), kernels.len()), (2, 4));
    for (row, around) in [(calls[0], &forward), (kernels[0], &forward), (calls[1], &step), (kernels[3], &step)] {
        assert_eq!(row["args"]["External id"], around.args["External id"], "{row}");
    }
    let args = json!({"External id": forward.args["External id"], "correlation": 1, "device": 0, "stream": 7,
        "blocks": 5, "memory": 1024});
    assert_eq!(kernels[0]["args"], args);
    assert_eq!((&kernels[0]["pid"], &kernels[0]["tid"]), (&json!(0), &json!(7)));
    assert_eq!(calls[0]["tid"], json!(forward.tid), "the call is on its thread");
    // One arrow end for each piece of work, one start for each launch.
    let (starts, ends) = (events(&file, "s", "ac2g"), events(&file, "f", "ac2g"));
    let ids = |events: &[&Value]| events.iter().map(|event| event["id"].clone()).collect::<Vec<_>>();
    assert_eq!((ids(&starts), ids(&ends)), (vec![json!(1), json!(2)], vec![json!(1), json!(2), json!(2), json!(2)]));
    // The enclosing annotation, drawn on the stream.
    let spans = events(&file, "X", "gpu_user_annotation");
    assert_eq!(spans.len(), 1);
    assert_eq!(
        (&spans[0]["name"], &spans[0]["args"]),
        (&json!("step 1"), &json!({"External id": step.args["External id"]}))
    );
    let ns = |event: &Value, key: &str| nanos(&event[key]);
    // Shorter by a nanosecond, or by two where readers round times to nanoseconds.
    let end = |event: &Value| ns(event, "ts") + ns(event, "dur");
    assert!((1..=2).contains(&(ns(kernels[0], "ts") - ns(spans[0], "ts"))));
    assert!((1..=2).contains(&(end(spans[0]) - end(kernels[3]))));
    // The device has a name, a position and its properties.
    assert_eq!(file.json["deviceProperties"], json!([{"id": 0, "name": "Toy \"1\"", "totalGlobalMem": 1024}]));
    let names: Vec<_> = file.json["traceEvents"].as_array().unwrap().iter().filter(|event| event["pid"] == 0).collect();
    let named = |what: &str, arg: &str, value: Value| {
        assert!(names.iter().any(|row| row["name"] == what && row["args"][arg] == value), "{what}")
    };
    named("process_name", "name", json!("GPU 0: Toy \"1\""));
    named("process_labels", "labels", json!("GPU 0"));
    named("process_sort_index", "sort_index", json!(5_000_000));
    named("thread_name", "name", json!("stream 7 "));
    assert_eq!(file.json["toy_version"], json!(3));
    let stats = file.trace.stats();
    assert_eq!((stats.device_activities, stats.collectors.iter().map(|report| report.records).sum::<u64>()), (4, 6));
    assert!(stats.losses.is_empty(), "{stats}");
    assert_eq!(file.json["tracing_kineto"]["collectors"]["toy"]["records"], json!(6));
}

#[virtual_time]
fn device_counters_are_graphs_in_time_order() {
    let toy = Toy::default();
    let file = record_with(
        |builder| builder.collector(toy.clone()).activities(ActivityTypes::ALL),
        || {
            let sink = toy.state.sink.lock().unwrap().clone().unwrap();
            let begun = now();
            spin();
            sink.record(|batch| {
                let name = batch.name("HBM");
                for (kind, at, cycles) in [
                    (ActivityType::MtiaCounters, begun + 20, 7),
                    (ActivityType::MtiaCounters, begun + 10, 5),
                    (ActivityType::HardwareCounters, begun + 15, 6),
                    (ActivityType::MtiaCounters, begun - 3_600_000_000_000, 1),
                ] {
                    let words = &[cycles, 0.5f64.to_bits()];
                    batch.counters(&CounterSample::new(kind, name, (3, 2), at, &ToyCounters, words));
                }
            });
        },
    );
    let mtia = events(&file, "C", "mtia_counters");
    let seen: Vec<_> = mtia.iter().map(|row| (&row["name"], &row["pid"], &row["tid"], &row["args"])).collect();
    let [five, seven] = [5, 7].map(|cycles| json!({"cycles": cycles, "busy": 0.5}));
    let expected = [(&json!("HBM"), &json!(3), &json!(2), &five), (&json!("HBM"), &json!(3), &json!(2), &seven)];
    assert_eq!(seen, expected);
    assert_eq!(nanos(&mtia[1]["ts"]) - nanos(&mtia[0]["ts"]), 10);
    let hardware = events(&file, "C", "hardware_counters");
    let seen: Vec<_> = hardware.iter().map(|row| (&row["name"], &row["pid"], &row["args"])).collect();
    let group = json!("GPU 3 Counters");
    assert_eq!(seen, [(&json!("cycles"), &group, &json!({"": 6})), (&json!("busy"), &group, &json!({"": 0.5}))]);
    let stats = file.trace.stats();
    assert_eq!([Loss::ImpossibleTimes, Loss::OutOfWindow].map(|loss| stats.lost(loss)), [1, 0], "{stats}");
    assert_eq!(stats.collectors.iter().map(|report| report.records).sum::<u64>(), 3);
    // The device has a heading though its streams are empty.
    let label = |row: &&Value| row["pid"] == 3 && row["name"] == "process_labels";
    let labels: Vec<_> = file.json["traceEvents"].as_array().unwrap().iter().filter(label).collect();
    assert_eq!(labels.len(), 1);
    let read = file.trace.events();
    assert_eq!(read.iter().filter(|event| event.is_counter()).count(), 4);
}

#[virtual_time]
fn nested_annotations_are_on_the_row_of_their_work() {
    let toy = Toy::default();
    let file = record(&toy, || {
        let _outer = annotate!("outer").entered();
        toy.launch("first", 7, &[(1000, 500)]);
        annotate!("middle").in_scope(|| annotate!("inner").in_scope(|| toy.launch("last", 7, &[(2000, 500)])));
    });
    let spans = events(&file, "X", "gpu_user_annotation");
    let kernels = events(&file, "X", "kernel");
    assert_eq!((spans.len(), kernels.len()), (3, 2));
    assert!(spans.iter().chain(&kernels).all(|row| row["tid"] == 7), "{spans:?} {kernels:?}");
    assert!(kernels.iter().all(|kernel| nanos(&kernel["dur"]) == 500), "work keeps its duration");
    assert_eq!(file.trace.stats().lost(Loss::OverlappingWork), 0);
}

#[virtual_time]
fn annotations_are_on_one_row_when_their_work_touches() {
    let toy = Toy::default();
    let file = record(&toy, || {
        let at = now();
        for (nth, name) in ["one", "two", "three"].iter().enumerate() {
            let nth = nth as u64;
            let _step = annotate!("{name}").entered();
            let external = PUSHED.with_borrow(|pushed| pushed.last().copied().unwrap());
            toy.state.sink.lock().unwrap().as_ref().unwrap().record(|batch| {
                let (name, kind, thread) = (batch.name("c"), ActivityType::CudaDriver, Thread::Id(thread_id()));
                let correlation = nth + 1;
                let call = ApiCall::new(kind, name, thread, (at + nth, at + nth + 1), &ToyShape);
                batch.call(&ApiCall { correlation, external, launches: true, ..call });
                let times = (at + 1000 * nth + 1000, at + 1000 * nth + 2000);
                let work = DeviceWork::new(ActivityType::ConcurrentKernel, name, (0, 7), times, &ToyShape);
                batch.work(&DeviceWork { correlation, ..work });
            });
            spin();
        }
    });
    let spans = events(&file, "X", "gpu_user_annotation");
    assert_eq!(spans.iter().map(|span| &span["name"]).collect::<Vec<_>>(), ["one", "two", "three"]);
    assert!(spans.iter().chain(&events(&file, "X", "kernel")).all(|row| row["tid"] == 7), "{spans:?}");
    assert_eq!(file.trace.stats().lost(Loss::OverlappingWork), 0);
}

#[virtual_time]
fn collectors_of_one_device_have_separate_rows_and_reports() {
    let toys = [Toy::default(), Toy::default()];
    let file = record_with(
        |builder| toys.iter().fold(builder, |builder, toy| builder.collector(toy.clone())),
        || {
            for toy in &toys {
                // Each ends in the middle of one of the other collector's.
                toy.launch("k", 7, &[(1000, 500_000)]);
                let sink = toy.state.sink.lock().unwrap();
                sink.as_ref().unwrap().record(|batch| {
                    let (name, start) = (batch.name("Buffer Flush"), now());
                    batch.overhead(&Overhead::new(name, (start, start + 500_000)));
                });
            }
            spin();
        },
    );
    let tids = |cat| events(&file, "X", cat).iter().map(|row| row["tid"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!((tids("kernel"), tids("overhead")), (vec![7, 10_000_007], vec![0, 1]));
    assert!(events(&file, "X", "overhead").iter().all(|row| row["pid"] == 0x1FFF_FFFF), "apart from the device");
    assert!(file.events().any(|row| row["pid"] == 0x1FFF_FFFF && row["args"]["name"] == "Overhead"));
    assert!(file.trace.events().iter().all(|event| event.name() != "Buffer Flush" || event.process().is_none()));
    let of_cpu = |row: &Value| row["pid"] == std::process::id();
    let rows = file.events().filter(|row| row["name"] == "thread_name" && !of_cpu(row));
    let names: Vec<_> = rows.map(|row| row["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["stream 7 ", "TOY Overhead", "stream 7 (2)", "TOY Overhead"]);
    let labels = file.events().filter(|row| row["name"] == "process_labels" && row["pid"] == 0);
    assert_eq!((labels.count(), file.json["deviceProperties"].as_array().unwrap().len()), (1, 1));
    let reports = &file.json["tracing_kineto"]["collectors"];
    assert_eq!((&reports["toy"]["records"], &reports["toy (2)"]["records"]), (&json!(2), &json!(2)));
    let stats = file.trace.stats();
    assert!(stats.to_string().contains("\n  toy (2): 2 records"), "{stats}");
    assert_eq!(stats.lost(Loss::OverlappingWork), 0, "work of two collectors is no overlap");
}

#[virtual_time]
fn overlapping_work_goes_to_a_second_row_of_its_stream() {
    let toy = Toy::default();
    let file = record(&toy, || {
        info_span!("s").in_scope(|| {
            toy.launch("k", 7, &[(1000, 5000), (2500, 9000), (3500, 9000), (20_000, 10)]);
        });
    });
    let kernels = events(&file, "X", "kernel");
    let mut tids: Vec<_> = kernels.iter().map(|kernel| kernel["tid"].as_u64().unwrap()).collect();
    tids.sort_unstable();
    assert_eq!(tids, [7, 7, 10_000_007, 20_000_007]);
    assert!(kernels.iter().all(|kernel| kernel["args"]["stream"] == 7));
    assert_eq!(file.trace.stats().lost(Loss::OverlappingWork), 2);
    let names = file.json["traceEvents"].as_array().unwrap().iter();
    let second = names.filter(|row| row["name"] == "thread_name" && row["tid"] == 10_000_007 && row["pid"] == 0);
    assert_eq!(second.map(|row| row["args"]["name"].clone()).collect::<Vec<_>>(), [json!("stream 7 (2)")]);
}

#[test]
fn unlinked_and_unfinished_work_is_drawn_and_counted() {
    let toy = Toy::default();
    let file = record(&toy, || {
        toy.launch("alone", 7, &[(100, 10)]);
        let _span = info_span!("s").entered();
        toy.launch("endless", 8, &[(100, 0)]);
        toy.launch("nothing", 7, &[]);
        toy.launch("early", 9, &[(-500, 5000)]);
    });
    let kernels = events(&file, "X", "kernel");
    assert_eq!(kernels.len(), 3);
    let alone = kernels.iter().find(|kernel| kernel["name"] == "alone").unwrap();
    assert_eq!(alone["args"].get("External id"), None);
    let endless = kernels.iter().find(|kernel| kernel["name"] == "endless").unwrap();
    assert_eq!(endless["args"]["finished"], json!(false));
    assert_eq!(events(&file, "s", "ac2g").len(), 3, "a launch without work starts no arrow");
    let stats = file.trace.stats();
    let lost = [Loss::LaunchesUnlinked, Loss::UnfinishedWork, Loss::LaunchesWithoutWork, Loss::WorkBeforeLaunch];
    assert_eq!(lost.map(|loss| stats.lost(loss)), [1, 1, 1, 1], "{stats}");
    // No arrow points back in time to the early kernel.
    let ts = |event: &Value| event["ts"].as_f64().unwrap();
    for end in events(&file, "f", "ac2g") {
        let starts = events(&file, "s", "ac2g");
        let start = starts.iter().find(|start| start["id"] == end["id"]).unwrap();
        assert!(ts(end) >= ts(start));
    }
}

#[virtual_time]
fn thread_without_spans_has_a_row_for_its_calls() {
    let toy = Toy::default();
    let file = record(&toy, || {
        info_span!("s").in_scope(spin);
        std::thread::scope(|scope| {
            scope.spawn(|| toy.launch("k", 7, &[(100, 10)])).join().unwrap();
        });
    });
    let call = events(&file, "X", "cuda_driver")[0].clone();
    let rows = file.json["traceEvents"].as_array().unwrap().iter();
    let is_its_name = |row: &&Value| row["name"] == "thread_name" && row["tid"] == call["tid"];
    let name = rows.into_iter().find(is_its_name).unwrap();
    assert!(name["args"]["name"].as_str().unwrap().contains("no spans"), "{name}");
}

#[virtual_time]
fn spans_open_before_the_recording_are_linked_by_time() {
    let toy = Toy::default();
    let (layer, guard) = layer(|builder| builder.collector(toy.clone()).record_from_start(false));
    let file = subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = info_span!("old").entered();
        guard.profiler().start().unwrap();
        spin();
        toy.launch("k", 7, &[(100, 10)]);
        spin();
        drop(span);
        File::of(guard.finish().unwrap())
    });
    let old = file.slices().iter().find(|slice| slice.name == "old").unwrap();
    assert_eq!(events(&file, "X", "kernel")[0]["args"]["External id"], old.args["External id"]);
    assert_eq!(file.trace.stats().lost(Loss::LinkedByTime), 1);
}

#[virtual_time]
fn recording_begins_with_no_pushed_ids() {
    let toy = Toy::default();
    let (layer, guard) = layer(|builder| builder.collector(toy.clone()));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let left_open = info_span!("left open").entered();
        drop(guard.profiler().stop().unwrap());
        guard.profiler().start().unwrap();
        info_span!("s").in_scope(|| toy.launch("k", 7, &[(100, 10)]));
        assert_eq!(PUSHED.with_borrow(Vec::len), 0);
        drop(left_open);
        let file = File::of(guard.profiler().stop().unwrap());
        let slice = file.slices().iter().find(|slice| slice.name == "s").unwrap();
        assert_eq!(events(&file, "X", "kernel")[0]["args"]["External id"], slice.args["External id"]);
        assert_eq!((toy.state.starts.load(Ordering::Relaxed), toy.state.stops.load(Ordering::Relaxed)), (2, 2));
    });
}

#[virtual_time]
fn pushed_ids_follow_spans_that_end_out_of_order() {
    let toy = Toy::default();
    let file = record(&toy, || {
        let outer = info_span!("outer").entered();
        let inner = info_span!("inner").entered();
        drop(outer);
        toy.launch("in inner", 7, &[(100, 10)]);
        let _deep = info_span!("deep").entered();
        toy.launch("in deep", 7, &[(100, 10)]);
        drop(inner);
        toy.launch("in deep", 7, &[(100, 10)]);
        spin();
    });
    for kernel in events(&file, "X", "kernel") {
        let around = kernel["name"].as_str().unwrap().trim_start_matches("in ");
        let slice = file.slices().iter().find(|slice| slice.name == around).unwrap();
        assert_eq!(kernel["args"]["External id"], slice.args["External id"], "{kernel}");
    }
    assert_eq!(PUSHED.with_borrow(Vec::len), 0);
}

#[virtual_time]
fn launch_is_not_of_a_span_that_another_thread_exited() {
    let toy = Toy::default();
    let file = record(&toy, || {
        let _outer = info_span!("outer").entered();
        let lent = info_span!("lent");
        enter(&lent);
        toy.launch("in lent", 7, &[(100, 10)]);
        spin();
        on_thread("other", || exit(&lent));
        spin();
        toy.launch("in outer", 7, &[(100, 10)]);
        info_span!("inner").in_scope(|| toy.launch("in inner", 7, &[(100, 10)]));
        toy.launch("in outer", 7, &[(100, 10)]);
        spin();
    });
    for kernel in events(&file, "X", "kernel") {
        let around = kernel["name"].as_str().unwrap().trim_start_matches("in ");
        let slice = file.slices().iter().find(|slice| slice.name == around).unwrap();
        assert_eq!(kernel["args"]["External id"], slice.args["External id"], "{kernel}");
    }
    let stats = file.trace.stats();
    assert_eq!([Loss::LinkedByTime, Loss::LaunchesUnlinked].map(|loss| stats.lost(loss)), [1, 0], "{stats}");
    assert_eq!(PUSHED.with_borrow(Vec::len), 0);
}

#[virtual_time]
fn collector_pops_only_ids_it_took_and_may_make_spans() {
    let (toy, every_second) = (Toy::default(), EverySecondSlice::default());
    let file = record_with(
        |builder| builder.collector(toy.clone()).collector(every_second.clone()),
        || {
            for _ in 0..2000 {
                info_span!("outer").in_scope(|| {
                    info_span!("inner", field = 1).in_scope(|| ());
                    info_span!("last").in_scope(|| ());
                });
            }
        },
    );
    assert_eq!((every_second.pushed.load(Ordering::Relaxed), PUSHED.with_borrow(Vec::len)), (0, 0));
    assert_eq!(every_second.asked.load(Ordering::Relaxed), 6000, "its own spans are not pushed");
    let count = |name: &str| file.slices().iter().filter(|slice| slice.name == name).count();
    assert_eq!([count("outer"), count("inner"), count("last"), count("of the collector")], [2000, 2000, 2000, 0]);
    assert!(file.trace.stats().lost(Loss::Reentered) > 0);
    assert_eq!((&file.json["toy_version"], &file.json["odd"]), (&json!(4), &json!("{")), "the header is valid JSON");
}

#[virtual_time]
fn work_in_a_pause_is_excluded_even_without_its_launch() {
    let toy = Toy::default();
    let (layer, guard) = layer(|builder| builder.collector(toy.clone()));
    let work = |kernel: &str, correlation: u64| {
        let sink = toy.state.sink.lock().unwrap();
        sink.as_ref().unwrap().record(|batch| {
            let (kind, name, times) = (ActivityType::ConcurrentKernel, batch.name(kernel), (now(), now() + 10));
            batch.work(&DeviceWork { correlation, ..DeviceWork::new(kind, name, (0, 7), times, &ToyShape) });
        });
        sleep(Duration::from_millis(1));
    };
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        work("before", 1);
        profiler.pause().unwrap();
        sleep(Duration::from_millis(1));
        work("paused", 2);
        profiler.resume().unwrap();
        work("after", 3);
        let file = File::of(profiler.stop().unwrap());
        let kernels = events(&file, "X", "kernel");
        assert_eq!(kernels.iter().map(|kernel| &kernel["name"]).collect::<Vec<_>>(), ["before", "after"]);
        assert_eq!(file.trace.stats().lost(Loss::OutOfWindow), 1);
    });
}

#[virtual_time]
fn slice_that_ended_in_a_pause_launches_nothing_later() {
    let toy = Toy::default();
    let (layer, guard) = layer(|builder| builder.collector(toy.clone()));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        let span = info_span!("over").entered();
        toy.launch("inside", 7, &[(100, 10)]);
        profiler.pause().unwrap();
        drop(span);
        sleep(Duration::from_millis(1));
        profiler.resume().unwrap();
        // No hook ran on this thread in the meantime.
        toy.launch("alone", 7, &[(100, 10)]);
        spin();
        let file = File::of(profiler.stop().unwrap());
        let kernels = events(&file, "X", "kernel");
        let linked = kernels.iter().map(|kernel| kernel["args"].get("External id").is_some());
        assert_eq!(linked.collect::<Vec<_>>(), [true, false]);
        assert_eq!(file.trace.stats().lost(Loss::LaunchesUnlinked), 1);
        info_span!("next").in_scope(|| ());
    });
}

#[virtual_time]
fn library_overhead_outside_the_recording_is_not_drawn() {
    let toy = Toy::default();
    let file = record(&toy, || {
        let sink = toy.state.sink.lock().unwrap();
        sink.as_ref().unwrap().record(|batch| {
            let (name, at) = (batch.name("Buffer Flush"), now());
            batch.overhead(&Overhead::new(name, (at, at + 10)));
            batch.overhead(&Overhead::new(name, (at - 3_600_000_000_000, at - 3_599_000_000_000)));
            batch.overhead(&Overhead::new(name, (at + 3_600_000_000_000, at + 3_601_000_000_000)));
        });
        spin();
    });
    assert_eq!(events(&file, "X", "overhead").len(), 1);
    assert_eq!(file.trace.stats().lost(Loss::OutOfWindow), 0, "it is not the program's");
}

#[virtual_time]
fn work_with_an_impossible_end_is_unfinished() {
    const YEAR: u64 = 365 * 86_400 * 1_000_000_000;
    let toy = Toy::default();
    let file = record(&toy, || {
        let _step = annotate!("step").entered();
        info_span!("s").in_scope(|| {
            toy.launch("endless", 8, &[(100, 0)]);
            toy.launch("for years", 7, &[(100, 3 * YEAR)]);
            toy.launch("in years", 9, &[(3 * YEAR as i64, 10)]);
        });
        let sink = toy.state.sink.lock().unwrap();
        sink.as_ref().unwrap().record(|batch| {
            let (name, start) = (batch.name("Buffer Flush"), now());
            batch.overhead(&Overhead::new(name, (start, start + YEAR)));
        });
    });
    let devices = ["kernel", "gpu_user_annotation", "overhead"].map(|cat| events(&file, "X", cat));
    assert_eq!(devices.each_ref().map(Vec::len), [3, 3, 1]);
    for row in devices.iter().flatten() {
        assert!(nanos(&row["dur"]) < 60_000_000_000, "{row}");
    }
    assert!(devices[0].iter().all(|kernel| kernel["args"]["finished"] == json!(false)));
    let stats = file.trace.stats();
    assert_eq!([Loss::TimesBeyondEnd, Loss::UnfinishedWork].map(|loss| stats.lost(loss)), [3, 1], "{stats}");
}

#[virtual_time]
fn flush_timeout_may_be_unlimited() {
    let toy = Toy::default();
    let builder =
        |builder: tracing_kineto::KinetoLayerBuilder| builder.collector(toy.clone()).flush_timeout(Duration::MAX);
    let file = record_with(builder, || {
        toy.launch("k", 7, &[(100, 10)]);
    });
    assert_eq!(events(&file, "X", "kernel").len(), 1);
}

#[virtual_time]
fn no_ids_are_pushed_without_external_correlation() {
    let toy = Toy::default();
    let types = ActivityTypes::DEFAULT.without(ActivityType::ExternalCorrelation);
    let file = record_with(
        |builder| builder.collector(toy.clone()).activities(types),
        || {
            let _span = info_span!("s").entered();
            assert_eq!(PUSHED.with_borrow(Vec::len), 0);
            toy.launch("k", 7, &[(100, 10)]);
            spin();
        },
    );
    assert_eq!(file.trace.stats().lost(Loss::LinkedByTime), 1, "the work is linked by time");
}

#[virtual_time]
fn host_is_recorded_when_a_collector_is_unavailable() {
    let why = Unavailable::new(Why::Busy, "another profiler has the toy", "stop that one");
    let toy = Toy { refuses: Some(why), ..Toy::default() };
    let file = record(&toy, || info_span!("s").in_scope(spin));
    assert_eq!(file.slices().len(), 1);
    let stats = file.trace.stats();
    assert!(stats.to_string().contains("toy: another profiler has the toy; stop that one"), "{stats}");
    let header = &file.json["tracing_kineto"]["collectors"]["toy"]["unavailable"];
    assert_eq!(header, "another profiler has the toy; stop that one");
    assert_eq!(PUSHED.with_borrow(Vec::len), 0);
}

#[virtual_time]
fn trace_names_the_method_when_a_collector_panics() {
    for method in ["name", "types", "start", "push", "pop", "drain", "stop", "devices", "clock"] {
        let toy = Toy::default();
        let (layer, guard) = layer(|builder| builder.collector(PanickingCollector(method)).collector(toy.clone()));
        let file = subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..3 {
                info_span!("s").in_scope(|| toy.launch("k", 7, &[(100, 10)]));
            }
            let profiler = guard.profiler();
            assert!(Libkineto::of(&profiler).supported_activities().contains(ActivityType::ConcurrentKernel));
            drop(profiler.snapshot().unwrap());
            File::of(profiler.stop().unwrap())
        });
        let linked = events(&file, "X", "kernel").iter().filter(|row| row["args"].get("External id").is_some()).count();
        assert_eq!((file.slices().len(), linked, file.trace.stats().losses.len()), (3, 3, 0), "{method}");
        let stats = file.trace.stats();
        let reason_of = |report: &CollectorReport| {
            report.state.as_ref().err().map_or_else(|| report.notes.join(""), ToString::to_string)
        };
        let reasons: Vec<_> = stats.collectors.iter().map(reason_of).collect();
        let panicked = format!("it panicked in `{method}`: assertion");
        let is_its = |reason: &String| reason.contains(&panicked) && reason.contains("on purpose");
        assert!(reasons.iter().any(is_its), "{method}: {reasons:?}");
    }
}

#[virtual_time]
fn panic_in_a_probe_is_reported_as_the_reason() {
    let (_layer, guard) = layer(|builder| builder.collector(PanickingCollector("probe")).record_from_start(false));
    let reports = guard.profiler().collectors();
    let reason = reports.iter().find(|report| report.name == "broken").unwrap().state.as_ref().unwrap_err();
    assert!(reason.message().starts_with("it panicked in `probe`: "), "{reason}");
    for method in ["probe", "attempts", "types"] {
        let diagnosis = tracing_kineto::Doctor::new().collector(PanickingCollector(method)).examine();
        assert_eq!(diagnosis.collectors.last().unwrap().reason.is_some(), method != "attempts", "{diagnosis}");
    }
}

#[virtual_time]
fn collector_starts_only_when_selected() {
    let toy = Toy::default();
    let cpu = ActivityTypes::from(ActivityType::CpuOp);
    record_with(|builder| builder.collector(toy.clone()).activities(cpu), || info_span!("s").in_scope(spin));
    assert_eq!(toy.state.starts.load(Ordering::Relaxed), 0);
}

#[virtual_time]
fn prepared_collector_records_nothing_until_the_start() {
    let toy = Toy::default();
    let (layer, guard) = layer(|builder| builder.collector(toy.clone()).record_from_start(false));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        let libkineto = Libkineto::of(&profiler);
        assert!(libkineto.supported_activities().contains(ActivityType::ConcurrentKernel));
        drop(libkineto.prepare().unwrap());
        assert_eq!(toy.state.stops.load(Ordering::Relaxed), 1, "dropping it disarms");
        let prepared = libkineto.prepare().unwrap();
        let report = prepared.reports().iter().find(|report| report.name == "toy").unwrap();
        assert!(report.state.is_ok());
        assert_eq!(libkineto.prepare().unwrap_err().kind(), tracing_kineto::ErrorKind::AlreadyActive);
        toy.launch("too early", 7, &[(0, 10)]);
        prepared.start().unwrap();
        info_span!("s").in_scope(|| toy.launch("k", 7, &[(100, 10)]));
        let file = File::of(profiler.stop().unwrap());
        let kernels = events(&file, "X", "kernel");
        assert_eq!(kernels.iter().map(|kernel| &kernel["name"]).collect::<Vec<_>>(), ["k"]);
    });
}

#[virtual_time]
fn buffer_limit_bounds_collectors_records() {
    let toy = Toy::default();
    let file = record_with(
        |builder| builder.collector(toy.clone()).buffer_limit_bytes(5 * 64 * 1024),
        || {
            let many: Vec<_> = (0..5000_i64).map(|n| (n * 20, 10)).collect();
            info_span!("s").in_scope(|| toy.launch("k", 7, &many));
        },
    );
    let there = events(&file, "X", "kernel").len() as u64;
    let lost = file.trace.stats().lost(Loss::DeviceRecordsOverLimit);
    assert!(there > 0 && lost > 0 && there + lost == 5000, "{there} and {lost}");
    drop(file);
}

#[test]
fn endless_calls_leave_room_for_work() {
    let toy = Toy::default();
    let file = record_with(
        |builder| builder.collector(toy.clone()).buffer_limit_bytes(8 * 64 * 1024),
        || {
            let sink = toy.state.sink.lock().unwrap().clone().unwrap();
            sink.record(|batch| {
                let (kind, name, shape, at) = (ActivityType::CudaDriver, batch.name("cuEventQuery"), &ToyShape, now());
                let (thread, correlation, external, launches, words) = (Thread::Id(1), 0, 0, false, &[][..]);
                let (start, end) = (at, at + 1);
                let call = ApiCall { kind, name, thread, start, end, correlation, external, launches, shape, words };
                (0..20_000).for_each(|_| batch.call(&call));
            });
            info_span!("s").in_scope(|| toy.launch("k", 7, &[(100, 10)]));
        },
    );
    assert_eq!(events(&file, "X", "kernel").len(), 1);
    let there = events(&file, "X", "cuda_driver").len() as u64;
    let lost = file.trace.stats().lost(Loss::DeviceRecordsOverLimit);
    assert!(there > 5000 && there + lost == 20_001, "{there} and {lost}");
}

#[virtual_time]
fn collective_is_named_on_its_kernels() {
    let toy = Toy::default();
    let file = record(&toy, || {
        let span = info_span!("all_reduce", collective_name = "all_reduce", dtype = "Half", other = 3);
        span.in_scope(|| toy.launch("ncclDevKernel", 7, &[(100, 10)]));
    });
    let args = &events(&file, "X", "kernel")[0]["args"];
    assert_eq!((&args["Collective name"], &args["dtype"]), (&json!("all_reduce"), &json!("Half")));
    assert_eq!(args.get("other"), None);
}

#[virtual_time]
fn kernels_of_a_collective_have_all_its_arguments() {
    let toy = Toy::default();
    let group = ProcessGroup::new("0", [0, 1]).with_description("default_pg");
    let all_reduce = Collective::new("allreduce", &group, 1).with_elements("Float", 8, 8).with_seq(3);
    let file = record(&toy, || {
        all_reduce.span().in_scope(|| toy.launch("ncclDevKernel", 7, &[(100, 10)]));
    });
    let (kernel, operation) = (&events(&file, "X", "kernel")[0]["args"], &file.slice("record_param_comms").args);
    for key in ["Collective name", "dtype", "In msg nelems", "Group size", "Process Group Name", "Seq", "Comms Id"] {
        assert!(operation.get(key).is_some() && kernel[key] == operation[key], "{key}");
    }
    assert_eq!(kernel.get("backend_config"), None);
}
