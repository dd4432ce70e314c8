//! Device work whose name and times are resolved later: rows, links, clocks, unresolved work, and bounds.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use support::{File, enter, exit, layer, nanos, on_thread, record_with};
use tracing::{info_span, subscriber};
use tracing_kineto::activity::DeviceType;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{
    AlignedBy, CollectorReport, DeferredEvents, DeviceClock, DeviceDescription, Submission,
};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ActivityType, ActivityTypes, Loss, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// How far the fake device's clock is behind CLOCK_REALTIME: the device has run for a day.
const BEHIND: u64 = 1_500_000_000_000_000_000;

fn now() -> u64 {
    u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap()
}

/// Spins for `us` microseconds; returns the start time.
fn spin(us: u64) -> u64 {
    let from = now();
    while now() < from + us * 1000 {}
    now()
}

/// Converts host time to the device's clock of 4 ns a tick.
fn ticks(host: u64) -> u64 {
    (host - BEHIND) / 4
}

fn gpu() -> DeferredEvents {
    let gpu = DeferredEvents::new("gpu");
    gpu.set_clock(DeviceClock::ticking(4.0));
    gpu
}

/// A submission with the start and end of its work.
type TimedRun = (Submission, [u64; 2]);

/// Submits work that starts 10 µs later and runs for 20; returns its times.
fn run(gpu: &DeferredEvents, stream: u32) -> TimedRun {
    let (submission, _) = gpu.submit_as("vkQueueSubmit", stream, || spin(2));
    let start = spin(10);
    (submission, [start, spin(20)])
}

fn record(gpu: &DeferredEvents, work: impl FnOnce()) -> File {
    let gpu = gpu.clone();
    record_with(|builder| builder.collector(gpu), work)
}

fn rows<'f>(file: &'f File, ph: &str, cat: &str) -> Vec<&'f Value> {
    file.events().filter(|event| event["ph"] == ph && event["cat"] == cat).collect()
}

fn report(file: &File) -> CollectorReport {
    file.collector_report("gpu")
}

/// Returns the start and end of a row, in nanoseconds since the Unix epoch.
fn interval(file: &File, row: &Value) -> [u64; 2] {
    let base = file.json["baseTimeNanoseconds"].as_u64().unwrap();
    let start = base + nanos(&row["ts"]);
    [start, start + nanos(&row["dur"])]
}

#[test]
fn submission_is_a_device_row_when_its_times_are_known() {
    let gpu = gpu();
    let mut device = DeviceDescription::new(2, "Toy 3000");
    device.properties = vec![("totalGlobalMem".into(), 1024)];
    gpu.set_device(device);
    let mut times = Vec::new();
    let file = record(&gpu, || {
        let _step = annotate!("step {}", 1).entered();
        let saxpy = info_span!("forward").in_scope(|| run(&gpu, 7));
        let copy = run(&gpu, 7);
        assert_eq!((gpu.open(), saxpy.0.stream(), saxpy.0.is_recorded()), (2, 7, true));
        on_thread("reads timestamps", || {
            gpu.resolve_as(copy.0, ActivityType::GpuMemcpy, "Memcpy HtoD", ticks(copy.1[0]), ticks(copy.1[1]));
            gpu.resolve(saxpy.0, "saxpy", ticks(saxpy.1[0]), ticks(saxpy.1[1]));
        });
        assert_eq!(gpu.open(), 0);
        times.extend([saxpy.1, copy.1]);
    });
    let calls = rows(&file, "X", "privateuse1_runtime");
    let work = [rows(&file, "X", "kernel"), rows(&file, "X", "gpu_memcpy")].concat();
    assert_eq!((calls.len(), work.len()), (2, 2));
    let error = gpu.alignment().unwrap().error_ns;
    for (((row, call), times), around) in work.iter().zip(&calls).zip(&times).zip(["forward", "step 1"]) {
        let (id, correlation) = (file.slice(around).args["External id"].clone(), call["args"]["correlation"].clone());
        assert_eq!((&call["name"], &call["tid"]), (&json!("vkQueueSubmit"), &json!(file.slice(around).tid)));
        assert_eq!(call["args"], json!({"External id": id, "correlation": correlation}));
        let row_error = row["args"]["clock_error_ns"].as_u64().unwrap();
        assert!(row_error <= error);
        let args = json!({"External id": id, "device": 2, "stream": 7, "correlation": correlation,
            "timing_source": "brackets", "clock_error_ns": row_error});
        assert_eq!((&row["args"], &row["pid"], &row["tid"]), (&args, &json!(2), &json!(7)));
        let found = interval(&file, row);
        assert!(
            found.iter().zip(times).all(|(found, truth)| found.abs_diff(*truth) <= row_error),
            "{found:?} {times:?}"
        );
        assert!(interval(&file, call)[0] <= found[0], "not before its submission");
    }
    let ids = |ph| rows(&file, ph, "ac2g").iter().map(|arrow| arrow["id"].clone()).collect::<Vec<_>>();
    assert_eq!((ids("s").len(), ids("s")), (2, ids("f")));
    assert_eq!(rows(&file, "X", "gpu_user_annotation")[0]["name"], "step 1");
    assert_eq!(file.json["deviceProperties"], json!([{"id": 2, "name": "Toy 3000", "totalGlobalMem": 1024}]));
    let stats = file.trace.stats();
    assert!(stats.losses.is_empty(), "{stats}");
    assert_eq!((stats.device_activities, report(&file).records), (2, 4));
    let events = file.trace.events();
    let kernel = events.iter().find(|event| event.name() == "saxpy").unwrap();
    assert_eq!(kernel.device_type(), Some(DeviceType::PrivateUse1));
}

