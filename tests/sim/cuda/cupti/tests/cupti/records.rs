//! CUPTI's records of a program, in each version.

use support::cuda::{Cuda, Stream};
use support::cupti;
use support::cupti_client::*;

#[test]
fn launch_has_a_call_a_kernel_and_external_ids() {
    let session = session("", &[KERNEL, DRIVER, EXTERNAL]);
    let cuda = &session.cuda;
    let kernel = cuda.only_kernel("vecadd");
    let stream = cuda.stream();
    flush(true);
    buffers();
    assert_eq!((push(3, 7), push(3, 8), push(4, 9)), (0, 0, 0));
    cuda.launch(kernel, 1024, stream);
    assert_eq!((pop(3), pop(4), pop(3), pop(3)), (Ok(8), Ok(9), Ok(7), Err(18)));
    let outside = timestamp();
    cuda.synchronize_stream(stream);
    flush(false);
    let records = records();
    let kernels = of_kind(&records, KERNEL);
    let [kernel] = &kernels[..] else { panic!("{kernels:?}") };
    assert_eq!(kernel.name, "vecadd");
    assert_eq!((kernel.u32(40), kernel.u32(44) > 0, kernel.u32(48) >= 13), (0, true, true));
    assert_eq!((kernel.u32(52), kernel.u32(56), kernel.u32(64)), (1024, 1, 256));
    let host: Vec<_> = records.iter().filter(|record| record.correlation() == kernel.correlation()).collect();
    let kinds: Vec<_> = host.iter().map(|record| record.kind()).filter(|kind| *kind != KERNEL).collect();
    assert_eq!(kinds, [EXTERNAL, EXTERNAL, DRIVER]);
    let externals = of_kind(&records, EXTERNAL);
    assert_eq!(externals.iter().map(|one| (one.u32(4), one.u64(8))).collect::<Vec<_>>(), [(3, 8), (4, 9)]);
    let call = of_kind(&records, DRIVER).into_iter().find(|call| call.u32(4) == 307).unwrap();
    assert_eq!(call.u32(24), std::process::id());
    let (start, end) = call.times();
    assert!(start <= end && end <= outside && start < kernel.times().0);
    assert_eq!(kernel.times().1 - kernel.times().0, 20_000 + 1024 * 20);
}

#[test]
fn bytes_survive_a_round_trip() {
    let session = session("", &[MEMCPY, MEMSET]);
    let cuda = &session.cuda;
    let memory = cuda.allocate(4096);
    let data: Vec<u8> = (0..4096).map(|index| index as u8).collect();
    let mut back = vec![0; 4096];
    cuda.memcpy_htod(memory, &data, Stream::NULL);
    cuda.memcpy_dtoh(&mut back, memory, Stream::NULL);
    cuda.memset(memory, 0x5a, Stream::NULL);
    assert_eq!(back, data);
    cuda.memcpy_dtoh(&mut back, memory, Stream::NULL);
    assert_eq!(back, [0x5a; 4096]);
    cuda.synchronize();
    flush(false);
    let records = records();
    let shapes: Vec<_> = records.iter().map(|one| (one.kind(), one.bytes[4], one.u64(8), one.u32(40))).collect();
    assert_eq!(shapes, [(1, 1, 4096, 7), (1, 2, 4096, 7), (2, 0x5a, 4096, 7), (1, 2, 4096, 7)]);
    assert!(records.is_sorted_by(|a, b| a.times().1 <= b.times().0), "one stream, one after the other");
    cuda.free(memory);
}

