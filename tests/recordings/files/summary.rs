//! Summaries of real traces against figures made independently of this crate.
#![cfg(feature = "gzip")]

use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use support::traces::{are_available, folder};
use tracing_kineto::activity::ArgValue;
use tracing_kineto::analysis::summary::WorkClass;
use tracing_kineto::analysis::{Event, Events, Summary};

/// Adds a line for each place where `got` differs from `expected`: times by more than 0.001 µs, percentages by 0.01.
fn compare(path: &str, got: &Value, expected: &Value, differences: &mut Vec<String>) {
    /// What only the expected file has: other programs' figures, and the file's own name.
    const OTHERS: [&str; 7] = ["schema", "trace", "unit", "hta", "torch", "checks", "file_sha256"];

    match (got, expected) {
        (_, Value::Object(expected)) => {
            for (key, value) in expected.iter().filter(|(key, _)| !OTHERS.contains(&key.as_str())) {
                compare(&format!("{path}.{key}"), &got[key], value, differences);
            }
        }
        (Value::Array(got), Value::Array(expected)) if got.len() == expected.len() => {
            for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
                compare(&format!("{path}[{at}]"), got, expected, differences);
            }
        }
        (Value::Number(got), Value::Number(expected)) if expected.is_f64() => {
            let tolerance = match path {
                _ if path.ends_with("pct") => 0.0101,
                _ if path.ends_with("mean_of_points") || path.ends_with("time_mean") => 1e-6,
                _ => 0.001,
            };
            let difference = (got.as_f64().unwrap() - expected.as_f64().unwrap()).abs();
            if difference > tolerance + 1e-9 {
                differences.push(format!("{path}: {got}, expected {expected}"));
            }
        }
        _ if got == expected => {}
        _ => differences.push(format!("{path}: {got}, expected {expected}")),
    }
}

