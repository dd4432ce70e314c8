//! Telemetry by the simulated Sysman.

use std::collections::BTreeSet;
use std::time::Duration;
use support::intel::{self, machine};
use support::telemetry::{PlantedRow, check_samples, now, telemetry, wait_until};
use support::virtual_time;
use support::xpu::{self, WaitKind};
use support::{File, gpu, name_of, own_process, record_with};
use tracing_kineto::{Devices, Doctor, KinetoLayerBuilder};

const ROWS: [PlantedRow; 7] = [
    ("Power (W)", 200.0, 50.0, 0.25),
    ("Temperature (C)", 50.0, 10.0, 0.5),
    ("SM Clock (MHz)", 1_500.0, 100.0, 1.0),
    ("Memory Clock (MHz)", 3_000.0, 100.0, 1.0),
    ("GPU Utilization (%)", 10.0, 20.0, 1.0),
    ("Memory Used (MiB)", 4_096.0, 8_192.0, 1.0 / 256.0),
    ("Throttle Reasons", 0.0, 0.0, 0.0),
];

fn sampled(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    intel::all(builder).devices(Devices::new().telemetry(10))
}

/// Waits until the used memory of the first device was read that many more times.
fn wait_for(more: u64) {
    wait_until("0:used", xpu::count("0:used") + more, xpu::count);
}

fn notes(file: &File) -> Vec<String> {
    file.collector_report("sysman").notes
}

#[virtual_time]
fn values_are_the_planted_ones_whatever_the_order() {
    let machine = machine("devices=2");
    let queue = machine.queue(0);
    let from = now();
    let file = record_with(sampled, || {
        machine.submit(queue, "gemm");
        machine.wait(queue, WaitKind::Queue);
        wait_for(5);
    });
    check_samples(&file, [from, now()], &ROWS, 2, |gpu| gpu, 3);
    assert_eq!(gpu::kernels(&file).len(), 1);
    let missing = "has no Memory Utilization (%): the device or its driver does not support it";
    assert_eq!(notes(&file), [0, 1].map(|gpu| format!("GPU {gpu} {missing}")));
    let devices = file.json["deviceProperties"].as_array().unwrap();
    assert_eq!(devices.len(), 2, "both collectors describe the same devices: {devices:?}");
}

#[virtual_time]
fn missing_values_are_left_out_and_reasons_named() {
    let _machine = machine("sysman_missing=temperature,sysman_reasons=9");
    let file = record_with(sampled, || wait_for(3));
    let names: BTreeSet<_> = telemetry(&file).into_keys().map(|(_, name)| name).collect();
    let expected = ROWS.iter().map(|(name, ..)| (*name).to_owned()).filter(|name| name != "Temperature (C)");
    assert_eq!(names, expected.collect());
    for reason in ["average power cap", "thermal limit"] {
        assert!(notes(&file).contains(&format!("GPU 0 lowered its clocks: {reason}")), "{:?}", notes(&file));
    }
}

#[own_process]
fn library_that_hangs_delays_no_stop() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let hangs;
    {
        let machine = machine("sysman_hang=1");
        hangs = xpu::count("hangs");
        let queue = machine.queue(0);
        let file = record_with(sampled, || {
            machine.submit(queue, "gemm");
            machine.wait(queue, WaitKind::Queue);
            wait_until("hangs", hangs + 1, xpu::count);
        });
        assert_eq!((gpu::kernels(&file).len(), telemetry(&file).len()), (1, 0));
        assert!(
            notes(&file).iter().any(|note| note.contains("Level Zero Sysman hung in a reading")),
            "{:?}",
            notes(&file)
        );
        xpu::configure("");
        // The thread releases the library when the call returns.
        while record_with(sampled, || ()).collector_report("sysman").state.is_err() {}
    }
}

#[virtual_time]
fn failing_start_has_a_reason() {
    gpu::in_child(name_of(child_with_a_failing_start), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_a_failing_start() {
    let _machine = machine("sysman_init_error=1879113728");
    let reason = record_with(sampled, || ()).unavailable_reason("sysman");
    assert_eq!(reason.why(), tracing_kineto::integration::Why::Forbidden);
    assert!(reason.message().contains("zesInit returned 0x70010000"), "{reason}");
}

#[virtual_time]
fn doctor_lists_devices_and_values() {
    let _machine = machine("devices=2");
    let diagnosis = Doctor::new().option("DEVICE_TELEMETRY_HZ", 1_i64).examine();
    let found = diagnosis.collectors.iter().find(|collector| collector.name == "sysman").unwrap();
    assert_eq!((found.is_selected, found.verdict.as_str(), found.devices.len()), (true, "ready", 2), "{diagnosis}");
    assert!(
        found.notes.iter().any(|note| note.starts_with("GPU 1: Power (W), Temperature (C), ")),
        "{:?}",
        found.notes
    );
}
