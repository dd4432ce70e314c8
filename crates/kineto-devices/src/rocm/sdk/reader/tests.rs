//! Tests of `reader.rs`, also with records of arbitrary bytes.

use super::*;
use crate::Thread;
use crate::rocm::sdk::agents::tests::agent;
use crate::rocm::sdk::names::tests::operations;
use crate::rocm::sdk::records::tests::{DispatchFields, FIELDS, copy, dispatch, put};
use crate::rocm::sdk::records::{KERNEL_DISPATCH, MEMORY_COPY};
use crate::trial::{self, Findings};
use kineto_model::activity::{ActivityType, ActivityTypes};
use proptest::prelude::*;

const HOST: u64 = 0xC0;
const GPU: u64 = 0xA1;

const KERNEL: Kind = Kind { category: 1, kind: KERNEL_DISPATCH };
const COPIED: Kind = Kind { category: 1, kind: MEMORY_COPY };

fn known() -> Arc<ProcessNames> {
    let mut agents = Agents::default();
    agents.add(&agent(1, HOST, 0), |_| None);
    agents.add(&agent(2, GPU, 2), |_| None);
    Arc::new(ProcessNames { operations: operations(), agents })
}

fn reader(types: ActivityTypes) -> (Reader, RecordSink) {
    let sink = trial::unbounded_sink();
    let ask = |kernel| match kernel {
        5 => Some("_Z6vecaddv".into()),
        6 => Some("__amd_rocclr_fillBufferAligned".into()),
        _ => None,
    };
    (Reader::new(sink.clone(), &Selection::of(types), known(), Box::new(ask)), sink)
}

/// Makes a call of that function number and correlation id.
fn call(reader: &mut Reader, number: u32, correlation: u64, arguments: &[(&str, &str)], failed: bool) {
    call_by(42, reader, number, correlation, arguments, failed);
}

fn call_by(thread: i64, reader: &mut Reader, number: u32, correlation: u64, arguments: &[(&str, &str)], failed: bool) {
    let known = known();
    let function = known.operations.function(number).unwrap();
    let call = HipCall { function, number, thread, correlation, start: 100 };
    let mut all = Arguments::default();
    arguments.iter().for_each(|(name, value)| all.add_argument(name, value));
    if function.does.has_device_work() {
        reader.begin_call(&call, all);
    }
    reader.end_call(&call, Return { end: 200, failed, external: 77 }, Some(all));
}

const LAUNCH: [(&str, &str); 3] = [("numBlocks", "4"), ("dimBlocks", "64,2,1"), ("stream", "0xA0")];

