//! A program on two GPUs with each version of CUPTI: all of its work is in the trace, on the right rows.
#![allow(clippy::cast_possible_truncation, reason = "tests count little")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use support::cuda::{Context, Cuda, Graph, Kernel, Memory, Stream};
use support::gpu::{Counts, VERSIONS, events, interval, kernels, machine, name, tally, under};
use support::virtual_time;
use support::{File, cuda, gpu};
use tracing::info_span;
use tracing_kineto::annotate;

const STEPS: usize = 3;

/// The device work of a step.
const STEP: Counts =
    Counts { launches: 12, kernels: 9, copies: 4, fills: 2, linked: 15, starts: 12, ends: 15, annotations: 7 };

/// The work of a step: name, device, and launching span.
const WORK: [(&str, usize); 11] = [
    ("Memcpy DtoD (Device -> Device) on 0 of download", 1),
    ("Memcpy DtoH (Device -> Pageable) on 0 of download", 1),
    ("Memcpy HtoD (Pageable -> Device) on 0 of upload", 1),
    ("Memcpy PtoP (Device -> Device) on 1 of second", 1),
    ("Memset (Device) on 0 of upload", 1),
    ("Memset (Device) on 1 of second", 1),
    ("by_runtime on 0 of forward", 1),
    ("direct on 0 of forward", 2),
    ("in_graph on 0 of graph", 4),
    ("inner on 1 of inner", 1),
    ("second on 1 of second", 1),
];

/// A program on two devices.
struct Program {
    cuda: Cuda,
    contexts: [Context; 2],
    /// Two streams of the first device, one of the second.
    streams: [Stream; 3],
    memory: [Memory; 3],
    graph: Graph,
}

impl Program {
    fn new(cuda: Cuda) -> Program {
        let contexts = [0, 1].map(|device| cuda.context(device));
        cuda.set_current(contexts[1]);
        let (third, there) = (cuda.stream(), cuda.allocate(8192));
        cuda.set_current(contexts[0]);
        let streams = [cuda.stream(), cuda.stream_with_priority(-3), third];
        let memory = [cuda.allocate(4096), cuda.allocate(4096), there];
        let node = cuda.only_kernel("in_graph");
        let graph = cuda.graph(streams[1], || (0..4).for_each(|_| cuda.launch(node, 2, streams[1])));
        Program { cuda, contexts, streams, memory, graph }
    }

    fn step(&self, number: usize) {
        let Program { cuda, streams: [one, two, _], memory: [a, b, _], .. } = *self;
        let _step = annotate!("step {}", number).entered();
        info_span!("upload").in_scope(|| {
            cuda.memcpy_htod(a, &[1; 4096], one);
            cuda.memset(b, 0, one);
        });
        annotate!("forward").in_scope(|| {
            let direct: Kernel = cuda.only_kernel("direct");
            (0..2).for_each(|_| cuda.launch(direct, 10, one));
            cuda.launch_by_runtime(cuda.only_kernel("by_runtime"), 10, two);
        });
        let event = cuda.event();
        cuda.record(event, one);
        cuda.wait(two, event);
        info_span!("graph").in_scope(|| cuda.launch_graph(self.graph, two));
        self.second();
        info_span!("download").in_scope(|| {
            cuda.memcpy_dtod(a, b, one);
            cuda.memcpy_dtoh(&mut [0; 1024], a, one);
        });
        cuda.synchronize_event(event);
        cuda.synchronize_stream(one);
        cuda.synchronize();
    }

    /// Runs the second device's part of a step.
    fn second(&self) {
        let Program { cuda, contexts, streams: [.., stream], memory: [a, _, there], .. } = *self;
        let _second = annotate!("second").entered();
        cuda.set_current(contexts[1]);
        cuda.launch(cuda.only_kernel("second"), 4, stream);
        cuda.memset(there, 1, stream);
        cuda.memcpy_peer((there, contexts[1]), (a, contexts[0]), stream);
        annotate!("inner").in_scope(|| cuda.launch(cuda.only_kernel("inner"), 4, stream));
        cuda.synchronize();
        cuda.set_current(contexts[0]);
    }
}

#[virtual_time]
fn all_work_is_in_the_trace_with_each_version() {
    let mut table = "| CUPTI | driver | launches | kernels | copies | fills | linked | arrows | annotations | waits | \
                     events |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut row = |version: &str, driver: &str, counts: &Counts, others: &str| {
        let Counts { launches, kernels, copies, fills, linked, starts, ends, annotations } = counts;
        let work = format!("{launches} | {kernels} | {copies} | {fills} | {linked} | {starts} to {ends}");
        writeln!(table, "| {version} | {driver} | {work} | {annotations} | {others} |").unwrap();
    };
    row("expected", "", &expected(), &format!("{} | {STEPS} from 13.0 on", 5 * STEPS));
    for (version, driver) in VERSIONS {
        let machine = machine(&format!("cupti={version},driver={driver},devices=2,nested_driver=1"));
        let program = Program::new(*machine);
        cuda::reset();
        let file = gpu::record(|| (0..STEPS).for_each(|number| program.step(number)));
        let found = check(version, &file);
        let [waits, moments] = ["cuda_sync", "cuda_event"].map(|cat| events(&file, "X", cat).len());
        row(version, &driver.to_string(), &found, &format!("{waits} | {moments}"));
    }
    gpu::publish("cuda-versions.md", &table);
}

/// Returns the device work of all steps.
fn expected() -> Counts {
    let times = |count: usize| count * STEPS;
    Counts {
        launches: times(STEP.launches),
        kernels: times(STEP.kernels),
        copies: times(STEP.copies),
        fills: times(STEP.fills),
        linked: times(STEP.linked),
        starts: times(STEP.starts),
        ends: times(STEP.ends),
        annotations: times(STEP.annotations),
    }
}

