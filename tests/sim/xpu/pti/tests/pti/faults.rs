//! Faults of PTI on demand.

use std::time::{Duration, Instant};
use support::pti_client::*;
use support::xpu;
use support::xpu::{Queue, WaitKind};

/// Kernels on one queue, which have ended.
fn kernels(session: &Session, count: usize) -> Queue {
    let queue = session.xpu.queue(0);
    (0..count).for_each(|_| session.xpu.submit(queue, "kernel_us20"));
    session.xpu.wait(queue, WaitKind::Queue);
    queue
}

#[test]
fn calls_fail_with_the_codes_that_options_name() {
    let fails = |settings: &str| {
        let session = session_of("", &[]);
        xpu::configure(settings);
        let (pti, kind) = (session.pti, RUNTIME_API);
        let codes = [pti.set_callbacks(), pti.call("ptiViewEnable", kind), pti.push(2, 1), pti.flush()];
        pti.pop(2);
        codes
    };
    assert_eq!(fails(""), [0, 0, 0, 0]);
    assert_eq!(fails("callbacks_error=200"), [200, 0, 0, 0]);
    assert_eq!(fails("enable_error=51"), [0, 51, 0, 0]);
    assert_eq!((fails("enable_error=51:6"), fails("enable_error=51:1")), ([0, 51, 0, 0], [0, 0, 0, 0]));
    assert_eq!((fails("push_error=200"), fails("flush_error=200")), ([0, 0, 200, 0], [0, 0, 0, 200]));
}

#[test]
fn views_that_there_are_not_are_refused() {
    let session = session_of("pti=0.16", &[]);
    let enable = |kind| session.pti.call("ptiViewEnable", kind);
    assert_eq!([0, 2, 4, COMMS, 13, 900].map(enable), [3, 2, 3, 3, 3, 3]);
    assert_eq!(xpu::count("enabled_views"), 0);
    assert_eq!((enable(SYNC), xpu::count("enabled_views")), (0, 1));
}

#[test]
fn one_in_so_many_records_is_dropped_or_nonsense() {
    let dropping = session_of("drop=3", &[KERNEL]);
    kernels(&dropping, 30);
    let found = dropping.pti.of_kind(KERNEL).len() as u64;
    let lost = xpu::count("dropped");
    assert!(found + lost == 30 && (5..15).contains(&lost), "{found} {lost}");
    drop(dropping);
    let session = session_of("garbage=3", &[KERNEL]);
    kernels(&session, 30);
    session.pti.flush();
    let (rows, ends) = session.pti.rows();
    let is_whole = |row: &&Row| row.kind == KERNEL && row.u64(112) == row.u64(104).wrapping_add(20_000);
    let whole = rows.iter().filter(is_whole).count();
    assert!((15..25).contains(&whole), "{whole}");
    assert_eq!(rows.iter().filter(|row| row.kind == KERNEL && row.text(24) == "kernel_us20").count(), 30);
    assert_eq!((ends.last(), rows.last().unwrap().kind), (Some(&3), 0xa5a5_a5a5), "it ends with nonsense");
}

#[test]
fn unknown_and_longer_records_are_skipped() {
    let session = session_of("unknown_kinds=2,longer_records=16", &[KERNEL]);
    kernels(&session, 10);
    session.pti.flush();
    let (rows, ends) = session.pti.rows();
    let count = |kind: u32| rows.iter().filter(|row| row.kind == kind).count();
    assert_eq!((count(KERNEL), count(900), ends.iter().all(|end| *end == 1)), (10, count(900), true));
    assert!(count(900) > 0);
    assert_eq!(rows.last().unwrap().length(), if rows.last().unwrap().kind == KERNEL { 200 } else { 80 });
}

#[test]
fn a_buffer_that_is_cut_ends_within_its_last_record() {
    let session = session_of("cut_buffers=1", &[KERNEL]);
    kernels(&session, 3);
    session.pti.flush();
    let (rows, ends) = session.pti.rows();
    assert_eq!((rows.len(), rows[2].length()), (3, 164));
    // The walker steps over the end, as the real one does.
    assert!(ends.contains(&u32::MAX), "{ends:?}");
}

