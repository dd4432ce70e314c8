//! Recordings of AMD's GPUs by rocprofiler-sdk, on the simulated ones.
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
use common::{File, on_thread, record_with};
use gpu::{Counts, calls, events, in_child, interval, kernels, name, stream, under, work};
use rocm::{Hip, Stream};
use serde_json::json;
use std::collections::HashSet;
use tracing::info_span;
use tracing_kineto::collector::Why;
use tracing_kineto::{ActivityType, ActivityTypes, Loss};

fn machine(settings: &str) -> amd::Machine {
    amd::machine(Way::Sdk, settings)
}

#[test]
fn a_step_is_recorded_whole() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    let all = Counts { launches: 7, kernels: 4, copies: 3, fills: 2, linked: 9, starts: 7, ends: 9, annotations: 2 };
    assert_eq!(Counts::of(&file), all, "{}", file.trace.stats());
    assert_eq!(losses(&file), []);
    assert_eq!(
        owners(&file),
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
    assert_eq!(rocm::count("synchronizes"), 1, "the program's own");
    assert_eq!(rocm::count("push_depth"), 0);
}

#[test]
fn calls_have_their_rows_but_for_chatter() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    assert!(calls(&file).iter().all(|call| call["cat"] == "cuda_runtime"));
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
        ("hipStreamWaitEvent", 1),
    ] {
        assert_eq!(found.get(call), Some(&count), "{call}");
    }
    let args = |wanted: &str| &calls(&file).into_iter().find(|call| name(call) == wanted).unwrap()["args"];
    let launch = args("hipLaunchKernel");
    assert_eq!((&launch["grid"], &launch["block"]), (&json!([64, 1, 1]), &json!([128, 1, 1])));
    assert_eq!(launch["shared memory"], 1024);
    let launch = args("hipExtModuleLaunchKernel");
    assert_eq!((&launch["grid"], &launch["block"]), (&json!([32, 1, 1]), &json!([64, 1, 1])));
    let copy = args("hipMemcpyAsync");
    assert_eq!((&copy["bytes"], &copy["kind"]), (&4096.into(), &"1".into()));
    assert!(copy["src"].as_str().unwrap().starts_with("0x") && copy["dst"].as_str().unwrap().starts_with("0x"));
    assert_eq!(args("hipMalloc")["bytes"], 4096);
    assert_ne!(args("hipMalloc")["ptr"], "0x0", "what was allocated is known when the call returns");
}

#[test]
fn work_says_where_and_how_it_ran() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    let of = |wanted: &str| work(&file).into_iter().find(|row| name(row).contains(wanted)).unwrap();
    let gemm = of("gemm");
    assert_eq!((&gemm["args"]["grid"], &gemm["args"]["block"]), (&json!([64, 1, 1]), &json!([128, 1, 1])));
    assert_eq!((&gemm["args"]["device"], &gemm["args"]["kind"]), (&0.into(), &"Dispatch Kernel".into()));
    assert_eq!(gemm["pid"], 0);
    assert!(gemm["args"]["hsa_queue"].as_u64().unwrap() > 0);
    let copy = of("HtoD");
    assert_eq!(
        (&copy["args"]["bytes"], &copy["args"]["kind"], &copy["pid"]),
        (&4096.into(), &"HtoD".into(), &0.into())
    );
    let back = of("DtoH");
    assert_eq!(back["pid"], 0, "the device does it");
    let fill = work(&file).into_iter().find(|row| under(&file, row) == "fill").unwrap();
    assert_eq!((&fill["args"]["bytes"], &fill["cat"]), (&4096.into(), &"gpu_memset".into()));
    // Stamps are exact, and so is the way to the trace's clock as far as durations go.
    let (start, end) = interval(of("_us300"));
    assert!((299_000..=301_000).contains(&(end - start)), "{}", end - start);
    let lanes: HashSet<_> = work(&file).into_iter().map(stream).collect();
    assert_eq!(lanes.len(), 2, "{lanes:?}");
    assert_eq!((stream(gemm), stream(of("DtoH"))), (stream(of("HtoD")), stream(of("DtoD"))));
    let annotations = events(&file, "X", "gpu_user_annotation");
    let annotated: HashSet<_> = annotations.iter().map(|row| stream(row)).collect();
    assert_eq!((names(annotations), annotated), (counts([("forward", 2)]), lanes));
    let graphs: HashSet<_> = work(&file).iter().filter_map(|row| row["args"]["graph id"].as_u64()).collect();
    assert_eq!(graphs.len(), 1);
}

