//! Faults of a GPU: the trace has all host rows, counts losses, and reports the fault.
#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "counts are small, and child tests get their settings from the environment"
)]

use serde_json::Value;
use std::time::Duration;
use support::faults::{Fault, KERNELS, STEPS, check_accounted, check_clock, check_cpu, go_through, rows_of, whole};
use support::gpu::{Counts, calls, kernels, losses, machine};
use support::virtual_time;
use support::wait::{since, sleep, steady};
use support::{File, cuda, faults, gpu, layer, name_of, record_with};
use tracing::info_span;
use tracing_kineto::analysis::Events;
use tracing_kineto::integration::Why;
use tracing_kineto::{Format, Loss};
use tracing_subscriber::layer::SubscriberExt;

const FAULTS: &[Fault] = &[
    ("", |file| whole(file, &[])),
    // Faults that prevent all device records.
    ("driver=12000", |file| check_unavailable(file, Why::Incompatible, "update NVIDIA's driver")),
    ("driver=11080,cupti=12.4", |file| check_unavailable(file, Why::Incompatible, "update NVIDIA's driver")),
    ("busy=1", |file| check_unavailable(file, Why::Busy, "stop it first")),
    ("privileges=1", |file| check_unavailable(file, Why::Forbidden, "NVreg_RestrictProfilingToAdminUsers=0")),
    ("enable_error=33", |file| check_unavailable(file, Why::Unsupported, "vGPUs")),
    // Faults that prevent some device records.
    ("enable_error=27:10", |file| {
        check_noted(file, "kernel is not recorded");
        assert!(gpu::report(file).notes.iter().any(|note| note.contains("KINETO_CUPTI_PATH")), "the note has a fix");
        let found = Counts::of(file);
        assert_eq!((found.kernels, launches(file).len()), (0, KERNELS));
        assert_eq!(losses(file), [(Loss::LaunchesWithoutWork, KERNELS)]);
    }),
    ("enable_error=27:4", |file| {
        check_noted(file, "cuda_driver is not recorded");
        assert_eq!((kernels(file).len(), calls(file).len()), (KERNELS, 0));
        assert_eq!(losses(file), [(Loss::WorkWithoutLaunch, KERNELS)]);
    }),
    ("push_error=1", |file| whole(file, &[(Loss::LinkedByTime, KERNELS)])),
    // Buffers and threads.
    ("late_buffers=30", |file| whole(file, &[])),
    ("late_buffers=300", |file| {
        // The start gives up earlier on the record of its own call.
        assert_eq!(gpu::report(file).notes, Vec::<String>::new());
        whole(file, &[]);
    }),
    ("foreign_thread=1", |file| whole(file, &[])),
    ("late_buffers=30,foreign_thread=1,cupti=12.4,driver=12040", |file| whole(file, &[])),
    ("slow_callbacks=20", |file| whole(file, &[])),
    ("one_byte=1", |file| {
        assert_eq!((kernels(file).len(), calls(file).len()), (0, 0));
        assert!(matches!(losses(file)[..], [(Loss::DeviceRecordsUnread, 1..)]), "{:?}", losses(file));
    }),
    // Missing and invalid records.
    ("drop=1", |file| {
        check_noted(file, "libcupti delivered no record");
        assert_eq!((kernels(file).len(), calls(file).len()), (0, 0));
        assert!(matches!(losses(file)[..], [(Loss::VendorDropped, 1..)]), "{:?}", losses(file));
    }),
    ("drop=2", check_dropped),
    ("drop=4", check_dropped),
    ("many_dropped=1", |file| {
        whole(file, &[(Loss::VendorDropped, usize::MAX)]);
        assert_eq!(gpu::report(file).notes, Vec::<String>::new());
        let again = gpu::record(|| ());
        assert!(gpu::report(&again).state.is_ok(), "libcupti is free again");
    }),
    ("garbage=5", |file| {
        check_accounted(file, launches(file));
        assert!(file.lost(Loss::DeviceRecordsUnread) > 0);
        assert!(kernels(file).iter().all(|kernel| kernel["pid"] == 0), "there is one GPU");
    }),
    ("unknown_kinds=2", |file| {
        let unread = file.lost(Loss::DeviceRecordsUnread) as usize;
        assert!(unread >= KERNELS);
        whole(file, &[(Loss::DeviceRecordsUnread, unread)]);
    }),
    ("repeat_correlation=7", |file| {
        assert_eq!((kernels(file).len(), launches(file).len()), (KERNELS, KERNELS));
        assert_eq!(faults::arrows(file), KERNELS);
        assert!(file.lost(Loss::CorrelationsReused) >= (KERNELS - 7) as u64);
    }),
    ("no_finish=work", |file| {
        // The first kernel of each stream has begun; all are recorded, clipped to the end.
        whole(file, &[(Loss::UnfinishedWork, KERNELS)]);
        assert!(kernels(file).iter().all(|kernel| kernel["args"]["finished"] == false));
    }),
    // Clocks.
    ("clock_skew_ns=3000000000", |file| check_skew(file, 3_000_000_000)),
    ("clock_skew_ns=-3000000000", |file| check_skew(file, -3_000_000_000)),
    ("clock_step_ns=50000000:0", |file| check_step(file, 50_000_000)),
    ("clock_step_ns=-50000000:0", |file| check_step(file, -50_000_000)),
    ("early_kernels_ns=200000", |file| {
        let early = file.lost(Loss::WorkBeforeLaunch) as usize;
        assert!(early > 0);
        whole(file, &[(Loss::WorkBeforeLaunch, early)]);
    }),
    ("timestamp_zero=1", |file| whole(file, &[(Loss::UnfinishedWork, KERNELS)])),
    ("overlap=1", |file| {
        let overlapping = file.lost(Loss::OverlappingWork) as usize;
        // Each kernel but the first of a stream begins while another runs.
        assert!((STEPS / 2..=KERNELS - 2).contains(&overlapping), "{overlapping}");
        whole(file, &[(Loss::OverlappingWork, overlapping)]);
    }),
];

