//! CUPTI's records and buffers, where no test of the collector holds them.

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use support::cuda::{self, Cuda, Stream, count};
use support::cupti;
use support::cupti_client::*;
use support::own_process;

#[own_process]
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

#[own_process]
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

#[own_process]
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

#[own_process]
fn external_ids_outlive_a_session() {
    let _first = session("", &[EXTERNAL]);
    assert_eq!((push(3, 5), count("push_depth")), (0, 1));
    assert_eq!(cupti!(cuptiFinalize()), 0);
    assert_eq!((pop(3), pop(3)), (Ok(5), Err(18)));
    assert_eq!((count("pushes"), count("pops"), count("push_depth")), (1, 2, 0));
}

#[own_process]
fn attributes_have_sizes() {
    let _session = session("", &[]);
    let set = |attribute: u32, mut size: usize| {
        let mut value = 12_345_u64;
        let (size, value) = (&raw mut size, (&raw mut value).cast());
        cupti!(cuptiActivitySetAttribute(attribute => u32, size => *mut usize, value => *mut c_void))
    };
    assert_eq!((set(0, 8), set(0, 4), set(5, 1), set(99, 8)), (0, 10, 0, 1));
}

/// The number of each version, and the lengths of its records: kernels, copies, peer copies, fills, calls, external ids,
/// synchronizations, overhead, events, and graphs.
const LENGTHS: [(&str, u32, [usize; 10]); 17] = [
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
    ("13.5", 130_500, [248, 112, 96, 104, 40, 24, 56, 56, 56, 56]),
];

#[own_process]
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

#[own_process]
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

#[own_process]
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

#[own_process]
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

#[own_process]
fn calls_have_names_and_kinds_versions() {
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
    assert_eq!(name(1, 652), (0, Some("cuLaunchKernelEx")));
    assert_eq!(name(2, 41), (0, Some("cudaMemcpyAsync_v3020")));
    assert_eq!(name(1, 9999), (1, None));
    let enable = |kind: u32| cupti!(cuptiActivityEnable(kind => u32));
    assert_eq!((enable(7), enable(900)), (21, 21), "there are no such kinds");
    cuda::configure("cupti=12.4");
    assert_eq!(cupti!(cuptiActivityEnableDriverApi(17 => u32, 0 => u8)), 11, "it came with 12.5");
}
