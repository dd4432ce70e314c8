//! Faults of AMD GPUs: the trace has all host rows, counts losses, and reports the fault.
#![allow(clippy::cast_possible_truncation, reason = "counts in tests are small")]

use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;
use support::amd::AmdProfiler;
use support::faults::{Fault, KERNELS, STEPS, check_clock, check_cpu, rows_of, whole};
use support::gpu::{Counts, calls, kernels, losses, name};
use support::rocm::Hip;
use support::wait::{since, steady};
use support::{File, amd, faults, gpu, name_of, own_process, record_with, rocm};
use tracing::info_span;
use tracing_kineto::Loss;
use tracing_kineto::integration::Why;

/// A fault of a child process that uses that backend.
type ProcessFault = (AmdProfiler, &'static str, fn(&File));

/// Faults of rocprofiler-sdk.
const SDK: &[Fault] = &[
    ("", |file| whole(file, &[])),
    ("start_error=1", |file| check_unavailable(file, Why::Failed, "rocprofiler_start_context")),
    // Missing and invalid records.
    ("drop=2", |file| {
        check_accounted(file);
        assert_eq!(file.lost(Loss::VendorDropped), rocm::count("dropped"));
    }),
    ("drop=4", |file| {
        check_accounted(file);
        assert_eq!(file.lost(Loss::VendorDropped), rocm::count("dropped"));
    }),
    ("garbage=5", check_unread),
    ("wrong_size=5", check_unread),
    ("cut=5", check_unread),
    ("unknown_kinds=2", |file| {
        let unread = file.lost(Loss::DeviceRecordsUnread) as usize;
        assert!(unread <= KERNELS);
        whole(file, if unread == 0 { &[] } else { &[(Loss::DeviceRecordsUnread, 0)] });
    }),
    ("null_names=1", |file| {
        let found = Counts::of(file);
        assert_eq!((found.kernels, found.linked, file.lost(Loss::DeviceRecordsUnread)), (KERNELS, KERNELS, 1));
        assert!(kernels(file).iter().all(|kernel| name(kernel).contains("unknown")));
    }),
];

/// Faults of both libraries.
const BOTH: &[Fault] = &[
    // Buffers and threads.
    ("late_buffers=30", |file| whole(file, &[])),
    ("foreign_thread=1", |file| whole(file, &[])),
    ("late_buffers=30,foreign_thread=1", |file| whole(file, &[])),
    ("slow_flush=100", |file| whole(file, &[])),
    ("repeat_correlation=7", |file| {
        assert_eq!((kernels(file).len(), launches(file).len()), (KERNELS, KERNELS));
        faults::arrows(file);
        assert!(file.lost(Loss::CorrelationsReused) > 0);
    }),
    // Clocks.
    ("clock_skew_ns=3000000000", |file| check_skew(file, 3_000_000_000)),
    ("clock_skew_ns=-3000000000", |file| check_skew(file, -3_000_000_000)),
    ("timestamp_zero=1", |file| {
        assert_eq!((kernels(file).len(), launches(file).len()), (0, KERNELS));
        let all = [(Loss::DeviceRecordsUnread, KERNELS), (Loss::LaunchesWithoutWork, KERNELS)];
        assert_eq!(losses(file), all);
    }),
    ("overlap=1", |file| {
        let overlapping = file.lost(Loss::OverlappingWork) as usize;
        // Each kernel but the first of a stream begins while another runs.
        assert!((1..=KERNELS - 2).contains(&overlapping), "{overlapping}");
        whole(file, &[(Loss::OverlappingWork, overlapping)]);
    }),
    // Last, since its endless work ends in a later recording.
    ("no_finish=work", |file| {
        assert_eq!((kernels(file).len(), launches(file).len()), (0, KERNELS));
        assert_eq!(losses(file), [(Loss::LaunchesWithoutWork, KERNELS)]);
    }),
];

/// Faults of roctracer, which does not report dropped records.
const TRACER: &[Fault] = &[
    ("", |file| whole(file, &[])),
    ("hip=50231000,cpus=2", |file| whole(file, &[])),
    ("enable_error=-1:calls", |file| check_unavailable(file, Why::Failed, "roctracer")),
    ("enable_error=-1:kernels", |file| check_unavailable(file, Why::Failed, "roctracer")),
    ("drop=2", check_accounted),
    ("drop=4", check_accounted),
    ("garbage=5", check_unread),
    ("cut=1", |file| {
        // The last record may be the wait.
        let lost = file.lost(Loss::LaunchesWithoutWork) as usize;
        assert_eq!((kernels(file).len() + lost, launches(file).len()), (KERNELS, KERNELS));
        assert!(file.lost(Loss::DeviceRecordsUnread) > 0);
    }),
    ("unknown_kinds=2", |file| {
        let unread = file.lost(Loss::DeviceRecordsUnread) as usize;
        assert!(unread > 0);
        whole(file, &[(Loss::DeviceRecordsUnread, unread)]);
    }),
    ("null_names=1", |file| whole(file, &[])),
];

/// Faults at registration, which happens once in a process; a hung call stays hung.
const REGISTRATION: &[ProcessFault] = &[
    (AmdProfiler::Sdk, "sdk=0.5", |file| check_unavailable(file, Why::Incompatible, "0.5.0 is older than 1.0")),
    (AmdProfiler::Sdk, "sdk=1.1", |file| whole(file, &[])),
    (AmdProfiler::Sdk, "sdk=2.0", |file| whole(file, &[])),
    (AmdProfiler::Sdk, "locked=1", |file| check_unavailable(file, Why::Unsupported, "Libkineto::prepare")),
    (AmdProfiler::Sdk, "busy=1", |file| check_unavailable(file, Why::Unsupported, "other profilers")),
    (AmdProfiler::Sdk, "enable_error=17:calls", |file| {
        check_unavailable(file, Why::Failed, "rocprofiler_configure_callback_tracing_service")
    }),
    (AmdProfiler::Sdk, "enable_error=17:kernels", |file| {
        check_unavailable(file, Why::Failed, "rocprofiler_configure_buffer_tracing_service")
    }),
    (AmdProfiler::Sdk, "enable_error=17:copies", |file| {
        check_unavailable(file, Why::Failed, "rocprofiler_configure_buffer_tracing_service")
    }),
    (AmdProfiler::Sdk, "enable_error=17:code", |file| {
        check_unavailable(file, Why::Failed, "rocprofiler_configure_callback_tracing_service")
    }),
    (AmdProfiler::Sdk, "lying_agents=1", |file| whole(file, &[])),
    (AmdProfiler::Sdk, "devices=0", |file| check_unavailable(file, Why::NoDevice, "rocprofiler-sdk finds no GPU")),
    (AmdProfiler::Sdk, "shifted_operations=40", |file| whole(file, &[])),
    (AmdProfiler::Sdk, "hanging_flush=1", check_hung),
    (AmdProfiler::Tracer, "busy=1", |file| check_unavailable(file, Why::Busy, "stop the other profiler")),
    (AmdProfiler::Tracer, "devices=0", |file| check_unavailable(file, Why::NoDevice, "HIP finds no GPU")),
    (AmdProfiler::Tracer, "hanging_flush=1", check_hung),
];

/// Options under which work has no end record.
const ENDLESS: [&str; 7] = ["no_finish", "hanging", "drop", "garbage", "wrong_size", "cut", "timestamp_zero"];

/// Runs steps of two kernels each, on two streams.
fn program(hip: &Hip, ends: bool) {
    let streams = [hip.stream(), hip.stream()];
    let kernel = hip.only_kernel("work_us500");
    for _ in 0..STEPS {
        let _step = info_span!("step").entered();
        info_span!("one").in_scope(|| hip.launch(kernel, 4, streams[0]));
        info_span!("two").in_scope(|| hip.launch(kernel, 4, streams[1]));
    }
    if ends {
        hip.synchronize();
    }
}

/// Records a program under a fault; returns the machine and the file, and checks that all host rows are present.
fn recorded(way: AmdProfiler, settings: &str) -> (amd::Machine, File) {
    let machine = amd::machine(way, settings);
    let file = recorded_on(&machine, settings);
    (machine, file)
}

fn recorded_on(hip: &Hip, settings: &str) -> File {
    let _watch = gpu::watch(Duration::from_secs(100));
    let (ends, has_devices) = (!settings.contains("no_finish"), !settings.contains("devices=0"));
    // A launch without a record counts as unfinished.
    let waits = ENDLESS.iter().any(|key| settings.contains(key));
    let timeout = if waits { Duration::from_millis(500) } else { gpu::PATIENCE };
    let begun = steady();
    let file = record_with(
        |builder| amd::all(builder).flush_timeout(timeout),
        || {
            rocm::reset();
            if has_devices {
                program(hip, ends);
            } else {
                cpu_alone();
            }
        },
    );
    assert!(since(begun) < gpu::PATIENCE, "the stop waits for missing records: {:?}", since(begun));
    assert_eq!(rocm::count("synchronizes"), u64::from(ends && has_devices), "only the program's own calls");
    check_cpu(&file, calls(&file));
    file
}

/// Makes the program's spans without a device.
fn cpu_alone() {
    for _ in 0..STEPS {
        let _step = info_span!("step").entered();
        info_span!("one").in_scope(|| ());
        info_span!("two").in_scope(|| ());
    }
}

fn launches(file: &File) -> Vec<&Value> {
    calls(file).into_iter().filter(|call| name(call) == "hipModuleLaunchKernel").collect()
}

/// Checks that the trace has no device rows, and a reason with advice.
#[track_caller]
fn check_unavailable(file: &File, why: Why, words: &str) {
    let reason = amd::reason(file);
    assert_eq!(reason.why(), why, "{reason}");
    assert!(reason.to_string().contains(words), "{reason}");
    check_no_device_rows(file);
}

#[track_caller]
fn check_no_device_rows(file: &File) {
    assert_eq!((Counts::of(file), losses(file)), (Counts::default(), vec![]));
}

/// Checks that each launch is present or counted as missing.
#[track_caller]
fn check_accounted(file: &File) {
    faults::check_accounted(file, launches(file));
}

/// As [`check_accounted`]; also checks that unreadable records are counted and none is misread.
#[track_caller]
fn check_unread(file: &File) {
    check_accounted(file);
    // Garbage may look like a record of another time, and one record may be a wait.
    let causes = [Loss::DeviceRecordsUnread, Loss::OutOfWindow, Loss::ImpossibleTimes];
    let found: u64 = causes.iter().map(|loss| file.lost(*loss)).sum();
    let lost = file.lost(Loss::LaunchesWithoutWork);
    assert!((lost..=lost + 1).contains(&found), "{}", file.trace.stats());
    assert!(kernels(file).iter().all(|kernel| kernel["pid"] == 0), "there is one GPU");
}

/// Returns how far the machine's clock is behind the trace's, in nanoseconds.
#[expect(unsafe_code, reason = "std has no function for one clock")]
fn clock_offset() -> i64 {
    let [wall, own] = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(|clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the result.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    });
    wall - own
}