/// The number of each version, and the lengths of its records: kernels, copies, peer copies, fills, calls, external ids,
/// synchronizations, overhead, events, and graphs.
const LENGTHS: [(&str, u32, [usize; 10]); 16] = [
    ("11.7", 17, [176, 88, 96, 88, 40, 24, 40, 40, 24, 48]),
    ("11.8", 18, [200, 88, 96, 88, 40, 24, 40, 40, 24, 48]),
    ("12.0", 18, [208, 88, 96, 88, 40, 24, 40, 40, 24, 48]),
    ("12.1", 18, [208, 88, 96, 88, 40, 24, 40, 40, 24, 48]),
    ("12.2", 20, [208, 88, 96, 88, 40, 24, 40, 40, 24, 48]),
    ("12.3", 21, [208, 88, 96, 88, 40, 24, 40, 48, 24, 56]),
    ("12.4", 22, [208, 88, 96, 88, 40, 24, 40, 56, 24, 56]),
    ("12.5", 23, [208, 88, 96, 88, 40, 24, 40, 56, 24, 56]),
    ("12.6", 24, [208, 88, 96, 88, 40, 24, 40, 56, 24, 56]),
    ("12.8", 26, [208, 96, 96, 88, 40, 24, 56, 56, 56, 56]),
    ("12.9", 28, [208, 96, 96, 88, 40, 24, 56, 56, 56, 56]),
    ("13.0", 130_001, [216, 96, 96, 88, 40, 24, 56, 56, 56, 56]),
    ("13.1", 130_101, [224, 96, 96, 88, 40, 24, 56, 56, 56, 56]),
    ("13.2", 130_202, [224, 96, 96, 88, 40, 24, 56, 56, 56, 56]),
    ("13.3", 130_301, [232, 96, 96, 88, 40, 24, 56, 56, 56, 56]),
    ("13.4", 130_401, [248, 112, 96, 104, 40, 24, 56, 56, 56, 56]),
];

#[test]
fn records_of_every_version_have_its_lengths() {
    for (version, number, lengths) in LENGTHS {
        let session = session(&format!("cupti={version},devices=2"), &ALL);
        let mut reported = 0;
        assert_eq!(cupti!(cuptiGetVersion(&raw mut reported => *mut u32)), 0);
        assert_eq!(reported, number);
        assert_eq!(push(3, 1), 0);
        everything(&session.cuda);
        assert_eq!(pop(3), Ok(1));
        flush(false);
        let records = records();
        let length = |kind: u32| {
            let lengths: Vec<_> = of_kind(&records, kind).iter().map(|record| record.bytes.len()).collect();
            assert!(!lengths.is_empty() && lengths.iter().all(|length| *length == lengths[0]), "{version}: {kind}");
            lengths[0]
        };
        let kinds =
            [KERNEL, MEMCPY, MEMCPY2, MEMSET, DRIVER, EXTERNAL, SYNCHRONIZATION, OVERHEAD, CUDA_EVENT, GRAPH_TRACE];
        assert_eq!(kinds.map(length), lengths, "{version}");
        for record in of_kind(&records, KERNEL) {
            assert!(record.bytes.iter().skip(184).all(|byte| *byte == 0), "{version}: unset fields are zero");
        }
    }
}

/// Does work of each activity kind.
fn everything(cuda: &Cuda) {
    let (here, there) = (cuda.context(0), cuda.context(1));
    let (kernel, stream, event) = (cuda.only_kernel("add"), cuda.stream(), cuda.event());
    let memory = cuda.allocate(1024);
    cuda.set_current(there);
    let far = cuda.allocate(1024);
    cuda.set_current(here);
    cuda.memcpy_htod(memory, &[1; 1024], stream);
    cuda.memset(memory, 0, stream);
    cuda.memcpy_peer((far, there), (memory, here), stream);
    cuda.launch(kernel, 1, stream);
    cuda.record(event, stream);
    cuda.wait(Stream::NULL, event);
    let graph = cuda.graph(stream, || cuda.launch(kernel, 1, stream));
    cuda.launch_graph(graph, stream);
    cuda.synchronize_event(event);
    cuda.synchronize();
}

