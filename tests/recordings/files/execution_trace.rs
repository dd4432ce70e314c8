//! Execution traces: complete graphs whose nodes match the Kineto file of the same recording.
#![cfg(feature = "gzip")]

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use support::{File, layer, record_with};
use tracing::{info_span, span::EnteredSpan};
use tracing_kineto::torch::TorchOptions;
use tracing_kineto::{KinetoLayer, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// Makes a training step with operations on two threads.
fn train() {
    let _step = annotate!("step#{}", 1).entered();
    let forward: EnteredSpan = info_span!(
        "mm",
        dims = "[[2, 3], [3, 4]]",
        types = r#"["Tensor(float)", "Tensor(float)"]"#,
        strides = "[[3, 1], [4, 1]]",
        input_values = r#"[[1, 1, 0, 6, 4, "cuda:0"], [2, 2, 0, 12, 4, "cuda:0"]]"#,
        output_dims = "[[2, 4]]",
        output_types = r#"["Tensor(float)"]"#,
        output_values = r#"[[3, 3, 0, 8, 4, "cuda:0"]]"#,
        op_schema = "mm(Tensor self, Tensor mat2) -> Tensor",
        kernel_backend = "cublas",
        seq = 5
    )
    .entered();
    drop(forward);
    let backward = info_span!("backward").entered();
    let thread = i64::from(this_thread());
    std::thread::scope(|scope| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        scope.spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                info_span!("mm_backward", seq = 5, fwd_thread = thread, record_scope = 1).in_scope(|| {});
            });
        });
    });
    drop(backward);
    info_span!("all_reduce", collective_name = "allreduce", in_msg_nelems = 8, process_group_name = "0")
        .in_scope(|| {});
}

/// Returns the calling thread's id in the trace's form.
fn this_thread() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn execution_of(file: &File) -> Value {
    let mut bytes = Vec::new();
    file.trace.write_execution_trace(&mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn attrs(node: &Value) -> HashMap<&str, &Value> {
    let attrs = node["attrs"].as_array().unwrap().iter();
    attrs.map(|attr| (attr["name"].as_str().unwrap(), &attr["value"])).collect()
}

fn named<'v>(execution: &'v Value, name: &str) -> &'v Value {
    let nodes = execution["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["name"] == name).unwrap()
}

/// Checks each node against the schema, and the graph against its rules.
#[track_caller]
fn check_nodes(execution: &Value) {
    assert_eq!(execution["schema"], "1.1.1-chakra.0.0.4");
    assert_eq!(execution["pid"], std::process::id());
    assert!(execution["start_ts"].as_u64().unwrap() <= execution["finish_ts"].as_u64().unwrap());
    let nodes = execution["nodes"].as_array().unwrap();
    for (node, id) in nodes.iter().zip(1..) {
        let keys: HashSet<_> = node.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, HashSet::from(["id", "name", "ctrl_deps", "inputs", "outputs", "attrs"]));
        assert_eq!(node["id"], id);
        let parent = node["ctrl_deps"].as_u64().unwrap();
        assert!(parent >= 1 && (parent < id || id == 1), "{node}");
        for side in ["inputs", "outputs"] {
            let lists = ["values", "shapes", "types", "strides"].map(|list| node[side][list].as_array().unwrap().len());
            assert!(lists.iter().all(|length| *length == lists[0]), "{node}");
        }
        for attr in node["attrs"].as_array().unwrap() {
            let value = &attr["value"];
            match attr["type"].as_str().unwrap() {
                "uint64" => assert!(value.is_u64(), "{attr}"),
                "int64" => assert!(value.is_i64(), "{attr}"),
                "string" => assert!(value.is_string(), "{attr}"),
                other => panic!("unknown type {other}"),
            }
        }
        let attrs = attrs(node);
        let always =
            ["rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema", "kernel_backend", "kernel_file"];
        assert!(always.iter().all(|name| attrs.contains_key(name)), "{node}");
    }
}

