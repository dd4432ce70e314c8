//! Recordings of AMD's GPUs by rocprofiler-sdk, on the simulated ones.

use crate::either::{args, machine, piece};
use std::collections::HashSet;
use support::amd::{counts, idle, names, step};
use support::gpu::{Counts, calls, in_child, kernels, losses, work};
use support::rocm::{Hip, Stream};
use support::{File, amd, gpu, on_thread, record_with, rocm};
use tracing::info_span;
use tracing_kineto::integration::Why;
use tracing_kineto::{ActivityType, ActivityTypes};

#[test]
fn a_step_says_what_the_library_knows() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    assert_eq!(names(calls(&file)).get("hipStreamWaitEvent"), Some(&1));
    let copy = args(&file, "hipMemcpyAsync");
    assert!(copy["src"].as_str().unwrap().starts_with("0x") && copy["dst"].as_str().unwrap().starts_with("0x"));
    assert_ne!(args(&file, "hipMalloc")["ptr"], "0x0", "what was allocated is known when the call returns");
    assert!(piece(&file, "gemm")["args"]["hsa_queue"].as_u64().unwrap() > 0);
    assert_eq!(piece(&file, "HtoD")["args"]["kind"], "HtoD");
    let graphs: HashSet<_> = work(&file).iter().filter_map(|row| row["args"]["graph id"].as_u64()).collect();
    assert_eq!(graphs.len(), 1);
    assert_eq!(file.json["rocprofiler-sdk_version"].to_string().trim_matches('"'), "1.0");
    assert_eq!(file.json["hip_driver_version"].to_string().trim_matches('"'), "70051831");
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
    in_child("recording::child_with_other_numbers", &[("SIM_ROCM", "shifted_operations=17,sdk=1.1")]);
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
fn nobody_registers_where_nothing_is_recorded() {
    in_child("recording::child_that_records_nothing", &[]);
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
    in_child("recording::child_that_is_late", &[]);
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
    in_child("recording::child_that_is_told_nothing", &[("SIM_ROCM", "silent_late=1")]);
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
    in_child("recording::child_that_prepares", &[]);
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
    in_child("recording::child_that_leaves_them_alone", &[("KINETO_DISABLE_ROCM", "1")]);
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