fn check(version: &str, file: &File) -> Counts {
    let found = Counts::of(file);
    assert_eq!(found, expected(), "{version}");
    let done = ["kernels", "memcpys", "memsets"].map(cuda::count).map(|count| usize::try_from(count).unwrap());
    assert_eq!(done, [found.kernels, found.copies, found.fills], "{version}: the devices' work");
    assert_eq!(cuda::count("synchronizes") as usize, 4 * STEPS, "{version}: the program's own");
    check_links(version, file);
    check_annotations(version, file);
    check_args(version, file);
    check_waits(version, file);
    let stats = file.trace.stats();
    assert_eq!((stats.losses.len(), stats.device_activities), (0, 15 * STEPS as u64), "{version}: {stats}");
    found
}

fn check_links(version: &str, file: &File) {
    let work = gpu::work(file);
    let place = |work: &&Value| format!("{} on {} of {}", name(work), work["pid"], under(file, work));
    let expected: BTreeMap<_, _> = WORK.iter().map(|(what, count)| ((*what).to_owned(), count * STEPS)).collect();
    assert_eq!(tally(work.iter().map(place)), expected, "{version}");
}

/// Checks that each annotation is drawn around its work on each of its streams.
fn check_annotations(version: &str, file: &File) {
    let annotations = events(file, "X", "gpu_user_annotation");
    let first = |kernel: &str| kernels(file).into_iter().find(|found| name(found) == kernel).unwrap();
    let streams = ["direct", "in_graph", "second"].map(|kernel| gpu::stream(first(kernel)));
    let row = |event: &Value| streams.iter().position(|stream| *stream == gpu::stream(event));
    let found = tally(annotations.iter().map(|span| {
        assert_eq!(under(file, span), name(span), "{version}");
        format!("{} on {}", name(span), row(span).unwrap())
    }));
    let mut expected = BTreeMap::from(
        [("forward on 0", 3), ("forward on 1", 3), ("second on 2", 3), ("inner on 2", 3)]
            .map(|(w, n)| (w.to_owned(), n)),
    );
    for step in 0..STEPS {
        expected.extend((0..3).map(|row| (format!("step {step} on {row}"), 1)));
    }
    assert_eq!(found, expected, "{version}");
    for kernel in kernels(file) {
        let (start, end) = interval(kernel);
        let around = annotations.iter().filter(|span| gpu::stream(span) == gpu::stream(kernel));
        let around = around.filter(|span| interval(span).0 < start && interval(span).1 > end);
        let expected = match name(kernel) {
            "in_graph" => 1,
            "inner" => 3,
            _ => 2,
        };
        assert_eq!(around.count(), expected, "{version}: {kernel}");
    }
}

/// Checks that work has the arguments that the version's records have.
fn check_args(version: &str, file: &File) {
    let newer =
        |than: &str| VERSIONS.iter().skip_while(|(known, _)| *known != than).any(|(known, _)| *known == version);
    for kernel in kernels(file) {
        let args = &kernel["args"];
        let priority = if name(kernel) == "by_runtime" || name(kernel) == "in_graph" { json!(-3) } else { json!(0) };
        assert_eq!(args.get("priority"), Some(&priority).filter(|_| newer("13.1")), "{version}: {kernel}");
        assert_eq!(args["graph node id"] != 0, name(kernel) == "in_graph", "{version}: {kernel}");
        assert_eq!(args["block"], json!([256, 1, 1]), "{version}: {kernel}");
        for key in ["blocks per SM", "warps per SM"] {
            assert!(args[key].as_f64().unwrap() > 0.0, "{version}: {kernel}");
        }
    }
    for copy in events(file, "X", "gpu_memcpy") {
        assert!(copy["args"]["memory bandwidth (GB/s)"].as_f64().unwrap() > 0.0, "{version}: {copy}");
        let devices = ["fromDevice", "toDevice"].map(|key| copy["args"].get(key).and_then(Value::as_u64));
        let peer = name(copy).starts_with("Memcpy PtoP");
        assert_eq!(devices, if peer { [Some(0), Some(1)] } else { [None; 2] }, "{version}: {copy}");
    }
    for work in gpu::work(file) {
        assert_ne!(work["args"]["channel"], 0, "{version}: {work}");
    }
}

fn check_waits(version: &str, file: &File) {
    let waits = events(file, "X", "cuda_sync");
    let names = tally(waits.iter().map(|wait| name(wait).to_owned()));
    let each = ["Event Sync", "Stream Sync", "Stream Wait Event"].map(|wait| (wait.to_owned(), STEPS));
    let expected: BTreeMap<_, _> = each.into_iter().chain([("Context Sync".to_owned(), 2 * STEPS)]).collect();
    assert_eq!(names, expected, "{version}");
    let first = kernels(file).into_iter().find(|kernel| name(kernel) == "direct").unwrap()["args"]["stream"].clone();
    for wait in waits.iter().filter(|wait| name(wait).contains("Event")) {
        assert_eq!(wait["args"]["wait_on_stream"], first, "{version}: {wait}");
        let record = wait["args"]["wait_on_cuda_event_record_corr_id"].as_u64().unwrap();
        let call = gpu::calls(file).into_iter().find(|call| gpu::correlation(call) == record).unwrap();
        assert_eq!(name(call), "cuEventRecord", "{version}");
    }
    // Earlier versions do not report device times of events, which the trace notes.
    let has_time = version.starts_with("13");
    assert_eq!(events(file, "X", "cuda_event").len(), if has_time { STEPS } else { 0 }, "{version}");
    let is_noted = gpu::report(file).notes.iter().any(|note| note.starts_with("events lack device timestamps"));
    assert_ne!(is_noted, has_time, "{version}");
}