/// Checks that a clock offset is corrected and noted.
#[track_caller]
fn check_skew(file: &File, by: i64) {
    whole(file, &[]);
    check_clock(file, &amd::report(file), by - clock_offset(), launches(file));
}

/// Checks that a hung library loses its records and blocks no other thread.
#[track_caller]
fn check_hung(file: &File) {
    assert_eq!(launches(file).len(), KERNELS);
    assert_eq!(losses(file), [(Loss::LaunchesWithoutWork, KERNELS)]);
    assert!(amd::report(file).notes.iter().any(|note| note.contains("hung during the stop")));
}

/// Checks the faults of one library.
fn go_through<'f>(way: AmdProfiler, faults: impl IntoIterator<Item = &'f Fault>) -> (String, Vec<&'f str>) {
    faults::go_through(faults, |settings| recorded(way, settings), |settings, file| row(way, settings, file))
}

/// Returns the table row of a fault.
fn row(way: AmdProfiler, settings: &str, file: &File) -> String {
    let row = faults::row(settings, launches(file).len(), file, &amd::report(file));
    format!("| {} {row}", library_of(way))
}

fn library_of(way: AmdProfiler) -> &'static str {
    if way == AmdProfiler::Sdk { "rocprofiler-sdk" } else { "roctracer" }
}

