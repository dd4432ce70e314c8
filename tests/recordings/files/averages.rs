//! Averages of real traces against independent figures, and printed tables against torch's.
//!
//! `data/torch_tables` holds the output of PyTorch 2.15's own code for the same events. Device work is attributed to
//! operations by our rule (by launch and nesting), and Python's functions are omitted, as in all our tables. The first
//! lines of one table, of a training step on a CPU:
//!
//! ```text
//!                       Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg       CPU Mem
//! --------------------------  ------------  ------------  ------------  ------------  ------------  ------------
//! aten::convolution_backward        15.41%     390.685us        15.95%     404.277us     134.759us       2.62 KB
//!                    unknown        13.35%     338.465us        46.89%       1.189ms     396.238us      76.99 KB
//!   aten::mkldnn_convolution        10.77%     272.942us        11.60%     294.031us      98.010us      73.50 KB
//! ```
#![cfg(feature = "gzip")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use support::traces::{are_available, folder};
use tracing_kineto::analysis::{Average, Events, GroupBy, KeyAverages, Section, SortBy, TimeUnit};
use tracing_subscriber::layer::SubscriberExt;

/// Returns every trace with known figures: name, averages, figures.
fn all() -> &'static [(String, KeyAverages, Value)] {
    static ALL: OnceLock<Vec<(String, KeyAverages, Value)>> = OnceLock::new();
    ALL.get_or_init(|| if are_available() { read_all() } else { Vec::new() })
}

fn read_all() -> Vec<(String, KeyAverages, Value)> {
    let files = std::fs::read_dir(folder().join("../analysis/expected")).unwrap();
    let read = |path: PathBuf| {
        let figures: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let trace = figures["trace"].as_str().unwrap().to_owned();
        let events = Events::read(folder().join("..").join(&trace)).unwrap();
        (trace, events.key_averages(), figures)
    };
    let all: Vec<_> = files.map(|entry| read(entry.unwrap().path())).collect();
    assert!(all.len() >= 12, "{} traces", all.len());
    all
}

/// Checks that `ns` equals `micros` to a nanosecond.
#[track_caller]
fn assert_same_time(ns: f64, micros: &Value, what: &str) {
    let expected = micros.as_f64().unwrap();
    assert!((ns / 1000.0 - expected).abs() <= 0.001 + 1e-9, "{what}: {} us, expected {expected} us", ns / 1000.0);
}

/// Checks a list of operations, ordered by `key`, then by name.
#[track_caller]
fn check_ops(trace: &str, averages: &KeyAverages, expected: &Value, key: fn(&Average) -> i64) {
    let mut rows: Vec<&Average> = averages.ops().iter().filter(|row| key(row) != 0).collect();
    rows.sort_by_key(|row| (-key(row), row.name()));
    for (row, expected) in rows.iter().zip(expected.as_array().unwrap()) {
        let what = format!("{trace}: {}", row.name());
        assert_eq!(
            (row.name(), row.is_annotation()),
            (expected["name"].as_str().unwrap(), expected["annotation"] == true)
        );
        assert_eq!(row.count(), expected["count"], "{what}");
        assert_same_time(row.self_cpu_ns() as f64, &expected["self_cpu"], &what);
        assert_same_time(row.cpu_ns() as f64, &expected["cpu_total"], &what);
        assert_same_time(row.self_device_ns() as f64, &expected["self_device"], &what);
        assert_same_time(row.device_ns() as f64, &expected["device_total"], &what);
    }
    assert_eq!(rows.len().min(20), expected.as_array().unwrap().len(), "{trace}");
}

/// Checks rows with a known spread, in order.
#[track_caller]
fn check_spread(trace: &str, rows: &[Average], expected: &Value) {
    let mut rows: Vec<&Average> = rows.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.self_device_ns()), row.name()));
    for (row, expected) in rows.iter().zip(expected.as_array().unwrap()) {
        let what = format!("{trace}: {}", row.name());
        assert_eq!(
            (row.name(), row.count()),
            (expected["name"].as_str().unwrap(), expected["count"].as_u64().unwrap())
        );
        assert_same_time(row.self_device_ns() as f64, &expected["sum"], &what);
        assert_same_time(row.mean_ns(), &expected["mean"], &what);
        assert_same_time(row.min_ns() as f64, &expected["min"], &what);
        assert_same_time(row.max_ns() as f64, &expected["max"], &what);
        assert_same_time(row.std_ns(), &expected["std"], &what);
    }
    assert_eq!(rows.len().min(20), expected.as_array().unwrap().len(), "{trace}");
}

#[test]
fn operations_have_the_known_counts_and_times() {
    for (trace, averages, figures) in all() {
        let total = &figures["ops_total"];
        assert_eq!(averages.ops().len() as u64, total["rows"], "{trace}");
        assert_same_time(averages.cpu_base_ns() as f64, &total["self_cpu_sum"], trace);
        assert_same_time(averages.device_base_ns() as f64, &total["device_sum"], trace);
        assert_same_time(
            (averages.device_base_ns() - averages.unattributed_device_ns()) as f64,
            &total["self_device_sum"],
            trace,
        );
        check_ops(trace, averages, &figures["ops_top20"], Average::self_cpu_ns);
        check_ops(trace, averages, &figures["ops_device_top20"], |row| row.self_device_ns().cast_signed());
    }
}

