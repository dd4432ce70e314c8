//! Delivery of buffers and their contents.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use support::cuda::{self, Stream, count};
use support::cupti;
use support::cupti_client::*;

#[test]
fn flush_delivers_complete_buffers_without_waiting() {
    let session = session("no_finish=endless", &[KERNEL, DRIVER]);
    let cuda = &session.cuda;
    let (short, endless, stream) = (cuda.only_kernel("short"), cuda.only_kernel("endless"), cuda.stream());
    cuda.launch(short, 1, stream);
    cuda.launch(endless, 1, stream);
    cuda.launch(short, 1, stream);
    flush(false);
    let host = records();
    assert!(of_kind(&host, DRIVER).len() >= 3 && of_kind(&host, KERNEL).is_empty(), "its buffer is not complete");
    cuda::finish();
    cuda.synchronize();
    flush(false);
    let kernels = of_kind(&records(), KERNEL);
    assert_eq!(kernels.iter().map(|kernel| &kernel.name[..]).collect::<Vec<_>>(), ["short", "endless", "short"]);
    let times: Vec<_> = kernels.iter().map(Record::times).collect();
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
    assert!(kernels.iter().all(|kernel| 0 < kernel.times().0 && kernel.times().0 < kernel.times().1));
}

#[test]
fn forced_flush_delivers_unfinished_work_once() {
    let session = session("no_finish=endless", &[KERNEL]);
    let cuda = &session.cuda;
    let (endless, behind) = (cuda.only_kernel("endless"), cuda.only_kernel("behind"));
    cuda.launch(endless, 1, Stream::NULL);
    cuda.launch(behind, 1, Stream::NULL);
    // Waits until it has begun.
    std::thread::sleep(std::time::Duration::from_millis(1));
    flush(true);
    let kernels = records();
    let times: Vec<_> = kernels.iter().map(|kernel| (kernel.times().0 > 0, kernel.times().1)).collect();
    assert_eq!(times, [(true, 0), (false, 0)], "the first has begun, and neither has ended");
    cuda::finish();
    cuda.synchronize();
    flush(true);
    assert!(records().is_empty());
}

#[test]
fn full_buffers_are_delivered_without_a_flush() {
    let session = session("", &[KERNEL]);
    let cuda = &session.cuda;
    let kernel = cuda.only_kernel("quick_us0");
    BUFFER_SIZE.store(4096, Ordering::Relaxed);
    for _ in 0..100 {
        cuda.launch(kernel, 1, Stream::NULL);
        cuda.synchronize();
    }
    let by_themselves = records().len();
    assert_eq!((by_themselves > 0, by_themselves % (4096 / 216)), (true, 0), "whole buffers");
    flush(false);
    assert_eq!(by_themselves + records().len(), 100);
    assert_eq!(count("requested_buffers"), count("delivered_buffers"));
    assert_eq!((count("launches"), count("kernels"), count("device_records")), (100, 100, 100));
}

#[test]
fn buffer_holds_at_most_the_clients_record_limit() {
    let session = session("", &[KERNEL, OVERHEAD]);
    let kernel = session.cuda.only_kernel("single");
    MOST_RECORDS.store(1, Ordering::Relaxed);
    (0..3).for_each(|_| session.cuda.launch(kernel, 1, Stream::NULL));
    session.cuda.synchronize();
    flush(false);
    let buffers = buffers();
    let kernels = buffers.iter().filter(|buffer| of_kind(&walk(&buffer.bytes, 12), KERNEL).len() == 1).count();
    assert_eq!(kernels, 3);
    // All records except those of loading the kernel, before the limit.
    assert!(buffers.iter().filter(|buffer| walk(&buffer.bytes, 12).len() > 1).count() <= 1);
}

#[test]
fn each_context_has_its_own_buffer() {
    let session = session("devices=2,no_finish=endless", &[KERNEL]);
    let cuda = &session.cuda;
    let (here, there) = (cuda.context(0), cuda.context(1));
    cuda.launch(cuda.only_kernel("endless"), 1, Stream::NULL);
    cuda.set_current(there);
    cuda.launch(cuda.only_kernel("other"), 1, Stream::NULL);
    cuda.synchronize();
    flush(false);
    let records = records();
    assert_eq!(records.iter().map(|kernel| (&kernel.name[..], kernel.u32(40))).collect::<Vec<_>>(), [("other", 1)]);
    cuda.set_current(here);
}

