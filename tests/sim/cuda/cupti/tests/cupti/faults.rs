//! The faults that options select.

use support::cuda::{self, Stream, count};
use support::cupti;
use support::cupti_client::*;

/// Returns the kernel records of ten launches.
fn ten(settings: &str) -> Vec<Record> {
    ten_of(&session(settings, &[KERNEL]))
}

fn ten_of(session: &Session) -> Vec<Record> {
    let kernel = session.cuda.only_kernel("ten_us500");
    (0..10).for_each(|_| session.cuda.launch(kernel, 1, Stream::NULL));
    session.cuda.synchronize();
    flush(false);
    records()
}

#[test]
fn invalid_settings_change_nothing() {
    let session = session("busy=1", &[]);
    assert!(!cuda::try_configure("busy=0,bogus=1") && !cuda::try_configure("cupti=9"));
    let mut subscriber = 0;
    let nothing = std::ptr::null::<u8>();
    let subscribe =
        |place: *mut usize| cupti!(cuptiSubscribe(place => *mut usize, nothing => *const u8, nothing => *const u8));
    assert_eq!(subscribe(&raw mut subscriber), 39, "still busy");
    cuda::configure("");
    assert_eq!(subscribe(&raw mut subscriber), 0);
    drop(session);
}

#[test]
fn kinds_can_be_refused() {
    let enable = |kind: u32| cupti!(cuptiActivityEnable(kind => u32));
    let _session = session("privileges=1", &[]);
    assert_eq!(enable(KERNEL), 35);
    cuda::configure("enable_error=27:38");
    assert_eq!((enable(KERNEL), enable(SYNCHRONIZATION)), (0, 27));
    cuda::configure("enable_error=26");
    assert_eq!((enable(KERNEL), enable(SYNCHRONIZATION)), (26, 26));
    cuda::configure("");
    assert_eq!((enable(SYNCHRONIZATION), enable(7), enable(900)), (0, 21, 21));
}

#[test]
fn pushes_can_be_refused() {
    let _session = session("push_error=999", &[]);
    assert_eq!((push(3, 1), pop(3)), (999, Err(18)));
}

#[test]
fn records_are_dropped_and_counted() {
    let session = session("drop=2", &[KERNEL]);
    assert_eq!((ten_of(&session).len(), dropped()), (5, 5));
}

#[test]
fn unknown_kinds_are_between_other_records() {
    let records = ten("unknown_kinds=2");
    assert_eq!((of_kind(&records, KERNEL).len(), of_kind(&records, 900).len()), (10, 5));
    assert!(of_kind(&records, 900).iter().all(|record| record.bytes.len() == 64));
}

#[test]
fn garbage_keeps_record_lengths_and_ends_the_buffer() {
    let session = session("garbage=5", &[KERNEL]);
    let kernel = session.cuda.only_kernel("spoiled");
    (0..10).for_each(|_| session.cuda.launch(kernel, 1, Stream::NULL));
    session.cuda.synchronize();
    flush(false);
    let buffers = buffers();
    let records = walk(&buffers[0].bytes, 21);
    assert_eq!((buffers.len(), records.len()), (1, 10));
    let absurd = records.iter().filter(|record| record.u64(16) > u64::MAX / 2).count();
    assert_eq!(absurd, 2);
}

#[test]
fn clocks_can_have_an_offset_and_step() {
    let real = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    let session = session("clock_skew_ns=-5000000000", &[KERNEL]);
    let (before, seen, after) = (real(), timestamp() as i64, real());
    assert!((before - 5_000_000_000..=after - 5_000_000_000).contains(&seen));
    let kernel = session.cuda.only_kernel("skewed");
    let start = timestamp();
    session.cuda.launch(kernel, 1, Stream::NULL);
    session.cuda.synchronize();
    flush(false);
    let (begun, ended) = records()[0].times();
    assert!(start < begun && ended <= timestamp());
    cuda::configure("clock_step_ns=3600000000000");
    assert!(timestamp() as i64 - real() > 3_599_000_000_000);
    cuda::configure("clock_step_ns=3600000000000:3600000");
    assert!((timestamp() as i64 - real()) < 1_000_000_000, "not yet");
}

#[test]
fn kernels_overlap() {
    let kernels = ten("overlap=1");
    assert_eq!(kernels.len(), 10);
    for pair in kernels.windows(2) {
        let ((start, end), (next, next_end)) = (pair[0].times(), pair[1].times());
        assert!(start < next && next < next_end && end < next_end);
    }
    let overlapping = kernels.windows(2).filter(|pair| pair[1].times().0 < pair[0].times().1).count();
    assert!(overlapping > 0);
    let kernels = ten("");
    assert!(kernels.windows(2).all(|pair| pair[0].times().1 <= pair[1].times().0));
}

#[test]
fn correlation_ids_can_repeat() {
    let kernels = ten("repeat_correlation=4");
    assert!(kernels.iter().all(|kernel| (1..=4).contains(&kernel.correlation())));
    assert_eq!(kernels[0].correlation(), kernels[4].correlation());
}

#[test]
fn kernels_can_begin_before_their_launch() {
    let session = session("early_kernels_ns=1000000000", &[KERNEL, DRIVER]);
    let kernel = session.cuda.only_kernel("early");
    session.cuda.launch(kernel, 1, Stream::NULL);
    session.cuda.synchronize();
    flush(false);
    let records = records();
    let kernel = &of_kind(&records, KERNEL)[0];
    let launch = of_kind(&records, DRIVER).into_iter().find(|call| call.correlation() == kernel.correlation()).unwrap();
    assert!(kernel.times().0 < launch.times().0);
}

#[test]
fn timestamps_can_be_zero() {
    assert!(ten("timestamp_zero=1").iter().all(|kernel| kernel.times() == (0, 0)));
}

#[test]
fn slow_callbacks_lose_no_records() {
    assert_eq!(ten("slow_callbacks=5").len(), 10);
}

#[test]
fn cupti_fails_with_stub_and_old_drivers() {
    let session = session("", &[]);
    let with = |settings: &str| {
        cuda::configure(settings);
        let mut version = 0;
        let code = cuda::driver_version(&raw mut version);
        (code, version, cupti!(cuptiActivityEnable(KERNEL => u32)), push(3, 1))
    };
    assert_eq!(with("driver=0"), (34, 0, 999, 999));
    assert_eq!(with("driver=0,cupti=12.9"), (34, 0, 15, 15));
    assert_eq!(with("driver=12040"), (0, 12_040, 999, 999));
    assert_eq!(with("driver=11080,cupti=12.4"), (0, 11_080, 15, 15));
    assert_eq!(with("driver=12040,cupti=12.9"), (0, 12_040, 0, 0));
    assert_eq!(pop(3), Ok(1));
    drop(session);
}

#[test]
fn older_versions_lack_newer_functions() {
    let _session = session("cupti=12.4", &[]);
    assert_eq!(cupti!(cuptiActivityEnableDriverApi(17 => u32, 0 => u8)), 11);
    assert_eq!(cupti!(cuptiActivityEnableCudaEventDeviceTimestamps(1 => u8)), 11);
    assert_eq!(count("pushes"), 0);
}
