//! Faults of Intel GPUs: the trace has all host rows, counts losses, and reports the fault.
#![allow(clippy::cast_possible_truncation, reason = "counts in tests are small")]

use std::time::Duration;
use support::faults::{Fault, KERNELS, STEPS, check_clock, check_cpu, check_spans, go_through, ids, rows_of};
use support::gpu::{kernels, losses};
use support::intel::{Counts, Machine, driver, launches, machine};
use support::wait::{since, steady};
use support::xpu::WaitKind;
use support::{File, faults, gpu, intel, name_of, own_process, record_with, xpu};
use tracing::info_span;
use tracing_kineto::Loss;
use tracing_kineto::integration::Why;

const FAULTS: &[Fault] = &[
    ("", |file| check_whole(file, &[])),
    // Faults that prevent all device records.
    ("callbacks_error=200", |file| check_unavailable(file, Why::Failed, "")),
    ("enable_error=51", |file| check_unavailable(file, Why::Unsupported, "ZE_ENABLE_TRACING_LAYER")),
    ("enable_error=52", |file| check_unavailable(file, Why::Unsupported, "compute runtime")),
    // Faults that prevent some device records.
    ("enable_error=200:1", |file| {
        check_noted(file, "kernel is not recorded");
        assert_eq!((Counts::of(file).kernels, launches(file).len()), (0, KERNELS));
        assert_eq!(losses(file), [(Loss::LaunchesWithoutWork, KERNELS)]);
    }),
    ("enable_error=200:6", |file| {
        check_noted(file, "xpu_runtime is not recorded");
        let found = Counts::of(file);
        assert_eq!((found.runtime, found.kernels, found.linked), (0, KERNELS, KERNELS));
        assert_eq!((found.starts, found.ends), (0, 0), "arrows have no start");
    }),
    ("enable_error=200:7", |file| {
        check_noted(file, "external_correlation is not recorded");
        assert_eq!(Counts::of(file).kernels, KERNELS);
    }),
    ("push_error=200", |file| check_whole(file, &[(Loss::LinkedByTime, KERNELS)])),
    ("flush_error=200", |file| {
        // Unflushed records arrive when their buffer is full, which does not happen before the end.
        assert_eq!(Counts::of(file), Counts::default());
        assert!(is_noted(file, "flush"), "{}", file.trace.stats());
    }),
    // Buffers and threads.
    ("late_buffers=30", |file| check_whole(file, &[])),
    ("foreign_thread=0", |file| check_whole(file, &[])),
    ("late_buffers=30,pti=0.17", |file| check_whole(file, &[])),
    ("slow_callbacks=20", |file| check_whole(file, &[])),
    ("slow_flush=100", |file| check_whole(file, &[])),
    ("longer_records=8", |file| check_whole(file, &[])),
    ("cut_buffers=1", |file| {
        // The last record of the buffer, of any kind.
        check_accounted(file);
        assert!(file.lost(Loss::DeviceRecordsUnread) > 0);
    }),
    // Missing and invalid records.
    ("drop=3", check_dropped),
    ("drop=5", check_dropped),
    ("garbage=7", |file| {
        check_dropped(file);
        assert!(file.lost(Loss::DeviceRecordsUnread) > 0);
        assert!(kernels(file).iter().all(|kernel| kernel["pid"] == 0), "there is one GPU");
    }),
    ("unknown_kinds=2", |file| {
        let unread = file.lost(Loss::DeviceRecordsUnread) as usize;
        assert!(unread >= KERNELS);
        check_whole(file, &[(Loss::DeviceRecordsUnread, unread)]);
    }),
    ("repeat_correlation=7", |file| {
        assert_eq!((kernels(file).len(), launches(file).len()), (KERNELS, KERNELS));
        assert!(file.lost(Loss::CorrelationsReused) > 0);
        Counts::of(file);
    }),
    ("no_finish=work", |file| {
        let found = Counts::of(file);
        assert_eq!((found.kernels, launches(file).len()), (0, KERNELS));
        assert_eq!(losses(file), [(Loss::LaunchesWithoutWork, KERNELS)]);
    }),
    ("unknown_uuid=1", |file| {
        check_whole(file, &[]);
        assert!(is_noted(file, "that Level Zero does not list"), "{:?}", intel::report(file).notes);
        assert!(kernels(file).iter().all(|kernel| kernel["pid"] == 0));
    }),
    ("null_names=1", |file| {
        let found = Counts::of(file);
        assert_eq!((found.kernels, found.linked), (KERNELS, KERNELS));
        assert!(kernels(file).iter().all(|kernel| !gpu::name(kernel).is_empty()));
        assert!(kernels(file).iter().all(|kernel| kernel["args"].get("source_file_name").is_none()));
    }),
    // Clocks.
    ("clock_skew_ns=3000000000", |file| check_skew(file, 3_000_000_000)),
    ("clock_skew_ns=-3000000000", |file| check_skew(file, -3_000_000_000)),
    ("early_kernels_ns=200000", |file| {
        let early = file.lost(Loss::WorkBeforeLaunch) as usize;
        assert!(early > 0);
        check_whole(file, &[(Loss::WorkBeforeLaunch, early)]);
    }),
    ("timestamp_zero=1", |file| {
        // Their times are unknown.
        let unfinished = file.lost(Loss::UnfinishedWork) as usize;
        check_whole(file, &[(Loss::UnfinishedWork, unfinished)]);
        assert_eq!(unfinished, KERNELS);
    }),
    ("overlap=1", |file| {
        let overlapping = file.lost(Loss::OverlappingWork) as usize;
        // Each kernel but the first of a queue begins while another runs.
        assert!((STEPS / 2..=KERNELS - 2).contains(&overlapping), "{overlapping}");
        check_whole(file, &[(Loss::OverlappingWork, overlapping)]);
    }),
];

