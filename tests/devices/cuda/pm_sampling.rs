//! PM sampling on the simulated devices: planted samples come back, and each fault has its reason.

use std::time::Duration;
use support::cuda::Stream;
use support::gpu::{Machine, PATIENCE, events, in_child, machine};
use support::wait::{sleep, steady, wall};
use support::{File, layer, nanos, record_with};
use support::{cuda, gpu, name_of, virtual_time};
use tracing::subscriber;
use tracing_kineto::integration::trial::{Findings, Trial, TrialRecord};
use tracing_kineto::integration::{Options, PmSampling, Selection, Unavailable, Why};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ActivityType, ActivityTypes, KinetoLayerBuilder, Loss, Metrics};
use tracing_subscriber::layer::SubscriberExt;

const CYCLES: &str = "sm__cycles_active.avg";
const THROUGHPUT: &str = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
/// Nanoseconds between samples.
const INTERVAL: u64 = 1_000_000;
const TIME: Duration = Duration::from_millis(300);

fn selection(metrics: &[&str], devices: &[&str]) -> Selection {
    let mut selection = Selection::of(ActivityType::HardwareCounters.into());
    let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    selection.options.set("CUPTI_PM_SAMPLING_METRICS", list(metrics));
    selection.options.set("CUPTI_PM_SAMPLING_DEVICE_ID", list(devices));
    selection
}

fn sampler() -> PmSampling {
    PmSampling::new(&Options::default())
}

/// Samples for some time; returns what was found.
fn sampled(selection: &Selection) -> Findings {
    sampled_until(selection).0
}

/// Samples for some time; returns what was found, and times before and after the end.
fn sampled_until(selection: &Selection) -> (Findings, [u64; 2]) {
    let sampler = sampler();
    let trial = Trial::start(&sampler, selection).unwrap();
    sleep(TIME);
    let before = now();
    let found = trial.stop(PATIENCE);
    (found, [before, now()])
}

/// Returns why nothing is sampled.
#[track_caller]
fn refusal(selection: &Selection) -> Unavailable {
    Trial::start(&sampler(), selection).err().unwrap()
}

fn samples(found: &Findings, device: i32) -> Vec<&TrialRecord> {
    found.of(ActivityType::HardwareCounters).filter(|sample| sample.device == device).collect()
}

/// Returns the planted value of a metric, by its number in the simulator.
fn planted(device: u64, metric: u64, at: u64) -> f64 {
    (device * 1000 + metric * 100 + at / INTERVAL % 100) as f64
}

#[track_caller]
fn value(sample: &TrialRecord, metric: &str) -> f64 {
    sample.arg(metric).unwrap_or_else(|| panic!("no {metric}: {sample:?}")).parse().unwrap()
}

/// Checks that the samples of a device have planted times and values, and that none is missing between two.
#[track_caller]
fn check_planted(found: &Findings, device: i32) -> usize {
    let samples = samples(found, device);
    for sample in &samples {
        assert_eq!((sample.start % INTERVAL, sample.name.as_str()), (0, CYCLES));
        let at = |metric| planted(device.unsigned_abs().into(), metric, sample.start);
        assert_eq!((value(sample, CYCLES), value(sample, THROUGHPUT)), (at(0), at(4)), "{sample:?}");
    }
    assert!(samples.windows(2).all(|pair| pair[1].start - pair[0].start == INTERVAL), "{samples:?}");
    samples.len()
}

// Shows the key CUPTI_PM_SAMPLING_METRICS.
#[virtual_time]
fn planted_samples_of_two_devices_come_back() {
    let _machine = machine("devices=2");
    let begun = now();
    let found = sampled(&selection(&[CYCLES, THROUGHPUT], &[]));
    for device in [0, 1] {
        let count = check_planted(&found, device);
        assert!(count >= 100, "{count}");
        assert!(samples(&found, device)[0].start >= begun, "the first sample began before the start");
        assert!(found.notes.contains(&format!("GPU {device}: {count} samples")), "{:?}", found.notes);
    }
    assert_eq!(found.losses, []);
    check_released(2);
}

