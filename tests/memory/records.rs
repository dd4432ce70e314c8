//! Records of an allocator that is not the global one.

use serde_json::{Value, json};
use support::harness::Test;
use support::{self, File};
use tracing::info_span;
use tracing_kineto::activity::{Body, DeviceType};
use tracing_kineto::memory::{self, Category, Device};
use tracing_kineto::{KinetoLayer, Loss};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

pub(crate) const TESTS: &[Test] = &[
    ("memory_rows_have_torchs_args_and_the_innermost_slice", memory_rows_have_torchs_args_and_the_innermost_slice),
    ("memory_is_not_recorded_by_default", memory_is_not_recorded_by_default),
    ("each_layer_with_memory_enabled_records_it", each_layer_with_memory_enabled_records_it),
    ("attribution_handles_excluded_moved_and_deep_spans", attribution_handles_excluded_moved_and_deep_spans),
    ("categories_come_from_the_scope_or_else_the_spans", categories_come_from_the_scope_or_else_the_spans),
    ("records_over_the_limit_are_counted", records_over_the_limit_are_counted),
    ("allocations_in_a_pause_are_not_recorded", allocations_in_a_pause_are_not_recorded),
];

const GPU: Device = Device::cuda(0);

/// Returns the `[memory]` and `[OutOfMemory]` rows of a kind of device.
pub(crate) fn rows(file: &File, kind: DeviceType) -> Vec<Value> {
    let is_ours = |row: &&&Value| row["args"]["Device Type"] == json!(kind.number());
    file.rows("i").iter().filter(is_ours).map(|row| (*row).clone()).collect()
}

/// Returns the values of a counter.
fn counter(file: &File, name: &str) -> Vec<i64> {
    let rows = file.rows("C").into_iter().filter(|row| row["name"] == name);
    rows.map(|row| row["args"]["bytes"].as_i64().unwrap()).collect()
}

/// Returns "bytes<slice" for each row of the GPU, in the order of the file.
fn attribution(file: &File) -> String {
    let names: std::collections::HashMap<_, _> =
        file.slices().iter().map(|slice| (slice.args["External id"].as_u64(), slice.name.as_str())).collect();
    let name = |row: &Value| row["args"]["External id"].as_u64().map_or("", |id| names[&Some(id)]);
    let mut pairs: Vec<_> =
        rows(file, DeviceType::Cuda).iter().map(|row| format!("{}<{}", row["args"]["Bytes"], name(row))).collect();
    // Rows are in the order of thread ids, which the kernel reuses.
    pairs.sort();
    pairs.join(" ")
}

fn allocate(bytes: i64) {
    memory::record(0x1000, bytes, 0, 0, GPU);
}

fn memory_rows_have_torchs_args_and_the_innermost_slice() {
    let file = support::record_with(
        |builder| builder.with_memory(true),
        || {
            assert!(memory::is_enabled());
            memory::record(0x7000_0000_0000, 512, 512, 1 << 20, GPU);
            info_span!("outer").in_scope(|| {
                info_span!("inner").in_scope(|| {
                    memory::record(u64::MAX, 1024, 1536, 1 << 20, GPU);
                    memory::record(0x7000_0000_0000, -512, 1024, 1 << 20, GPU);
                });
                memory::record_out_of_memory(1 << 40, 1024, 1 << 20, GPU);
                memory::record(0x10, 8, 8, 0, Device { kind: DeviceType::PrivateUse1, index: 2 });
            });
        },
    );
    let rows = rows(&file, DeviceType::Cuda);
    let args = |bytes: i64, allocated: u64| json!({"Device Type": 1, "Device Id": 0, "Bytes": bytes, "Total Allocated": allocated, "Total Reserved": 1 << 20});
    let expected = [
        ("[memory]", None, json!(0x7000_0000_0000u64), args(512, 512)),
        ("[memory]", Some("inner"), json!("18446744073709551615"), args(1024, 1536)),
        ("[memory]", Some("inner"), json!(0x7000_0000_0000u64), args(-512, 1024)),
        ("[OutOfMemory]", Some("outer"), Value::Null, args(1 << 40, 1024)),
    ];
    assert_eq!(rows.len(), expected.len());
    for (row, (name, slice, address, mut args)) in rows.iter().zip(expected) {
        if let Some(slice) = slice {
            args["External id"] = file.slice(slice).args["External id"].clone();
        }
        if !address.is_null() {
            args["Addr"] = address;
        }
        assert_eq!((&row["name"], &row["cat"], &row["s"]), (&json!(name), &json!("cpu_instant_event"), &json!("t")));
        assert_eq!(row["args"], args);
        assert_eq!(row["tid"].as_u64(), Some(file.slice("outer").tid));
    }
    assert_eq!(counter(&file, "GPU 0 allocated"), [512, 1536, 1024, 1024]);
    assert_eq!(counter(&file, "GPU 0 reserved"), [1 << 20; 4]);
    assert_eq!(
        (counter(&file, "PrivateUse1 2 allocated"), counter(&file, "PrivateUse1 2 reserved")),
        (vec![8], vec![])
    );
    let mut linked = Vec::new();
    file.trace.for_each(|activity| {
        if let (Body::Instant { .. }, 1..) = (activity.body, activity.linked.0) {
            linked.push(activity.linked.0);
        }
    });
    let ids = ["inner", "inner", "outer", "outer"].map(|name| file.slice(name).args["External id"].as_u64().unwrap());
    assert!(linked.windows(4).any(|linked| linked == ids), "{linked:?}");
}

