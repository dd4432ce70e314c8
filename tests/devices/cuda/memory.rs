//! Device memory reported by CUPTI: bytes, device and span of each allocation, with each version.

use serde_json::Value;
use std::fmt::Write as _;
use support::cuda::{Cuda, Memory};
use support::gpu::{VERSIONS, events, machine, name};
use support::virtual_time;
use support::{File, cuda, gpu};
use tracing::info_span;
use tracing_kineto::memory::{self, Device};
use tracing_kineto::{Devices, KinetoLayerBuilder, Loss, MemoryAction};

fn with_memory(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    gpu::all(builder).devices(Devices::new().memory(true))
}

/// Returns each allocation or free: device, bytes, total, and span.
fn rows(file: &File) -> Vec<String> {
    let mut all: Vec<_> =
        events(file, "i", "cpu_instant_event").into_iter().filter(|it| name(it) == "[memory]").collect();
    all.sort_by_key(|row| support::nanos(&row["ts"]));
    let show = |row: &&Value| {
        let args = &row["args"];
        let [kind, device, bytes, total] =
            ["Device Type", "Device Id", "Bytes", "Total Allocated"].map(|key| args[key].as_i64().unwrap());
        format!("{kind} {device}: {bytes} of {total} in {}", gpu::under(file, row))
    };
    all.iter().map(show).collect()
}

/// Allocates on two devices; `old` is from before the recording.
fn work(cuda: &Cuda, contexts: [cuda::Context; 2], old: Memory) {
    let stream = cuda.stream();
    let first = info_span!("load").in_scope(|| {
        let first = cuda.allocate(4096);
        cuda.allocate_pinned(1 << 20);
        first
    });
    info_span!("step").in_scope(|| {
        let by_runtime = cuda.allocate_by_runtime(1000);
        let pooled = cuda.allocate_async(512, stream);
        cuda.free_async(pooled, stream);
        info_span!("inner").in_scope(|| cuda.free(old));
        cuda.set_current(contexts[1]);
        cuda.allocate_managed(64);
        cuda.set_current(contexts[0]);
        cuda.free_by_runtime(by_runtime);
    });
    cuda.free(first);
}

const EXPECTED: [&str; 8] = [
    "1 0: 4096 of 6144 in load",
    "1 0: 1000 of 7144 in step",
    "1 0: 512 of 7656 in step",
    "1 0: -512 of 7144 in step",
    "1 0: -2048 of 5096 in inner",
    "1 1: 64 of 64 in step",
    "1 0: -1000 of 4096 in step",
    "1 0: -4096 of 0 in ",
];

// Shows the key PROFILE_DEVICE_MEMORY.
#[virtual_time]
fn allocations_are_in_the_trace_with_each_version() {
    let mut table =
        "| CUPTI | driver | expected | found | of device 0 | of device 1 | in spans |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for (version, driver) in VERSIONS {
        let machine = machine(&format!("cupti={version},driver={driver},devices=2,nested_driver=1"));
        let contexts = [1, 0].map(|device| machine.context(device));
        let contexts = [contexts[1], contexts[0]];
        machine.set_current(contexts[0]);
        let old = machine.allocate(2048);
        let file = support::record_with(with_memory, || work(&machine, contexts, old));
        let found = rows(&file);
        assert_eq!(found, EXPECTED, "{version}");
        let stats = file.trace.stats();
        assert_eq!((stats.memory_events, stats.losses.len()), (8, 0), "{version}: {stats}");
        check_timeline(version, &file);
        let of = |device: &str| found.iter().filter(|row| row.starts_with(device)).count();
        let (in_spans, expected) = (found.iter().filter(|row| !row.ends_with(' ')).count(), EXPECTED.len());
        let (first, second, all) = (of("1 0"), of("1 1"), found.len());
        writeln!(table, "| {version} | {driver} | {expected} | {all} | {first} | {second} | {in_spans} |").unwrap();
    }
    gpu::publish("cuda-memory.md", &table);
}

