//! Tests of `builder.rs`.

use super::*;
use crate::activity::ArgValue;
use crate::analysis::sample::{SampleTrace, micros};
use ActivityType::{CudaRuntime, GpuMemcpy, GpuUserAnnotation, PythonFunction, UserAnnotation};

/// Rows as "name count self/total host, self/total device", in microseconds.
fn rows(rows: &[Average]) -> Vec<String> {
    let row = |row: &Average| {
        let [own, all, device, devices] = [
            row.self_cpu_ns() / 1000,
            i64::try_from(row.cpu_ns()).unwrap() / 1000,
            i64::try_from(row.self_device_ns()).unwrap() / 1000,
            i64::try_from(row.device_ns()).unwrap() / 1000,
        ];
        format!("{} x{} {own}/{all} {device}/{devices}", row.name(), row.count())
    };
    rows.iter().map(row).collect()
}

#[test]
fn self_time_excludes_children_and_steps_share_a_row() {
    let sample = SampleTrace::default()
        .host_slice(UserAnnotation, "ProfilerStep#1", 1, (0, 100), crate::activity::NO_ARGS)
        .op("a", 10, 60)
        .op("b", 20, 50)
        .op("a", 60, 80)
        .host_slice(UserAnnotation, "ProfilerStep#2", 1, (100, 130), crate::activity::NO_ARGS)
        .host_slice(ActivityType::CpuOp, "a", 2, (0, 1000), crate::activity::NO_ARGS);
    let averages = sample.into_events().key_averages();
    assert_eq!(rows(averages.ops()), ["a x3 1040/1070 0/0", "ProfilerStep* x2 60/130 0/0", "b x1 30/30 0/0"]);
    assert_eq!((averages.cpu_base_ns(), averages.ops()[1].is_annotation()), (1_130_000, true));
    assert_eq!(averages.total_average().cpu_ns(), 1_130_000);
}

#[test]
fn overlap_on_one_row_counts_for_both_slices() {
    let events = SampleTrace::default().op("a", 0, 50).op("b", 40, 60).op("c", 45, 48).op("d", 60, 70).into_events();
    assert_eq!(
        rows(events.key_averages().ops()),
        ["a x1 50/50 0/0", "b x1 17/20 0/0", "d x1 10/10 0/0", "c x1 3/3 0/0"]
    );
}

#[test]
fn thread_group_includes_slices_on_overflow_rows() {
    let own_thread = [("thread id", ArgValue::I64(1))];
    let sample = SampleTrace::default().op("a", 0, 50);
    let events = sample.host_slice(ActivityType::CpuOp, "a", 10_000_001, (40, 60), &own_thread).into_events();
    assert_eq!(rows(events.averages().by(GroupBy::Thread).compute().ops()), ["a x2 60/70 0/0"]);
}

#[test]
fn only_child_of_same_name_merges_with_its_parent() {
    let sample = SampleTrace::default()
        .host_slice(CudaRuntime, "cudaLaunchKernel", 1, (0, 10), crate::activity::NO_ARGS)
        .op("mm", 0, 10)
        .op("add", 20, 40)
        .op("add", 21, 39)
        .op("add", 22, 38)
        .op("fill", 23, 24)
        .op("fill", 25, 26)
        .kernel("k1", 30, 31, 3)
        .kernel("k2", 32, 34, 4)
        .kernel("k3", 40, 44, 6);
    let averages = sample.into_events().key_averages();
    let expected = ["add x1 18/20 3/7", "cudaLaunchKernel x1 10/10 0/0", "fill x2 2/2 4/4", "mm x1 0/10 0/0"];
    assert_eq!(rows(averages.ops()), expected);
    assert_eq!((averages.device_base_ns(), averages.unattributed_device_ns()), (7000, 0));
}

#[test]
fn kernels_have_rows_and_device_annotations_no_base() {
    let sample = SampleTrace::default()
        .host_slice(UserAnnotation, "train", 1, (0, 100), crate::activity::NO_ARGS)
        .op("mm", 10, 20)
        .kernel("gemm", 30, 50, 2)
        .kernel("gemm", 50, 60, 2)
        .work(GpuMemcpy, "Memcpy HtoD", 70, 75, 0)
        .work(GpuUserAnnotation, "train", 30, 75, 0);
    let averages = sample.into_events().key_averages();
    assert_eq!(rows(averages.ops()), ["train x1 90/100 0/30", "mm x1 10/10 30/30"]);
    assert_eq!(rows(averages.kernels()), ["gemm x2 0/0 30/30", "Memcpy HtoD x1 0/0 5/5"]);
    assert_eq!(rows(averages.device_annotations()), ["train x1 0/0 45/45"]);
    assert_eq!((averages.device_base_ns(), averages.unattributed_device_ns()), (35_000, 5000));
    assert_eq!(averages.get(Section::Kernels, "gemm").unwrap().min_ns(), 10_000);
}