fn memory_is_not_recorded_by_default() {
    let file = support::record(|| {
        assert!(!memory::is_enabled());
        allocate(1);
        drop(vec![0u8; 100]);
    });
    assert_eq!((file.rows("i").len(), file.rows("C").len(), file.trace.stats().memory_events), (0, 0, 0));
    let (layer, guard) = support::layer(|builder| builder.with_memory(true).record_from_start(false));
    assert!(!memory::is_enabled());
    guard.profiler().start().unwrap();
    assert!(memory::is_enabled());
    drop(guard.profiler().stop().unwrap());
    assert!(!memory::is_enabled());
    drop((layer, guard));
}

fn each_layer_with_memory_enabled_records_it() {
    let (one, first) = support::layer(|builder| builder.with_memory(true));
    let (two, second) = support::layer(|builder| builder);
    let (three, third) = support::layer(|builder| builder.with_memory(true).filter(Targets::new()));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(one).with(two).with(three), || {
        info_span!("seen").in_scope(|| allocate(5));
    });
    // All have ended before any is read, which allocates.
    let [first, second, third] = [first, second, third].map(|guard| guard.finish().unwrap()).map(File::of);
    assert_eq!([&first, &second, &third].map(attribution), ["5<seen", "", "5<"]);
    // Dropping a layer frees its slot.
    let build = || KinetoLayer::builder().no_output().with_memory(true).record_from_start(false).build();
    (0..100).for_each(|_| drop(build().unwrap()));
    let many: Vec<_> = (0..64).map(|_| build().unwrap()).collect();
    let refused = build().unwrap_err();
    assert_eq!(refused.kind(), tracing_kineto::ErrorKind::Unsupported);
    drop(many);
}

fn attribution_handles_excluded_moved_and_deep_spans() {
    let left_out = |builder: tracing_kineto::KinetoLayerBuilder| {
        let only = Targets::new().with_default(tracing::Level::INFO);
        builder.with_memory(true).filter(only)
    };
    let file = support::record_with(left_out, || {
        info_span!("before").in_scope(|| allocate(1));
        info_span!("seen").in_scope(|| {
            tracing::debug_span!("left out").in_scope(|| allocate(2));
            let elsewhere = info_span!("elsewhere");
            support::enter(&elsewhere);
            allocate(3);
            support::on_thread("other", || {
                allocate(4);
                support::exit(&elsewhere);
            });
            allocate(5);
        });
        tracing::debug_span!("left out").in_scope(|| allocate(6));
    });
    assert_eq!(attribution(&file), "1<before 2<seen 3<elsewhere 4< 5<seen 6<");

    let file = support::record_with(
        |builder| builder.with_memory(true),
        || {
            let spans: Vec<_> = (0..80).map(|i| info_span!("deep", kineto.name = format!("deep {i}"))).collect();
            spans.iter().for_each(support::enter);
            allocate(7);
            spans.iter().rev().take(30).for_each(support::exit);
            allocate(8);
            spans.iter().rev().skip(30).for_each(support::exit);
        },
    );
    assert_eq!(attribution(&file), "7<deep 79 8<deep 49");
}

fn categories_come_from_the_scope_or_else_the_spans() {
    let file = support::record_with(
        |builder| builder.with_memory(true),
        || {
            allocate(1);
            let step = info_span!("step", mem.category = "activation");
            step.in_scope(|| {
                info_span!("op").in_scope(|| allocate(2));
                let _scope = memory::scope(Category::Parameter);
                allocate(3);
                drop(memory::scope(Category::Input));
                info_span!("op", mem.category = "GRADIENT").in_scope(|| allocate(4));
            });
            let late = info_span!("late", mem.category = tracing::field::Empty);
            late.in_scope(|| allocate(5));
            late.record("mem.category", "OPTIMIZER_STATE");
            late.record("mem.category", "weights");
            info_span!("wrong", mem.category = "weights").in_scope(|| allocate(6));
        },
    );
    let rows = rows(&file, DeviceType::Cuda);
    let categories: Vec<_> = rows.iter().map(|row| row["args"]["Category"].as_str().unwrap_or("")).collect();
    assert_eq!(categories, ["", "ACTIVATION", "PARAMETER", "PARAMETER", "OPTIMIZER_STATE", ""]);
}

fn records_over_the_limit_are_counted() {
    const RECORDS: i64 = 10_000;
    let file = support::record_with(
        |builder| builder.with_memory(true).buffer_limit_bytes(128 * 1024),
        || (0..RECORDS).for_each(allocate),
    );
    let (kept, lost) = (rows(&file, DeviceType::Cuda).len() as u64, file.lost(Loss::MemoryOverLimit));
    assert!(kept > 0 && lost > 0 && file.lost(Loss::MemoryMissed) == 0, "{}", file.trace.stats());
    // The program's allocator reports too.
    assert!(kept + lost >= RECORDS.unsigned_abs(), "{kept} and {lost}");
}

fn allocations_in_a_pause_are_not_recorded() {
    let (layer, guard) = support::layer(|builder| builder.with_memory(true));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        allocate(1);
        guard.profiler().pause().unwrap();
        allocate(2);
        guard.profiler().resume().unwrap();
        allocate(3);
    });
    assert_eq!(attribution(&File::of(guard.finish().unwrap())), "1< 3<");
}