fn now() -> u64 {
    let now = wall().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// Checks that each initialisation has one end, and each device that was enabled was disabled.
#[track_caller]
fn check_released(enabled: u64) {
    let count = cuda::count;
    assert_eq!((count("pm_enables"), count("pm_disables")), (enabled, enabled));
    assert_eq!(count("profiler_inits"), count("profiler_deinits"));
}

/// Samples two metrics in a session of this builder; returns its file.
fn recorded(configure: impl Fn(KinetoLayerBuilder) -> KinetoLayerBuilder) -> File {
    record_with(|builder| configure(builder).flush_timeout(PATIENCE), || sleep(TIME))
}

// Shows the keys CUPTI_PM_SAMPLING_DEVICE_ID, CUPTI_PM_SAMPLING_INTERVAL_US.
#[virtual_time]
fn builder_selects_metrics_devices_and_interval() {
    let _machine = machine("devices=3");
    let file = recorded(|builder| {
        let metrics = Metrics::new().pm_sampling([CYCLES, THROUGHPUT]).pm_sampling_devices([2, 0]);
        builder.metrics(metrics.pm_sampling_interval(Duration::from_millis(2)))
    });
    let rows = events(&file, "C", "hardware_counters");
    for (name, metric) in [(CYCLES, 0), (THROUGHPUT, 4)] {
        for device in [0, 2] {
            let group = format!("GPU {device} Counters");
            let of_device: Vec<_> = rows.iter().filter(|row| row["pid"] == *group && row["name"] == name).collect();
            assert!(of_device.len() >= 50, "{}", of_device.len());
            for row in &of_device {
                let at = nanos(&row["ts"]);
                let expected = (device * 1000 + metric * 100 + at / 2_000_000 % 100) as f64;
                assert_eq!((at % 2_000_000, row["args"][""].as_f64()), (0, Some(expected)), "{row}");
                assert_eq!(row["args"].as_object().map(serde_json::Map::len), Some(1), "{row}");
            }
        }
    }
    assert!(!rows.iter().any(|row| row["pid"] == "GPU 1 Counters"));
    let about = &file.json["pm_sampling"];
    assert_eq!(about["metrics"], serde_json::json!([CYCLES, THROUGHPUT]));
    assert_eq!((&about["interval_ns"], &about["devices"]), (&2_000_000.into(), &serde_json::json!([0, 2])));
    assert_eq!(about["clock_bound_ns"], 2400);
    let report = file.collector_report("cupti_pm");
    assert!(report.clock_error_ns >= 2400 && report.records >= 100, "{report:?}");
    check_released(2);
}

#[virtual_time]
fn clock_that_cannot_be_read_has_no_bound() {
    let _machine = machine("cupti=13.5");
    let file = recorded(|builder| gpu::all(builder).metrics(Metrics::new().pm_sampling([CYCLES])));
    assert!(events(&file, "C", "hardware_counters").len() >= 100);
    let about = file.json["pm_sampling"].as_object().unwrap();
    assert!(!about.contains_key("clock_bound_ns"), "{about:?}");
    let report = file.collector_report("cupti_pm");
    let notes = &report.state.as_ref().unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("cuptiGetTimestamp failed")), "{report:?}");
}

/// Returns the summary of the only GPU.
fn summary(file: &File) -> String {
    let notes = file.collector_report("cupti_pm").notes;
    notes.into_iter().find(|note| note.starts_with("GPU 0: ") && note.contains(" samples")).unwrap()
}

