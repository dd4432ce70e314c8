//! Stops while the program keeps the GPU busy, so that libcupti always has a buffer with a running kernel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::cuda;
use support::gpu::{Machine, machine};
use support::virtual_time;
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

/// Runs `act` while a thread launches kernels, so that the device is never idle. The thread launches with the lock held.
fn keep_busy(machine: &Machine, act: impl FnOnce(&Mutex<()>)) {
    let (is_over, launching) = (AtomicBool::new(false), Mutex::new(()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            machine.set_current(machine.context(0));
            let (kernel, streams) = (machine.only_kernel("work_us1000"), [(); 16].map(|()| machine.stream()));
            let mut streams = streams.into_iter().cycle();
            while !is_over.load(Ordering::Relaxed) {
                let launching = launching.lock().unwrap();
                streams.by_ref().take(10).for_each(|stream| machine.launch(kernel, 1, stream));
                drop(launching);
                sleep(Duration::from_millis(1));
            }
        });
        let _end = LaunchesEnd(&is_over);
        act(&launching);
    });
}

/// Records 100 launches or more, and a kernel that does not end; returns how many launches that were.
fn record_launches(machine: &Machine, types: ActivityTypes, launching: &Mutex<()>) -> (Findings, u64) {
    let mut selection = Selection::of(types);
    // A test call has records of its own.
    selection.proof = Duration::ZERO;
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection).unwrap();
    let launches = || (launching.lock().unwrap(), cuda::count("launches")).1;
    let before = launches();
    machine.launch(machine.only_kernel("endless"), 1, machine.stream());
    while launches() < before + 100 {
        sleep(Duration::from_millis(1));
    }
    let launches = launches() - before;
    (trial.stop(Duration::from_millis(300)), launches)
}

#[virtual_time]
fn stop_of_a_busy_device_keeps_records_after_drops() {
    for version in ["cupti=13.0,driver=13000", "cupti=13.5,driver=13050"] {
        let machine = machine(&format!("{version},drop=50,no_finish=endless"));
        keep_busy(&machine, |launching| {
            for round in 0..3 {
                let types = ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::CudaDriver]);
                let (found, launches) = record_launches(&machine, types, launching);
                let (kernels, lost) = (found.of(ActivityType::ConcurrentKernel).count() as u64, &found.losses);
                let dropped = found.lost(Loss::VendorDropped);
                assert!(dropped > 0, "{version}, round {round}");
                assert!(kernels + dropped >= launches, "{version}, round {round}: {kernels} of {launches}, {lost:?}");
                assert_eq!(found.lost(Loss::DeviceBuffersKept), 0, "{version}, round {round}");
            }
        });
    }
}

#[virtual_time]
fn each_recording_of_a_busy_device_has_its_kernels() {
    for version in ["cupti=12.4,driver=12040", "cupti=13.0,driver=13000", "cupti=13.5,driver=13050"] {
        let machine = machine(&format!("{version},no_finish=endless"));
        keep_busy(&machine, |launching| {
            for round in 0..3 {
                let (found, launches) = record_launches(&machine, ActivityType::ConcurrentKernel.into(), launching);
                let kernels = found.of(ActivityType::ConcurrentKernel).count() as u64;
                assert!(kernels >= launches, "{version}, round {round}: {kernels} of {launches}");
                let endless = found.records.iter().filter(|record| record.name == "endless").count();
                assert_eq!(endless, 1, "{version}, round {round}");
            }
        });
    }
}
