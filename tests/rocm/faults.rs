//! What can go wrong with AMD's GPUs, and what the trace then says: the host's part is whole, and what is missing is counted.
#![allow(clippy::cast_possible_truncation, reason = "tests count little")]

use serde_json::Value;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use support::amd::Way;
use support::faults::{Fault, KERNELS, STEPS, check_clock, check_cpu, rows_of, whole};
use support::gpu::{Counts, calls, kernels, losses, name};
use support::rocm::Hip;
use support::{File, amd, faults, gpu, record_with, rocm};
use tracing::info_span;
use tracing_kineto::Loss;
use tracing_kineto::integration::Why;

/// The same of a process of its own, which goes that way.
type Late = (Way, &'static str, fn(&File));

/// What goes wrong while rocprofiler-sdk is in use.
const SDK: &[Fault] = &[
    ("", |file| whole(file, &[])),
    ("start_error=1", |file| nothing(file, Why::Failed, "rocprofiler_start_context")),
    ("push_error=1", |file| whole(file, &[])),
    // Records that are not there or make no sense.
    ("drop=2", |file| {
        accounted(file);
        assert_eq!(file.lost(Loss::VendorDropped), rocm::count("dropped"));
    }),
    ("drop=4", |file| {
        accounted(file);
        assert_eq!(file.lost(Loss::VendorDropped), rocm::count("dropped"));
    }),
    ("garbage=5", unread),
    ("wrong_size=5", unread),
    ("cut=5", unread),
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

/// What goes wrong with either library.
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
    ("clock_skew_ns=3000000000", |file| skewed(file, 3_000_000_000)),
    ("clock_skew_ns=-3000000000", |file| skewed(file, -3_000_000_000)),
    ("timestamp_zero=1", |file| {
        assert_eq!((kernels(file).len(), launches(file).len()), (0, KERNELS));
        let all = [(Loss::DeviceRecordsUnread, KERNELS), (Loss::LaunchesWithoutWork, KERNELS)];
        assert_eq!(losses(file), all);
    }),
    ("overlap=1", |file| {
        let overlapping = file.lost(Loss::OverlappingWork) as usize;
        // Each but the first of a stream begins while another runs, as long as the program keeps the streams busy.
        assert!((1..=KERNELS - 2).contains(&overlapping), "{overlapping}");
        whole(file, &[(Loss::OverlappingWork, overlapping)]);
    }),
    // Last: what did not end then ends in a later recording.
    ("no_finish=work", |file| {
        assert_eq!((kernels(file).len(), launches(file).len()), (0, KERNELS));
        assert_eq!(losses(file), [(Loss::LaunchesWithoutWork, KERNELS)]);
    }),
];

/// What goes wrong while roctracer is in use, which does not say what it drops.
const TRACER: &[Fault] = &[
    ("", |file| whole(file, &[])),
    ("hip=50231000,cpus=2", |file| whole(file, &[])),
    ("enable_error=-1:calls", |file| nothing(file, Why::Failed, "roctracer")),
    ("enable_error=-1:kernels", |file| nothing(file, Why::Failed, "roctracer")),
    ("drop=2", accounted),
    ("drop=4", accounted),
    ("garbage=5", unread),
    ("cut=1", |file| {
        // The last record may be that of the wait.
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

/// What goes wrong when this process registers, which it does once; what hangs stays so.
const REGISTRATION: &[Late] = &[
    (Way::Sdk, "sdk=0.5", |file| nothing(file, Why::Incompatible, "0.5.0 is older than 1.0")),
    (Way::Sdk, "sdk=1.1", |file| whole(file, &[])),
    (Way::Sdk, "sdk=2.0", |file| whole(file, &[])),
    (Way::Sdk, "locked=1", |file| nothing(file, Why::Unsupported, "Profiler::prepare")),
    (Way::Sdk, "busy=1", |file| nothing(file, Why::Unsupported, "other profilers")),
    (Way::Sdk, "enable_error=17:calls", |file| {
        nothing(file, Why::Failed, "rocprofiler_configure_callback_tracing_service")
    }),
    (Way::Sdk, "enable_error=17:kernels", |file| {
        nothing(file, Why::Failed, "rocprofiler_configure_buffer_tracing_service")
    }),
    (Way::Sdk, "enable_error=17:copies", |file| {
        nothing(file, Why::Failed, "rocprofiler_configure_buffer_tracing_service")
    }),
    (Way::Sdk, "enable_error=17:code", |file| {
        nothing(file, Why::Failed, "rocprofiler_configure_callback_tracing_service")
    }),
    (Way::Sdk, "lying_agents=1", |file| whole(file, &[])),
    (Way::Sdk, "devices=0", |file| nothing(file, Why::NoDevice, "rocprofiler-sdk finds no GPU")),
    (Way::Sdk, "shifted_operations=40", |file| whole(file, &[])),
    (Way::Sdk, "hanging_flush=1", hung),
    (Way::Tracer, "busy=1", |file| nothing(file, Why::Busy, "stop the other profiler")),
    (Way::Tracer, "devices=0", |file| nothing(file, Why::NoDevice, "HIP finds no GPU")),
    (Way::Tracer, "hanging_flush=1", hung),
];

/// Options under which work never seems to end.
const ENDLESS: [&str; 7] = ["no_finish", "hanging", "drop", "garbage", "wrong_size", "cut", "timestamp_zero"];

/// Steps of two kernels each, on two streams.
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

/// What the trace has of a program under a fault, with the machine still as it was. Whatever the fault is, the host's
/// part of it is whole.
fn recorded(way: Way, settings: &str) -> (amd::Machine, File) {
    let machine = amd::machine(way, settings);
    let file = recorded_on(&machine, settings);
    (machine, file)
}

fn recorded_on(hip: &Hip, settings: &str) -> File {
    let _watch = gpu::watch(Duration::from_secs(100));
    let (ends, has_devices) = (!settings.contains("no_finish"), !settings.contains("devices=0"));
    // A launch without a record is one that has not ended, for all that anybody knows.
    let waits = ENDLESS.iter().any(|key| settings.contains(key));
    let timeout = if waits { Duration::from_millis(500) } else { gpu::PATIENCE };
    let begun = Instant::now();
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
    assert!(begun.elapsed() < gpu::PATIENCE, "the stop waits for what does not come: {:?}", begun.elapsed());
    assert_eq!(rocm::count("synchronizes"), u64::from(ends && has_devices), "the program's own alone");
    check_cpu(&file, calls(&file));
    file
}

/// The spans of the program, without a device.
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

/// The trace has nothing of the device, and says why, in a sentence that helps.
#[track_caller]
fn nothing(file: &File, why: Why, words: &str) {
    let reason = amd::reason(file);
    assert_eq!(reason.why(), why, "{reason}");
    assert!(reason.to_string().contains(words), "{reason}");
    nothing_found(file);
}

#[track_caller]
fn nothing_found(file: &File) {
    assert_eq!((Counts::of(file), losses(file)), (Counts::default(), vec![]));
}

/// As for any GPU.
#[track_caller]
fn accounted(file: &File) {
    faults::accounted(file, launches(file));
}

/// As [`accounted`]; some records could not be read, and none of them is shown as something that it is not.
#[track_caller]
fn unread(file: &File) {
    accounted(file);
    // Nonsense may look like a record of another time, and one may be that of a wait.
    let found = file.lost(Loss::DeviceRecordsUnread) + file.lost(Loss::OutOfWindow);
    let lost = file.lost(Loss::LaunchesWithoutWork);
    assert!((lost..=lost + 1).contains(&found), "{}", file.trace.stats());
    assert!(kernels(file).iter().all(|kernel| kernel["pid"] == 0), "there is one GPU");
}

/// How far the machine's clock is behind that of traces, in nanoseconds.
#[expect(unsafe_code, reason = "the standard library does not tell the clocks apart")]
fn behind() -> i64 {
    let [wall, own] = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(|clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a place for the result.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    });
    wall - own
}

/// A clock that is off is put right, and the trace says by how much it was off.
#[track_caller]
fn skewed(file: &File, by: i64) {
    whole(file, &[]);
    check_clock(file, &amd::report(file), by - behind(), launches(file));
}

/// A library that does not return keeps nobody but itself.
#[track_caller]
fn hung(file: &File) {
    assert_eq!(launches(file).len(), KERNELS);
    assert_eq!(losses(file), [(Loss::LaunchesWithoutWork, KERNELS)]);
    assert!(amd::report(file).notes.iter().any(|note| note.contains("hung during the stop")));
}

/// Goes through faults of one library.
fn go_through<'f>(way: Way, faults: impl IntoIterator<Item = &'f Fault>) -> (String, Vec<&'f str>) {
    faults::go_through(faults, |settings| recorded(way, settings), |settings, file| row(way, settings, file))
}

/// What the table says of a fault.
fn row(way: Way, settings: &str, file: &File) -> String {
    let row = faults::row(settings, launches(file).len(), file, &amd::report(file));
    format!("| {} {row}", library_of(way))
}

fn library_of(way: Way) -> &'static str {
    if way == Way::Sdk { "rocprofiler-sdk" } else { "roctracer" }
}

#[test]
fn each_fault_is_told_and_the_rest_is_there() {
    let mut table = "| library | fault | calls | kernels | linked | what the trace says |\n".to_owned();
    writeln!(table, "|---|---|---|---|---|---|").unwrap();
    let (rows, failed) = go_through(Way::Sdk, SDK.iter().chain(BOTH));
    table += &rows;
    for (way, settings, _) in REGISTRATION {
        let env = [("SIM_ROCM", *settings), ("WAY", library_of(*way))];
        table += &rows_of("faults::child_that_registers", &env);
    }
    table += &rows_of("faults::child_with_roctracer", &[]);
    gpu::publish("rocm-faults.md", &table);
    assert!(failed.is_empty(), "{failed:?}");
    let faults = SDK.len() + 2 * BOTH.len() + REGISTRATION.len() + TRACER.len();
    assert_eq!(table.lines().count(), 2 + faults, "each has a row");
}

#[test]
#[ignore = "run by another test"]
#[expect(clippy::disallowed_methods, reason = "the test that runs this says what goes wrong")]
fn child_that_registers() {
    let (settings, library) = (std::env::var("SIM_ROCM").unwrap(), std::env::var("WAY").unwrap());
    let is_it = |(way, known, _): &&(Way, &str, fn(&File))| library_of(*way) == library && *known == settings;
    let (way, _, check) = REGISTRATION.iter().find(is_it).unwrap();
    match way {
        Way::Sdk => rocm::sdk(),
        Way::Tracer => rocm::tracer(),
    };
    let file = recorded_on(&Hip, &settings);
    gpu::say(row(*way, &settings, &file).trim_end());
    check(&file);
    rocm::finish();
}

#[test]
#[ignore = "run by another test"]
fn child_with_roctracer() {
    let (rows, failed) = go_through(Way::Tracer, TRACER.iter().chain(BOTH));
    rows.lines().for_each(gpu::say);
    assert!(failed.is_empty(), "{failed:?}");
}
