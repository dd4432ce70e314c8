//! Tests for both AMD profilers; the including binary selects one by `PROFILER`.

use super::PROFILER;
use serde_json::{Value, json};
use std::collections::HashSet;
use support::amd::{self, AmdProfiler, counts, idle, names, owners, report, step};
use support::gpu::{Counts, calls, events, in_child, interval, kernels, losses, name, stream, under, work};
use support::rocm::{self, Hip, Stream};
use support::virtual_time;
use support::{self, File, name_of};
use tracing::info_span;
use tracing_kineto::Loss;

pub(crate) fn machine(settings: &str) -> amd::Machine {
    amd::machine(PROFILER, settings)
}

/// Checks the rows of a step, for any version of HIP.
#[track_caller]
pub(crate) fn whole(file: &File) {
    let all = Counts { launches: 7, kernels: 4, copies: 3, fills: 2, linked: 9, starts: 7, ends: 9, annotations: 2 };
    assert_eq!(Counts::of(file), all, "{}", file.trace.stats());
    assert_eq!(losses(file), []);
    assert_eq!(
        owners(file),
        counts([
            ("Memcpy HtoD (Host -> Device) < copy_in", 1),
            ("Memcpy DtoD (Device -> Device) < copy", 1),
            ("Memcpy DtoH (Device -> Host) < copy_out", 1),
            ("Memset (Device) < fill", 1),
            ("Memset (Device) < graph", 1),
            ("void blaze::gemm<64>(float const*, float const*, float*) < gemm", 1),
            ("mul(float*) < mul", 1),
            ("mul(float*) < graph", 1),
            ("_Z3addPfS_i_us300 < graph", 1),
        ])
    );
}

/// Returns the arguments of the first call of that name.
pub(crate) fn args<'f>(file: &'f File, wanted: &str) -> &'f Value {
    &calls(file).into_iter().find(|call| name(call) == wanted).unwrap()["args"]
}

/// Returns the first work row whose name contains `wanted`.
pub(crate) fn piece<'f>(file: &'f File, wanted: &str) -> &'f Value {
    work(file).into_iter().find(|row| name(row).contains(wanted)).unwrap()
}

#[virtual_time]
fn step_is_recorded_completely() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    whole(&file);
    assert_eq!(rocm::count("synchronizes"), 1, "the program's own");
}

#[virtual_time]
fn calls_have_rows_except_frequent_queries() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    assert!(calls(&file).iter().all(|call| call["cat"] == "cuda_runtime"));
    let found = names(calls(&file));
    let queries = ["hipGetDevice", "hipDeviceGetAttribute", "hipGetLastError", "hipModuleGetFunction"];
    assert!(queries.iter().all(|name| !found.contains_key(*name)), "{found:?}");
    for (call, count) in [
        ("hipLaunchKernel", 1),
        ("hipExtModuleLaunchKernel", 1),
        ("hipModuleLaunchKernel", 2),
        ("hipGraphLaunch", 1),
        ("hipMemcpyAsync", 3),
        ("hipMemsetAsync", 2),
        ("hipMalloc", 2),
        ("hipFree", 2),
        ("hipDeviceSynchronize", 1),
    ] {
        assert_eq!(found.get(call), Some(&count), "{call}");
    }
    let launch = args(&file, "hipLaunchKernel");
    assert_eq!((&launch["grid"], &launch["block"]), (&json!([64, 1, 1]), &json!([128, 1, 1])));
    assert_eq!(launch["shared memory"], 1024);
    let launch = args(&file, "hipExtModuleLaunchKernel");
    assert_eq!((&launch["grid"], &launch["block"]), (&json!([32, 1, 1]), &json!([64, 1, 1])));
    let copy = args(&file, "hipMemcpyAsync");
    assert_eq!((&copy["bytes"], &copy["kind"]), (&4096.into(), &"1".into()));
    assert_eq!(args(&file, "hipMalloc")["bytes"], 4096);
}

#[virtual_time]
fn work_has_its_device_stream_and_sizes() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    let gemm = piece(&file, "gemm");
    assert_eq!((&gemm["args"]["grid"], &gemm["args"]["block"]), (&json!([64, 1, 1]), &json!([128, 1, 1])));
    assert_eq!(gemm["args"]["kind"], "Dispatch Kernel");
    let fill = work(&file).into_iter().find(|row| under(&file, row) == "fill").unwrap();
    assert_eq!((&fill["args"]["bytes"], &fill["cat"]), (&4096.into(), &"gpu_memset".into()));
    assert_eq!(piece(&file, "HtoD")["args"]["bytes"], 4096);
    assert!(
        work(&file).iter().all(|row| row["pid"] == 0 && row["args"]["device"] == 0),
        "HIP's number, not the node's"
    );
    // Timestamps are exact, and converting them preserves durations.
    let (start, end) = interval(piece(&file, "_us300"));
    assert!((299_000..=301_000).contains(&(end - start)), "{}", end - start);
    let lanes: HashSet<_> = work(&file).into_iter().map(stream).collect();
    assert_eq!(lanes.len(), 2, "{lanes:?}");
    let [out, to, on] = ["DtoH", "HtoD", "DtoD"].map(|name| stream(piece(&file, name)));
    assert_eq!((stream(gemm), out), (to, on));
    let annotations = events(&file, "X", "gpu_user_annotation");
    let annotated: HashSet<_> = annotations.iter().map(|row| stream(row)).collect();
    assert_eq!((names(annotations), annotated), (counts([("forward", 2)]), lanes));
}

