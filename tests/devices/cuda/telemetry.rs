//! Telemetry by the simulated NVML: values, devices, missing values, and a library that hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use support::gpu::{self, in_child, machine};
use support::nvml::{self, wait_for};
use support::telemetry::{PlantedRow, check_samples, now, telemetry, wait_until};
use support::virtual_time;
use support::wait::sleep;
use support::{File, cuda, layer, name_of, own_process, record_with};
use tracing::{info_span, subscriber};
use tracing_kineto::analysis::Events;
use tracing_kineto::integration::{CollectorReport, Why};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{Devices, Doctor, KinetoLayerBuilder, Profiler};
use tracing_subscriber::layer::SubscriberExt;

const ROWS: [PlantedRow; 8] = [
    ("Power (W)", 100.0, 50.0, 0.25),
    ("Temperature (C)", 40.0, 10.0, 1.0),
    ("SM Clock (MHz)", 1_000.0, 500.0, 5.0),
    ("Memory Clock (MHz)", 2_000.0, 100.0, 1.0),
    ("GPU Utilization (%)", 10.0, 20.0, 1.0),
    ("Memory Utilization (%)", 5.0, 20.0, 1.0),
    ("Memory Used (MiB)", 1_024.0, 4_096.0, 1.0 / 256.0),
    ("Throttle Reasons", 1.0, 0.0, 0.0),
];

/// Sets the options of NVML until it is dropped.
struct Nvml;

fn nvml(settings: &str) -> Nvml {
    nvml::configure(settings);
    Nvml
}

impl Drop for Nvml {
    fn drop(&mut self) {
        nvml::configure("");
    }
}

fn sampled(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    gpu::all(builder).devices(Devices::new().telemetry(10))
}

/// Records until a value of a GPU was read three times.
fn record_samples(what: &str) -> File {
    record_with(sampled, || wait_for(what, 3))
}

fn report(file: &File) -> CollectorReport {
    file.collector_report("nvml")
}

fn notes_with(file: &File, text: &str) -> usize {
    report(file).notes.iter().filter(|note| note.contains(text)).count()
}

/// Runs `work` under a layer that samples, and starts no recording itself.
fn idle<R>(work: impl FnOnce(&Profiler) -> R) -> R {
    let (layer, guard) = layer(|builder| sampled(builder).record_from_start(false));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard.profiler()))
}

/// Starts a recording once the thread of an earlier one has released the library.
fn start_when_free(profiler: &Profiler) -> File {
    let _watch = gpu::watch(Duration::from_secs(60));
    loop {
        profiler.start().unwrap();
        wait_for("0:sm_clock", 0);
        let file = File::of(profiler.stop().unwrap());
        if report(&file).state.is_ok() {
            return file;
        }
        assert_eq!(file.unavailable_reason("nvml").why(), Why::Busy);
    }
}

#[virtual_time]
fn values_are_the_planted_ones_on_renumbered_devices() {
    let machine = machine("devices=2,visible=1:0");
    let _nvml = nvml("");
    let from = now();
    let file = record_with(sampled, || {
        machine.launch(machine.only_kernel("add"), 2, cuda::Stream::NULL);
        wait_for("0:reasons", 4);
    });
    check_samples(&file, [from, now()], &ROWS, 2, |gpu| 1 - gpu, 3);
    let found = report(&file);
    let can = found.state.as_ref().unwrap();
    assert!(can.library.as_ref().unwrap().ends_with("libsim_nvml.so"), "{can:?}");
    assert_eq!(file.json["nvml_version"], "13.580.00");
    assert_eq!((found.notes.len(), found.clock_offset_ns), (0, 0), "{:?}", found.notes);
    let ids: Vec<_> = file.json["deviceProperties"].as_array().unwrap().iter().map(|device| &device["id"]).collect();
    assert_eq!(ids, [0, 1], "CUPTI's and NVML's devices are the same");
}

