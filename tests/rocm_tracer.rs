//! Recordings of AMD's GPUs by roctracer, on the simulated ones.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/amd.rs"]
mod amd;
mod common;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/gpu.rs"]
mod gpu;
#[path = "common/rocm.rs"]
mod rocm;

use amd::{Way, counts, idle, losses, names, owners, report, step};
use common::File;
use gpu::{Counts, calls, events, in_child, interval, kernels, name, stream, under, work};
use rocm::{Hip, Stream};
use serde_json::json;
use std::collections::HashSet;
use tracing::info_span;
use tracing_kineto::Loss;

fn machine(settings: &str) -> amd::Machine {
    amd::machine(Way::Tracer, settings)
}

/// What a step is, whichever version of HIP there is.
#[track_caller]
fn whole(file: &File) {
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

#[test]
fn a_step_is_recorded_whole() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    whole(&file);
    assert_eq!(rocm::count("synchronizes"), 1, "the program's own");
    assert_eq!(rocm::count("push_depth"), 0);
}

#[test]
fn versions_of_hip_change_nothing() {
    for version in ["50231000", "53000000", "60300000"] {
        let machine = machine(&format!("hip={version},cpus=2"));
        whole(&amd::record(|| step(&machine)));
    }
}

#[test]
fn calls_have_their_rows_but_for_chatter() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    let found = names(calls(&file));
    let chatter = ["hipGetDevice", "hipDeviceGetAttribute", "hipGetLastError", "hipModuleGetFunction"];
    assert!(chatter.iter().all(|name| !found.contains_key(*name)), "{found:?}");
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
    let args = |wanted: &str| &calls(&file).into_iter().find(|call| name(call) == wanted).unwrap()["args"];
    let launch = args("hipLaunchKernel");
    assert_eq!((&launch["grid"], &launch["block"]), (&json!([64, 1, 1]), &json!([128, 1, 1])));
    assert_eq!((&launch["shared memory"], &launch["cid"]), (&1024.into(), &107.into()));
    assert_eq!(launch["kernel"], "void blaze::gemm<64>(float const*, float const*, float*)");
    let launch = args("hipExtModuleLaunchKernel");
    assert_eq!((&launch["grid"], &launch["block"]), (&json!([32, 1, 1]), &json!([64, 1, 1])));
    let copy = args("hipMemcpyAsync");
    assert_eq!((&copy["bytes"], &copy["kind"], &copy["cid"]), (&4096.into(), &"1".into(), &134.into()));
    assert_eq!(args("hipMalloc")["bytes"], 4096);
}

#[test]
fn work_says_where_and_how_it_ran() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    let of = |wanted: &str| work(&file).into_iter().find(|row| name(row).contains(wanted)).unwrap();
    let gemm = of("gemm");
    assert_eq!((&gemm["args"]["grid"], &gemm["args"]["block"]), (&json!([64, 1, 1]), &json!([128, 1, 1])));
    assert_eq!(gemm["args"]["kind"], "Dispatch Kernel");
    assert_eq!(of("_us300")["args"]["kind"], "Dispatch Task", "of a graph");
    assert_eq!((&of("HtoD")["args"]["bytes"], &of("Memset")["args"]["bytes"]), (&4096.into(), &4096.into()));
    assert!(
        work(&file).iter().all(|row| row["pid"] == 0 && row["args"]["device"] == 0),
        "HIP's number, not the node's"
    );
    let (start, end) = interval(of("_us300"));
    assert!((299_000..=301_000).contains(&(end - start)), "{}", end - start);
    let lanes: HashSet<_> = work(&file).into_iter().map(stream).collect();
    assert_eq!(lanes.len(), 2, "{lanes:?}");
    assert_eq!((stream(gemm), stream(of("DtoH"))), (stream(of("HtoD")), stream(of("DtoD"))));
    assert_eq!(names(events(&file, "X", "gpu_user_annotation")), counts([("forward", 2)]));
}

#[test]
fn the_header_names_devices_and_versions() {
    let machine = machine("devices=2");
    let file = amd::record(|| amd::launch(&machine, "add", Stream::NULL));
    assert_eq!(file.json["roctracer_version"].to_string().trim_matches('"'), "4.1");
    assert_eq!(file.json["hip_runtime_version"].to_string().trim_matches('"'), "70051831");
    let devices = file.json["deviceProperties"].as_array().unwrap();
    let device = &devices[0];
    assert_eq!(device["name"], "Simulated GPU (no real device)");
    let expected = [("warpSize", 64), ("numSms", 304), ("maxThreadsPerBlock", 1024), ("computeMajor", 9)];
    for (key, value) in expected {
        assert_eq!(device[key], value, "{key}");
    }
    assert_eq!(device["totalGlobalMem"], 64_u64 << 30);
    assert!(report(&file).notes.is_empty(), "{:?}", report(&file).notes);
}

#[test]
fn recordings_follow_one_another() {
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
                assert_eq!(rocm::count("callbacks"), callbacks, "nobody listens between recordings");
            }
        },
    );
    assert_eq!(rocm::count("synchronizes"), 3, "the program's own");
}

#[test]
fn what_is_launched_in_a_pause_is_not_there() {
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
        },
    );
}

#[test]
fn each_device_and_each_stream_has_a_row() {
    let machine = machine("devices=2,cpus=2");
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
    assert_eq!(lanes.iter().filter(|(device, _)| *device == 0).count(), 6, "although there are four queues: {lanes:?}");
    assert_eq!(lanes.len(), 7);
    let copy = events(&file, "X", "gpu_memcpy")[0];
    assert_eq!((&copy["pid"], under(&file, copy)), (&1.into(), "peer"));
    assert_eq!((Counts::of(&file).linked, losses(&file)), (8, vec![]));
}

#[test]
fn threads_launch_for_themselves() {
    let machine = machine("");
    let file = amd::record(|| {
        let hip = *machine;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                common::spawn(scope, &format!("worker {thread}"), move || {
                    let stream = hip.stream();
                    (0..10).for_each(|_| amd::launch(&hip, "add", stream));
                    hip.synchronize_stream(stream);
                });
            }
        });
    });
    let all = Counts { launches: 40, kernels: 40, linked: 40, starts: 40, ends: 40, ..Counts::default() };
    assert_eq!((Counts::of(&file), losses(&file)), (all, vec![]));
}

#[test]
fn a_recording_may_begin_after_hip() {
    in_child("child_that_is_late", &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_is_late() {
    let hip = Hip::with_tracer("");
    hip.init();
    whole(&amd::record(|| step(&hip)));
}

#[test]
fn an_sdk_that_is_too_old_leaves_it_to_roctracer() {
    in_child("child_with_an_old_sdk", &[("SIM_ROCM", "sdk=0.5,hip=60300000")]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_sdk() {
    rocm::sdk();
    rocm::tracer();
    whole(&amd::record(|| step(&Hip)));
    assert_eq!(rocm::count("configures"), 0);
}

#[test]
fn rows_have_a_limit() {
    in_child("child_with_few_rows", &[("KINETO_ROCTRACER_MAX_EVENTS", "20")]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_few_rows() {
    rocm::tracer();
    let file = amd::record(|| {
        (0..20).for_each(|_| amd::launch(&Hip, "add", Stream::NULL));
        Hip.synchronize();
    });
    // One may be the collector's own call of HIP.
    let (rows, lost) = (calls(&file).len() + work(&file).len(), file.lost(Loss::DeviceRecordsOverLimit));
    assert!((19..=20).contains(&rows) && (21..=22).contains(&lost), "{rows} {lost}");
}