#[virtual_time]
fn counts_of_a_prepared_recording_begin_with_it() {
    let _machine = machine("pm_overflow=2");
    let (layer, guard) = layer(|builder| {
        builder.metrics(Metrics::new().pm_sampling([CYCLES])).record_from_start(false).flush_timeout(PATIENCE)
    });
    let file = subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        let prepared = Libkineto::of(&profiler).prepare().unwrap();
        sleep(TIME);
        prepared.start().unwrap();
        sleep(TIME);
        File::of(profiler.stop().unwrap())
    });
    let count = summary(&file).split(' ').nth(2).unwrap().parse::<usize>().unwrap();
    assert!(count >= 100 && !summary(&file).contains("restarts"), "{}", summary(&file));
    assert_eq!(file.lost(Loss::VendorDropped), 0, "{}", summary(&file));
}

#[virtual_time]
fn samples_of_a_pause_are_no_losses() {
    let _machine = machine("");
    let (layer, guard) = layer(|builder| builder.metrics(Metrics::new().pm_sampling([CYCLES])).flush_timeout(PATIENCE));
    let file = subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        sleep(TIME);
        profiler.pause().unwrap();
        sleep(TIME);
        profiler.resume().unwrap();
        sleep(TIME);
        File::of(guard.finish().unwrap())
    });
    let rows = events(&file, "C", "hardware_counters").len();
    assert!(rows >= 200, "{rows}");
    let summary = summary(&file);
    let delivered: usize = summary.split(' ').nth(2).unwrap().parse().unwrap();
    // The trace drops what begins just after a pause did.
    assert!((rows..=rows + 2).contains(&delivered) && summary.ends_with(" samples"), "{rows}: {summary}");
}

#[virtual_time]
fn nothing_is_sampled_without_metrics_or_type() {
    let machine = machine("");
    let off = recorded(|builder| builder.activities(ActivityTypes::ALL));
    assert!(off.trace.stats().collectors.iter().all(|report| report.name != "cupti_pm"));
    let mut default_types = selection(&[CYCLES], &[]);
    default_types.types = ActivityTypes::DEFAULT;
    let reason = refusal(&default_types);
    assert_eq!(reason.why(), Why::Disabled);
    assert!(reason.to_string().contains("add hardware_counters to ACTIVITY_TYPES"), "{reason}");
    let mut teardown = selection(&[CYCLES], &[]);
    teardown.options.set("TEARDOWN_CUPTI", true);
    assert!(refusal(&teardown).to_string().contains("unset TEARDOWN_CUPTI"));
    assert_eq!((cuda::count("profiler_inits"), cuda::count("pm_enables")), (0, 0));
    drop(machine);
}

#[virtual_time]
fn recordings_one_after_another_sample_both() {
    let _machine = machine("");
    for recording in 1..=3 {
        let found = sampled(&selection(&[CYCLES, THROUGHPUT], &[]));
        assert!(check_planted(&found, 0) >= 100 && found.losses.is_empty(), "{:?}", found.losses);
        check_released(recording);
    }
}

#[virtual_time]
fn second_recording_at_once_is_refused() {
    let _machine = machine("");
    let sampler = sampler();
    let trial = Trial::start(&sampler, &selection(&[CYCLES], &[])).unwrap();
    for _ in 0..2 {
        assert_eq!(refusal(&selection(&[CYCLES], &[])).why(), Why::Busy);
    }
    trial.stop(PATIENCE);
    check_released(1);
}

#[virtual_time]
fn old_versions_lose_nothing() {
    for settings in ["cupti=12.6,driver=12060", "cupti=12.8,driver=12080", "cupti=13.4,driver=13040"] {
        let _machine = machine(settings);
        let found = sampled(&selection(&[CYCLES, THROUGHPUT], &["0"]));
        assert!(check_planted(&found, 0) >= 100, "{settings}");
        assert_eq!(found.losses, [], "{settings}");
        check_released(1);
    }
}

/// A decode that fills an image discards the other samples that it has taken.
#[virtual_time]
fn image_is_emptied_before_it_is_full() {
    let _machine = machine("pm_image=16");
    let mut selection = selection(&[CYCLES, THROUGHPUT], &["0"]);
    selection.options.set("CUPTI_PM_SAMPLING_INTERVAL_US", 50_000);
    let sampler = sampler();
    let trial = Trial::start(&sampler, &selection).unwrap();
    // More samples than the image holds; an emptied one has place for 0.6 s.
    sleep(Duration::from_millis(1200));
    let found = trial.stop(PATIENCE);
    assert!(samples(&found, 0).len() > 16 && found.losses.is_empty(), "{:?} {:?}", found.losses, found.notes);
}