#[virtual_time]
fn rows_are_counter_tracks_in_both_formats() {
    let _machine = machine("devices=1");
    let _nvml = nvml("");
    let file = record_samples("0:reasons");
    let folder = tempfile::tempdir().unwrap();
    let in_format = |name: &str| {
        let path = folder.path().join(name);
        file.trace.save(&path).unwrap();
        let events = Events::read(&path).unwrap();
        let counters = events.iter().filter(|event| event.is_counter());
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        counters.for_each(|event| values.entry(event.name().to_owned()).or_default().push(event.metadata_json()));
        values
    };
    let (json, perfetto) = (in_format("app.pt.trace.json"), in_format("app.pftrace"));
    assert_eq!(json.keys().map(String::as_str).collect::<BTreeSet<_>>(), ROWS.map(|row| row.0).into_iter().collect());
    assert_eq!(json.keys().collect::<Vec<_>>(), perfetto.keys().collect::<Vec<_>>());
    assert_eq!(json.values().map(Vec::len).collect::<Vec<_>>(), perfetto.values().map(Vec::len).collect::<Vec<_>>());
}

#[virtual_time]
fn nothing_is_sampled_by_default() {
    let _machine = machine("");
    let before = ["inits", "0:sm_clock"].map(nvml::count);
    let (layer, guard) = layer(gpu::all);
    let file = subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("host").in_scope(|| ());
        assert!(guard.profiler().collectors().iter().all(|report| report.name != "nvml"), "optional");
        File::of(guard.finish().unwrap())
    });
    assert!(telemetry(&file).is_empty());
    assert!(file.trace.stats().collectors.iter().all(|report| report.name != "nvml"));
    assert_eq!(["inits", "0:sm_clock"].map(nvml::count), before);
}

#[virtual_time]
fn failing_power_is_not_mixed_with_its_mean() {
    let _machine = machine("devices=1");
    let _nvml = nvml("flaky_power=999");
    let file = record_samples("0:reasons");
    let power = &telemetry(&file)[&("GPU 0 Counters".to_owned(), "Power (W)".to_owned())];
    assert!(power.iter().all(|(_, watts)| *watts < 200.0), "{power:?}");
    assert_eq!(notes_with(&file, "GPU 0 has no Power (W): the library returned 999"), 1, "{:?}", report(&file).notes);
}

#[virtual_time]
fn missing_values_are_left_out_and_noted_once() {
    let _machine = machine("");
    for (settings, row, why) in [
        ("unsupported=temperature", "Temperature (C)", "the device or its driver does not support it"),
        ("forbidden=used", "Memory Used (MiB)", "the process lacks the permission"),
        ("memory_error=15", "Memory Used (MiB)", "the library returned 15"),
    ] {
        let _nvml = nvml(settings);
        let file = record_samples("0:reasons");
        let rows = telemetry(&file);
        let names: BTreeSet<_> = rows.keys().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ROWS.map(|row| row.0).into_iter().filter(|name| *name != row).collect(), "{settings}");
        assert_eq!(notes_with(&file, &format!("GPU 0 has no {row}: {why}")), 1, "{:?}", report(&file).notes);
        let about = &file.json["tracing_kineto"]["collectors"]["nvml"]["notes"];
        assert_eq!(about.as_array().unwrap().len(), 1, "{about}");
    }
}

#[virtual_time]
fn older_libraries_have_average_power_and_bus_ids() {
    let _machine = machine("devices=2,visible=1:0");
    let _nvml = nvml("no_fields=1,no_uuid=1");
    let file = record_samples("1:reasons");
    let power = |gpu: u32| telemetry(&file)[&(format!("GPU {gpu} Counters"), "Power (W)".to_owned())][0].1;
    assert!((750.0..760.0).contains(&power(0)) && (700.0..710.0).contains(&power(1)), "{} {}", power(0), power(1));
}

