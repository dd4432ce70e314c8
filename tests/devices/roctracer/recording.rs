//! Recordings with roctracer, on simulated AMD GPUs.

use super::either::{args, machine, piece, whole};
use support::amd::step;
use support::gpu::in_child;
use support::rocm::Hip;
use support::virtual_time;
use support::{amd, name_of, rocm};

#[virtual_time]
fn step_has_roctracers_arguments() {
    let machine = machine("");
    let file = amd::record(|| step(&machine));
    let launch = args(&file, "hipLaunchKernel");
    assert_eq!(launch["cid"], 107);
    assert_eq!(launch["kernel"], "void blaze::gemm<64>(float const*, float const*, float*)");
    assert_eq!(args(&file, "hipMemcpyAsync")["cid"], 134);
    assert_eq!(piece(&file, "_us300")["args"]["kind"], "Dispatch Task", "the kernel is of a graph");
    assert_eq!(piece(&file, "Memset")["args"]["bytes"], 4096);
    assert_eq!(file.json["roctracer_version"].to_string().trim_matches('"'), "4.1");
    let device = &file.json["deviceProperties"][0];
    for (key, value) in [("warpSize", 64), ("numSms", 304), ("maxThreadsPerBlock", 1024), ("computeMajor", 9)] {
        assert_eq!(device[key], value, "{key}");
    }
    assert_eq!(device["totalGlobalMem"], 64_u64 << 30);
}

#[virtual_time]
fn hip_versions_record_the_same() {
    for version in ["50231000", "53000000", "60300000"] {
        let machine = machine(&format!("hip={version},cpus=2"));
        whole(&amd::record(|| step(&machine)));
    }
}

#[virtual_time]
fn recording_may_start_after_hip() {
    in_child(name_of(child_that_starts_late), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_starts_late() {
    let hip = Hip::with_tracer("");
    hip.init();
    whole(&amd::record(|| step(&hip)));
}

#[virtual_time]
fn roctracer_is_used_when_the_sdk_is_too_old() {
    in_child(name_of(child_with_an_old_sdk), &[("SIM_ROCM", "sdk=0.5,hip=60300000")]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_sdk() {
    rocm::sdk();
    rocm::tracer();
    whole(&amd::record(|| step(&Hip)));
    assert_eq!(rocm::count("configures"), 0);
}