#[test]
fn device_annotation_counts_once_for_all_streams() {
    let copy = |sample: SampleTrace, stream, name: &str, start, end| {
        sample.work_on(GpuUserAnnotation, name, (0, stream), (start, end), 0)
    };
    let step = |sample, name, at| {
        copy(copy(copy(sample, 7, name, at, at + 40), 8, name, at + 10, at + 30), 9, name, at + 20, at + 50)
    };
    let events = step(step(SampleTrace::default(), "ProfilerStep#1", 0), "ProfilerStep#2", 45).into_events();
    let averages = events.key_averages();
    assert_eq!(rows(averages.device_annotations()), ["ProfilerStep* x6 0/0 100/100"]);
    let by_stream = events.averages().by(GroupBy::Thread).compute();
    let expected = ["ProfilerStep* x2 0/0 80/80", "ProfilerStep* x2 0/0 60/60", "ProfilerStep* x2 0/0 40/40"];
    assert_eq!(rows(by_stream.device_annotations()), expected);
}

#[test]
fn python_frames_and_torch_internals_have_no_rows() {
    let sample = SampleTrace::default()
        .op("a", 0, 100)
        .host_slice(PythonFunction, "f.py(1): f", 1, (10, 90), crate::activity::NO_ARGS)
        .op("b", 20, 30)
        .op("aten::is_leaf", 40, 50);
    assert_eq!(rows(sample.into_events().key_averages().ops()), ["a x1 90/100 0/0", "b x1 10/10 0/0"]);
}

#[test]
fn hidden_op_has_no_row_and_its_children_move_up() {
    let hidden = [("hidden", ArgValue::Bool(true))];
    let events = SampleTrace::default().op("a", 0, 100).op_with("own", 10, 90, &hidden).op("b", 20, 30).into_events();
    assert_eq!(rows(events.key_averages().ops()), ["a x1 90/100 0/0", "b x1 10/10 0/0"]);
}

#[test]
fn kernels_of_hidden_op_count_for_op_around_it() {
    let hidden = [("hidden", ArgValue::Bool(true))];
    let sample = SampleTrace::default().op("a", 0, 100).op_with("own", 10, 90, &hidden).kernel("k", 20, 25, 2);
    let averages = sample.into_events().key_averages();
    assert_eq!((rows(averages.ops()), averages.unattributed_device_ns()), (vec!["a x1 100/100 5/5".to_owned()], 0));
}

#[test]
fn memory_counts_for_innermost_op_of_its_thread() {
    let sample = SampleTrace::default()
        .op("a", 0, 100)
        .op("b", 10, 20)
        .host_slice(ActivityType::CpuOp, "c", 2, (0, 100), crate::activity::NO_ARGS)
        .memory(1, 15, 1024, 0)
        .memory(1, 30, -24, 0)
        .memory(1, 30, 4096, 1)
        .memory(2, 15, 7, 0)
        .memory(1, 200, 5, 0)
        .memory(3, 15, 6, 1);
    let averages = sample.into_events().key_averages();
    let bytes = |name| {
        let row = averages.get(Section::Ops, name).unwrap();
        [row.self_cpu_bytes(), row.cpu_bytes(), row.self_device_bytes(), row.device_bytes()]
    };
    assert_eq!([bytes("a"), bytes("b"), bytes("c")], [[-24, 1000, 4096, 4096], [1024, 1024, 0, 0], [7, 7, 0, 0]]);
    assert_eq!(averages.unattributed_bytes(), (5, 6));
    let total = averages.total_average();
    assert_eq!((total.cpu_bytes(), total.device_bytes()), (1012, 4102));
}

#[test]
fn rows_are_grouped_by_every_requested_key() {
    let dims = |dims| [("Input Dims", ArgValue::Json(dims)), ("target", ArgValue::Str("model"))];
    let sample = SampleTrace::default()
        .op_with("mm", 0, 10, &dims("[[2,3],[3,4]]"))
        .op_with("mm", 10, 30, &dims("[[2,3],[3,4]]"))
        .op_with("mm", 30, 90, &dims("[[8,8],[8,8]]"))
        .host_slice(ActivityType::CpuOp, "mm", 2, (0, 10), crate::activity::NO_ARGS)
        .kernel("gemm", 0, 10, 1);
    let events = sample.into_events();
    let keys = |averaging: AveragesBuilder<'_>| {
        let averages = averaging.compute();
        let keys = |row: &Average| format!("{} x{}", row.keys().join("|"), row.count());
        averages.iter().map(keys).collect::<Vec<_>>()
    };
    let by = |group| keys(events.averages().by(group));
    let shapes = ["[[8, 8], [8, 8]] x1", "[[2, 3], [3, 4]] x2", "[] x1", "[] x1"];
    assert_eq!(by(GroupBy::Shapes), shapes);
    assert_eq!(by(GroupBy::Thread), ["1 x3", "2 x1", "7 x1"]);
    assert_eq!(by(GroupBy::Device), ["host x4", "0 x1"]);
    assert_eq!(by(GroupBy::Target), ["model x3", " x1", " x1"]);
    let half = |event: &Event<'_>| if event.start() < micros(20) { "first" } else { "then" }.to_owned();
    assert_eq!(
        keys(events.averages().by(GroupBy::Device).by_key("Half", half)),
        ["host|then x1", "host|first x3", "0|first x1"]
    );
}

