//! Stops while the program keeps the GPU busy, so that libcupti always has a buffer with a running kernel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::cuda;
use support::gpu::{Machine, PATIENCE, machine};
use support::wait::sleep;
use tracing_kineto::integration::trial::{Findings, Trial};
use tracing_kineto::integration::{Cupti, Options, Selection};
use tracing_kineto::{ActivityType, ActivityTypes, Loss};

/// Ends the launches of a thread on drop, also after a failed assertion.
struct LaunchesEnd<'a>(&'a AtomicBool);

impl Drop for LaunchesEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        cuda::finish();
    }
}

/// Runs `act` while a thread launches kernels without a pause.
fn keep_busy(machine: &Machine, act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            machine.set_current(machine.context(0));
            let (kernel, streams) = (machine.only_kernel("work_us1000"), [(); 16].map(|()| machine.stream()));
            for stream in streams.into_iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                machine.launch(kernel, 1, stream);
                sleep(Duration::from_micros(100));
            }
        });
        let _end = LaunchesEnd(&is_over);
        act();
    });
}

/// Records at least 100 launches and a kernel that does not end; returns how many launches that were.
fn record_launches(machine: &Machine, types: ActivityTypes) -> (Findings, u64) {
    let mut selection = Selection::of(types);
    // A test call has records of its own.
    selection.proof = Duration::ZERO;
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection).unwrap();
    let before = cuda::count("launches");
    machine.launch(machine.only_kernel("endless"), 1, machine.stream());
    while cuda::count("launches") < before + 100 {
        sleep(Duration::from_millis(1));
    }
    let launches = cuda::count("launches") - before;
    (trial.stop(PATIENCE / 20), launches)
}

#[test]
fn stop_of_a_busy_device_keeps_records_after_drops() {
    for version in ["cupti=13.0,driver=13000", "cupti=13.5,driver=13050"] {
        let machine = machine(&format!("{version},drop=50,no_finish=endless"));
        keep_busy(&machine, || {
            for round in 0..3 {
                let types = ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::CudaDriver]);
                let (found, launches) = record_launches(&machine, types);
                let (kernels, lost) = (found.of(ActivityType::ConcurrentKernel).count() as u64, &found.losses);
                let dropped = found.lost(Loss::VendorDropped);
                assert!(dropped > 0, "{version}, round {round}");
                // The last launch is counted before its record is made.
                assert!(
                    kernels + dropped + 1 >= launches,
                    "{version}, round {round}: {kernels} of {launches}, {lost:?}"
                );
                assert_eq!(found.lost(Loss::DeviceBuffersKept), 0, "{version}, round {round}");
            }
        });
    }
}

#[test]
fn each_recording_of_a_busy_device_has_its_kernels() {
    for version in ["cupti=12.4,driver=12040", "cupti=13.0,driver=13000", "cupti=13.5,driver=13050"] {
        let machine = machine(&format!("{version},no_finish=endless"));
        keep_busy(&machine, || {
            for round in 0..6 {
                let (found, launches) = record_launches(&machine, ActivityType::ConcurrentKernel.into());
                let kernels = found.of(ActivityType::ConcurrentKernel).count() as u64;
                assert!(kernels + 1 >= launches, "{version}, round {round}: {kernels} of {launches}");
                let endless = found.records.iter().filter(|record| record.name == "endless").count();
                assert_eq!(endless, 1, "{version}, round {round}");
            }
        });
    }
}