/// Runs steps of two kernels each, on two streams. A clock that steps does so in the middle.
fn program(machine: &gpu::Machine, settings: &str) {
    let streams = [machine.stream(), machine.stream()];
    let kernel = machine.only_kernel("work_us500");
    for step in 0..STEPS {
        let _step = info_span!("step").entered();
        info_span!("one").in_scope(|| machine.launch(kernel, 4, streams[0]));
        info_span!("two").in_scope(|| machine.launch(kernel, 4, streams[1]));
        if step == STEPS / 2 && is_step(settings) {
            cuda::configure(settings);
        }
    }
    if !settings.contains("no_finish") {
        machine.synchronize();
    }
}

fn is_step(settings: &str) -> bool {
    settings.starts_with("clock_step")
}

/// Records a program under a fault; returns the machine and the file, and checks that all host rows are present.
fn recorded(settings: &str) -> (gpu::Machine, File) {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine(if is_step(settings) { "" } else { settings });
    let ends = !settings.contains("no_finish");
    let timeout = if ends { gpu::PATIENCE } else { Duration::from_millis(200) };
    let begun = steady();
    let file = record_with(
        |builder| gpu::all(builder).flush_timeout(timeout),
        || {
            cuda::reset();
            program(&machine, settings);
        },
    );
    assert!(since(begun) < gpu::PATIENCE, "the stop waits for missing records: {:?}", since(begun));
    assert_eq!(cuda::count("synchronizes"), u64::from(ends), "only the program's own calls");
    assert_eq!(cuda::count("push_depth"), 0, "nothing is left pushed");
    check_cpu(&file, calls(&file));
    (machine, file)
}

fn launches(file: &File) -> Vec<&Value> {
    calls(file).into_iter().filter(|call| gpu::name(call) == "cuLaunchKernel").collect()
}

/// Checks that the trace has no device rows, and a reason with advice.
#[track_caller]
fn check_unavailable(file: &File, why: Why, advice: &str) {
    let reason = gpu::reason(file);
    assert_eq!(reason.why(), why, "{reason}");
    assert!(reason.advice().contains(advice), "{reason}");
    assert!(file.trace.stats().to_string().contains(advice));
    assert_eq!((Counts::of(file), losses(file)), (Counts::default(), vec![]));
    assert_eq!(cuda::count("pushes"), 0, "no ids are pushed");
}

#[track_caller]
fn check_noted(file: &File, what: &str) {
    let notes = gpu::report(file).notes;
    assert!(notes.iter().any(|note| note.starts_with(what)), "{notes:?}");
}

fn check_dropped(file: &File) {
    check_accounted(file, launches(file));
    // One or two records may have been dropped before the counts began.
    let (lost, check_dropped) = (file.lost(Loss::VendorDropped), cuda::count("dropped"));
    assert!(check_dropped > 0 && (check_dropped..=check_dropped + 5).contains(&lost), "{lost} of {check_dropped}");
}

/// Checks that a clock offset is corrected and noted.
fn check_skew(file: &File, by: i64) {
    whole(file, &[]);
    check_clock(file, &gpu::report(file), by, launches(file));
}

/// Checks that all work is present under a stepping clock, and that the error of times is noted.
fn check_step(file: &File, by: i64) {
    let found = Counts::of(file);
    assert_eq!((found.kernels, found.linked), (KERNELS, KERNELS));
    let report = gpu::report(file);
    assert!(report.clock_error_ns >= by.unsigned_abs() * 9 / 10, "{report:?}");
}