#[test]
fn clock_error_is_in_the_statistics_and_the_header() {
    let gpu = gpu();
    let file = record(&gpu, || {
        let (submission, [start, end]) = run(&gpu, 0);
        gpu.resolve(submission, "work", ticks(start), ticks(end));
        let (at, error) = gpu.locate(ticks(start)).unwrap();
        assert!(at.abs_diff(start) <= error, "{at} {start} {error}");
    });
    let alignment = gpu.alignment().unwrap();
    assert_eq!((alignment.source, alignment.observations, alignment.contradicted), (AlignedBy::Brackets, 1, 0));
    let report = report(&file);
    assert!(report.clock_error_ns >= alignment.error_ns && alignment.error_ns > 0);
    let about = &file.json["tracing_kineto"]["collectors"]["gpu"];
    assert_eq!(about["clock"]["error_ns"], json!(report.clock_error_ns));
    assert_eq!(about["notes"], json!([alignment.to_string()]));
}

#[test]
fn calibration_against_a_host_clock_restores_times() {
    // The host's clock is a thousand seconds behind CLOCK_REALTIME, the device drifts by 20 ppm against it.
    let host = |real: u64| real - 1_000_000_000_000;
    let gpu = DeferredEvents::with_cpu_clock("gpu", move || host(now()));
    gpu.set_clock(DeviceClock::ticking(1.0));
    let origin = now();
    let device = |real: u64| 5_000_000_000 + (real - origin) + (real - origin) / 50_000;
    let mut times = [0; 2];
    let file = record(&gpu, || {
        let calibrate = || {
            let real = now();
            gpu.calibrate(device(real), host(real), Duration::from_nanos(50));
        };
        calibrate();
        let submission;
        (submission, times) = info_span!("around").in_scope(|| run(&gpu, 0));
        gpu.resolve(submission, "work", device(times[0]), device(times[1]));
        spin(5000);
        calibrate();
    });
    let (alignment, report) = (gpu.alignment().unwrap(), report(&file));
    assert_eq!((alignment.source, alignment.observations, alignment.contradicted), (AlignedBy::Calibrations, 2, 0));
    assert!(alignment.error_ns < 100_000 && report.clock_offset_ns.abs_diff(1_000_000_000_000) < 1_000_000, "{report}");
    let kernel = rows(&file, "X", "kernel")[0];
    assert_eq!(kernel["args"]["timing_source"], "calibrations");
    let found = interval(&file, kernel);
    let near = |(found, truth): (&u64, &u64)| found.abs_diff(*truth) <= report.clock_error_ns;
    assert!(found.iter().zip(&times).all(near), "{found:?} {times:?} {report}");
    assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
}

#[test]
fn recording_is_calibrated_at_both_ends() {
    let gpu = DeferredEvents::new("gpu");
    gpu.set_clock(DeviceClock::ticking(1.0));
    // The device drifts by 1000 ppm.
    let origin = now();
    let device = move |real: u64| 5_000_000_000 + (real - origin) + (real - origin) / 1000;
    gpu.set_calibrator(move || {
        let real = now();
        Some((device(real), real, Duration::from_nanos(50)))
    });
    let file = record(&gpu, || {
        let (submission, [start, end]) = run(&gpu, 0);
        gpu.resolve(submission, "work", device(start), device(end));
        spin(5000);
    });
    let alignment = gpu.alignment().unwrap();
    assert_eq!((alignment.source, alignment.observations), (AlignedBy::Calibrations, 2));
    assert_eq!(alignment.contradicted, 0, "{alignment}");
    assert!(report(&file).notes[0].contains("by 2 calibrations,"), "{alignment}");
    // This clock can be read only at the start.
    let (once, read) = (DeferredEvents::new("gpu"), AtomicBool::new(false));
    once.set_calibrator(move || {
        (!read.swap(true, Ordering::Relaxed)).then(|| (now(), now(), Duration::from_nanos(50)))
    });
    record(&once, || {
        let (submission, [start, end]) = run(&once, 0);
        once.resolve(submission, "work", start, end);
    });
    assert!(once.alignment().unwrap().to_string().contains("by 1 calibration,"), "{:?}", once.alignment());
    gpu.set_calibrator(|| panic!("on purpose"));
    let notes = report(&record(&gpu, || ())).notes;
    assert_eq!(notes, ["it panicked in `calibrator`: on purpose"]);
}