/// Runs steps of two kernels each, on two queues.
fn program(machine: &Machine, settings: &str) {
    let queues = [machine.queue(0), machine.queue(0)];
    for _ in 0..STEPS {
        let _step = info_span!("step").entered();
        info_span!("one").in_scope(|| machine.submit(queues[0], "work_us500"));
        info_span!("two").in_scope(|| machine.submit(queues[1], "work_us500"));
    }
    if ends(settings) {
        machine.wait(queues[0], WaitKind::Device);
    }
}

/// Returns whether the kernels end.
fn ends(settings: &str) -> bool {
    !settings.contains("no_finish")
}

/// Records a program under a fault; returns the machine and the file, and checks that all host rows are present.
fn recorded(settings: &str) -> (Machine, File) {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine(settings);
    let is_hopeless =
        !ends(settings) || ["drop", "garbage", "cut", "flush_error"].iter().any(|it| settings.starts_with(it));
    let timeout = if is_hopeless { Duration::from_millis(200) } else { gpu::PATIENCE };
    let begun = steady();
    let file = record_with(|builder| intel::all(builder).flush_timeout(timeout), || program(&machine, settings));
    assert!(since(begun) < gpu::PATIENCE, "the stop waits for missing records: {:?}", since(begun));
    assert_eq!(xpu::count("synchronizes"), u64::from(ends(settings)), "only the program's own calls");
    assert_eq!((xpu::count("push_depth"), xpu::count("enabled_views")), (0, 0), "no id or view is left");
    check_cpu(&file, launches(&file).into_iter().chain(driver(&file)).collect());
    (machine, file)
}

/// Checks that all kernels are present and linked to their spans, with only the expected losses.
#[track_caller]
fn check_whole(file: &File, expected: &[(Loss, usize)]) {
    let found = Counts::of(file);
    let counts = [found.kernels, found.linked, found.starts, found.ends, launches(file).len()];
    assert_eq!(counts, [KERNELS; 5], "{}", file.trace.stats());
    check_spans(file, expected);
}

/// Checks that the trace has no device rows, and a reason with advice.
#[track_caller]
fn check_unavailable(file: &File, why: Why, advice: &str) {
    let reason = intel::reason(file);
    assert_eq!(reason.why(), why, "{reason}");
    assert!(reason.advice().contains(advice), "{reason}");
    assert!(file.trace.stats().to_string().contains(reason.message()));
    assert_eq!((Counts::of(file), losses(file)), (Counts::default(), vec![]));
    assert_eq!(xpu::count("pushes"), 0, "no ids are pushed");
}

fn is_noted(file: &File, what: &str) -> bool {
    intel::report(file).notes.iter().any(|note| note.contains(what))
}

#[track_caller]
fn check_noted(file: &File, what: &str) {
    let notes = intel::report(file).notes;
    assert!(notes.iter().any(|note| note.starts_with(what)), "{notes:?}");
}

/// Checks that each launch and kernel is present, or counted as missing.
#[track_caller]
fn check_accounted(file: &File) {
    Counts::of(file);
    let (calls, work) = (ids(launches(file)), ids(kernels(file)));
    let (lonely, orphans) = (calls.difference(&work).count(), work.difference(&calls).count());
    assert_eq!(file.lost(Loss::LaunchesWithoutWork) as usize, lonely, "{}", file.trace.stats());
    // Work without its runtime call may have the driver call, which has the same id.
    let by_driver = ids(driver(file));
    let alone = work.difference(&calls).filter(|id| !by_driver.contains(id)).count();
    let counted = file.lost(Loss::WorkWithoutLaunch) as usize;
    assert!((alone..=orphans).contains(&counted), "{counted} of {alone} to {orphans}: {}", file.trace.stats());
}

/// As [`check_accounted`]; also checks that some records are missing.
#[track_caller]
fn check_dropped(file: &File) {
    check_accounted(file);
    let lonely = file.lost(Loss::LaunchesWithoutWork) as usize;
    assert!(lonely > 0 && kernels(file).len() < KERNELS, "{}", file.trace.stats());
}