#[test]
fn buffers_that_are_full_come_by_themselves() {
    let session = session_of("", &[KERNEL]);
    session.pti.flush();
    session.pti.rows();
    set_buffer_size(5 * 184 + 100);
    kernels(&session, 20);
    assert_eq!(session.pti.of_kind(KERNEL).len(), 20);
    assert!(xpu::count("delivered_buffers") >= 4);
    // A client without memory loses what does not fit.
    set_buffer_size(0);
    kernels(&session, 3);
    assert_eq!((session.pti.of_kind(KERNEL).len(), xpu::count("dropped")), (0, 3));
}

#[test]
fn buffers_are_delivered_by_the_thread_that_options_select() {
    let own = std::thread::current().id();
    for (settings, is_own) in [("", false), ("foreign_thread=0", true)] {
        let session = session_of(settings, &[KERNEL]);
        kernels(&session, 2);
        let rows = session.pti.of_kind(KERNEL);
        assert!(rows.len() == 2 && rows.iter().all(|row| (row.by == own) == is_own), "{settings}");
    }
    let session = session_of("late_buffers=50", &[KERNEL]);
    let flushed = Instant::now();
    kernels(&session, 2);
    let mut rows = session.pti.of_kind(KERNEL);
    assert!(rows.is_empty() || flushed.elapsed() >= Duration::from_millis(50), "{}", rows.len());
    let begun = Instant::now();
    while rows.is_empty() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
        rows = session.pti.rows().0;
    }
    assert_eq!(rows.iter().filter(|row| row.kind == KERNEL).count(), 2);
}

#[test]
fn a_flush_may_take_its_time_or_hang() {
    let session = session_of("slow_flush=30", &[KERNEL]);
    let begun = Instant::now();
    session.pti.flush();
    assert!(begun.elapsed() >= Duration::from_millis(30));
    xpu::configure("hanging_flush=1");
    let pti = session.pti;
    let hanging = std::thread::spawn(move || pti.flush());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!hanging.is_finished());
    xpu::finish();
    assert_eq!(hanging.join().unwrap(), 0);
}

#[test]
fn clocks_are_off_on_demand() {
    let session = session_of("clock_skew_ns=5000000000", &[KERNEL]);
    let wall = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    assert!(session.pti.now() > wall() + 4_000_000_000);
    kernels(&session, 1);
    assert!(session.pti.of_kind(KERNEL)[0].u64(104) > wall() + 4_000_000_000);
    xpu::configure("timestamp_zero=1");
    kernels(&session, 1);
    let row = &session.pti.of_kind(KERNEL)[0];
    assert_eq!((row.u64(104), row.u64(112)), (0, 0));
    assert!(row.u64(96) != 0);
    xpu::configure("early_kernels_ns=1000000");
    kernels(&session, 1);
    let row = &session.pti.of_kind(KERNEL)[0];
    assert!(row.u64(104) < row.u64(96) && row.u64(112) == row.u64(104) + 20_000);
}

#[test]
fn ids_devices_and_names_are_wrong_by_option() {
    let session = session_of("repeat_correlation=2,unknown_uuid=1,null_names=1", &[KERNEL]);
    kernels(&session, 6);
    let rows = session.pti.of_kind(KERNEL);
    assert!(rows.iter().all(|row| (1..=2).contains(&row.u32(56))));
    assert!(rows.iter().all(|row| (row.u64(24), row.u64(32)) == (0, 0)));
    assert_ne!(rows[0].bytes(80, 4), [0x86, 0x80, 0, 0]);
}

#[test]
fn work_that_nobody_has_waited_for_has_no_record() {
    let session = session_of("no_finish=endless,overlap=1", &[KERNEL]);
    let (queue, other) = (session.xpu.queue(0), session.xpu.queue(0));
    session.xpu.submit(queue, "endless");
    session.xpu.submit(queue, "behind");
    session.xpu.submit(other, "first_us500");
    session.xpu.submit(other, "second_us500");
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(session.pti.of_kind(KERNEL).len(), 0, "it has ended, and PTI does not know");
    session.xpu.wait(other, WaitKind::Queue);
    let rows = session.pti.of_kind(KERNEL);
    assert_eq!(rows.iter().map(|row| row.text(24)).collect::<Vec<_>>(), ["first_us500", "second_us500"]);
    assert!(rows[1].u64(104) < rows[0].u64(112), "they overlap");
    xpu::finish();
    session.xpu.wait(queue, WaitKind::Queue);
    let rows = session.pti.of_kind(KERNEL);
    assert_eq!(rows.iter().map(|row| row.text(24)).collect::<Vec<_>>(), ["endless", "behind"]);
    assert!(rows[1].u64(112) > rows[1].u64(104));
}