#[test]
fn refused_and_tiny_buffers_lose_their_records() {
    let session = session("", &[KERNEL]);
    let cuda = &session.cuda;
    let kernel = cuda.only_kernel("lost");
    for size in [0, 64] {
        BUFFER_SIZE.store(size, Ordering::Relaxed);
        (0..5).for_each(|_| cuda.launch(kernel, 1, Stream::NULL));
        cuda.synchronize();
        flush(true);
        assert!(records().is_empty(), "tiny buffers come back empty");
        assert_eq!((dropped(), dropped()), (5, 0));
    }
    assert_eq!(count("dropped"), 10);
}

#[test]
fn buffers_can_be_delivered_late_by_another_thread() {
    for settings in ["foreign_thread=1", "late_buffers=20"] {
        let session = session(settings, &[KERNEL]);
        session.cuda.launch(session.cuda.only_kernel("carried"), 1, Stream::NULL);
        session.cuda.synchronize();
        flush(false);
        let mut buffers = buffers();
        while buffers.is_empty() {
            assert_eq!(settings, "late_buffers=20", "a flush waits for what is not late");
            std::thread::yield_now();
            buffers = support::cupti_client::buffers();
        }
        assert_ne!(buffers[0].thread, std::thread::current().id());
        assert_eq!(walk(&buffers[0].bytes, 12).len(), 1);
    }
}

/// How often the subscriber was called, and the kinds of call.
static ENTERED: AtomicU32 = AtomicU32::new(0);
static LEFT: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_call(user: *mut c_void, domain: u32, cbid: u32, data: *const u32) {
    assert_eq!((user as usize, domain), (0x77, 1));
    // SAFETY: the data begin with the site.
    let counter = if unsafe { *data } == 0 { &ENTERED } else { &LEFT };
    counter.fetch_add(cbid, Ordering::Relaxed);
}

#[test]
fn one_subscriber_gets_its_enabled_callbacks() {
    let session = session("", &[]);
    let subscribe = |place: *mut usize| {
        let callback = on_call as *const c_void;
        cupti!(cuptiSubscribe(place => *mut usize, callback => *const c_void, 0x77 as *mut c_void => *mut c_void))
    };
    let (mut first, mut second) = (0, 0);
    assert_eq!((subscribe(&raw mut first), subscribe(&raw mut second)), (0, 39));
    assert_eq!(cupti!(cuptiEnableCallback(1 => u32, first => usize, 1 => u32, 308 => u32)), 0);
    session.cuda.start_profiler();
    session.cuda.stop_profiler();
    assert_eq!((ENTERED.load(Ordering::Relaxed), LEFT.load(Ordering::Relaxed)), (308, 308));
    assert_eq!(cupti!(cuptiEnableDomain(1 => u32, first => usize, 1 => u32)), 0);
    session.cuda.stop_profiler();
    assert_eq!(ENTERED.load(Ordering::Relaxed), 308 + 309);
    assert_eq!(cupti!(cuptiEnableCallback(1 => u32, 5 => usize, 1 => u32, 308 => u32)), 1, "not its handle");
    assert_eq!(cupti!(cuptiUnsubscribe(first => usize)), 0);
    session.cuda.start_profiler();
    assert_eq!(ENTERED.load(Ordering::Relaxed), 308 + 309);
    assert_eq!(subscribe(&raw mut second), 0, "the place is free again");
    assert_eq!((count("subscribes"), count("unsubscribes")), (3, 1));
}

#[test]
fn external_ids_outlive_a_session() {
    let _first = session("", &[EXTERNAL]);
    assert_eq!((push(3, 5), count("push_depth")), (0, 1));
    assert_eq!(cupti!(cuptiFinalize()), 0);
    assert_eq!((pop(3), pop(3)), (Ok(5), Err(18)));
    assert_eq!((count("pushes"), count("pops"), count("push_depth")), (1, 2, 0));
}

#[test]
fn attributes_keep_their_values() {
    let _session = session("", &[]);
    let get = |attribute: u32, room: usize| {
        let (mut value, mut size) = (0_u64, room);
        let code = cupti!(cuptiActivityGetAttribute(
            attribute => u32, &raw mut size => *mut usize, (&raw mut value).cast() => *mut c_void,
        ));
        (code, size, value)
    };
    let (mut value, mut size) = (12_345_u64, 8);
    assert_eq!(
        cupti!(cuptiActivitySetAttribute(
            0 => u32, &raw mut size => *mut usize, (&raw mut value).cast() => *mut c_void,
        )),
        0
    );
    assert_eq!(get(0, 8), (0, 8, 12_345));
    assert_eq!((get(0, 4).0, get(99, 8).0), (10, 1));
}