#[test]
fn window_selects_ops_and_work_launched_in_it() {
    let sample = SampleTrace::default()
        .op("early", 0, 10)
        .op("in", 20, 30)
        .kernel("of early", 25, 26, 1)
        .kernel("of in", 90, 91, 2)
        .kernel("of none", 22, 23, 0);
    let events = sample.into_events();
    let averages = events.averages().within(micros(20), micros(50)).compute();
    assert_eq!(rows(averages.ops()), ["in x1 10/10 1/1"]);
    assert_eq!(rows(averages.kernels()), ["of none x1 0/0 1/1", "of in x1 0/0 1/1"]);
}

#[test]
fn percentiles_use_nearest_rank_and_std_the_sample() {
    let sample = [10, 20, 30, 40].iter().fold(SampleTrace::default(), |sample, us| sample.op("a", us * 100, us * 101));
    let averages = sample.into_events().key_averages();
    let row = &averages.ops()[0];
    assert_eq!((row.min_ns(), row.max_ns(), row.mean_ns()), (10_000, 40_000, 25_000.0));
    let ranks = [0.0, 0.25, 0.5, 0.51, 0.95, 1.0].map(|quantile| row.percentile_ns(quantile) / 1000);
    assert_eq!(ranks, [10, 10, 20, 30, 40, 40]);
    assert!((row.std_ns() - 12_909.944).abs() < 0.001, "{}", row.std_ns());
    assert_eq!(Average::default().percentile_ns(0.5), 0);
}

#[test]
fn nested_flops_count_once_in_the_total() {
    let dims = |dims| [("Input Dims", ArgValue::Json(dims))];
    let sample = SampleTrace::default()
        .op_with("aten::linear", 0, 10, &dims("[[4,8],[2,8],[2]]"))
        .op_with("aten::addmm", 1, 9, &dims("[[2],[4,8],[8,2],[],[]]"))
        .op_with("mm", 20, 30, &dims("[[2,3],[3,4]]"));
    let averages = sample.into_events().key_averages();
    let flops = |name| averages.get(Section::Ops, name).unwrap().flops();
    assert_eq!([flops("aten::linear"), flops("aten::addmm"), flops("mm")], [128, 128, 48]);
    assert_eq!(averages.total_average().flops(), 176);
}

#[test]
fn sums_saturate() {
    let slice = |category: &str, name: &str, tid: u32, args: &str| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{tid},"ts":0,"dur":9200000000000000,"args":{{{args}}}}}"#
        )
    };
    let memory = |bytes: i64, kind: u8| {
        format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":1,"s":"t","args":{{"Bytes":{bytes},"Device Type":{kind}}}}}"#
        )
    };
    let mut events: Vec<_> = (1..4).map(|tid| slice("cpu_op", "op", tid, r#""External id":1"#)).collect();
    events.extend((10..14).map(|tid| slice("kernel", "kernel", tid, r#""External id":1,"device":0,"stream":7"#)));
    events.extend((20..23).map(|tid| slice("kernel", "alone", tid, r#""device":0,"stream":7"#)));
    events
        .extend([(i64::MIN, 0), (i64::MIN, 0), (i64::MAX, 1), (i64::MAX, 1)].map(|(bytes, kind)| memory(bytes, kind)));
    let text = format!(r#"{{"traceEvents":[{}]}}"#, events.join(","));
    let events = Events::from_reader(text.as_bytes()).unwrap();
    assert_eq!(events.len(), 14);
    let averages = events.key_averages();
    let op = &averages.ops()[0];
    assert_eq!((op.self_cpu_ns(), op.cpu_bytes(), op.device_bytes()), (i64::MAX, i64::MIN, i64::MAX));
    assert_eq!((averages.device_base_ns(), averages.unattributed_device_ns()), (u64::MAX, u64::MAX));
    assert_eq!(op.mean_ns(), 9.2e18);
    assert_eq!(averages.total_average().self_cpu_ns(), i64::MAX);
    assert!(!averages.table().spread(true).to_string().is_empty());
    for metric in [crate::analysis::StackMetric::SelfHost, crate::analysis::StackMetric::SelfDevice] {
        let mut stacks = Vec::new();
        events.stacks(metric).write(&mut stacks).unwrap();
        assert!(stacks.starts_with(b"op "));
    }
}