#[test]
fn launch_attributes_are_in_the_records() {
    let session = session("cupti=13.1", &[KERNEL, DRIVER]);
    let cuda = &session.cuda;
    let (kernel, stream) = (cuda.only_kernel("clustered_us50000_regs64_smem512"), cuda.stream_with_priority(-2));
    cuda.launch(kernel, 1, stream);
    cuda.launch_ex(kernel, [8, 2, 1], stream, &[(2, [1, 0, 0]), (4, [4, 2, 1]), (6, [1, 0, 0])]);
    cuda.synchronize();
    flush(false);
    let records = records();
    let [plain, clustered] = &of_kind(&records, KERNEL)[..] else { panic!() };
    assert_eq!([176, 180, 184].map(|offset| clustered.u32(offset)), [4, 2, 1]);
    assert_eq!([52, 56, 60].map(|offset| clustered.u32(offset)), [8, 2, 1]);
    assert_eq!((plain.bytes[136], clustered.bytes[136]), (0, 1), "cooperative");
    assert_eq!((clustered.bytes[6], clustered.u32(76), clustered.u32(216) as i32), (64, 512, -2));
    assert!(clustered.times().0 < plain.times().1, "it need not wait for the end of the one before");
    let calls = records.iter().filter(|call| call.kind() == DRIVER && call.correlation() == clustered.correlation());
    assert_eq!(calls.map(|call| call.u32(4)).collect::<Vec<_>>(), [652]);
}

#[test]
fn peer_copies_name_both_devices() {
    let session = session("devices=2", &[MEMCPY, MEMCPY2]);
    let cuda = &session.cuda;
    let (here, there) = (cuda.context(0), cuda.context(1));
    let source = cuda.allocate(64);
    cuda.set_current(there);
    let target = cuda.allocate(64);
    cuda.set_current(here);
    cuda.memset(source, 9, Stream::NULL);
    cuda.memcpy_peer((target, there), (source, here), Stream::NULL);
    cuda.memcpy_peer((source, here), (source, here), Stream::NULL);
    let mut back = [0; 64];
    cuda.memcpy_dtoh(&mut back, target, Stream::NULL);
    cuda.synchronize();
    flush(false);
    assert_eq!(back, [9; 64]);
    let records = records();
    let [peer] = &of_kind(&records, MEMCPY2)[..] else { panic!() };
    assert_eq!((peer.bytes[4], peer.u32(32), peer.u32(44), peer.u32(52)), (10, 0, 0, 1));
    assert_ne!(peer.u32(48), peer.u32(56), "contexts");
    assert_eq!(of_kind(&records, MEMCPY).iter().map(|copy| copy.bytes[4]).collect::<Vec<_>>(), [8, 2]);
}

#[test]
fn nodes_of_a_graph_share_the_launch() {
    let session = session("", &[KERNEL, DRIVER]);
    let cuda = &session.cuda;
    let (kernel, stream) = (cuda.only_kernel("node"), cuda.stream());
    let graph = cuda.graph(stream, || (0..4).for_each(|_| cuda.launch(kernel, 2, stream)));
    cuda.synchronize();
    flush(true);
    assert_eq!(of_kind(&records(), KERNEL).len(), 0, "a capture runs nothing");
    cuda.launch_graph(graph, stream);
    cuda.launch_graph(graph, stream);
    cuda.synchronize();
    flush(false);
    let records = records();
    let launches: Vec<_> = of_kind(&records, DRIVER).into_iter().filter(|call| call.u32(4) == 514).collect();
    let kernels = of_kind(&records, KERNEL);
    assert_eq!((launches.len(), kernels.len()), (2, 8));
    for (index, kernel) in kernels.iter().enumerate() {
        assert_eq!(kernel.correlation(), launches[index / 4].correlation());
        assert_ne!(kernel.u32(156), 0, "graph");
        assert_eq!(kernel.u64(144), kernels[index % 4].u64(144), "the same node in both launches");
    }
    assert!(kernels.is_sorted_by(|a, b| a.times().1 <= b.times().0));
    let mut nodes: Vec<_> = kernels.iter().map(|kernel| kernel.u64(144)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 4);
}