#[track_caller]
fn check(name: &str, events: &Events, expected: &Value) {
    let (got, mut differences) = (serde_json::from_str(&events.summary().to_json()).unwrap(), Vec::new());
    compare("", &got, expected, &mut differences);
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

#[test]
fn summaries_of_real_traces_have_the_known_figures() {
    if !are_available() {
        return;
    }
    let mut checked = 0;
    for entry in std::fs::read_dir(folder().join("../analysis/expected")).unwrap() {
        let expected: Value = serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let trace = expected["trace"].as_str().unwrap();
        let events = Events::read(folder().join("..").join(trace)).unwrap();
        check(trace, &events, &expected);
        assert_eq!(events.attribution().counts().ambiguous_ids, 0, "{trace}");
        checked += 1;
    }
    assert!(checked >= 12, "{checked} traces");
}

#[test]
fn summary_of_the_edge_trace_has_its_figures() {
    if are_available() {
        let edge = folder().join("../analysis/edge");
        let expected: Value = serde_json::from_slice(&std::fs::read(edge.join("edge.expected.json")).unwrap()).unwrap();
        check("edge", &Events::read(edge.join("edge.pt.trace.json")).unwrap(), &expected["figures"]);
    }
}

/// Merges traces into one, as tools do: `process` returns the new id of a process of a rank.
fn merge(texts: &[Value], process: impl Fn(usize, &Value) -> Value) -> String {
    let mut all = Vec::new();
    for (rank, text) in texts.iter().enumerate() {
        for event in text["traceEvents"].as_array().unwrap() {
            let mut event = event.clone();
            event["pid"] = process(rank, &event["pid"]);
            all.push(event);
        }
    }
    serde_json::json!({ "schemaVersion": 1, "traceEvents": all }).to_string()
}

#[test]
fn merged_ranks_have_the_figures_of_each() {
    if !are_available() {
        return;
    }
    let texts = [2, 6].map(|rank| {
        let path = folder().join(format!("ranks/dlrm8/worker{rank}.pt.trace.json.gz"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    });
    let single = texts.each_ref().map(|text| Events::from_reader(text.to_string().as_bytes()).unwrap().summary());
    let prefixed = merge(&texts, |rank, pid| {
        let pid = pid.as_str().map_or_else(|| pid.to_string(), str::to_owned);
        format!("[TP{rank:02}] {pid}").into()
    });
    let merged = Events::from_reader(prefixed.as_bytes()).unwrap().summary();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of whole nanoseconds")]
    let delay_ns = |summary: &Summary| (summary.launches.mean_delay_ns * summary.launches.count as f64).round() as u64;
    let sum = |figure: &dyn Fn(&Summary) -> u64| single.iter().map(figure).sum::<u64>();
    for figure in [
        &|summary: &Summary| summary.launches.count,
        &|summary| summary.launches.unlinked,
        &|summary| summary.launches.started_before_return,
        &delay_ns,
        &|summary| summary.idle.total_ns(),
        &|summary| summary.idle.before_launch_ns,
        &|summary| summary.stream_idle.len() as u64,
        &|summary| summary.queues.iter().map(|queue| queue.points).sum(),
        &|summary| summary.kernels.iter().map(|row| row.durations.sum_ns).sum(),
        &|summary| summary.steps.iter().map(|step| step.device_ns).sum(),
        &|summary| summary.attribution.same,
        &|summary| summary.attribution.external_id_refused,
    ] as [&dyn Fn(&Summary) -> u64; 12]
    {
        assert_eq!(figure(&merged), sum(figure));
    }
    let longest = single.iter().map(|summary| summary.launches.max_delay_ns).max();
    assert_eq!(Some(merged.launches.max_delay_ns), longest);
    assert_eq!((merged.attribution.repeated_ids, merged.attribution.ambiguous_ids), (95, 0));
    let offset =
        merge(&texts, |rank, pid| pid.as_i64().map_or(pid.clone(), |pid| (pid + 100_000 * rank as i64).into()));
    let offset = Events::from_reader(offset.as_bytes()).unwrap().summary();
    let (launches, count) = (&offset.launches, merged.launches.count);
    assert!((1..count).contains(&launches.count) && launches.started_before_call == 0, "{launches:?}");
    assert!(launches.mean_latency_ns > 0.0 && offset.attribution.ambiguous_ids > 0, "{launches:?}");
    assert!(merged.averages.ops().len() > 10);
    for row in merged.averages.ops() {
        let rows =
            || single.iter().flat_map(|summary| summary.averages.ops()).filter(|other| other.name() == row.name());
        let sums = (rows().map(|row| row.count()).sum(), rows().map(|row| row.device_ns()).sum::<u64>());
        assert_eq!((row.count(), row.device_ns()), sums, "{}", row.name());
    }
}

fn h200() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/h200")
}

/// Those of `vecadd` are what `ncu` counts; a product of matrices has one multiplication and addition for each pair of elements.
#[test]
fn metrics_of_an_h200_are_exact_counts() {
    let of = |name: &str, category: &str, metric: &str| -> Vec<(String, f64)> {
        let events = Events::read(h200().join(name)).unwrap();
        let rows = events.iter().filter(|event| event.category() == category);
        let value = |event: &Event<'_>| match event.arg(metric) {
            Some(ArgValue::U64(value)) => value as f64,
            Some(ArgValue::I64(value)) => value as f64,
            Some(ArgValue::F64(value)) => value,
            other => panic!("{metric} is {other:?}"),
        };
        rows.map(|event| (event.name().to_owned(), value(&event))).collect()
    };
    let kernels = of("kernel-metrics.json.gz", "cuda_profiler_range", "sm__inst_executed.sum");
    assert_eq!(kernels, vec![("vecadd".to_owned(), 655_360.0); 15]);
    let steps = of("annotation-metrics.json.gz", "gpu_user_annotation", "sm__inst_executed.sum");
    let expected: Vec<_> = (1..=5).map(|step| (format!("step {step}"), 655_360.0 * f64::from(step))).collect();
    assert_eq!(steps, expected);
    let metric = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum";
    let of_torch = of("torch-metrics.json.gz", "cuda_profiler_range", metric);
    let products: Vec<_> = of_torch.iter().filter(|(name, _)| name.contains("gemm")).map(|row| row.1).collect();
    assert_eq!((products, of_torch.len()), (vec![1024.0 * 1024.0 * 1025.0; 18], 54));
}

#[test]
fn summaries_of_an_h200_have_the_sums_of_its_rows() {
    for (name, kernels, others) in [
        ("cuda.json.gz", (22, 85_055), (10, 4_315_720)),
        ("cuda-shared.json.gz", (22, 85_569), (10, 6_175_898)),
        ("torch.json.gz", (62, 286_717), (2, 3_297)),
        ("wgpu.json.gz", (15, 203_520), (10, 89_279)),
    ] {
        let (mut found, mut rest) = ((0, 0), (0, 0));
        for figures in Events::read(h200().join(name)).unwrap().summary().kernels {
            let of_class = if figures.class == WorkClass::Compute { &mut found } else { &mut rest };
            *of_class = (of_class.0 + figures.durations.count, of_class.1 + figures.durations.sum_ns);
        }
        assert_eq!((found, rest), (kernels, others), "{name}");
    }
}
