//! The C API: C and C++ programs compiled with the header and linked with the library.
#![allow(unsafe_code, reason = "calls the functions of the C API")]

mod copies;
mod halves;
#[cfg(feature = "cuda")]
mod injection;
mod program;

use program::{Program, Trace, libraries};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
#[cfg(feature = "cuda")]
use support::cuda;

#[test]
fn ranges_are_slices_with_typed_arguments() {
    let trace = Program::c("program.c").record(&["ranges"]);
    let [step, forward, operation] =
        [("user_annotation", "ProfilerStep#1"), ("cpu_op", "forward"), ("cpu_op", "operation")]
            .map(|(cat, name)| trace.slice(cat, name));
    let id = |row: &Value, key: &str| row["args"][key].as_u64().unwrap();
    assert_eq!(id(&forward, "parent id"), id(&step, "span id"));
    assert_eq!(id(&operation, "parent id"), id(&forward, "span id"));
    let expected = json!({
        "batch": -32, "big": i64::MAX, "loss": 0.25, "nothing": "nan", "source": "di\"sk\u{fffd}", "Input Dims": [[2, 3]],
        "target (field)": "of the program", "train": true, "cached": false, "target": "kineto::c",
    });
    assert_eq!(arguments(&forward), expected);
    assert_eq!(
        arguments(&operation),
        json!({"framework id": 0x7000_0000_0000_0001_u64, "batch": 1, "target": "kineto::c"})
    );
    assert_eq!(arguments(&step), json!({"target": "kineto::c"}));

    let counters = trace.rows("C", |row| row["name"] == "queue");
    assert_eq!(counters.iter().map(|row| row["args"]["value"].as_f64()).collect::<Vec<_>>(), [Some(3.0), Some(1.5)]);
    let marks = trace.rows("i", |row| row["name"] == "here");
    assert_eq!((marks.len(), &marks[0]["tid"]), (1, &forward["tid"]));
    assert_eq!(id(marks[0], "span id"), id(&operation, "span id"));
    assert_eq!(trace.json["model"], json!({"layers": 2}));
}

/// Returns a row's arguments without the ids that every span has.
fn arguments(row: &Value) -> Value {
    let own = ["External id", "span id", "parent id"];
    let all = row["args"].as_object().unwrap().iter().filter(|(key, _)| !own.contains(&key.as_str()));
    Value::Object(all.map(|(key, value)| (key.clone(), value.clone())).collect())
}

#[test]
fn each_mistake_has_its_status_and_message() {
    let program = Program::c("program.c");
    let saved = program.file("saved.json");
    program.run(&["faults", saved.to_str().unwrap()], &[]);
    let trace = Trace::read(&saved);
    assert_eq!(trace.slices(""), 1);
    assert_eq!(trace.slices("operation"), 1);
    let all = trace.rows("X", |row| row["args"]["target"] == "kineto::c");
    assert_eq!(all.len(), 2, "refused rows are absent: {all:?}");
}