#[own_process]
fn each_fault_is_reported_and_the_rest_is_recorded() {
    let mut table = "| library | fault | calls | kernels | linked | note in the trace |\n".to_owned();
    writeln!(table, "|---|---|---|---|---|---|").unwrap();
    let (rows, failed) = go_through(AmdProfiler::Sdk, SDK.iter().chain(BOTH));
    table += &rows;
    let is_built = |(way, ..): &&ProcessFault| *way == AmdProfiler::Sdk || cfg!(feature = "roctracer");
    let registration: Vec<_> = REGISTRATION.iter().filter(is_built).collect();
    for (way, settings, _) in &registration {
        let env = [("SIM_ROCM", *settings), ("PROFILER", library_of(*way))];
        table += &rows_of(name_of(child_that_registers), &env);
    }
    let mut faults = SDK.len() + BOTH.len() + registration.len();
    if cfg!(feature = "roctracer") {
        table += &rows_of(name_of(child_with_roctracer), &[]);
        faults += BOTH.len() + TRACER.len();
    }
    gpu::publish("rocm-faults.md", &table);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(table.lines().count(), 2 + faults, "each fault has a row");
}

#[test]
#[ignore = "run by another test"]
#[expect(clippy::disallowed_methods, reason = "the parent test passes the fault")]
fn child_that_registers() {
    let (settings, library) = (std::env::var("SIM_ROCM").unwrap(), std::env::var("PROFILER").unwrap());
    let is_it = |(way, known, _): &&(AmdProfiler, &str, fn(&File))| library_of(*way) == library && *known == settings;
    let (way, _, check) = REGISTRATION.iter().find(is_it).unwrap();
    match way {
        AmdProfiler::Sdk => rocm::sdk(),
        AmdProfiler::Tracer => rocm::tracer(),
    };
    let file = recorded_on(&Hip, &settings);
    gpu::say(row(*way, &settings, &file).trim_end());
    check(&file);
    rocm::finish();
}

#[test]
#[ignore = "run by another test"]
fn child_with_roctracer() {
    let (rows, failed) = go_through(AmdProfiler::Tracer, TRACER.iter().chain(BOTH));
    rows.lines().for_each(gpu::say);
    assert!(failed.is_empty(), "{failed:?}");
}