fn args(findings: &Findings, kind: ActivityType) -> Vec<String> {
    let text = |(key, value): &(String, String)| format!("{key}={value}");
    findings.of(kind).map(|row| row.args.iter().map(text).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn kernel_is_on_the_stream_of_its_launch() {
    let (mut reader, sink) = reader(ActivityTypes::ALL);
    call(&mut reader, 107, 7, &LAUNCH, false);
    assert_eq!(reader.pending_counts(), [1, 0]);
    reader.add_record(KERNEL, &dispatch(&FIELDS));
    assert_eq!(reader.pending_counts(), [0, 0]);
    let found = Findings::of_sink(&sink);
    let host = found.of(ActivityType::CudaRuntime).next().unwrap();
    assert_eq!((host.name.as_str(), host.external, host.launches), ("hipLaunchKernel", 77, true));
    assert_eq!((host.start, host.end, host.thread), (100, 200, Some(Thread::Id(42))));
    let kernel = found.of(ActivityType::ConcurrentKernel).next().unwrap();
    assert_eq!((kernel.device, kernel.stream, kernel.correlation), (2, 1, 7));
    assert!(kernel.name.starts_with("vecadd"), "{}", kernel.name);
    assert_eq!(
        args(&found, ActivityType::CudaRuntime),
        ["cid=107 correlation=7 grid=[4, 1, 1] block=[64, 2, 1] shared memory=0"]
    );
    assert_eq!(
        args(&found, ActivityType::ConcurrentKernel),
        ["device=2 stream=1 hsa_queue=3 correlation=7 kind=\"Dispatch Kernel\" grid=[4, 2, 1] block=[64, 2, 1]"]
    );
}

#[test]
fn copy_belongs_to_the_device_at_either_end() {
    let (mut reader, sink) = reader(ActivityTypes::ALL);
    let arguments = [("dst", "0x1"), ("src", "0x2"), ("sizeBytes", "4096"), ("kind", "2"), ("stream", "(null)")];
    call(&mut reader, 134, 8, &arguments, false);
    assert_eq!(reader.pending_counts(), [0, 1], "not each copy has a record");
    reader.add_record(COPIED, &copy(3, 8, [HOST, GPU]));
    reader.add_record(COPIED, &copy(2, 9, [GPU, HOST]));
    reader.add_record(COPIED, &copy(4, 10, [GPU, GPU]));
    reader.add_record(COPIED, &copy(9, 11, [1, 2]));
    let found = Findings::of_sink(&sink);
    let rows: Vec<_> = found.of(ActivityType::GpuMemcpy).map(|row| (row.name.as_str(), row.device)).collect();
    assert_eq!(
        rows,
        [
            ("Memcpy DtoH (Device -> Host)", 2),
            ("Memcpy HtoD (Host -> Device)", 2),
            ("Memcpy DtoD (Device -> Device)", 2),
            ("Memcpy <unknown> (Unknown -> Unknown)", -1),
        ]
    );
    let place = "device=2 stream=1 hsa_queue=0 correlation=8 kind=\"DtoH\"";
    assert_eq!(args(&found, ActivityType::GpuMemcpy)[0], format!("{place} bytes=4096 memory bandwidth (GB/s)=2.048"));
    assert_eq!(
        args(&found, ActivityType::CudaRuntime),
        ["cid=134 correlation=8 src=\"0x2\" dst=\"0x1\" bytes=4096 kind=\"2\""]
    );
}

#[test]
fn fill_is_known_by_its_call_or_kernel() {
    let (mut reader, sink) = reader(ActivityTypes::ALL);
    call(&mut reader, 140, 7, &[("dst", "0xF0"), ("sizeBytes", "512"), ("stream", "0xA0")], false);
    reader.add_record(KERNEL, &dispatch(&FIELDS));
    reader.add_record(KERNEL, &dispatch(&DispatchFields { correlation: 99, kernel: 6, ..FIELDS }));
    let found = Findings::of_sink(&sink);
    assert_eq!(found.of(ActivityType::ConcurrentKernel).count(), 0);
    let rows: Vec<_> = found.of(ActivityType::GpuMemset).map(|row| (row.name.as_str(), row.arg("bytes"))).collect();
    assert_eq!(rows, [("Memset (Device)", Some("512")), ("Memset (Device)", None)]);
    assert_eq!(args(&found, ActivityType::CudaRuntime), ["bytes=512 cid=140 correlation=7 ptr=\"0xf0\""]);
}

#[test]
fn graph_kernels_name_their_graph() {
    let (mut reader, sink) = reader(ActivityTypes::ALL);
    call(&mut reader, 301, 1, &[], false);
    call(&mut reader, 107, 2, &LAUNCH, false);
    call(&mut reader, 302, 3, &[], false);
    call(&mut reader, 215, 7, &[("graphExec", "0x6A"), ("stream", "0xA0")], false);
    assert_eq!(reader.pending_counts(), [1, 0], "what is captured does not run");
    (0..3).for_each(|_| reader.add_record(KERNEL, &dispatch(&FIELDS)));
    assert_eq!(reader.pending_counts(), [0, 0]);
    let found = Findings::of_sink(&sink);
    let graphs: Vec<_> = found.of(ActivityType::ConcurrentKernel).map(|row| row.arg("graph id")).collect();
    assert_eq!(graphs, [Some("1"); 3]);
    let launches: Vec<_> = found.of(ActivityType::CudaRuntime).map(|row| row.launches).collect();
    assert_eq!(launches, [false, false, false, true]);
}

#[test]
fn captured_launches_are_not_owed() {
    let (mut reader, _sink) = reader(ActivityTypes::ALL);
    call(&mut reader, 301, 1, &[("stream", "0xA0")], false);
    call_by(43, &mut reader, 107, 2, &LAUNCH, false);
    assert_eq!(reader.pending_counts(), [0, 0]);
    call_by(43, &mut reader, 107, 3, &[("stream", "0xB0")], false);
    assert_eq!(reader.pending_counts(), [1, 0], "another stream");
    call(&mut reader, 302, 4, &[("stream", "0xA0")], true);
    call(&mut reader, 301, 5, &[("stream", "0xA0")], true);
    call(&mut reader, 107, 6, &LAUNCH, false);
    assert_eq!(reader.pending_counts(), [2, 0], "a capture that failed to begin takes nothing");
}

#[test]
fn launch_without_a_stream_follows_its_queue() {
    let (mut reader, sink) = reader(ActivityTypes::ALL);
    call(&mut reader, 107, 7, &LAUNCH, false);
    reader.add_record(KERNEL, &dispatch(&FIELDS));
    call(&mut reader, 107, 8, &[("config", "0x1")], false);
    reader.add_record(KERNEL, &dispatch(&DispatchFields { correlation: 8, ..FIELDS }));
    for thread in [43_i64, 44] {
        let correlation = thread.cast_unsigned();
        call_by(thread, &mut reader, 107, correlation, &[("stream", "0x2")], false);
        reader.add_record(KERNEL, &dispatch(&DispatchFields { correlation, ..FIELDS }));
    }
    let found = Findings::of_sink(&sink);
    let streams: Vec<_> = found.of(ActivityType::ConcurrentKernel).map(|row| row.stream).collect();
    assert_eq!(streams, [1, 1, 2, 3], "each thread has a default stream");
    assert_eq!(args(&found, ActivityType::CudaRuntime)[1], "cid=107 correlation=8 shared memory=0");
}

#[test]
fn calls_and_kernels_are_selected_separately() {
    let (mut calls, sink) = reader(ActivityTypes::of(&[ActivityType::CudaRuntime]));
    call(&mut calls, 107, 7, &LAUNCH, false);
    calls.add_record(KERNEL, &dispatch(&FIELDS));
    let found = Findings::of_sink(&sink);
    assert_eq!((found.records.len(), found.of(ActivityType::CudaRuntime).count()), (1, 1));
    let (mut kernels, sink) = reader(ActivityTypes::of(&[ActivityType::ConcurrentKernel]));
    call(&mut kernels, 107, 7, &LAUNCH, false);
    kernels.add_record(KERNEL, &dispatch(&FIELDS));
    let found = Findings::of_sink(&sink);
    assert_eq!(found.of(ActivityType::ConcurrentKernel).count(), 1);
    let link = found.of(ActivityType::ExternalCorrelation).next().unwrap();
    assert_eq!((link.correlation, link.external), (7, 77), "the span around it is known all the same");
}

#[test]
fn failed_call_is_no_launch() {
    let (mut reader, sink) = reader(ActivityTypes::ALL);
    call(&mut reader, 107, 7, &LAUNCH, true);
    assert_eq!(reader.pending_counts(), [0, 0]);
    reader.ignore_launches_after(50);
    call(&mut reader, 107, 8, &LAUNCH, false);
    assert_eq!(reader.pending_counts(), [0, 0], "it began after the end");
    let found = Findings::of_sink(&sink);
    let launches: Vec<_> = found.of(ActivityType::CudaRuntime).map(|row| row.launches).collect();
    assert_eq!(launches, [false, true]);
}

#[test]
fn rows_beyond_the_limit_are_counted() {
    let sink = trial::unbounded_sink();
    let mut selection = Selection::of(ActivityTypes::ALL);
    selection.options.set("ROCTRACER_MAX_EVENTS", 2);
    let mut reader = Reader::new(sink.clone(), &selection, known(), Box::new(|_| None));
    call(&mut reader, 107, 7, &LAUNCH, false);
    (0..3).for_each(|_| reader.add_record(KERNEL, &dispatch(&FIELDS)));
    call(&mut reader, 48, 9, &[], false);
    let found = Findings::of_sink(&sink);
    assert_eq!((found.records.len(), found.lost(Loss::DeviceRecordsOverLimit)), (2, 3));
    assert_eq!(reader.pending_counts(), [0, 0], "what is not kept has come all the same");
}

#[test]
fn invalid_times_are_counted() {
    let (mut reader, sink) = reader(ActivityTypes::ALL);
    reader.add_record(KERNEL, &dispatch(&DispatchFields { start: 5, end: 4, ..FIELDS }));
    reader.add_record(KERNEL, &dispatch(&DispatchFields { start: 0, ..FIELDS }));
    call(&mut reader, 107, 7, &LAUNCH, false);
    assert_eq!(reader.pending_counts(), [0, 1], "its record may be one of those");
    reader.add_record(KERNEL, &dispatch(&FIELDS)[..100]);
    assert_eq!(Findings::of_sink(&sink).lost(Loss::DeviceRecordsUnread), 3);
}

/// A header with a record: valid, modified, truncated, or arbitrary.
fn anything() -> impl Strategy<Value = (Kind, Vec<u8>)> {
    let of = |record: Vec<u8>, kind| {
        let changes = proptest::collection::vec((0..record.len(), any::<[u8; 8]>()), 0..4);
        (changes, 0..=record.len() + 1).prop_map(move |(changes, length)| {
            let mut record = record.clone();
            for (at, bytes) in changes {
                let fits = (record.len() - at).min(8);
                put(&mut record, at, &bytes[..fits]);
            }
            record.truncate(length);
            (kind, record)
        })
    };
    let garbage = (any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..300));
    let sized = (0_u64..400, proptest::collection::vec(any::<u8>(), 8..300), any::<bool>());
    prop_oneof![
        of(dispatch(&FIELDS), KERNEL),
        of(copy(2, 9, [GPU, HOST]), COPIED),
        garbage.prop_map(|(category, kind, bytes)| (Kind { category, kind }, bytes)),
        sized.prop_map(|(size, mut bytes, copies)| {
            put(&mut bytes, 0, &size.to_le_bytes());
            (if copies { COPIED } else { KERNEL }, bytes)
        }),
    ]
}

proptest! {
    #[test]
    fn any_record_is_a_row_or_counted(records in proptest::collection::vec(anything(), 0..40)) {
        let (mut reader, sink) = reader(ActivityTypes::ALL);
        call(&mut reader, 107, 7, &LAUNCH, false);
        let foreign = |(header, _): &&(Kind, Vec<u8>)| *header != KERNEL && *header != COPIED;
        let foreign = records.iter().filter(foreign).count() as u64;
        records.iter().for_each(|(header, bytes)| reader.add_record(*header, bytes));
        let found = Findings::of_sink(&sink);
        let rows = found.records.len() as u64 - 1;
        prop_assert_eq!(rows + found.lost(Loss::DeviceRecordsUnread) + foreign, records.len() as u64);
    }

    #[test]
    fn call_is_a_row_with_any_arguments(
        pairs in proptest::collection::vec(("[a-zA-Z]{0,16}|numBlocks|kind|stream|width|height|count|globalWorkSizeX", ".{0,24}|[0-9]{1,25}|0x[0-9a-f]{1,20}"), 0..12),
        number in proptest::sample::select(vec![107_u32, 134, 140, 150, 215, 48]),
    ) {
        let (mut reader, sink) = reader(ActivityTypes::ALL);
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        call(&mut reader, number, 7, &pairs, false);
        reader.add_record(KERNEL, &dispatch(&FIELDS));
        prop_assert_eq!(Findings::of_sink(&sink).records.len(), 2);
    }
}
