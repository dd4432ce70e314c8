//! Calls and records, put together by hand.

use super::super::functions::Functions;
use super::super::records::{SIZE, made};
use super::*;
use crate::collector::trial::{self, Findings};
use proptest::prelude::*;

const LAUNCH: u32 = 107;
const COPY: u32 = 134;
const MALLOC: u32 = 108;
const GRAPH: u32 = 215;
const BEGIN_CAPTURE: u32 = 219;
const END_CAPTURE: u32 = 220;
const MEMSET: u32 = 159;
const WAIT: u32 = 48;

fn functions() -> Functions {
    let name = |number| match number {
        LAUNCH => Some("hipLaunchKernel"),
        COPY => Some("hipMemcpyAsync"),
        MALLOC => Some("hipMalloc"),
        GRAPH => Some("hipGraphLaunch"),
        BEGIN_CAPTURE => Some("hipStreamBeginCapture"),
        END_CAPTURE => Some("hipStreamEndCapture"),
        MEMSET => Some("hipMemsetAsync"),
        WAIT => Some("hipDeviceSynchronize"),
        _ => None,
    };
    Functions::new(|number| name(number).map(str::to_owned), true)
}

const ALL: ActivityTypes = ActivityTypes::of(&[
    ActivityType::ConcurrentKernel,
    ActivityType::GpuMemcpy,
    ActivityType::GpuMemset,
    ActivityType::CudaRuntime,
    ActivityType::ExternalCorrelation,
]);

/// A recording, with what calls and records come to it.
struct Test {
    recording: TracerRecording,
    functions: Functions,
}

impl Test {
    fn new(types: ActivityTypes) -> Test {
        Test { recording: TracerRecording::new(types, u64::MAX, trial::sink()), functions: functions() }
    }

    /// A call from beginning to end, with the slice 9 around it.
    fn call(&mut self, number: u32, correlation: u64, args: Option<Args>, device: Option<i32>) {
        let function = self.functions.get(number).unwrap();
        if function.does.launches() {
            let kernel = (function.does == Does::Launch).then(|| b"_Z6vecaddv".to_vec());
            let launching = Launching { function, correlation, args, kernel, device, thread: 77 };
            self.recording.launching(launching);
        }
        let (start, end) = (100 * correlation, 100 * correlation + 50);
        let (allocated, external, thread) = (0xA110, 9, 77);
        let called = Called { function, number, correlation, start, end, args, allocated, external, thread };
        self.recording.called(&called);
    }

    fn launch(&mut self, correlation: u64, stream: u64, device: Option<i32>) {
        let (kernel, grid, block) = (args::KernelArgument::Pointer(1), [3, 2, 1], [128, 1, 1]);
        let args = args::LaunchArguments { kernel, grid, block, shared: 64, stream };
        self.call(LAUNCH, correlation, Some(Args::Launch(args)), device);
    }

    fn found(&self) -> Findings {
        Findings::of_sink(&self.recording.sink)
    }
}

/// A record of an operation and a kind, of node 2, with a last word.
fn record(op: u64, kind: u64, correlation: u64, last: u64) -> [u8; SIZE] {
    let place = [(40, 4, 2), (48, 8, 7)];
    let fields =
        [(0, 4, 2), (4, 4, kind), (8, 4, op), (16, 8, correlation), (24, 8, 1000), (32, 8, 2000), (56, 8, last)];
    made(&[&fields[..], &place].concat())
}

fn address(name: &std::ffi::CStr) -> u64 {
    name.as_ptr().expose_provenance() as u64
}