#[virtual_time]
fn snapshot_has_the_samples_so_far() {
    let _machine = machine("");
    let sampler = sampler();
    let trial = Trial::start(&sampler, &selection(&[CYCLES, THROUGHPUT], &[])).unwrap();
    sleep(TIME);
    let first = check_planted(&trial.look(), 0);
    assert!(first >= 100, "{first}");
    assert!(check_planted(&trial.stop(PATIENCE), 0) >= first);
}

#[virtual_time]
fn old_chips_are_sampled_by_cycles() {
    let _machine = machine("capability=80");
    let found = sampled(&selection(&[CYCLES, THROUGHPUT], &[]));
    assert!(check_planted(&found, 0) >= 100);
}

#[virtual_time]
fn each_refusal_has_a_reason_and_advice() {
    let two_passes = ["dram__bytes_read.sum", "dram__bytes_write.sum"];
    for (settings, metrics, why, texts) in [
        ("pm_error=35", &[CYCLES][..], Why::Forbidden, &["NVreg_RestrictProfilingToAdminUsers=0", "CAP_SYS_ADMIN"][..]),
        ("pm_error=26", &[CYCLES], Why::Busy, &["DCGM", "dcgmi profile --pause"]),
        ("pm_error=40", &[CYCLES], Why::Forbidden, &["vGPU"]),
        ("pm_error=43", &[CYCLES], Why::Unsupported, &["MIG"]),
        ("pm_level=3", &[CYCLES], Why::Forbidden, &["vGPU", "cuptiProfilerDeviceSupported"]),
        ("pm_level=6", &[CYCLES], Why::Unsupported, &["WSL"]),
        ("capability=70", &[CYCLES], Why::Unsupported, &["GPU 0: its compute capability is 7.0", "7.5"]),
        ("cupti=12.4,driver=12040", &[CYCLES], Why::Incompatible, &["CUDA 12.6 or newer"]),
        ("", &two_passes, Why::Unsupported, &["take 2: dram__bytes_read.sum, dram__bytes_write.sum", "name fewer"]),
        (
            "",
            &["sm__cycle_active.avg"],
            Why::Unsupported,
            &["no metric sm__cycle_active.avg; did you mean sm__cycles_active.avg?"],
        ),
        ("", &["sm__cycles_active"], Why::Unsupported, &["did you mean sm__cycles_active.avg?"]),
        (
            "",
            &[CYCLES, "sm__cycles_active.sun"],
            Why::Unsupported,
            &["no metric sm__cycles_active.sun; did you mean sm__cycles_active.sum?"],
        ),
    ] {
        let _machine = machine(settings);
        let reason = refusal(&selection(metrics, &[]));
        assert_eq!(reason.why(), why, "{settings} {reason}");
        for text in texts {
            assert!(reason.to_string().contains(text), "{settings} {text}: {reason}");
        }
        check_released(0);
    }
    let _machine = machine("devices=2");
    assert_eq!(refusal(&selection(&[CYCLES], &["2"])).why(), Why::NoDevice);
}

#[virtual_time]
fn failing_device_does_not_stop_others() {
    let _machine = machine("devices=3,pm_error=35:1");
    let sampler = sampler();
    let trial = Trial::start(&sampler, &selection(&[CYCLES, THROUGHPUT], &[])).unwrap();
    sleep(TIME);
    let capabilities = trial.capabilities().clone();
    assert!(capabilities.is_incomplete && capabilities.notes.len() == 1, "{:?}", capabilities.notes);
    assert!(
        capabilities.notes[0].starts_with("GPU 1 is not sampled: cuptiPmSamplingEnable"),
        "{:?}",
        capabilities.notes
    );
    let found = trial.stop(PATIENCE);
    assert!(check_planted(&found, 0) >= 100 && check_planted(&found, 2) >= 100);
    assert_eq!(samples(&found, 1).len(), 0);
    check_released(2);
}