#[test]
fn the_header_names_devices_and_versions() {
    let machine = machine("devices=2");
    let file = amd::record(|| amd::launch(&machine, "add", Stream::NULL));
    assert_eq!(file.json["rocprofiler-sdk_version"].to_string().trim_matches('"'), "1.0");
    assert_eq!(file.json["hip_runtime_version"].to_string().trim_matches('"'), "70051831");
    assert_eq!(file.json["hip_driver_version"].to_string().trim_matches('"'), "70051831");
    let devices = file.json["deviceProperties"].as_array().unwrap();
    assert_eq!(devices[0]["name"], "Simulated GPU (no real device)");
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
                amd::launch(&machine, "between", Stream::NULL);
                machine.synchronize();
            }
        },
    );
    assert_eq!(rocm::count("starts"), rocm::count("stops"));
    assert_eq!((rocm::count("synchronizes"), rocm::count("configures")), (3, 0), "the program's own");
}

#[test]
fn what_is_launched_in_a_pause_is_not_there() {
    let machine = machine("");
    idle(
        |builder| builder,
        |profiler| {
            profiler.start().unwrap();
            for kernel in ["one", "pause", "two"] {
                if kernel == "pause" {
                    profiler.pause().unwrap();
                }
                amd::launch(&machine, kernel, Stream::NULL);
                if kernel == "pause" {
                    profiler.resume().unwrap();
                }
            }
            let file = File::of(profiler.stop().unwrap());
            assert_eq!(names(kernels(&file)), counts([("one", 1), ("two", 1)]));
            assert_eq!(losses(&file), []);
        },
    );
}

#[test]
fn each_device_and_each_stream_has_a_row() {
    let machine = machine("devices=2");
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
    for call in calls(&file).into_iter().filter(|call| name(call) == "hipLaunchKernel") {
        let slice =
            file.slices().iter().find(|slice| call["args"]["External id"] == slice.args["External id"]).unwrap();
        assert_eq!(call["tid"], slice.tid, "on the row of its thread");
    }
}

#[test]
fn names_outlive_their_module() {
    let machine = machine("");
    let file = amd::record(|| {
        let module = machine.module(&["_Z4leftv"]);
        let kernel = machine.kernel(module, "_Z4leftv");
        info_span!("launch").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        machine.unload(module);
    });
    assert_eq!(names(kernels(&file)), counts([("left()", 1)]));
}

#[test]
fn what_is_not_selected_is_not_there() {
    let machine = machine("");
    let of = |types: &[ActivityType]| {
        let types = ActivityTypes::of(types);
        record_with(|builder| builder.activities(types).flush_timeout(gpu::PATIENCE), || step(&machine))
    };
    let file = of(&[ActivityType::CpuOp, ActivityType::CudaRuntime]);
    assert!(work(&file).is_empty() && names(calls(&file)).contains_key("hipLaunchKernel"), "calls do not need kernels");
    let file = of(&[ActivityType::CpuOp, ActivityType::ConcurrentKernel, ActivityType::ExternalCorrelation]);
    assert_eq!((kernels(&file).len(), work(&file).len(), calls(&file).len()), (4, 4, 0));
    let file = of(&[ActivityType::CpuOp, ActivityType::GpuMemset]);
    assert_eq!(names(work(&file)), counts([("Memset (Device)", 2)]));
}