#[test]
fn nothing_is_recorded_when_the_environment_is_empty() {
    let program = Program::c("program.c");
    let said = program.run(&["disabled"], &[]);
    assert_eq!(said.trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn shutdown_reports_a_trace_that_cannot_be_written() {
    let program = Program::c("program.c");
    let folder = program.file("removed");
    std::fs::create_dir(&folder).unwrap();
    let output = folder.join("a.json");
    let env = [("KINETO_ACTIVITIES_LOG_FILE", output.to_str().unwrap())];
    program.run(&["unwritten", folder.to_str().unwrap()], &env);
}

#[test]
fn recordings_can_be_started_stopped_and_saved() {
    let program = Program::c("program.c");
    let [first, second] = ["first.json", "second.json"].map(|name| program.file(name));
    let output = program.file("output.json");
    let arguments = ["parts", first.to_str().unwrap(), second.to_str().unwrap()];
    program.run(&arguments, &[("KINETO_ACTIVITIES_LOG_FILE", output.to_str().unwrap())]);
    assert_eq!(Trace::read(&first).names("cpu_op"), ["first"]);
    assert_eq!(Trace::read(&second).names("cpu_op"), ["second"]);
    // The program did not call shutdown.
    assert_eq!(program.output().names("cpu_op"), ["second"]);
}

#[test]
fn threads_have_separate_ranges() {
    let (threads, ranges) = (8, 100);
    let trace = Program::c("program.c").record(&["threads"]);
    assert_eq!(trace.slices("within"), threads * ranges);
    assert_eq!(trace.rows("C", |row| row["name"] == "counter").len(), threads * ranges);
    let main = trace.slice("user_annotation", "main");
    assert_eq!(trace.slice("cpu_op", "after")["args"]["parent id"], main["args"]["span id"]);
    let mut by_thread: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let of_threads = trace.rows("X", |row| row["args"].get("number").is_some());
    assert_eq!(of_threads.len(), threads * ranges);
    for row in of_threads {
        let number = row["args"]["number"].as_u64().unwrap();
        assert!(row["name"].as_str().unwrap().ends_with(&format!(" of {number}")), "{row}");
        assert!(row["args"].get("parent id").is_none(), "{row}");
        by_thread.entry(row["tid"].to_string()).or_default().insert(number);
    }
    assert!(by_thread.len() == threads && by_thread.values().all(|numbers| numbers.len() == 1), "{by_thread:?}");
    // Open ranges end with their threads.
    let left = trace.rows("X", |row| row["name"] == "left open" || row["args"]["framework id"] == 7);
    assert_eq!(left.len(), 2 * threads);
    assert!(left.iter().all(|row| row["args"].get("finished").is_none()), "{left:?}");
}

#[test]
fn forked_child_makes_its_own_recording() {
    let program = Program::c("program.c");
    let saved = program.file("child.json");
    let trace = program.record(&["fork", saved.to_str().unwrap()]);
    assert_eq!(trace.names("cpu_op"), ["parent"]);
    let child = Trace::read(&saved);
    assert_eq!(child.names("cpu_op"), ["child"]);
    assert_eq!(child.slice("cpu_op", "child")["args"]["new key"], 1);
}

#[test]
#[cfg(feature = "cuda")]
fn kernels_are_linked_to_the_launching_range() {
    let program = Program::c("program.c");
    let paths = ["sim_cuda", "sim_cupti"].map(cuda::library);
    let trace = program.record(&["gpu", paths[0].to_str().unwrap(), paths[1].to_str().unwrap()]);
    let id = |row: &&Value| row["args"]["External id"].as_u64().unwrap();
    let host = |name: &str| trace.rows("X", |row| row["cat"] == "cpu_op" && row["name"] == name);
    let kernels = |name: &str| trace.rows("X", |row| row["cat"] == "kernel" && row["name"] == name);
    for (range, kernel) in [("linear", "gemm"), ("operation", "relu")] {
        let [ranges, kernels] = [host(range), kernels(kernel)].map(|rows| rows.iter().map(id).collect::<Vec<_>>());
        assert_eq!((ranges.len(), &ranges), (3, &kernels), "{range} {kernel}");
    }
    let ids: Vec<_> = host("operation").iter().map(|row| row["args"]["framework id"].as_u64()).collect();
    assert_eq!(ids, [Some(1000), Some(1001), Some(1002)]);
    assert_eq!(trace.rows("s", |row| row["cat"] == "ac2g").len(), 6);
    let annotations = trace.rows("X", |row| row["cat"] == "gpu_user_annotation");
    assert_eq!(annotations.iter().map(|row| &row["name"]).collect::<Vec<_>>(), ["ProfilerStep#7"]);
}

#[test]
fn header_works_in_cpp() {
    let trace = Program::cpp("program.cpp").record(&[]);
    let [step, fails] = [trace.slice("user_annotation", "step"), trace.slice("cpu_op", "fails")];
    assert_eq!(step["args"]["caught"], "yes");
    assert_eq!(fails["args"]["parent id"], step["args"]["span id"]);
    assert_eq!(trace.rows("X", |row| row["args"]["target"] == "kineto::c").len(), 2);
}

#[test]
fn static_library_does_the_same() {
    let trace = Program::with_static_library("program.c").record(&["ranges"]);
    assert_eq!((trace.slices("forward"), trace.slices("ProfilerStep#1")), (1, 1));
}

#[test]
fn program_survives_unloading_the_library() {
    let (shared, _) = libraries();
    let trace = Program::c("loaded.c").record(&[shared.to_str().unwrap()]);
    assert_eq!(trace.names("cpu_op"), ["before", "after"]);
}

#[test]
fn library_with_this_crate_stays_loaded() {
    // A library linked without `-z nodelete`, like a program's own `cdylib`.
    let (_, archive) = libraries();
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libown.so");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-o"]).arg(&library).arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    assert!(cc.args(program::SYSTEM).status().unwrap().success());
    // The loader keeps a library while a thread has its thread-locals; in the last mode no thread has.
    for mode in ["here", "elsewhere", "late"] {
        let trace = Program::c("loaded.c").record(&[library.to_str().unwrap(), mode]);
        assert_eq!(trace.names("cpu_op"), ["before", "after"], "{mode}");
    }
}

#[test]
fn example_writes_its_trace() {
    let program = Program::c("../../../capi/examples/main.c");
    assert!(program.run(&[], &[]).starts_with("loss "), "it runs without a trace");
    let trace = program.record(&[]);
    assert_eq!(trace.names("user_annotation"), ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]);
    assert_eq!((trace.slices("forward"), trace.slices("backward")), (3, 3));
    assert!(trace.slice("user_annotation", "ProfilerStep#2")["args"]["loss"].is_f64());
    assert_eq!(trace.rows("C", |row| row["name"] == "queue").len(), 3);
}

#[test]
fn library_exports_only_its_functions() {
    let (shared, _) = libraries();
    // SAFETY: the library's initialisers have no effect on this process.
    let library = unsafe { libloading::Library::new(&shared) }.unwrap();
    let header =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("capi/include/tracing_kineto.h")).unwrap();
    let declared = header.lines().filter_map(|line| line.strip_prefix("int ").or(line.strip_prefix("const char *")));
    let declared: Vec<_> = declared.filter_map(|line| line.split('(').next()).collect();
    assert_eq!(declared.len(), 21, "{declared:?}");
    for name in declared {
        // SAFETY: the symbol is only checked for existence and never called.
        assert!(unsafe { library.get::<unsafe extern "C" fn()>(name) }.is_ok(), "{name}");
    }
}