#[test]
fn graph_can_be_one_record() {
    let session = session("", &[KERNEL, GRAPH_TRACE]);
    let cuda = &session.cuda;
    let (kernel, stream) = (cuda.only_kernel("node_us100"), cuda.stream());
    let graph = cuda.graph(stream, || (0..3).for_each(|_| cuda.launch(kernel, 1, stream)));
    cuda.launch_graph(graph, stream);
    cuda.synchronize();
    flush(false);
    let records = records();
    let [launch] = &records[..] else { panic!("{records:?}") };
    let (start, end) = launch.times();
    assert_eq!((launch.kind(), end - start), (GRAPH_TRACE, 3 * 100_000 + 2 * 1_000));
}

#[test]
fn waits_have_types_and_events() {
    let session = session("", &[SYNCHRONIZATION, CUDA_EVENT, KERNEL]);
    assert_eq!(cupti!(cuptiActivityEnableCudaEventDeviceTimestamps(1 => u8)), 0);
    let cuda = &session.cuda;
    let (kernel, first, second, event) = (cuda.only_kernel("work"), cuda.stream(), cuda.stream(), cuda.event());
    cuda.launch(kernel, 1, first);
    cuda.record(event, first);
    cuda.wait(second, event);
    cuda.launch(kernel, 1, second);
    cuda.synchronize_event(event);
    cuda.synchronize_stream(second);
    cuda.synchronize();
    flush(false);
    let records = records();
    let waits = of_kind(&records, SYNCHRONIZATION);
    let types: Vec<_> = waits.iter().map(|wait| wait.u32(4)).collect();
    assert_eq!(types, [2, 1, 3, 4]);
    let [recorded] = &of_kind(&records, CUDA_EVENT)[..] else { panic!() };
    let [before, after] = &of_kind(&records, KERNEL)[..] else { panic!() };
    assert!(recorded.u64(40) >= before.times().1, "the device comes to the event when the kernel is done");
    assert!(after.times().0 >= recorded.u64(40), "the other stream has waited");
    assert_eq!((waits[0].u32(36), waits[1].u32(36)), (recorded.u32(16), recorded.u32(16)));
    assert_eq!((waits[0].u64(40), waits[1].u64(40)), (recorded.u64(48), recorded.u64(48)));
    assert_eq!((waits[0].u32(32), waits[2].u32(32)), (after.u32(48), after.u32(48)), "streams");
    assert_eq!((waits[3].u32(32), waits[3].u32(36)), (u32::MAX, u32::MAX));
}

#[test]
fn runtime_calls_have_their_domain() {
    let session = session("nested_driver=1", &[RUNTIME, DRIVER, KERNEL]);
    let cuda = &session.cuda;
    let kernel = cuda.only_kernel("by_runtime");
    flush(true);
    buffers();
    cuda.launch_by_runtime(kernel, 1, Stream::NULL);
    cuda.synchronize();
    flush(false);
    let records = records();
    let id = of_kind(&records, KERNEL)[0].correlation();
    let calls = records.iter().filter(|record| record.kind() != KERNEL && record.correlation() == id);
    // The inner call ends first.
    assert_eq!(calls.map(|call| (call.kind(), call.u32(4))).collect::<Vec<_>>(), [(DRIVER, 307), (RUNTIME, 211)]);
}

#[test]
fn calls_can_be_enabled_or_disabled() {
    let session = session("", &[DRIVER]);
    let cuda = &session.cuda;
    let kernel = cuda.only_kernel("chosen");
    assert_eq!(cupti!(cuptiActivityEnableDriverApi(17 => u32, 0 => u8)), 0);
    flush(true);
    buffers();
    cuda.launch(kernel, 1, Stream::NULL);
    cuda.synchronize();
    flush(false);
    assert_eq!(records().iter().map(|call| call.u32(4)).collect::<Vec<_>>(), [307]);
    assert_eq!(cupti!(cuptiActivityDisable(DRIVER => u32)), 0);
    assert_eq!(cupti!(cuptiActivityEnableDriverApi(17 => u32, 1 => u8)), 0);
    cuda.launch(kernel, 1, Stream::NULL);
    cuda.synchronize();
    flush(false);
    assert_eq!(records().iter().map(|call| call.u32(4)).collect::<Vec<_>>(), [17]);
}