#[virtual_time]
fn reasons_for_lower_clocks_are_named() {
    let _machine = machine("");
    let _nvml = nvml("reasons=69");
    let file = record_samples("0:reasons");
    let values = &telemetry(&file)[&("GPU 0 Counters".to_owned(), "Throttle Reasons".to_owned())];
    assert!(values.iter().all(|(_, bits)| *bits == 69.0), "{values:?}");
    let notes: BTreeSet<_> = report(&file).notes.into_iter().collect();
    let reasons = ["power cap", "hardware thermal slowdown"];
    assert_eq!(notes, reasons.map(|reason| format!("GPU 0 lowered its clocks: {reason}")).into());
}

#[virtual_time]
fn rate_above_the_highest_is_clamped_and_noted() {
    let _machine = machine("");
    let _nvml = nvml("");
    let file =
        record_with(|builder| gpu::all(builder).devices(Devices::new().telemetry(50)), || wait_for("0:reasons", 1));
    assert_eq!(notes_with(&file, "DEVICE_TELEMETRY_HZ is 50: devices are sampled 10 times a second"), 1);
}

#[virtual_time]
fn paused_recording_reads_nothing() {
    let _machine = machine("");
    let _nvml = nvml("");
    let file = idle(|profiler| {
        profiler.start().unwrap();
        wait_for("0:reasons", 2);
        profiler.pause().unwrap();
        let before = nvml::count("0:reasons");
        sleep(Duration::from_millis(500));
        // A sample may have been in progress at the pause.
        assert!(nvml::count("0:reasons") <= before + 1);
        profiler.resume().unwrap();
        wait_for("0:reasons", 2);
        File::of(profiler.stop().unwrap())
    });
    let recorded = file.trace.stats().recorded;
    let stretches = &recorded[0].stretches;
    assert_eq!(stretches.len(), 2);
    let times = telemetry(&file)[&("GPU 0 Counters".to_owned(), "Power (W)".to_owned())].clone();
    for (from, to) in stretches {
        let is_inside = |(at, _): &&(u64, f64)| (from.as_nanos()..=to.as_nanos()).contains(at);
        assert!(times.iter().any(|time| is_inside(&time)), "{times:?} {stretches:?}");
    }
}

#[virtual_time]
fn prepared_recording_is_sampled_from_its_start() {
    let _machine = machine("");
    let _nvml = nvml("");
    let mut from = 0;
    let file = idle(|profiler| {
        let prepared = Libkineto::of(profiler).prepare().unwrap();
        assert!(prepared.reports().iter().any(|report| report.name == "nvml" && report.state.is_ok()));
        from = now();
        prepared.start().unwrap();
        wait_for("0:reasons", 2);
        File::of(profiler.stop().unwrap())
    });
    let samples = &telemetry(&file)[&("GPU 0 Counters".to_owned(), "Power (W)".to_owned())];
    assert!(samples.iter().all(|(at, _)| *at >= from), "{samples:?}");
}

#[own_process]
fn library_that_hangs_delays_no_stop() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("");
    let hangs = nvml::count("hangs");
    let options = nvml("hang=1");
    idle(|profiler| {
        profiler.start().unwrap();
        machine.launch(machine.only_kernel("add"), 2, cuda::Stream::NULL);
        machine.synchronize();
        wait_until("hangs", hangs + 1, nvml::count);
        let file = File::of(profiler.stop().unwrap());
        assert_eq!((gpu::kernels(&file).len(), telemetry(&file).len()), (1, 0), "CUPTI is not affected");
        assert_eq!(notes_with(&file, "libnvidia-ml hung in a reading"), 1, "{:?}", report(&file).notes);
        // The thread still has the library.
        profiler.start().unwrap();
        let file = File::of(profiler.stop().unwrap());
        assert_eq!(file.unavailable_reason("nvml").why(), Why::Busy);
        drop(options);
        start_when_free(profiler);
    });
}