#[virtual_time]
fn each_fault_is_reported_and_the_rest_is_recorded() {
    let (rows, failed) = go_through(FAULTS, recorded, row);
    let mut table = faults::HEAD.to_owned() + &rows;
    for (settings, test) in [
        ("driver=0", name_of(child_without_a_driver)),
        ("driver=10020", name_of(child_with_an_old_driver)),
        ("late_buffers=600000", name_of(child_without_cupti_buffers)),
        ("hanging_flush=1", name_of(child_without_cupti_buffers)),
    ] {
        table += &rows_of(test, &[("SIM_CUDA", settings)]);
    }
    gpu::publish("cuda-faults.md", &table);
    assert!(failed.is_empty(), "{failed:?}");
}

/// Returns the table row of a fault.
fn row(settings: &str, file: &File) -> String {
    faults::row(settings, launches(file).len(), file, &gpu::report(file))
}

/// Checks a recording without usable CUDA, with no libcupti loaded.
fn without_a_gpu(settings: &str, why: Why, message: &str) {
    // Only the driver is loaded, and only its version is read.
    cuda::driver();
    let file = gpu::record(|| info_span!("step").in_scope(|| ()));
    assert_eq!(file.slices().len(), 1);
    let reason = gpu::reason(&file);
    assert_eq!(reason.why(), why, "{reason}");
    assert!(reason.message().contains(message) && !reason.advice().is_empty(), "{reason}");
    gpu::say(row(settings, &file).trim_end());
}

#[test]
#[ignore = "run by another test"]
fn child_without_a_driver() {
    without_a_gpu("driver=0", Why::NoDevice, "stub");
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_driver() {
    without_a_gpu("driver=10020", Why::LibraryNotFound, "CUDA 10.2");
}

/// CUPTI delivers no buffer in time: its buffers are counted, and the program continues.
#[test]
#[ignore = "run by another test"]
fn child_without_cupti_buffers() {
    let settings = std::env::var("SIM_CUDA").unwrap();
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine(&settings);
    let file =
        record_with(|builder| gpu::all(builder).flush_timeout(Duration::from_secs(1)), || program(&machine, &settings));
    check_cpu(&file, calls(&file));
    assert_eq!((kernels(&file).len(), calls(&file).len()), (0, 0));
    assert!(matches!(losses(&file)[..], [(Loss::DeviceBuffersKept, 1..)]), "{:?}", losses(&file));
    if settings.starts_with("hanging_flush") {
        check_noted(&file, "libcupti hung");
        assert_eq!(cuda::count("unsubscribes"), 0, "the call is still running");
    }
    gpu::say(row(&settings, &file).trim_end());
}

/// Waits until no earlier recording holds libcupti, since a stop that times out does not.
fn wait_for_libcupti() {
    let _watch = gpu::watch(Duration::from_secs(100));
    while gpu::report(&gpu::record(|| ())).state.is_err() {
        sleep(Duration::from_millis(1));
    }
}

/// Mutates random numbers in records: all host rows are present, and the file is readable. `MUTATIONS` sets the number of
/// sessions.
#[virtual_time]
fn mutated_records_leave_a_readable_file() {
    let sessions = std::env::var("MUTATIONS").map_or(20, |sessions| sessions.parse().unwrap());
    for seed in 1..=sessions {
        let machine = machine("");
        wait_for_libcupti();
        cuda::configure(&format!("mutate={seed}"));
        let kernel = machine.only_kernel("work_us1");
        let (layer, guard) = layer(|builder| gpu::all(builder).flush_timeout(Duration::from_millis(1)));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..STEPS {
                let _step = info_span!("step").entered();
                info_span!("one").in_scope(|| machine.launch(kernel, 4, cuda::Stream::NULL));
                info_span!("two").in_scope(|| machine.synchronize());
            }
        });
        let trace = guard.finish().unwrap();
        let stats = trace.stats();
        let report = stats.collectors.iter().find(|report| report.name == "cupti").unwrap();
        assert!(report.state.is_ok(), "{seed}: {report:?}");
        assert!(!report.notes.iter().any(|note| note.contains("panicked")), "{seed}: {report:?}");
        assert_eq!(stats.slices, 3 * STEPS as u64, "{seed}");
        // The file, and the tables of the trace and the file.
        let mut text = Vec::new();
        trace.write(&mut text, Format::Json).unwrap();
        let read = Events::from_reader(&text[..]).unwrap_or_else(|error| panic!("{seed}: {error}"));
        assert_eq!(read.iter().count(), trace.events().iter().count(), "{seed}");
        assert!(
            !read.key_averages().table().to_string().is_empty() && !trace.key_averages().table().to_string().is_empty()
        );
    }
}
