//! Tests of `recording.rs` with handmade calls and records.

use super::super::functions::Functions;
use super::super::records::{SIZE, make_record};
use super::*;
use crate::Thread;
use crate::trial::{self, Findings};
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

/// A recording, and the functions of its calls.
struct Setup {
    recording: TracerRecording,
    functions: Functions,
}

impl Setup {
    fn new(types: ActivityTypes) -> Setup {
        Setup { recording: TracerRecording::new(types, u64::MAX, trial::unbounded_sink()), functions: functions() }
    }

    /// Makes a call from begin to end, in slice 9.
    fn call(&mut self, number: u32, correlation: u64, arguments: Option<Arguments>, device: Option<i32>) {
        let function = self.functions.get(number).unwrap();
        if function.hip.does.has_device_work() {
            let kernel = (function.hip.does == CallEffect::Launch).then(|| b"_Z6vecaddv".to_vec());
            let begin_call = Launching { function: &function.hip, correlation, arguments, kernel, device, thread: 77 };
            self.recording.begin_call(begin_call);
        }
        let (start, end) = (100 * correlation, 100 * correlation + 50);
        let call = HipCall { function: &function.hip, number, thread: 77, correlation, start };
        let returned = Return { end, failed: false, external: 9 };
        self.recording.end_call(&call, returned, arguments.as_ref());
    }

    fn launch(&mut self, correlation: u64, stream: u64, device: Option<i32>) {
        let (grid, block, stream) = ([3, 2, 1], [128, 1, 1], Some(stream));
        let arguments = Arguments { kernel: 1, grid, block, shared: 64, stream, ..Arguments::default() };
        self.call(LAUNCH, correlation, Some(arguments), device);
    }

    fn found(&self) -> Findings {
        Findings::of_sink(&self.recording.rows.sink)
    }
}

/// Makes a record of an operation and a kind, on node 2, with a last word.
fn record(op: u64, kind: u64, correlation: u64, last: u64) -> [u8; SIZE] {
    let place = [(40, 4, 2), (48, 8, 7)];
    let fields =
        [(0, 4, 2), (4, 4, kind), (8, 4, op), (16, 8, correlation), (24, 8, 1000), (32, 8, 2000), (56, 8, last)];
    make_record(&[&fields[..], &place].concat())
}

fn address(name: &std::ffi::CStr) -> u64 {
    name.as_ptr().expose_provenance() as u64
}