#[virtual_time]
fn library_that_hangs_in_its_first_call_is_left_alone() {
    in_child(name_of(child_with_a_hung_start), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_a_hung_start() {
    let _watch = gpu::watch(Duration::from_secs(60));
    let _machine = machine("");
    let _nvml = nvml("hang_init=1");
    idle(|profiler| {
        for _ in 0..2 {
            profiler.start().unwrap();
            let reason = File::of(profiler.stop().unwrap()).unavailable_reason("nvml");
            assert_eq!(reason.why(), Why::Failed);
            assert!(reason.message().contains("libnvidia-ml did not return"), "{reason}");
        }
    });
    assert_eq!(nvml::count("inits"), 1, "no second thread hangs");
}

#[virtual_time]
fn failing_start_has_a_reason() {
    in_child(name_of(child_with_a_failing_start), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_a_failing_start() {
    let _machine = machine("");
    let reason = |settings: &str| {
        let _nvml = nvml(settings);
        record_with(sampled, || ()).unavailable_reason("nvml")
    };
    let found = ["init_error=9", "init_error=4", "init_error=999", "devices=0"].map(|settings| reason(settings).why());
    assert_eq!(found, [Why::NoDevice, Why::Forbidden, Why::Failed, Why::NoDevice]);
    let reason = reason("devices=0");
    assert!(reason.message().contains("GPU 0 is not sampled by libnvidia-ml: it knows neither GPU-"), "{reason}");
}

#[virtual_time]
fn missing_library_is_named_with_a_remedy() {
    in_child(name_of(child_without_the_library), &[]);
}

/// Loads no simulated NVML: only a real one is found.
#[test]
#[ignore = "run by another test"]
fn child_without_the_library() {
    let _machine = machine("");
    let file = record_with(sampled, || ());
    if report(&file).state.is_ok() {
        return;
    }
    let reason = file.unavailable_reason("nvml");
    if reason.why() == Why::LibraryNotFound {
        assert!(reason.message().contains("libnvidia-ml.so.1"), "{reason}");
        assert!(reason.advice().contains("libnvidia-ml1"), "{reason}");
    }
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
    let _nvml = nvml("");
    idle(|profiler| {
        profiler.start().unwrap();
        wait_for("0:reasons", 1);
        let status = gpu::fork(|| {
            profiler.start().unwrap();
            let file = File::of(profiler.stop().unwrap());
            assert!(telemetry(&file).is_empty());
            assert!(file.unavailable_reason("nvml").message().contains("fork"));
            true
        });
        assert_eq!(status, 0);
        wait_for("0:reasons", 1);
        assert_eq!(telemetry(&File::of(profiler.stop().unwrap())).len(), ROWS.len());
    });
}

// Shows the key DEVICE_TELEMETRY_HZ.
#[virtual_time]
fn key_samples_by_the_environment() {
    in_child(name_of(child_with_the_key), &[("KINETO_DEVICE_TELEMETRY_HZ", "5")]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_the_key() {
    let _machine = machine("");
    let _nvml = nvml("");
    let file = record_with(gpu::all, || wait_for("0:reasons", 2));
    assert_eq!(telemetry(&file).len(), ROWS.len());
}

#[virtual_time]
fn doctor_lists_devices_and_values() {
    let _machine = machine("devices=2");
    let _nvml = nvml("unsupported=temperature");
    for (rate, selected) in [(0_i64, false), (5, true)] {
        let diagnosis = Doctor::new().option("DEVICE_TELEMETRY_HZ", rate).examine();
        let found = diagnosis.collectors.iter().find(|collector| collector.name == "nvml").unwrap();
        assert_eq!((found.is_selected, found.verdict.as_str(), found.devices.len()), (selected, "ready", 2));
        let text = "GPU 1: Power (W), SM Clock (MHz), Memory Clock (MHz), GPU Utilization (%), Memory Utilization (%), \
                    Memory Used (MiB), Throttle Reasons; Temperature (C): the device or its driver does not support it";
        assert!(found.notes.iter().any(|note| note == text), "{:?}", found.notes);
        assert!(found.library.is_some() && found.versions[0].1.contains("13.580"), "{found:?}");
        assert!(diagnosis.to_string().contains("Collector nvml: ready"), "{diagnosis}");
    }
}