fn args(record: &trial::TrialRecord) -> String {
    record.args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_kernel_is_what_its_call_and_its_record_say() {
    let mut test = Test::new(ALL);
    test.launch(5, 0xA0, Some(0));
    assert_eq!(test.recording.owed(), [1, 0]);
    test.recording.read(&record(0, 0x11F0, 5, address(c"_Z3fooi")));
    assert_eq!(test.recording.owed(), [0, 0]);
    let found = test.found();
    let call = found.of(ActivityType::CudaRuntime).next().unwrap();
    assert_eq!((call.name.as_str(), call.start, call.end, call.correlation), ("hipLaunchKernel", 500, 550, 5));
    assert_eq!((call.external, call.launches, call.thread), (9, true, Some(Thread::Id(77))));
    let sizes = "grid=[3, 2, 1] block=[128, 1, 1]";
    assert_eq!(args(call), format!("kernel=\"vecadd()\" cid=107 correlation=5 {sizes} shared memory=64"));
    let kernel = found.of(ActivityType::ConcurrentKernel).next().unwrap();
    assert_eq!((kernel.name.as_str(), kernel.start, kernel.end), ("foo(int)", 1000, 2000), "the record's name");
    assert_eq!((kernel.device, kernel.stream), (0, 1), "HIP's number, not the node's");
    let place = "device=0 stream=1 hsa_queue=7 correlation=5";
    assert_eq!(args(kernel), format!("{place} kind=\"Dispatch Kernel\" {sizes}"));
}

#[test]
fn a_record_without_a_name_has_that_of_its_call() {
    let mut test = Test::new(ALL);
    test.launch(5, 0, None);
    test.recording.read(&[record(0, 0x11F0, 5, 0), record(0, 0x11F0, 6, 8)].concat());
    let names: Vec<_> = test.found().of(ActivityType::ConcurrentKernel).map(|kernel| kernel.name.clone()).collect();
    assert_eq!(names, ["vecadd()", UNKNOWN], "and one without a call none");
}

#[test]
fn all_kernels_of_a_graph_belong_to_its_launch() {
    let mut test = Test::new(ALL);
    let graph = |graph| Some(Args::Graph { graph, stream: 0xA0 });
    test.call(GRAPH, 5, graph(0xF00), Some(0));
    test.call(GRAPH, 6, graph(0xBA0), Some(0));
    let task = |correlation| record(0, 0x11F1, correlation, address(c"triton_poi_fused_0"));
    let fill = record(0, 0x11F1, 6, address(c"__amd_rocclr_fillBufferAligned"));
    test.recording.read(&[task(5), task(5), task(5), task(6), fill].concat());
    let found = test.found();
    let kernels: Vec<_> = found.of(ActivityType::ConcurrentKernel).collect();
    assert_eq!(kernels.iter().map(|kernel| kernel.correlation).collect::<Vec<_>>(), [5, 5, 5, 6]);
    let place = "device=0 stream=1 hsa_queue=7 correlation=6 kind=\"Dispatch Task\"";
    assert_eq!(args(kernels[3]), format!("{place} graph id=2"));
    let fills: Vec<_> = found.of(ActivityType::GpuMemset).map(|fill| fill.name.as_str()).collect();
    assert_eq!((fills, test.recording.owed()), (vec!["Memset (Device)"], [0, 0]));
    let call = found.of(ActivityType::CudaRuntime).next().unwrap();
    assert_eq!(args(call), "cid=215 correlation=5");
}

#[test]
fn copies_fills_and_memory_say_how_much() {
    let mut test = Test::new(ALL);
    let copy = Args::Copy { dst: 0xD0, src: 0x50, bytes: 9216, kind: 1, stream: Some(0) };
    test.call(COPY, 5, Some(copy), Some(0));
    test.call(MEMSET, 6, Some(Args::Fill { ptr: 0xF0, bytes: 512, stream: Some(2) }), Some(0));
    test.call(MALLOC, 7, Some(Args::Allocate { place: 1, bytes: 4096 }), None);
    test.call(WAIT, 8, None, None);
    assert_eq!(test.recording.owed(), [0, 2]);
    let mark = record(2, 0x11FE, 8, 0);
    test.recording.read(&[record(1, 0x11F4, 5, 9216), record(1, 0x1207, 6, 0), mark].concat());
    let found = test.found();
    let all: Vec<_> = found.records.iter().map(|record| format!("{}: {}", record.name, args(record))).collect();
    let place = |stream, correlation| format!("device=0 stream={stream} hsa_queue=7 correlation={correlation}");
    assert_eq!(
        all,
        [
            "hipMemcpyAsync: cid=134 correlation=5 src=\"0x50\" dst=\"0xd0\" bytes=9216 kind=\"1\"".to_owned(),
            "hipMemsetAsync: bytes=512 cid=159 correlation=6 ptr=\"0xf0\"".to_owned(),
            "hipMalloc: bytes=4096 cid=108 correlation=7 ptr=\"0xa110\"".to_owned(),
            "hipDeviceSynchronize: cid=48 correlation=8".to_owned(),
            format!(
                "Memcpy HtoD (Host -> Device): {} kind=\"HtoD\" bytes=9216 memory bandwidth (GB/s)=9.216",
                place(1, 5)
            ),
            format!("Memset (Device): {} kind=\"Memset\" bytes=512 memory bandwidth (GB/s)=0.512", place(2, 6)),
        ]
    );
}

#[test]
fn devices_are_hips_as_soon_as_a_kernel_shows_which_is_which() {
    let mut test = Test::new(ALL);
    let copy = |correlation| record(1, 0x11F4, correlation, 8);
    test.recording.read(&copy(5));
    test.launch(6, 0, Some(0));
    test.recording.read(&[record(0, 0x11F0, 6, 0), copy(7)].concat());
    // A copy between devices does not show it, but its call knows better than nothing.
    let mut other = Test::new(ALL);
    let args = Args::Copy { dst: 1, src: 2, bytes: 8, kind: 3, stream: None };
    other.call(COPY, 5, Some(args), Some(3));
    other.recording.read(&[copy(5), copy(6)].concat());
    let devices = |test: &Test| {
        let found = test.found();
        let work = found.records.iter().filter(|record| record.kind != ActivityType::CudaRuntime);
        work.map(|record| record.device).collect::<Vec<_>>()
    };
    assert_eq!((devices(&test), devices(&other)), (vec![2, 0, 0], vec![3, 2]));
}

#[test]
fn nothing_is_awaited_that_goes_into_a_graph_or_is_launched_at_the_end() {
    let mut test = Test::new(ALL);
    test.call(BEGIN_CAPTURE, 1, None, None);
    test.launch(2, 0xA0, Some(0));
    test.call(END_CAPTURE, 3, None, None);
    assert_eq!(test.recording.owed(), [0, 0]);
    test.launch(4, 0xA0, Some(0));
    test.call(COPY, 5, None, None);
    test.recording.ends = true;
    test.launch(6, 0xA0, Some(0));
    test.call(COPY, 7, None, None);
    assert_eq!(test.recording.owed(), [1, 1], "copies may need no work");
    let launches: Vec<_> = test.found().records.iter().map(|call| call.launches).collect();
    assert_eq!(launches, [false, false, false, true, true, true, true]);
}

#[test]
fn only_what_is_selected_is_kept_and_no_more_than_asked_for() {
    let mut test = Test::new(ActivityTypes::of(&[ActivityType::GpuMemcpy, ActivityType::ExternalCorrelation]));
    test.launch(5, 0, Some(0));
    test.call(WAIT, 6, None, None);
    test.recording.read(&[record(0, 0x11F0, 5, 0), record(1, 0x11F3, 7, 8)].concat());
    let found = test.found();
    let kinds: Vec<_> = found.records.iter().map(|record| (record.kind, record.external)).collect();
    assert_eq!(kinds, [(ActivityType::GpuMemcpy, 0), (ActivityType::ExternalCorrelation, 9)]);
    assert_eq!(test.recording.owed(), [0, 0], "kernels are not recorded");

    let mut test = Test::new(ALL);
    test.recording.rows_left = 3;
    (1..=4).for_each(|correlation| test.launch(correlation, 0, None));
    test.recording.read(&[record(0, 0x11F0, 1, 0), record(0, 0x11F0, 2, 0)].concat());
    let found = test.found();
    assert_eq!((found.records.len(), found.lost(Loss::DeviceRecordsOverLimit)), (3, 3));
}

#[test]
fn what_cannot_be_read_is_counted() {
    let mut test = Test::new(ALL);
    test.launch(7, 0, None);
    let mut bytes = [record(0, 0x11F0, 1, 0), record(9, 0, 2, 0), record(1, 0x11F5, 3, 8)].concat();
    bytes.extend([1, 2, 3]);
    test.recording.read(&bytes);
    assert_eq!(test.recording.owed(), [0, 1], "one of them may have been its own");
    let found = test.found();
    assert_eq!((found.records.len(), found.lost(Loss::DeviceRecordsUnread)), (3, 2));
}

proptest! {
    #[test]
    fn no_bytes_harm_a_recording(
        records in proptest::collection::vec(
            (0u64..4, prop_oneof![Just(0x11F0u64), Just(0x1207), any::<u64>()], 0u64..8, any::<u64>(), any::<[u8; SIZE]>(), 0u8..4),
            0..40,
        ),
        cut in 0usize..SIZE,
    ) {
        let mut test = Test::new(ALL);
        (1..6).for_each(|correlation| test.launch(correlation, correlation, Some(0)));
        // Some are whole, some have fields of garbage, and some are nothing but that.
        let mut bytes: Vec<u8> = records.iter().flat_map(|(op, kind, correlation, last, garbage, how)| {
            let mut record = record(*op, *kind, *correlation, *last);
            match how {
                0 => record = *garbage,
                1 => record[16..56].copy_from_slice(&garbage[16..56]),
                _ => {}
            }
            record
        }).collect();
        bytes.truncate(bytes.len().saturating_sub(cut));
        test.recording.read(&bytes);
        let found = test.found();
        let read = found.records.iter().filter(|record| record.kind != ActivityType::CudaRuntime);
        prop_assert!(read.clone().all(|record| record.start != 0 && record.start <= record.end && record.device >= 0));
        prop_assert!(read.count() as u64 + found.lost(Loss::DeviceRecordsUnread) <= bytes.len().div_ceil(SIZE) as u64);
    }
}