#[test]
fn kernels_have_the_known_counts_and_times() {
    for (trace, averages, figures) in all() {
        assert_eq!(averages.kernels().len() as u64, figures["kernels_total"]["names"], "{trace}");
        let count: u64 = averages.kernels().iter().map(Average::count).sum();
        assert_eq!(count, figures["kernels_total"]["count"], "{trace}");
        check_spread(trace, averages.kernels(), &figures["kernels"]);
    }
}

#[test]
fn rows_equal_torchs_where_its_rules_are_ours() {
    let mut compared = 0;
    for (trace, averages, figures) in all() {
        // Torch's self times exclude Python functions.
        let frames = figures["load"]["cats"].get("python_function").is_some();
        // Torch attributes by the id alone.
        let by_id = figures["ops_total"]["attribution"].as_object().unwrap().keys().all(|how| how == "same");
        assert_eq!(averages.ops().len() as u64, figures["torch"]["rows"], "{trace}");
        for expected in figures["torch"]["ops_top20"].as_array().unwrap() {
            let (name, annotation) = (expected["name"].as_str().unwrap(), expected["annotation"] == true);
            let what = format!("{trace}: {name}");
            let row =
                averages.ops().iter().find(|row| row.name() == name && row.is_annotation() == annotation).unwrap();
            assert_eq!(row.count(), expected["count"], "{what}");
            assert_same_time(row.cpu_ns() as f64, &expected["cpu_total"], &what);
            if !frames {
                assert_same_time(row.self_cpu_ns() as f64, &expected["self_cpu"], &what);
            }
            if by_id {
                assert_same_time(row.self_device_ns() as f64, &expected["self_device"], &what);
                assert_same_time(row.device_ns() as f64, &expected["device_total"], &what);
            }
            compared += 1;
        }
    }
    assert!(compared > 200 || !are_available(), "{compared}");
}

/// Returns torch's printed table.
fn torch_table(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch_tables").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn events(trace: &str) -> Events {
    Events::read(folder().join(trace)).unwrap()
}

#[track_caller]
fn check_table(printed: &str, name: &str) {
    let torchs = torch_table(name);
    let different = printed.lines().zip(torchs.lines()).find(|(ours, torchs)| ours != torchs);
    assert!(different.is_none(), "{name}:\n{}\n{}", different.unwrap().0, different.unwrap().1);
    assert_eq!(printed.len(), torchs.len(), "{name}");
}

#[test]
fn printed_table_equals_torchs() {
    if !are_available() {
        return;
    }
    let steps = events("torch215_cpu/cpu_steps_memory.pt.trace.json.gz");
    let averages = steps.key_averages();
    let table = averages.table().torch(true).sort_by(SortBy::SelfHost).row_limit(20);
    check_table(&table.to_string(), "memory.txt");

    let averages = events("gpu/cuda_event_sync_multi_stream.pt.trace.json.gz").key_averages();
    check_table(&averages.table().torch(true).sort_by(SortBy::DeviceTotal).to_string(), "cuda.txt");

    let averages = events("gpu/nccl_training_rank.pt.trace.json.gz").key_averages();
    let table = averages.table().torch(true).sort_by("self_cuda_time_total".parse().unwrap()).row_limit(25);
    check_table(&table.to_string(), "nccl.txt");

    let averages = events("torch215_cpu/cpu_plain_noschedule.pt.trace.json.gz").key_averages();
    let table = averages.table().torch(true).sort_by(SortBy::Count).row_limit(5).top_level_events_only(true);
    check_table(&table.to_string(), "top.txt");
}

#[test]
fn printed_shapes_equal_torchs() {
    if !are_available() {
        return;
    }
    // Without memory and FLOPs, which torch shows only when enabled.
    let steps = events("torch215_cpu/cpu_steps_memory.pt.trace.json.gz");
    let averages = steps.averages().by(GroupBy::Shapes).compute();
    let table = averages.table().torch(true).memory(false).flops(false).sort_by(SortBy::HostTotal);
    let table = table.row_limit(8).header("By shapes").time_unit(TimeUnit::Micros);
    check_table(&table.to_string(), "shapes.txt");
}

#[test]
fn memory_and_flops_add_up_to_torchs_totals() {
    if !are_available() {
        return;
    }
    let steps = events("torch215_cpu/cpu_steps_memory.pt.trace.json.gz");
    let averages = steps.key_averages();
    let bytes = steps.iter().filter(|event| event.name() == "[memory]").map(|event| match event.arg("Bytes") {
        Some(tracing_kineto::ArgValue::I64(bytes)) => bytes,
        other => unreachable!("{other:?}"),
    });
    assert_eq!(averages.total_average().cpu_bytes(), bytes.sum::<i64>());
    let flops = |name| averages.get(Section::Ops, name).unwrap().flops();
    assert_eq!(flops("aten::conv2d"), 3 * 2 * 4 * 14 * 14 * 3 * 3 * 3 * 8);
    assert_eq!((flops("aten::addmm"), flops("aten::mm")), (376_320, 752_640));
}

#[test]
fn losses_of_a_recording_are_below_its_table() {
    let (layer, guard) = tracing_kineto::KinetoLayer::builder().no_output().build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::info_span!("work").in_scope(|| tracing_kineto::counter!("n", value = f64::NAN));
    });
    let trace = guard.finish().unwrap();
    let (cause, count) = trace.stats().losses[0];
    let table = trace.key_averages().table().to_string();
    assert!(table.ends_with(&format!("Data loss: {}: {count}\n", cause.as_str())), "{table}");
    assert_eq!(trace.key_averages().get(Section::Ops, "work").unwrap().count(), 1);
}