/// Returns the planted samples, and checks that delivered and lost ones together are all until the end.
#[track_caller]
fn check_accounted(found: &Findings, [before, after]: [u64; 2]) -> Vec<u64> {
    let starts: Vec<_> = samples(found, 0).iter().map(|sample| sample.start).collect();
    let accounted = starts[0] + (found.lost(Loss::VendorDropped) + starts.len() as u64) * INTERVAL;
    // The end may cut two samples off.
    let expected = before - 3 * INTERVAL..=after;
    assert!(expected.contains(&accounted), "{accounted} {expected:?} {:?} {:?}", found.losses, found.notes);
    starts
}

#[virtual_time]
fn overflow_is_counted_and_sampling_restarts() {
    for settings in ["pm_overflow=2", "pm_overflow_flag=2"] {
        let _machine = machine(settings);
        let (found, end) = sampled_until(&selection(&[CYCLES, THROUGHPUT], &[]));
        assert!(check_accounted(&found, end).len() >= 100, "{settings}");
        assert!(found.lost(Loss::VendorDropped) > 0, "{settings}");
        let is_noted = |text: &str| found.notes.iter().any(|note| note.contains(text));
        assert!(is_noted("its hardware overflowed, so its sampling was restarted"), "{:?}", found.notes);
        assert!(is_noted(" lost, 1 restarts"), "{:?}", found.notes);
        check_released(2);
    }
}

#[virtual_time]
fn values_that_are_no_numbers_are_counted() {
    let _machine = machine("pm_nan=10");
    let found = sampled(&selection(&[CYCLES, THROUGHPUT], &[]));
    let without: Vec<_> = samples(&found, 0).into_iter().filter(|sample| sample.arg(CYCLES).is_none()).collect();
    assert_eq!(found.losses, [(Loss::CounterValues, without.len() as u64)]);
    assert!(without.len() >= 10 && without.iter().all(|sample| sample.arg(THROUGHPUT).is_some()));
}

#[virtual_time]
fn samples_that_end_before_they_begin_are_counted() {
    let _machine = machine("pm_backwards=10");
    let found = sampled(&selection(&[CYCLES, THROUGHPUT], &[]));
    let unread = found.lost(Loss::DeviceRecordsUnread);
    assert!(unread >= 10, "{:?}", found.losses);
    assert!(samples(&found, 0).iter().all(|sample| value(sample, CYCLES) == planted(0, 0, sample.start)));
}

#[virtual_time]
fn image_is_emptied_by_a_copy_where_others_freeze_times() {
    let _machine = machine("pm_frozen=1,pm_image=50");
    let (found, end) = sampled_until(&selection(&[CYCLES, THROUGHPUT], &[]));
    check_accounted(&found, end);
    assert!(samples(&found, 0).len() > 50, "{:?}", found.losses);
    check_released(1);
}

#[virtual_time]
fn frozen_times_are_avoided_by_restarts() {
    for settings in ["pm_frozen=2,pm_image=10", "pm_frozen=3,pm_image=10"] {
        let _machine = machine(settings);
        let (found, end) = sampled_until(&selection(&[CYCLES, THROUGHPUT], &[]));
        let starts = check_accounted(&found, end);
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(starts.len() >= 50, "{settings} {}", starts.len());
        assert!(found.notes.iter().any(|note| note.contains(" restarts")), "{:?}", found.notes);
    }
}

#[virtual_time]
fn sampling_survives_a_clock_that_is_set_back() {
    let _machine = machine("clock_step_ns=-1000000000:100");
    let sampler = sampler();
    let trial = Trial::start(&sampler, &selection(&[CYCLES], &[])).unwrap();
    let until = steady() + PATIENCE;
    let is_back = |found: &Findings| samples(found, 0).windows(2).any(|pair| pair[1].start < pair[0].start);
    while !is_back(&trial.look()) {
        assert!(steady() < until);
        sleep(Duration::from_millis(20));
    }
    drop(trial);
    let enabled = cuda::count("pm_enables");
    check_released(enabled);
}