#[test]
fn threads_are_the_low_half_of_pthread_self() {
    let session = session("", &[DRIVER]);
    let cuda = session.cuda;
    flush(true);
    buffers();
    let context = cuda.context(0);
    let thread = std::thread::spawn(move || {
        cuda.set_current(context);
        // SAFETY: the function takes no argument.
        unsafe { libc::pthread_self() as u32 }
    });
    let thread = thread.join().unwrap();
    flush(false);
    let calls = records();
    assert_eq!(calls.iter().filter(|call| call.u32(28) == thread).count(), 1);
    assert!(calls.len() > 1);
}

#[test]
fn calls_and_codes_have_names() {
    let _session = session("", &[]);
    let text = |get: &dyn Fn(*mut *const std::ffi::c_char) -> i32| {
        let mut text = std::ptr::null();
        let code = get(&raw mut text);
        // SAFETY: CUPTI gives null or a C string of its own.
        let text = (!text.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap());
        (code, text)
    };
    let name = |domain: u32, cbid: u32| {
        text(&|place| cupti!(cuptiGetCallbackName(domain => u32, cbid => u32, place => *mut *const std::ffi::c_char)))
    };
    let code =
        |code: i32| text(&|place| cupti!(cuptiGetResultString(code => i32, place => *mut *const std::ffi::c_char)));
    assert_eq!(name(1, 652), (0, Some("cuLaunchKernelEx")));
    assert_eq!(name(2, 41), (0, Some("cudaMemcpyAsync_v3020")));
    assert_eq!(name(1, 9999), (1, None));
    assert_eq!(code(39), (0, Some("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")));
    assert_eq!(code(1234), (1, Some("<unknown>")));
}

extern "C" fn an_hour_ahead() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    now + HOUR
}

const HOUR: u64 = 3_600_000_000_000;

#[test]
fn client_may_set_its_own_clock() {
    let session = session("", &[KERNEL, DRIVER]);
    let clock = an_hour_ahead as *const std::ffi::c_void;
    assert_eq!(cupti!(cuptiActivityRegisterTimestampCallback(clock => *const std::ffi::c_void)), 0);
    let before = an_hour_ahead();
    session.cuda.launch(session.cuda.only_kernel("ahead"), 1, Stream::NULL);
    session.cuda.synchronize();
    flush(false);
    let after = an_hour_ahead();
    let records = records();
    assert!(records.len() > 2);
    // CUPTI compares the clocks once, which may have been interrupted.
    let inside = before - HOUR / 2..after + HOUR / 2;
    assert!(records.iter().all(|record| inside.contains(&record.times().0)));
}

#[test]
fn many_threads_lose_no_records() {
    let session = session("", &[KERNEL, DRIVER, EXTERNAL]);
    let cuda = session.cuda;
    BUFFER_SIZE.store(4096, std::sync::atomic::Ordering::Relaxed);
    let (context, kernel) = (cuda.context(0), cuda.only_kernel("shared_us0"));
    flush(true);
    buffers();
    let work = move |thread: u64| {
        cuda.set_current(context);
        let stream = cuda.stream();
        for index in 0..200 {
            push(3, thread * 1_000 + index);
            cuda.launch(kernel, 1, stream);
            assert_eq!(pop(3), Ok(thread * 1_000 + index));
        }
    };
    std::thread::scope(|scope| (1..=4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    cuda.synchronize();
    flush(false);
    let records = records();
    let ids = |kind: u32| {
        let mut ids: Vec<_> = of_kind(&records, kind).iter().map(Record::correlation).collect();
        ids.sort_unstable();
        ids
    };
    let launches = ids(EXTERNAL);
    assert_eq!((launches.len(), ids(KERNEL) == launches), (800, true), "each kernel has its launch's external id");
    let mut external: Vec<_> = of_kind(&records, EXTERNAL).iter().map(|one| one.u64(8)).collect();
    external.sort_unstable();
    external.dedup();
    assert_eq!((external.len(), dropped()), (800, 0));
}