#[test]
fn contradictory_clock_is_noted() {
    let gpu = DeferredEvents::new("gpu");
    gpu.set_clock(DeviceClock::of_cpu());
    let file = record(&gpu, || {
        let (submission, [start, end]) = run(&gpu, 0);
        gpu.resolve(submission, "true", start, end);
        let (submission, [start, end]) = run(&gpu, 0);
        gpu.resolve(submission, "an hour late", start + 3_600_000_000_000, end + 3_600_000_000_000);
    });
    let alignment = gpu.alignment().unwrap();
    assert_eq!(alignment.source, AlignedBy::Statement);
    assert!(alignment.contradicted >= 2, "{alignment}");
    assert!(report(&file).notes[0].contains("contradict the host's times of submission or end"));
}

#[test]
fn open_submissions_are_resolved_or_counted_at_the_stop() {
    let gpu = gpu();
    let read: Arc<Mutex<Vec<TimedRun>>> = Arc::default();
    let (known, events) = (read.clone(), gpu.clone());
    gpu.set_resolver(move |open, deadline| {
        assert!(deadline > Instant::now());
        for (submission, [start, end]) in known.lock().unwrap().iter().filter(|(it, _)| open.contains(it)) {
            events.resolve(*submission, "late", ticks(*start), ticks(*end));
        }
    });
    let file = record(&gpu, || {
        read.lock().unwrap().push(run(&gpu, 0));
        run(&gpu, 0);
        run(&gpu, 0);
    });
    let names: Vec<_> = rows(&file, "X", "kernel").iter().map(|row| row["name"].clone()).collect();
    assert_eq!((names, rows(&file, "X", "privateuse1_runtime").len()), (vec![json!("late")], 3));
    assert_eq!(file.lost(Loss::LaunchesWithoutWork), 2);
    let notes = report(&file).notes;
    assert!(
        notes.contains(&"2 submissions were never resolved; their device rows are missing".to_owned()),
        "{notes:?}"
    );

    gpu.set_resolver(|_, _| panic!("on purpose"));
    let file = record(&gpu, || assert!(run(&gpu, 0).0.is_recorded()));
    assert_eq!(report(&file).notes[0], "it panicked in `resolver`: on purpose");
    gpu.set_resolver(|_, _| panic!("nothing is open"));
    assert!(report(&record(&gpu, || ())).notes.is_empty());
}

#[test]
fn submissions_outside_the_recording_make_no_rows() {
    let gpu = gpu();
    let (layer, guard) = layer(|builder| builder.record_from_start(false).collector(gpu.clone()));
    let _default = subscriber::set_default(tracing_subscriber::registry().with(layer));
    let profiler = guard.profiler();
    assert_eq!(gpu.submit(0), Submission::NONE);

    let prepared = Libkineto::of(&profiler).prepare().unwrap();
    let warm = run(&gpu, 0);
    assert!(!warm.0.is_recorded(), "the recording has not begun");
    prepared.start().unwrap();
    let first = info_span!("around").in_scope(|| run(&gpu, 0));
    profiler.pause().unwrap();
    assert!(!run(&gpu, 0).0.is_recorded(), "it is paused");
    profiler.resume().unwrap();
    gpu.resolve(first.0, "first", ticks(first.1[0]), ticks(first.1[1]));
    let trace = profiler.stop().unwrap();
    assert_eq!((trace.stats().device_activities, trace.stats().losses.len()), (1, 0));

    gpu.resolve(first.0, "too late", ticks(first.1[0]), ticks(first.1[1]));
    profiler.start().unwrap();
    gpu.resolve(first.0, "of another recording", ticks(first.1[0]), ticks(first.1[1]));
    gpu.resolve(Submission::NONE, "of none", 1, 2);
    let trace = profiler.stop().unwrap();
    assert_eq!(trace.stats().device_activities, 0);
    assert!(trace.stats().losses.is_empty());
}