#[virtual_time]
fn lying_library_ends_the_sampling_with_a_note() {
    let _machine = machine("pm_lying=1");
    let found = sampled(&selection(&[CYCLES], &[]));
    assert_eq!(found.records.len(), 0);
    let expected =
        format!("PM sampling of GPU 0 ended: cuptiPmSamplingGetCounterDataInfo counts {} samples", usize::MAX);
    assert!(found.notes.contains(&expected), "{:?}", found.notes);
    check_released(1);
}

#[virtual_time]
fn stop_returns_when_a_decode_hangs() {
    let machine: Machine = machine("pm_hang=1");
    let sampler = sampler();
    let trial = Trial::start(&sampler, &selection(&[CYCLES], &[])).unwrap();
    sleep(TIME);
    let begun = steady();
    let found = trial.stop(Duration::from_millis(600));
    assert!((steady() - begun) < PATIENCE);
    assert!(found.notes.iter().any(|note| note.starts_with("libcupti hung while PM sampling")), "{:?}", found.notes);
    assert_eq!(refusal(&selection(&[CYCLES], &[])).why(), Why::Busy, "the library was not released");
    // The hung thread releases it.
    cuda::configure("");
    let until = steady() + PATIENCE;
    while Trial::start(&sampler, &selection(&[CYCLES], &[])).is_err() {
        assert!(steady() < until);
        sleep(Duration::from_millis(5));
    }
    drop(machine);
}

#[virtual_time]
fn forked_child_samples_nothing() {
    in_child(name_of(child_that_forks), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_forks() {
    let _watch = gpu::watch(Duration::from_secs(60));
    let _machine = machine("");
    let sampler = sampler();
    let trial = Trial::start(&sampler, &selection(&[CYCLES, THROUGHPUT], &[])).unwrap();
    let status = gpu::fork(|| {
        let reason = refusal(&selection(&[CYCLES], &[]));
        assert!(reason.message().contains("fork"), "{reason}");
        let reason = sampler.describe_metrics(&[]).unwrap_err();
        assert!(reason.message().contains("fork"), "{reason}");
        true
    });
    assert_eq!(status, 0);
    sleep(TIME);
    assert!(check_planted(&trial.stop(PATIENCE), 0) >= 100);
    check_released(1);
}

#[virtual_time]
fn samples_and_kernels_share_a_clock() {
    for settings in ["clock_skew_ns=3000000000", "cupti=13.4,driver=13040"] {
        let machine = machine(settings);
        let kernel = machine.only_kernel("work_us500");
        let file = record_with(
            |builder| gpu::all(builder).metrics(Metrics::new().pm_sampling([CYCLES])),
            || {
                for _ in 0..20 {
                    machine.launch(kernel, 4, Stream::NULL);
                    machine.synchronize();
                    sleep(Duration::from_millis(10));
                }
            },
        );
        let samples: Vec<_> = events(&file, "C", "hardware_counters").iter().map(|row| nanos(&row["ts"])).collect();
        assert!(samples.len() >= 100, "{settings} {}", samples.len());
        let (begun, ended) = gpu::window(&file);
        let outside: Vec<_> = samples.iter().filter(|at| !(begun - INTERVAL..ended).contains(at)).collect();
        assert!(outside.is_empty(), "{settings} {begun} {ended}: {outside:?}");
        let kernels = gpu::kernels(&file);
        assert_eq!(kernels.len(), 20, "{settings}");
        // A sample begins less than an interval before each kernel, and none is missing.
        let is_sampled = |start: u64| samples.iter().any(|at| start.abs_diff(*at) <= 2 * INTERVAL);
        assert!(kernels.iter().all(|kernel| is_sampled(gpu::interval(kernel).0)), "{settings}");
    }
}
