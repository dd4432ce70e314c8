//! Recordings with rocprofiler-sdk, on simulated AMD GPUs.

use super::either::{args, machine, piece};
use std::collections::HashSet;
use support::amd::{counts, idle, names, step};
use support::gpu::{Counts, calls, in_child, kernels, losses, work};
use support::rocm::{Hip, Stream};
use support::virtual_time;
use support::{File, amd, gpu, name_of, on_thread, record_with, rocm};
use tracing::info_span;
use tracing_kineto::integration::Why;
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ActivityType, ActivityTypes};

#[virtual_time]
fn step_has_rocprofiler_sdks_arguments() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    assert_eq!(names(calls(&file)).get("hipStreamWaitEvent"), Some(&1));
    let copy = args(&file, "hipMemcpyAsync");
    assert!(copy["src"].as_str().unwrap().starts_with("0x") && copy["dst"].as_str().unwrap().starts_with("0x"));
    assert_ne!(args(&file, "hipMalloc")["ptr"], "0x0", "the pointer is known when the call returns");
    assert!(piece(&file, "gemm")["args"]["hsa_queue"].as_u64().unwrap() > 0);
    assert_eq!(piece(&file, "HtoD")["args"]["kind"], "HtoD");
    let graphs: HashSet<_> = work(&file).iter().filter_map(|row| row["args"]["graph id"].as_u64()).collect();
    assert_eq!(graphs.len(), 1);
    assert_eq!(file.json["rocprofiler-sdk_version"].to_string().trim_matches('"'), "1.0");
    assert_eq!(file.json["hip_driver_version"].to_string().trim_matches('"'), "70051831");
}

#[virtual_time]
fn kernel_names_outlive_their_module() {
    let machine = machine("");
    let file = amd::record(|| {
        let module = machine.module(&["_Z4leftv"]);
        let kernel = machine.kernel(module, "_Z4leftv");
        info_span!("launch").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        machine.unload(module);
    });
    assert_eq!(names(kernels(&file)), counts([("left()", 1)]));
}

#[virtual_time]
fn types_that_are_not_selected_are_absent() {
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

#[virtual_time]
fn operation_numbers_may_differ_between_versions() {
    in_child(name_of(child_with_other_numbers), &[("SIM_ROCM", "shifted_operations=17,sdk=1.1")]);
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

#[virtual_time]
fn library_is_not_registered_without_a_recording() {
    in_child(name_of(child_that_records_nothing), &[]);
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

#[virtual_time]
fn late_registration_is_reported_after_hip_started() {
    in_child(name_of(child_that_registers_late), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_registers_late() {
    let hip = Hip::with_sdk("");
    hip.init();
    let file = amd::record(|| step(&hip));
    let reason = amd::reason(&file);
    assert!(reason.message().contains("too late"), "{reason}");
    assert!(reason.advice().contains("prepare"), "{reason}");
    assert_eq!((file.slices().len(), Counts::of(&file)), (8, Counts::default()));
}

#[virtual_time]
fn late_registration_is_reported_when_it_seems_to_work() {
    in_child(name_of(child_that_gets_no_callbacks), &[("SIM_ROCM", "silent_late=1")]);
}

/// Loads rocprofiler-sdk after HIP has started: it accepts the tool, but HIP calls neither.
#[test]
#[ignore = "run by another test"]
fn child_that_gets_no_callbacks() {
    let hip = Hip::alone("silent_late=1");
    hip.init();
    rocm::sdk();
    let file = amd::record(|| step(&hip));
    let reason = amd::reason(&file);
    assert!(reason.message().contains("too late") && reason.advice().contains("Libkineto::prepare"), "{reason}");
    assert_eq!((file.slices().len(), Counts::of(&file)), (8, Counts::default()));
}

#[virtual_time]
fn prepare_registers_early_enough() {
    in_child(name_of(child_that_prepares), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_prepares() {
    let hip = Hip::with_sdk("");
    idle(
        |builder| builder,
        |profiler| {
            drop(Libkineto::of(profiler).prepare().unwrap());
            assert_eq!(rocm::count("configures"), 1);
            amd::launch(&hip, "before", Stream::NULL);
            profiler.start().unwrap();
            amd::launch(&hip, "inside", Stream::NULL);
            let file = File::of(profiler.stop().unwrap());
            assert_eq!(names(kernels(&file)), counts([("inside", 1)]));
        },
    );
}

// Shows the key DISABLE_ROCM.
#[virtual_time]
fn rocm_can_be_disabled() {
    in_child(name_of(child_without_rocm), &[("KINETO_DISABLE_ROCM", "1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_without_rocm() {
    let hip = Hip::with_sdk("");
    let file = amd::record(|| step(&hip));
    assert_eq!((amd::reason(&file).why(), Counts::of(&file)), (Why::Disabled, Counts::default()));
    assert_eq!(rocm::count("configures"), 0);
}

#[virtual_time]
fn second_recording_finds_the_library_busy() {
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