fn check_timeline(version: &str, file: &File) {
    assert_eq!(file.trace.memory_devices(), [Device::cuda(0), Device::cuda(1)], "{version}");
    let timeline = file.trace.memory_timeline(Device::cuda(0));
    assert_eq!(timeline.max_allocated(), 7656, "{version}");
    let count = |action| timeline.rows().iter().filter(|row| row.action == action).count();
    let actions = [MemoryAction::Preexisting, MemoryAction::Create, MemoryAction::Destroy].map(count);
    assert_eq!(actions, [1, 3, 4], "{version}: {:?}", timeline.rows());
    let counters: Vec<_> = file.events().filter(|event| event["ph"] == "C").map(name).collect();
    assert_eq!(counters.iter().filter(|name| **name == "GPU 0 allocated").count(), 7, "{version}: {counters:?}");
}

#[virtual_time]
fn allocations_are_counted_once_with_an_allocator() {
    let machine = machine("");
    machine.set_current(machine.context(0));
    let program = || {
        info_span!("span").in_scope(|| {
            let memory = machine.allocate(4096);
            memory::record(memory.address, 4096, 4096, 0, Device::cuda(0));
            memory::record(0x10, 8, 8, 0, Device::CPU);
            memory::record(memory.address, -4096, 0, 0, Device::cuda(0));
            memory::record_out_of_memory(1 << 40, 0, 0, Device::cuda(0));
            machine.free(memory);
        });
    };
    let both = support::record_with(|builder| with_memory(builder).with_memory(true), program);
    let expected = ["1 0: 4096 of 4096 in span", "0 -1: 8 of 8 in span", "1 0: -4096 of 0 in span"];
    assert_eq!(rows(&both), expected);
    let stats = both.trace.stats();
    assert_eq!((stats.memory_events, stats.lost(Loss::MemoryReplaced)), (4, 2), "{stats}");
    let failed = events(&both, "i", "cpu_instant_event").into_iter().filter(|it| name(it) == "[OutOfMemory]");
    assert_eq!(failed.count(), 1, "failed CUDA calls have no record");
    assert_eq!(both.trace.memory_timeline(Device::cuda(0)).rows().len(), 2);
    // CUPTI's memory records are not enabled.
    let reported = support::record_with(|builder| gpu::all(builder).with_memory(true), program);
    assert_eq!(rows(&reported), [expected[0], expected[1], expected[2]]);
    assert_eq!(reported.trace.stats().losses, []);
    assert!(rows(&support::record_with(gpu::all, program)).is_empty());
}

#[virtual_time]
fn allocations_are_recorded_without_spans_or_call_records() {
    let machine = machine("enable_error=21:4");
    let context = machine.context(0);
    machine.set_current(context);
    let file = support::record_with(with_memory, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                machine.set_current(context);
                machine.free(machine.allocate(32));
            });
        });
    });
    // Driver calls are not recorded, so the thread is unknown.
    assert_eq!(rows(&file), ["1 0: 32 of 32 in ", "1 0: -32 of 0 in "]);
    let row = events(&file, "i", "cpu_instant_event")[0];
    assert_eq!(row["tid"].as_u64(), Some(std::process::id().into()));
}

#[virtual_time]
fn refusal_is_noted_and_reported_allocations_are_kept() {
    let machine = machine("enable_error=27:49");
    machine.set_current(machine.context(0));
    let file = support::record_with(
        |builder| with_memory(builder).with_memory(true),
        || memory::record(0x10, 8, 8, 0, Device::cuda(0)),
    );
    assert_eq!(rows(&file), ["1 0: 8 of 8 in "]);
    let notes = gpu::report(&file).notes;
    assert!(
        notes.iter().any(|note| note.starts_with("device memory is not recorded: CUPTI_ERROR_NOT_SUPPORTED")),
        "{notes:?}"
    );
}

#[virtual_time]
fn pause_excludes_its_allocations() {
    let machine = machine("");
    machine.set_current(machine.context(0));
    let (layer, guard) = support::layer(with_memory);
    let profiler = guard.profiler();
    tracing::subscriber::with_default(
        tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer),
        || {
            let first = machine.allocate(8);
            profiler.pause().unwrap();
            machine.allocate(16);
            profiler.resume().unwrap();
            machine.free(first);
        },
    );
    assert_eq!(rows(&File::of(guard.finish().unwrap())), ["1 0: 8 of 8 in ", "1 0: -8 of 0 in "]);
}