#[virtual_time]
fn header_names_devices_and_versions() {
    let machine = machine("devices=2");
    let file = amd::record(|| amd::launch(&machine, "add", Stream::NULL));
    assert_eq!(file.json["hip_runtime_version"].to_string().trim_matches('"'), "70051831");
    assert_eq!(file.json["deviceProperties"][0]["name"], "Simulated GPU (no real device)");
    assert!(report(&file).notes.is_empty(), "{:?}", report(&file).notes);
}

#[virtual_time]
fn successive_recordings_have_their_own_kernels() {
    let machine = machine("");
    idle(
        |builder| builder,
        |profiler| {
            amd::launch(&machine, "before", Stream::NULL);
            for kernel in ["one", "two", "three"] {
                profiler.start().unwrap();
                (0..5).for_each(|_| amd::launch(&machine, kernel, Stream::NULL));
                let file = File::of(profiler.stop().unwrap());
                assert_eq!(names(kernels(&file)), counts([(kernel, 5)]));
                assert_eq!((Counts::of(&file).linked, losses(&file)), (5, vec![]));
                let callbacks = rocm::count("callbacks");
                amd::launch(&machine, "between", Stream::NULL);
                machine.synchronize();
                match PROFILER {
                    // The code-object callback stays for kernels loaded at any time.
                    AmdProfiler::Sdk => assert_eq!(rocm::count("starts"), rocm::count("stops")),
                    AmdProfiler::Tracer => assert_eq!(rocm::count("callbacks"), callbacks, "no callback is active"),
                }
            }
        },
    );
    assert_eq!((rocm::count("synchronizes"), rocm::count("configures")), (3, 0), "the program's own");
}

#[virtual_time]
fn work_launched_in_a_pause_is_not_recorded() {
    let machine = machine("");
    idle(
        |builder| builder,
        |profiler| {
            profiler.start().unwrap();
            amd::launch(&machine, "one", Stream::NULL);
            profiler.pause().unwrap();
            amd::launch(&machine, "pause", Stream::NULL);
            profiler.resume().unwrap();
            amd::launch(&machine, "two", Stream::NULL);
            let file = File::of(profiler.stop().unwrap());
            assert_eq!(names(kernels(&file)), counts([("one", 1), ("two", 1)]));
            // roctracer continues in a pause, and its records are dropped.
            assert!(
                losses(&file).iter().all(|(loss, _)| PROFILER == AmdProfiler::Tracer && *loss == Loss::OutOfWindow)
            );
        },
    );
}

#[virtual_time]
fn each_device_and_stream_has_a_row() {
    // roctracer counts processors too; rocprofiler-sdk queries agents once.
    let machine = machine(if PROFILER == AmdProfiler::Tracer { "devices=2,cpus=2" } else { "devices=2" });
    let file = amd::record(|| {
        let first = machine.allocate(64);
        let streams: Vec<Stream> = (0..6).map(|_| machine.stream()).collect();
        streams.iter().for_each(|stream| amd::launch(&machine, "first", *stream));
        machine.set_device(1);
        let second = machine.allocate(64);
        let stream = machine.stream();
        amd::launch(&machine, "second", stream);
        info_span!("peer").in_scope(|| machine.memcpy_peer((second, 1), (first, 0), stream));
        machine.synchronize();
        machine.set_device(0);
        machine.synchronize();
    });
    let lanes: HashSet<_> = kernels(&file).into_iter().map(stream).collect();
    assert_eq!(lanes.iter().filter(|(device, _)| *device == 0).count(), 6, "six streams share four queues: {lanes:?}");
    assert_eq!(lanes.len(), 7);
    let copy = events(&file, "X", "gpu_memcpy")[0];
    assert_eq!((&copy["pid"], under(&file, copy)), (&1.into(), "peer"));
    assert_eq!((Counts::of(&file).linked, losses(&file)), (8, vec![]));
}

#[virtual_time]
fn threads_have_their_own_launches() {
    let machine = machine("");
    let file = amd::record(|| {
        let hip = *machine;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                support::spawn(scope, &format!("worker {thread}"), move || {
                    let stream = hip.stream();
                    (0..10).for_each(|_| amd::launch(&hip, "add", stream));
                    hip.synchronize_stream(stream);
                });
            }
        });
    });
    let all = Counts { launches: 40, kernels: 40, linked: 40, starts: 40, ends: 40, ..Counts::default() };
    assert_eq!((Counts::of(&file), losses(&file)), (all, vec![]));
    for call in calls(&file).into_iter().filter(|call| name(call) == "hipLaunchKernel") {
        let slice =
            file.slices().iter().find(|slice| call["args"]["External id"] == slice.args["External id"]).unwrap();
        assert_eq!(call["tid"], slice.tid, "on the row of its thread");
    }
}

// Shows the key ROCTRACER_MAX_EVENTS.
#[virtual_time]
fn rows_are_limited_by_the_key() {
    in_child(name_of(child_with_few_rows), &[("KINETO_ROCTRACER_MAX_EVENTS", "20")]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_few_rows() {
    amd::load(PROFILER, "");
    let file = amd::record(|| {
        (0..20).for_each(|_| amd::launch(&Hip, "add", Stream::NULL));
        Hip.synchronize();
    });
    // One row may be the collector's own HIP call.
    let (rows, lost) = (calls(&file).len() + work(&file).len(), file.lost(Loss::DeviceRecordsOverLimit));
    assert!((19..=20).contains(&rows) && (21..=22).contains(&lost), "{rows} {lost}");
}