/// Checks that a clock offset is corrected and noted.
fn check_skew(file: &File, by: i64) {
    check_whole(file, &[]);
    check_clock(file, &intel::report(file), by, launches(file));
}

#[own_process]
fn each_fault_is_reported_and_the_rest_is_recorded() {
    let (rows, failed) = go_through(FAULTS, recorded, row);
    // Faults of a whole process: the child test and its environment.
    let children: [(&str, &[(&str, &str)]); 8] = [
        (name_of(child_without_a_loader), &[]),
        (name_of(child_with_an_old_loader), &[]),
        (name_of(child_without_a_driver), &[("SIM_XPU", "driver=0")]),
        (name_of(child_with_an_old_driver), &[("SIM_XPU", "driver_api=1.2")]),
        (name_of(child_without_an_intel_gpu), &[("SIM_XPU", "vendor=4318")]),
        (name_of(child_with_another_device), &[("SIM_XPU", "device_type=5")]),
        (name_of(child_with_an_old_pti), &[("SIM_XPU", "pti=0.11")]),
        (name_of(child_that_hangs_in_a_flush), &[]),
    ];
    let children: String = children.into_iter().map(|(test, env)| rows_of(test, env)).collect();
    let table = faults::HEAD.to_owned() + &rows + &children;
    gpu::publish("xpu-faults.md", &table);
    assert!(failed.is_empty(), "{failed:?}");
}

/// Returns the table row of a fault.
fn row(settings: &str, file: &File) -> String {
    faults::row(settings, launches(file).len(), file, &intel::report(file))
}

/// Checks a recording without usable Intel GPUs; no call of PTI may end the process.
fn without_a_gpu(fault: &str, why: Why, message: &str) {
    let file = intel::record(|| info_span!("step").in_scope(|| ()));
    assert_eq!((file.slices().len(), Counts::of(&file)), (1, Counts::default()));
    let reason = intel::reason(&file);
    assert_eq!(reason.why(), why, "{reason}");
    assert!(reason.message().contains(message) && !reason.advice().is_empty(), "{reason}");
    gpu::say(row(fault, &file).trim_end());
}

/// Loads no Intel library, so there is no GPU unless the machine has a real one.
#[test]
#[ignore = "run by another test"]
fn child_without_a_loader() {
    if std::path::Path::new("/sys/class/drm").exists() {
        // The machine may have an Intel GPU; then any outcome is right if the process continues.
        let file = intel::record(|| info_span!("step").in_scope(|| ()));
        return gpu::say(row("no loader", &file).trim_end());
    }
    without_a_gpu("no loader", Why::NoDevice, "Intel");
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_loader() {
    // SAFETY: the library has no initialisers.
    #[expect(unsafe_code, reason = "the test loads a library")]
    let _old = unsafe { libloading::Library::new(xpu::library("sim_ze_old")) }.unwrap();
    without_a_gpu("a loader without zesInit", Why::Incompatible, "zesInit");
}

#[test]
#[ignore = "run by another test"]
fn child_without_a_driver() {
    xpu::pti();
    without_a_gpu("driver=0", Why::NoDevice, "0x78000001");
    assert_eq!(xpu::count("enables"), 0);
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_driver() {
    xpu::pti();
    without_a_gpu("driver_api=1.2", Why::Incompatible, "1.2");
    assert_eq!(xpu::count("enables"), 0);
}

#[test]
#[ignore = "run by another test"]
fn child_without_an_intel_gpu() {
    xpu::pti();
    without_a_gpu("vendor=0x10de", Why::NoDevice, "Intel");
    assert_eq!(xpu::count("enables"), 0);
}

#[test]
#[ignore = "run by another test"]
fn child_with_another_device() {
    xpu::pti();
    without_a_gpu("a device that is no GPU", Why::NoDevice, "GPU");
    assert_eq!(xpu::count("enables"), 0);
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_pti() {
    xpu::pti();
    without_a_gpu("pti=0.11", Why::Incompatible, "0.11");
    assert_eq!(xpu::count("enables"), 0);
}

/// PTI hangs in a flush: the stop returns with the delivered records, and the process ends.
#[test]
#[ignore = "run by another test"]
fn child_that_hangs_in_a_flush() {
    let _watch = gpu::watch(Duration::from_secs(60));
    let machine = machine("hanging_flush=1");
    let queue = machine.queue(0);
    let begun = steady();
    let file = record_with(
        |builder| intel::all(builder).flush_timeout(Duration::from_millis(300)),
        || {
            info_span!("step").in_scope(|| machine.submit(queue, "work"));
            machine.wait(queue, WaitKind::Queue);
        },
    );
    assert!(since(begun) < gpu::PATIENCE, "{:?}", since(begun));
    assert_eq!((file.slices().len(), xpu::count("push_depth")), (1, 0));
    let is_noted =
        !losses(&file).is_empty() || !intel::report(&file).notes.is_empty() || intel::report(&file).state.is_err();
    assert!(is_noted, "{}", file.trace.stats());
    gpu::say(row("hanging_flush=1", &file).trim_end());
    xpu::finish();
}