#[test]
fn leftovers_of_an_earlier_recording_do_not_set_the_clock() {
    let (gpu, mut left) = (gpu(), Submission::NONE);
    record(&gpu, || left = gpu.submit(0));
    record(&gpu, || gpu.resolve(left, "late", 1000, 2000));
    assert!(left.is_recorded());
    assert_eq!(gpu.locate(1000), None);
}

#[test]
fn bounds_and_invalid_clocks_are_reported() {
    let gpu = gpu();
    gpu.set_most(2);
    let file = record(&gpu, || {
        let (one, [start, end]) = run(&gpu, 0);
        gpu.resolve(one, "backwards", ticks(end), ticks(start));
        gpu.resolve(one, "again", ticks(start), ticks(end));
        let (two, [start, end]) = run(&gpu, 0);
        gpu.resolve(two, "b", ticks(start), ticks(end));
        gpu.resolve(two, "c", ticks(start), ticks(end));
        assert_eq!(run(&gpu, 0).0, Submission::NONE);
    });
    assert_eq!(rows(&file, "X", "kernel").len(), 2);
    let notes = report(&file).notes.join("; ");
    let expected = "1 submissions were dropped: limit reached; \
        1 device rows were dropped: limit reached; \
        1 device rows were dropped: they end before they begin; ";
    assert!(notes.starts_with(expected), "{notes}");

    gpu.set_clock(DeviceClock::ticking(0.0));
    let file = record(&gpu, || assert_eq!(gpu.submit(0), Submission::NONE));
    let reason = report(&file).state.unwrap_err().to_string();
    assert!(reason.starts_with("invalid clock") && reason.ends_with("number of nanoseconds a tick"));
}

#[test]
fn device_rows_are_of_selected_types_alone() {
    let gpu = gpu();
    gpu.set_call_type(ActivityType::CudaRuntime);
    let types = ActivityTypes::of(&[ActivityType::CpuOp, ActivityType::GpuMemcpy]);
    let events = gpu.clone();
    let file = record_with(
        |builder| builder.activities(types).collector(events),
        || {
            let (submission, [start, end]) = run(&gpu, 0);
            gpu.resolve(submission, "kernel", ticks(start), ticks(end));
            gpu.resolve_as(submission, ActivityType::GpuMemcpy, "copy", ticks(start), ticks(end));
        },
    );
    let count = |cat| rows(&file, "X", cat).len();
    assert_eq!((count("kernel"), count("gpu_memcpy"), count("cuda_runtime")), (0, 1, 1));
}

#[test]
fn each_device_has_its_slices_for_any_order_of_exits() {
    let [one, two] = ["one", "two"].map(DeferredEvents::new);
    let [a, b] = [one.clone(), two.clone()];
    one.set_device(DeviceDescription::new(1, "one"));
    two.set_device(DeviceDescription::new(2, "two"));
    for gpu in [&one, &two] {
        gpu.set_clock(DeviceClock::of_cpu());
    }
    let run = |gpu: &DeferredEvents, name: &str| {
        let (submission, [start, end]) = run(gpu, 0);
        gpu.resolve(submission, name, start, end);
    };
    let file = record_with(
        |builder| builder.collector(a).collector(b),
        || {
            let (outer, inner) = (info_span!("outer"), info_span!("inner"));
            enter(&outer);
            enter(&inner);
            run(&one, "of inner");
            exit(&outer);
            run(&two, "of inner too");
            exit(&inner);
            run(&one, "of none");
            info_span!("last").in_scope(|| run(&two, "of last"));
        },
    );
    let id = |name: &str| file.slices().iter().find(|slice| slice.name == name).unwrap().args["External id"].clone();
    let kernels = rows(&file, "X", "kernel");
    let of = |name: &str| kernels.iter().find(|row| row["name"] == name).unwrap()["args"]["External id"].clone();
    let found = [of("of inner"), of("of inner too"), of("of none"), of("of last")];
    assert_eq!(found, [id("inner"), id("inner"), Value::Null, id("last")]);
}

#[test]
fn threads_may_submit_and_resolve_at_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    let gpu = gpu();
    let resolved = AtomicU64::new(0);
    let file = record(&gpu, || {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (gpu, resolved) = (&gpu, &resolved);
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let submission = gpu.submit(u32::try_from(thread).unwrap());
                        let at = now();
                        gpu.resolve(submission, "work", ticks(at), ticks(at) + 1);
                        resolved.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    });
    assert_eq!(resolved.into_inner(), THREADS * EACH);
    assert_eq!(file.trace.stats().device_activities, THREADS * EACH);
    let alignment = gpu.alignment().unwrap();
    assert_eq!((alignment.contradicted, alignment.drift_ppm), (0, 100), "{alignment}");
    assert!(!gpu.is_recording() && gpu.types().contains(ActivityType::ConcurrentKernel));
}