fn args(record: &trial::TrialRecord) -> String {
    record.args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn kernel_joins_its_call_and_its_record() {
    let mut setup = Setup::new(ALL);
    setup.launch(5, 0xA0, Some(0));
    assert_eq!(setup.recording.pending_counts(), [1, 0]);
    setup.recording.read_buffer(&record(0, 0x11F0, 5, address(c"_Z3fooi")));
    assert_eq!(setup.recording.pending_counts(), [0, 0]);
    let found = setup.found();
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
fn record_without_a_name_takes_its_calls() {
    let mut setup = Setup::new(ALL);
    setup.launch(5, 0, None);
    setup.recording.read_buffer(&[record(0, 0x11F0, 5, 0), record(0, 0x11F0, 6, 8)].concat());
    let names: Vec<_> = setup.found().of(ActivityType::ConcurrentKernel).map(|kernel| kernel.name.clone()).collect();
    assert_eq!(names, ["vecadd()", UNKNOWN], "and one without a call none");
}

#[test]
fn all_kernels_of_a_graph_belong_to_its_launch() {
    let mut setup = Setup::new(ALL);
    let graph = |graph| Some(Arguments { graph, stream: Some(0xA0), ..Arguments::default() });
    setup.call(GRAPH, 5, graph(0xF00), Some(0));
    setup.call(GRAPH, 6, graph(0xBA0), Some(0));
    let task = |correlation| record(0, 0x11F1, correlation, address(c"triton_poi_fused_0"));
    let fill = record(0, 0x11F1, 6, address(c"__amd_rocclr_fillBufferAligned"));
    setup.recording.read_buffer(&[task(5), task(5), task(5), task(6), fill].concat());
    let found = setup.found();
    let kernels: Vec<_> = found.of(ActivityType::ConcurrentKernel).collect();
    assert_eq!(kernels.iter().map(|kernel| kernel.correlation).collect::<Vec<_>>(), [5, 5, 5, 6]);
    let place = "device=0 stream=1 hsa_queue=7 correlation=6 kind=\"Dispatch Task\"";
    assert_eq!(args(kernels[3]), format!("{place} graph id=2"));
    let fills: Vec<_> = found.of(ActivityType::GpuMemset).map(|fill| fill.name.as_str()).collect();
    assert_eq!((fills, setup.recording.pending_counts()), (vec!["Memset (Device)"], [0, 0]));
    let call = found.of(ActivityType::CudaRuntime).next().unwrap();
    assert_eq!(args(call), "cid=215 correlation=5");
}

#[test]
fn copies_fills_and_allocations_show_bytes() {
    let mut setup = Setup::new(ALL);
    let sized = |size| Arguments { size: Some(size), ..Arguments::default() };
    let copy = Arguments { dst: 0xD0, src: 0x50, direction: Some(1), stream: Some(0), ..sized(9216) };
    setup.call(COPY, 5, Some(copy), Some(0));
    setup.call(MEMSET, 6, Some(Arguments { dst: 0xF0, stream: Some(2), ..sized(512) }), Some(0));
    setup.call(MALLOC, 7, Some(Arguments { ptr: 0xA110, ..sized(4096) }), None);
    setup.call(WAIT, 8, None, None);
    assert_eq!(setup.recording.pending_counts(), [0, 2]);
    let mark = record(2, 0x11FE, 8, 0);
    setup.recording.read_buffer(&[record(1, 0x11F4, 5, 9216), record(1, 0x1207, 6, 0), mark].concat());
    let found = setup.found();
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
fn kernels_map_nodes_to_hips_devices() {
    let mut setup = Setup::new(ALL);
    let copy = |correlation| record(1, 0x11F4, correlation, 8);
    setup.recording.read_buffer(&copy(5));
    setup.launch(6, 0, Some(0));
    setup.recording.read_buffer(&[record(0, 0x11F0, 6, 0), copy(7)].concat());
    // A copy between devices does not define the mapping, but its call names the best device known.
    let mut other = Setup::new(ALL);
    let arguments = Arguments { dst: 1, src: 2, size: Some(8), direction: Some(3), ..Arguments::default() };
    other.call(COPY, 5, Some(arguments), Some(3));
    other.recording.read_buffer(&[copy(5), copy(6)].concat());
    let devices = |setup: &Setup| {
        let found = setup.found();
        let work = found.records.iter().filter(|record| record.kind != ActivityType::CudaRuntime);
        work.map(|record| record.device).collect::<Vec<_>>()
    };
    assert_eq!((devices(&setup), devices(&other)), (vec![2, 0, 0], vec![3, 2]));
}

#[test]
fn captured_and_late_launches_are_not_owed() {
    let mut setup = Setup::new(ALL);
    setup.call(BEGIN_CAPTURE, 1, None, None);
    setup.launch(2, 0xA0, Some(0));
    setup.call(END_CAPTURE, 3, None, None);
    assert_eq!(setup.recording.pending_counts(), [0, 0]);
    setup.launch(4, 0xA0, Some(0));
    setup.call(COPY, 5, None, None);
    setup.recording.is_ending = true;
    setup.launch(6, 0xA0, Some(0));
    setup.call(COPY, 7, None, None);
    assert_eq!(setup.recording.pending_counts(), [1, 1], "copies may need no work");
    let launches: Vec<_> = setup.found().records.iter().map(|call| call.launches).collect();
    assert_eq!(launches, [false, false, false, true, true, true, true]);
}

#[test]
fn only_selected_types_are_kept_within_the_limit() {
    let mut setup = Setup::new(ActivityTypes::of(&[ActivityType::GpuMemcpy, ActivityType::ExternalCorrelation]));
    setup.launch(5, 0, Some(0));
    setup.call(WAIT, 6, None, None);
    setup.recording.read_buffer(&[record(0, 0x11F0, 5, 0), record(1, 0x11F3, 7, 8)].concat());
    let found = setup.found();
    let kinds: Vec<_> = found.records.iter().map(|record| (record.kind, record.external)).collect();
    assert_eq!(kinds, [(ActivityType::GpuMemcpy, 0), (ActivityType::ExternalCorrelation, 9)]);
    assert_eq!(setup.recording.pending_counts(), [0, 0], "kernels are not recorded");

    let mut setup = Setup::new(ALL);
    setup.recording.rows.left = 3;
    (1..=4).for_each(|correlation| setup.launch(correlation, 0, None));
    setup.recording.read_buffer(&[record(0, 0x11F0, 1, 0), record(0, 0x11F0, 2, 0)].concat());
    let found = setup.found();
    assert_eq!((found.records.len(), found.lost(Loss::DeviceRecordsOverLimit)), (3, 3));
}

#[test]
fn unreadable_records_are_counted() {
    let mut setup = Setup::new(ALL);
    setup.launch(7, 0, None);
    let mut bytes = [record(0, 0x11F0, 1, 0), record(9, 0, 2, 0), record(1, 0x11F5, 3, 8)].concat();
    bytes.extend([1, 2, 3]);
    setup.recording.read_buffer(&bytes);
    assert_eq!(setup.recording.pending_counts(), [0, 1], "one of them may have been its own");
    let found = setup.found();
    assert_eq!((found.records.len(), found.lost(Loss::DeviceRecordsUnread)), (3, 2));
}

proptest! {
    #[test]
    fn any_bytes_are_tolerated(
        records in proptest::collection::vec(
            (0u64..4, prop_oneof![Just(0x11F0u64), Just(0x1207), any::<u64>()], 0u64..8, any::<u64>(), any::<[u8; SIZE]>(), 0u8..4),
            0..40,
        ),
        cut in 0usize..SIZE,
    ) {
        let mut setup = Setup::new(ALL);
        (1..6).for_each(|correlation| setup.launch(correlation, correlation, Some(0)));
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
        setup.recording.read_buffer(&bytes);
        let found = setup.found();
        let read = found.records.iter().filter(|record| record.kind != ActivityType::CudaRuntime);
        prop_assert!(read.clone().all(|record| record.start != 0 && record.start <= record.end && record.device >= 0));
        prop_assert!(read.count() as u64 + found.lost(Loss::DeviceRecordsUnread) <= bytes.len().div_ceil(SIZE) as u64);
    }
}