#[test]
fn other_numbers_of_operations_are_other_numbers_only() {
    in_child("child_with_other_numbers", &[("SIM_ROCM", "shifted_operations=17,sdk=1.1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_other_numbers() {
    rocm::sdk();
    let file = amd::record(|| step(&Hip));
    assert_eq!((Counts::of(&file).linked, losses(&file)), (9, vec![]));
    let found = names(calls(&file));
    assert!(found.contains_key("hipLaunchKernel") && !found.contains_key("hipGetDevice"), "{found:?}");
}

#[test]
fn rows_have_a_limit() {
    in_child("child_with_few_rows", &[("KINETO_ROCTRACER_MAX_EVENTS", "20")]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_few_rows() {
    rocm::sdk();
    let file = amd::record(|| {
        (0..20).for_each(|_| amd::launch(&Hip, "add", Stream::NULL));
        Hip.synchronize();
    });
    // One may be the collector's own call of HIP.
    let (rows, lost) = (calls(&file).len() + work(&file).len(), file.lost(Loss::DeviceRecordsOverLimit));
    assert!((19..=20).contains(&rows) && (21..=22).contains(&lost), "{rows} {lost}");
}

#[test]
fn nobody_registers_where_nothing_is_recorded() {
    in_child("child_that_records_nothing", &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_records_nothing() {
    let hip = Hip::with_sdk("");
    idle(|builder| builder, |_| step(&hip));
    let host = ActivityTypes::of(&[ActivityType::CpuOp]);
    let file = record_with(|builder| builder.activities(host), || step(&hip));
    assert_eq!(Counts::of(&file), Counts::default());
    assert_eq!(["configures", "starts", "callbacks"].map(rocm::count), [0; 3]);
}

#[test]
fn a_program_that_has_used_hip_is_told_so() {
    in_child("child_that_is_late", &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_is_late() {
    let hip = Hip::with_sdk("");
    hip.init();
    let file = amd::record(|| step(&hip));
    let reason = amd::reason(&file);
    assert!(reason.message().contains("too late"), "{reason}");
    assert!(reason.advice().contains("prepare"), "{reason}");
    assert_eq!((file.slices().len(), Counts::of(&file)), (8, Counts::default()));
}

#[test]
fn a_tool_that_is_told_nothing_notices() {
    in_child("child_that_is_told_nothing", &[("SIM_ROCM", "silent_late=1")]);
}

/// rocprofiler-sdk is taken in after HIP has begun, and takes the tool, but HIP knows nothing of either.
#[test]
#[ignore = "run by another test"]
fn child_that_is_told_nothing() {
    let hip = Hip::alone("silent_late=1");
    hip.init();
    rocm::sdk();
    let file = amd::record(|| step(&hip));
    let reason = amd::reason(&file);
    assert!(reason.message().contains("too late") && reason.advice().contains("Profiler::prepare"), "{reason}");
    assert_eq!((file.slices().len(), Counts::of(&file)), (8, Counts::default()));
}

#[test]
fn preparing_is_early_enough() {
    in_child("child_that_prepares", &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_prepares() {
    let hip = Hip::with_sdk("");
    idle(
        |builder| builder,
        |profiler| {
            drop(profiler.prepare().unwrap());
            assert_eq!(rocm::count("configures"), 1);
            amd::launch(&hip, "before", Stream::NULL);
            profiler.start().unwrap();
            amd::launch(&hip, "inside", Stream::NULL);
            let file = File::of(profiler.stop().unwrap());
            assert_eq!(names(kernels(&file)), counts([("inside", 1)]));
        },
    );
}

#[test]
fn amds_devices_can_be_left_alone() {
    in_child("child_that_leaves_them_alone", &[("KINETO_DISABLE_ROCM", "1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_leaves_them_alone() {
    let hip = Hip::with_sdk("");
    let file = amd::record(|| step(&hip));
    assert_eq!((amd::reason(&file).why(), Counts::of(&file)), (Why::Disabled, Counts::default()));
    assert_eq!(rocm::count("configures"), 0);
}

#[test]
fn a_second_recording_at_a_time_is_told_that_the_first_has_it() {
    let machine = machine("");
    let file = amd::record(|| {
        on_thread("other", || {
            let other = amd::record(|| ());
            assert_eq!(amd::reason(&other).why(), Why::Busy);
        });
        amd::launch(&machine, "add", Stream::NULL);
    });
    assert_eq!(Counts::of(&file).linked, 1);
}
