//! Rows of a simulated AMD GPU against rows of real ones that torch recorded through roctracer: the same categories,
//! names, arguments and types, except for the differences listed here with their reasons.

use super::PROFILER;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use support::rocm::Stream;
use support::virtual_time;
use support::{File, amd, traces};
use tracing::info_span;

/// The traces: an MI250 with ROCm 6.2, and an MI300X with HIP 7.0.
const TRACES: [&str; 2] = ["mi250_minitoy_train", "mi300x_vllm_hipgraph_decode"];

/// The categories of the compared rows.
const CATS: [&str; 3] = ["cuda_runtime", "gpu_memcpy", "kernel"];

/// How an argument differs: the rows, its key, its type in real rows and here (`None` if absent), and the reason.
type Difference = (Rows, &'static str, Option<Type>, Option<Type>, &'static str);

/// A kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Calls,
    Work,
    /// Kernels of a graph.
    Tasks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Type {
    Number,
    Text,
    List,
}
use Type::{List, Number, Text};

const DIFFERENCES: [Difference; 10] = [
    (Rows::Calls, "bytes", Some(Text), Some(Number), "a number is a number"),
    (Rows::Calls, "size", Some(Text), None, "newer libkineto calls it bytes"),
    (Rows::Calls, "bytes", None, Some(Number), "older libkineto calls it size"),
    (
        Rows::Calls,
        "stream",
        Some(Text),
        None,
        "readers take what has one for work of a device; newer libkineto has none",
    ),
    (Rows::Work, "hsa_queue", None, Some(Number), "newer libkineto has it"),
    (Rows::Work, "bytes", None, Some(Number), "older libkineto has lost it"),
    (Rows::Work, "memory bandwidth (GB/s)", None, Some(Number), "older libkineto has lost it"),
    (Rows::Work, "grid", None, Some(List), "older libkineto has lost it"),
    (Rows::Work, "block", None, Some(List), "older libkineto has lost it"),
    (Rows::Tasks, "graph id", None, Some(Number), "roctracer's callbacks know which graph is launched"),
];

/// Functions of real rows without a row here, and the reason.
const NOT_HERE: [(&str, &str); 2] = [
    ("hipGetDevicePropertiesR0600", "it is called all the time, and newer libkineto leaves it out"),
    ("hipStreamIsCapturing", "the simulated HIP has no such function"),
];

fn real(name: &str) -> Value {
    let file = std::fs::File::open(traces::folder().join(format!("gpu/{name}.pt.trace.json.gz"))).unwrap();
    serde_json::from_reader(std::io::BufReader::new(GzDecoder::new(file))).unwrap()
}