#[test]
fn nodes_have_the_fields_of_the_schema() {
    let file = record_with(|builder| builder, train);
    let execution = execution_of(&file);
    check_nodes(&execution);
    let mm = named(&execution, "mm");
    assert_eq!(mm["inputs"]["shapes"].to_string(), "[[2,3],[3,4]]");
    assert_eq!(mm["inputs"]["values"][1].to_string(), r#"[2,2,0,12,4,"cuda:0"]"#);
    assert_eq!(mm["inputs"]["strides"].to_string(), "[[3,1],[4,1]]");
    assert_eq!(mm["outputs"]["types"].to_string(), r#"["Tensor(float)"]"#);
    assert_eq!((attrs(mm)["seq_id"].as_i64(), attrs(mm)["scope"].as_u64()), (Some(5), Some(0)));
    assert_eq!(attrs(mm)["op_schema"], "mm(Tensor self, Tensor mat2) -> Tensor");
    assert_eq!(mm["ctrl_deps"], named(&execution, "step#1")["id"]);
    assert_eq!(attrs(named(&execution, "step#1"))["scope"].as_u64(), Some(7));
    let reduce = attrs(named(&execution, "all_reduce"));
    assert_eq!((reduce["collective_name"], reduce["in_msg_nelems"]), (&"allreduce".into(), &8.into()));
    assert_eq!(reduce["pg_name"], "0");
    let backward = named(&execution, "mm_backward");
    assert_eq!(attrs(backward)["fw_tid"].as_i64(), Some(this_thread().into()));
    assert_eq!(attrs(backward)["fw_parent"], &named(&execution, "backward")["id"]);
    assert_eq!(named(&execution, "[pytorch|profiler|execution_trace|thread]")["ctrl_deps"], 1);
}

/// Checks that both files have the same ids, as PyTorch's test does.
#[track_caller]
fn check_joined(execution: &Value, kineto: &Value) {
    let is_operation = |event: &&Value| event["cat"] == "cpu_op" || event["cat"] == "user_annotation";
    let ids = |key: &str| {
        let events = kineto["traceEvents"].as_array().unwrap().iter().filter(is_operation);
        let mut ids: Vec<u64> = events.map(|event| event["args"][key].as_u64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    let nodes = execution["nodes"].as_array().unwrap().iter().map(attrs);
    let mut theirs: Vec<u64> = nodes.map(|attrs| attrs["rf_id"].as_u64().unwrap()).filter(|id| *id != 0).collect();
    theirs.sort_unstable();
    assert!(theirs.len() >= 5);
    assert_eq!(theirs, ids("External id"));
    assert_eq!(theirs, ids("Record function id"));
}

#[test]
fn node_ids_equal_those_of_the_kineto_trace() {
    let file = record_with(|builder| builder.torch(TorchOptions::new().execution_trace(true)), train);
    check_joined(&execution_of(&file), &file.json);
    let without = record_with(|builder| builder, train);
    assert!(!without.json.to_string().contains("Record function id"));
}

fn read(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().unwrap() == "gz" {
        serde_json::from_reader(flate2::read::GzDecoder::new(&bytes[..])).unwrap()
    } else {
        serde_json::from_slice(&bytes).unwrap()
    }
}

// Shows the key ENABLE_PYTORCH_EXECUTION_TRACE.
#[test]
fn guard_writes_the_execution_trace_next_to_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    for (trace, execution) in [("a.pt.trace.json", "a.et.json"), ("b.json.gz", "b.et.json.gz")] {
        let output = folder.path().join(trace);
        let (layer, guard) =
            KinetoLayer::builder().output(&output).torch(TorchOptions::new().execution_trace(true)).build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), train);
        drop(guard);
        let execution = read(&folder.path().join(execution));
        check_nodes(&execution);
        check_joined(&execution, &read(&output));
    }
    let (layer, guard) = layer(|builder| builder.output(folder.path().join("c.json")));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), train);
    drop(guard);
    assert!(folder.path().join("c.json").exists() && !folder.path().join("c.et.json").exists());
}

#[test]
fn execution_trace_can_be_written_repeatedly_to_any_path() {
    let file = record_with(|builder| builder, train);
    let folder = tempfile::tempdir().unwrap();
    for name in ["x.json", "y.json.gz"] {
        let path = folder.path().join(name);
        file.trace.save_execution_trace(&path).unwrap();
        file.trace.save_execution_trace(&path).unwrap();
        assert_eq!(read(&path), execution_of(&file));
    }
    let missing = folder.path().join("missing").join("x.json");
    assert_eq!(file.trace.save_execution_trace(missing).unwrap_err().kind(), tracing_kineto::ErrorKind::Io);
}
