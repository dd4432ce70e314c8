//! Telemetry by the simulated ROCm SMI; the including binary selects the profiler that numbers the devices.

use super::either::machine;
use std::collections::BTreeSet;
use support::amd::{self, step};
use support::telemetry::{PlantedRow, check_samples, now, telemetry, wait_until};
use support::virtual_time;
use support::{File, gpu, own_process, record_with, rocm, simulator};
use tracing_kineto::{Devices, Doctor, KinetoLayerBuilder};

const ROWS: [PlantedRow; 7] = [
    ("Power (W)", 300.0, 50.0, 0.25),
    ("Temperature (C)", 45.0, 10.0, 0.5),
    ("SM Clock (MHz)", 1_300.0, 200.0, 1.0),
    ("Memory Clock (MHz)", 900.0, 100.0, 1.0),
    ("GPU Utilization (%)", 10.0, 20.0, 1.0),
    ("Memory Utilization (%)", 5.0, 20.0, 1.0),
    ("Memory Used (MiB)", 2_048.0, 4_096.0, 1.0 / 256.0),
];

/// Sets the options of ROCm SMI until it is dropped.
struct Smi;

fn smi(settings: &str) -> Smi {
    assert!(simulator::configure(rocm::smi(), settings), "{settings}");
    Smi
}

impl Drop for Smi {
    fn drop(&mut self) {
        simulator::configure(rocm::smi(), "");
    }
}

fn count(what: &str) -> u64 {
    simulator::count(rocm::smi(), what)
}

fn sampled(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    amd::all(builder).devices(Devices::new().telemetry(10))
}

fn notes(file: &File) -> Vec<String> {
    file.collector_report("rocmsmi").notes
}

#[virtual_time]
fn values_are_the_planted_ones_whatever_the_order() {
    let machine = machine("devices=2");
    let _smi = smi("");
    let from = now();
    let file = record_with(sampled, || {
        step(&machine);
        wait_until("0:used", count("0:used") + 4, count);
    });
    check_samples(&file, [from, now()], &ROWS, 2, |gpu| gpu, 3);
    assert_eq!(gpu::kernels(&file).len(), 4);
    let missing = "has no Throttle Reasons: the device or its driver does not support it";
    assert_eq!(notes(&file), [0, 1].map(|gpu| format!("GPU {gpu} {missing}")));
    assert_eq!(file.json["rocmsmi_version"], "7.3.0");
    let devices = file.json["deviceProperties"].as_array().unwrap();
    assert_eq!(devices.len(), 2, "both collectors describe the same devices: {devices:?}");
}

#[virtual_time]
fn missing_values_are_left_out_and_noted() {
    let _machine = machine("devices=2");
    for (settings, row, why) in [
        ("unsupported=temperature", "Temperature (C)", "the device or its driver does not support it"),
        ("forbidden=power", "Power (W)", "the process lacks the permission"),
    ] {
        let _smi = smi(settings);
        let file = record_with(sampled, || wait_until("0:used", count("0:used") + 2, count));
        let names: BTreeSet<_> = telemetry(&file).into_keys().map(|(_, name)| name).collect();
        let expected = ROWS.iter().map(|(name, ..)| (*name).to_owned()).filter(|name| name != row);
        assert_eq!(names, expected.collect(), "{settings}");
        assert!(notes(&file).contains(&format!("GPU 0 has no {row}: {why}")), "{:?}", notes(&file));
    }
}

#[virtual_time]
fn hottest_sensor_replaces_a_missing_edge() {
    let _machine = machine("devices=2");
    let _smi = smi("no_edge=1");
    let file = record_with(sampled, || wait_until("0:used", count("0:used") + 1, count));
    assert!(telemetry(&file).contains_key(&("GPU 0 Counters".to_owned(), "Temperature (C)".to_owned())));
}

#[own_process]
fn library_that_hangs_delays_no_stop() {
    let _watch = gpu::watch(std::time::Duration::from_secs(100));
    let machine = machine("devices=2");
    let hangs = count("hangs");
    let options = smi("hang=1");
    let file = record_with(sampled, || {
        step(&machine);
        wait_until("hangs", hangs + 1, count);
    });
    assert_eq!((gpu::kernels(&file).len(), telemetry(&file).len()), (4, 0));
    assert!(notes(&file).iter().any(|note| note.contains("librocm_smi64 hung in a reading")), "{:?}", notes(&file));
    drop(options);
    // The thread releases the library when the call returns.
    while record_with(sampled, || ()).collector_report("rocmsmi").state.is_err() {}
}

#[virtual_time]
fn doctor_lists_devices_and_values() {
    let _machine = machine("devices=2");
    let _smi = smi("unsupported=used");
    let diagnosis = Doctor::new().option("DEVICE_TELEMETRY_HZ", 1_i64).examine();
    let found = diagnosis.collectors.iter().find(|collector| collector.name == "rocmsmi").unwrap();
    assert_eq!((found.is_selected, found.verdict.as_str(), found.devices.len()), (true, "ready", 2), "{diagnosis}");
    assert!(
        found.notes.iter().any(|note| note.starts_with("GPU 1: Power (W), Temperature (C), ")),
        "{:?}",
        found.notes
    );
}