/// Returns the compared rows of a trace as JSON.
fn rows(trace: &Value) -> impl Iterator<Item = &Value> {
    let events = trace["traceEvents"].as_array().unwrap().iter();
    events.filter(|event| event["ph"] == "X" && CATS.iter().any(|cat| event["cat"] == *cat))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// Returns the key of a row's counterpart: category, and the function or the kind of work.
fn counterpart_key(row: &Value) -> (String, String) {
    let cat = text(row, "cat");
    let what = if cat == "cuda_runtime" { text(row, "name") } else { text(&row["args"], "kind") };
    (cat.to_owned(), what.to_owned())
}

fn is_of(rows: Rows, (cat, what): &(String, String)) -> bool {
    match rows {
        Rows::Calls => cat == "cuda_runtime",
        Rows::Work => cat != "cuda_runtime",
        Rows::Tasks => what == "Dispatch Task",
    }
}

/// Returns the types of a row's arguments, without the one that links a row to a slice.
fn types(row: &Value) -> BTreeMap<String, Type> {
    let of = |value: &Value| match value {
        Value::Number(_) => Number,
        Value::String(_) => Text,
        Value::Array(_) => List,
        other => panic!("{other}"),
    };
    let args = row["args"].as_object().unwrap().iter().filter(|(key, _)| *key != "External id");
    args.map(|(key, value)| (key.clone(), of(value))).collect()
}

/// Returns the kernels of a real trace, each with the function that launched it.
fn kernels(trace: &Value) -> BTreeSet<(String, String)> {
    let calls = rows(trace).filter(|row| row["args"]["kernel"].is_string());
    let launched = calls.map(|row| (text(row, "name").to_owned(), text(&row["args"], "kernel").to_owned()));
    let tasks = rows(trace).filter(|row| row["args"]["kind"] == "Dispatch Task");
    launched.chain(tasks.map(|row| ("hipGraphLaunch".to_owned(), text(row, "name").to_owned()))).collect()
}

/// Returns whether a kernel of a real trace has this name here. Some real names are mangled, since libkineto could not
/// demangle them.
fn is_named(real: &str, here: &str) -> bool {
    real == here || real.starts_with("_Z") && !here.starts_with("_Z")
}

/// Records a program that works like those of the real traces, with kernels of the same names.
fn recorded(kernels: &BTreeSet<(String, String)>) -> File {
    let hip = amd::machine(PROFILER, "hip=60241133");
    let memory = [hip.allocate(1 << 20), hip.allocate(1 << 20)];
    let (stream, event) = (hip.stream(), hip.event());
    let tasks = kernels.iter().filter(|(function, _)| function == "hipGraphLaunch");
    let tasks = tasks.map(|(_, name)| hip.host_kernel(name));
    let graph = hip.graph(stream, || tasks.for_each(|task| hip.launch_host(task, 4, stream)));
    let work = || {
        let _span = info_span!("step").entered();
        hip.memcpy_with_stream(memory[0], &[1; 2560], Stream::NULL);
        hip.memcpy_htod(memory[0], &[1; 9216], Stream::NULL);
        hip.memcpy_dtod(memory[1], memory[0], Stream::NULL);
        for (function, name) in kernels {
            match function.as_str() {
                "hipLaunchKernel" => hip.launch_host(hip.host_kernel(name), 3, Stream::NULL),
                "hipExtModuleLaunchKernel" => hip.launch_ext(hip.only_kernel(name), 512, Stream::NULL),
                _ => {}
            }
        }
        hip.launch_graph(graph, stream);
        hip.record(event, stream);
        hip.synchronize_event(event);
        hip.driver_version();
        hip.synchronize();
    };
    support::record_with(|builder| builder.flush_timeout(Duration::from_secs(20)), work)
}

/// Returns one kernel, launched alone and in a graph.
fn add() -> BTreeSet<(String, String)> {
    ["hipLaunchKernel", "hipGraphLaunch"].map(|function| (function.to_owned(), "add".to_owned())).into()
}

#[virtual_time]
fn rows_equal_real_traces_except_listed_differences() {
    if !traces::are_available() {
        return;
    }
    let reals = TRACES.map(real);
    let file = recorded(&reals.iter().flat_map(kernels).collect());
    let mut ours: BTreeMap<_, Vec<_>> = BTreeMap::new();
    rows(&file.json).for_each(|row| ours.entry(counterpart_key(row)).or_default().push(row));

    let mut seen = BTreeSet::new();
    let mut functions_not_here = BTreeSet::new();
    for row in reals.iter().flat_map(rows) {
        let sort = counterpart_key(row);
        if let Some((function, _)) = NOT_HERE.iter().find(|(function, _)| *function == sort.1) {
            functions_not_here.insert(*function);
            continue;
        }
        let same = ours.get(&sort).unwrap_or_else(|| panic!("none like {row}"));
        // A kernel and its launch have individual names; all other rows are named by their kind.
        let kernel = row["args"].get("kernel");
        let is_named = |own: &Value| is_named(text(row, "name"), text(own, "name"));
        let own = same.iter().find(|own| own["args"].get("kernel") == kernel && is_named(own));
        let own = own.unwrap_or_else(|| panic!("no row of that name: {row}"));
        let (expected, found) = (types(row), types(own));
        let keys: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
        for key in keys {
            let (real, here) = (expected.get(key).copied(), found.get(key).copied());
            let listed = DIFFERENCES.iter().position(|(rows, known, was, is, _)| {
                is_of(*rows, &sort) && known == key && (*was, *is) == (real, here)
            });
            assert!(real == here || listed.is_some(), "{sort:?} {key}: {real:?} there, {here:?} here");
            seen.extend(listed);
        }
        assert!(own["pid"].is_u64() && own["tid"].is_u64() && own["ts"].is_number() && own["dur"].is_number());
    }
    let stale: Vec<_> = (0..DIFFERENCES.len()).filter(|at| !seen.contains(at)).map(|at| DIFFERENCES[at]).collect();
    assert!(stale.is_empty(), "listed differences that do not exist: {stale:?}");
    assert_eq!(functions_not_here.len(), NOT_HERE.len());
}

#[virtual_time]
fn header_has_the_keys_of_a_real_trace() {
    if !traces::are_available() {
        return;
    }
    let real = real(TRACES[1]);
    let file = recorded(&add());
    for key in ["roctracer_version", "hip_runtime_version", "hip_driver_version"] {
        assert!(real[key].is_number() && file.json[key].is_number(), "{key}: {}", file.json[key]);
    }
    let keys = |trace: &Value| {
        let device = trace["deviceProperties"][0].as_object().unwrap();
        device.iter().map(|(key, value)| (key.clone(), value.is_number())).collect::<BTreeSet<_>>()
    };
    assert_eq!(keys(&file.json), keys(&real));
}

#[virtual_time]
fn calls_and_work_are_linked_as_in_real_traces() {
    let file = recorded(&add());
    let tied = |ph: &str| {
        let arrows = file.events().filter(|event| event["cat"] == "ac2g" && event["ph"] == ph);
        arrows.map(|arrow| arrow["id"].as_u64().unwrap()).collect::<BTreeSet<_>>()
    };
    let of = |cats: &[&str]| {
        let rows = rows(&file.json).filter(|row| cats.iter().any(|cat| row["cat"] == *cat));
        rows.map(|row| row["args"]["correlation"].as_u64().unwrap()).collect::<BTreeSet<_>>()
    };
    let work = of(&["gpu_memcpy", "kernel"]);
    assert!(work.len() >= 5 && work.is_subset(&of(&["cuda_runtime"])));
    assert_eq!((tied("s"), tied("f")), (work.clone(), work));
    let slice = file.events().find(|event| event["name"] == "step").unwrap()["args"]["External id"].clone();
    assert!(rows(&file.json).all(|row| row["args"]["External id"] == slice), "each row belongs to the enclosing slice");
}
