//! Tests of `reader.rs`, also with arbitrary bytes.

use super::super::names::FixedNames;
use super::super::streams;
use super::super::views;
use super::*;
use crate::buffered::walk::Unreadable;
use crate::records::fields::{kind_of, make_record};
use crate::trial::{self, Findings, TrialRecord as Row};
use proptest::prelude::*;

/// A walker that computes sizes from PTI's version.
#[derive(Clone, Copy, Debug)]
struct PtiRecordSizes {
    /// Whether it is 1.0 or newer.
    is_1_0: bool,
}

impl PtiRecordSizes {
    /// Returns the size of a record; `None` for unknown views.
    fn size(self, view: u32) -> Option<usize> {
        let (older, newer) = match view {
            1 => (168, 184),
            8 => (136, 152),
            10 => (168, 192),
            9 => (136, 152),
            7 => (24, 24),
            5 => (56, 56),
            3 | 6 => (48, 48),
            11 => (72, 72),
            12 => (56, 64),
            _ => return None,
        };
        Some(if self.is_1_0 { newer } else { older })
    }
}

impl Walker for PtiRecordSizes {
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let Some(at) = at else { return Ok(Some(0)) };
        let view = buffer.get(at..).and_then(kind_of).ok_or(Unreadable)?;
        let next = at + self.size(view).ok_or(Unreadable)?;
        Ok((next < buffer.len()).then_some(next))
    }
}

const NEW: PtiRecordSizes = PtiRecordSizes { is_1_0: true };

fn reader(samples: bool) -> (Reader, RecordSink) {
    let (sink, streams) = (trial::unbounded_sink(), Arc::new(streams::tests::two()));
    let sampled = if samples { ActivityTypes::from_type(ActivityType::XpuScopeProfiler) } else { ActivityTypes::EMPTY };
    (Reader::new(sink.clone(), views::supported_types() | sampled, Box::new(FixedNames), streams, 500), sink)
}

fn read(records: &[Vec<u8>]) -> Findings {
    let (mut reader, sink) = reader(false);
    assert!(reader.read_buffer(&records.concat(), &NEW));
    reader.finish_recording();
    Findings::of_sink(&sink)
}

fn address(text: &[u8]) -> u64 {
    text.as_ptr().expose_provenance() as u64
}

/// Makes a kernel's record, on the second device.
fn kernel(name: u64, source: u64) -> Vec<u8> {
    let fields = [
        (8, 8, 0x51),
        (16, 8, 0xC1),
        (24, 8, name),
        (32, 8, source),
        (40, 8, 33),
        (48, 8, 7),
        (56, 4, 18),
        (80, 8, u64::from_ne_bytes([2; 8])),
        (88, 8, u64::from_ne_bytes([2; 8])),
        (96, 8, 1_000_000_000_900),
        (104, 8, 1_000_000_002_000),
        (112, 8, 1_000_000_003_000),
        (120, 8, 1_000_000_001_950),
        (144, 8, 21),
        (152, 8, 3),
        (160, 4, 5),
    ];
    make_record(1, 184, &fields)
}

fn keys(row: &Row) -> Vec<&str> {
    row.args.iter().map(|(key, _)| key.as_str()).collect()
}

fn pairs(row: &Row) -> Vec<(&str, &str)> {
    row.args.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[test]
fn kernels_have_libkinetos_arguments() {
    let (name, source) = (*b"gemm<float>\0", *b"gemm.cpp\0");
    let found = read(&[kernel(address(&name), address(&source))]);
    let row = &found.records[0];
    assert_eq!((row.kind, &*row.name, row.device, row.stream), (ActivityType::ConcurrentKernel, "gemm<float>", 1, 3));
    assert_eq!((row.correlation, row.start, row.end), (18, 1_000_000_002_000, 1_000_000_003_000));
    assert_eq!(
        pairs(row),
        [
            ("correlation", "18"),
            ("appended", "\"1000000000.900\""),
            ("appended_rel_to_start", "\"-1.100\""),
            ("submitted", "\"1000000001.950\""),
            ("submitted_rel_to_start", "\"-0.050\""),
            ("device", "1"),
            ("stream", "3"),
            ("context", "193"),
            ("sycl queue", "3"),
            ("l0 queue", "\"0x0000000000000051\""),
            ("source_file_name", "\"gemm.cpp\""),
            ("source_line_number", "33"),
            ("kernel_id", "7"),
            ("sycl_node_id", "21"),
            ("sycl_invocation_id", "5"),
        ]
    );
    let mut with_sycl = kernel(address(&name), 0);
    with_sycl[128..136].copy_from_slice(&1_000_000_000_100_u64.to_ne_bytes());
    with_sycl[136..144].copy_from_slice(&1_000_000_002_500_u64.to_ne_bytes());
    let found = read(&[with_sycl]);
    let row = &found.records[0];
    assert_eq!(row.arg("sycl_task_begin"), Some("\"1000000000.100\""));
    assert_eq!(row.arg("sycl_enqk_begin_rel_to_start"), Some("\"0.500\""));
    assert_eq!(
        &keys(row)[5..9],
        ["sycl_task_begin", "sycl_task_begin_rel_to_start", "sycl_enqk_begin", "sycl_enqk_begin_rel_to_start"]
    );
    assert_eq!(row.arg("source_file_name"), None);
}

#[test]
fn copies_and_fills_have_libkinetos_arguments() {
    let call = *b"zeCommandListAppendMemoryCopy\0";
    let copy = [
        (4, 4, 2),
        (8, 4, 0),
        (12, 4, 2),
        (16, 8, 0x51),
        (32, 8, address(&call)),
        (72, 8, 77),
        (80, 4, 18),
        (88, 8, 900),
        (96, 8, 1000),
        (104, 8, 2000),
        (112, 8, 950),
        (120, 8, 4000),
        (128, 8, u64::MAX - 1),
    ];
    let fill = [(4, 4, 2), (64, 8, 78), (72, 4, 19), (88, 8, 1000), (96, 8, 1000), (112, 8, 64), (120, 8, 255)];
    let peer =
        [(4, 4, 10), (8, 4, 2), (12, 4, 2), (72, 8, u64::from_ne_bytes([2; 8])), (80, 8, u64::from_ne_bytes([2; 8]))];
    let mut peer = make_record(10, 192, &peer);
    peer[88..104].fill(1);
    let found = read(&[make_record(8, 152, &copy), make_record(9, 152, &fill), peer]);
    let [copy, fill, peer] = &found.records[..] else { panic!("{found:?}") };
    assert_eq!((&*copy.name, copy.device), ("Memcpy M2D (Host (User Allocated) -> Device)", 0));
    assert_eq!(copy.stream, 1 << 30, "SYCL does not know the queue");
    assert_eq!(
        pairs(copy),
        [
            ("correlation", "18"),
            ("l0 call", "\"zeCommandListAppendMemoryCopy\""),
            ("appended", "\"0.900\""),
            ("appended_rel_to_start", "\"-0.100\""),
            ("submitted", "\"0.950\""),
            ("submitted_rel_to_start", "\"-0.050\""),
            ("device", "0"),
            ("stream", "1073741824"),
            ("context", "0"),
            ("sycl queue", "18446744073709551614"),
            ("l0 queue", "\"0x0000000000000051\""),
            ("memory opration id", "77"),
            ("bytes", "4000"),
            ("memory bandwidth (GB/s)", "4.0"),
        ]
    );
    assert_eq!((&*fill.name, fill.kind), ("Memset (255 -> Device)", ActivityType::GpuMemset));
    assert_eq!(
        keys(fill),
        ["correlation", "device", "stream", "context", "sycl queue", "l0 queue", "memory opration id", "bytes"]
    );
    assert_eq!((&*peer.name, peer.device), ("Memcpy D2D (Device -> Device)", 1));
    assert_eq!((peer.arg("fromDevice"), peer.arg("toDevice")), (Some("1"), Some("0")));
    assert!(found.notes[0].starts_with("2 records of a device that"), "{:?}", found.notes);
}

#[test]
fn only_runtime_calls_launch_work() {
    let call = |view, group, function| {
        make_record(view, 48, &[(8, 8, 1), (16, 8, 9), (24, 4, group), (28, 4, function), (36, 4, 42), (40, 4, 18)])
    };
    let external = |kind| make_record(7, 24, &[(4, 4, 18), (8, 8, 5), (16, 4, kind)]);
    let (mut reader, sink) = reader(false);
    let records = [external(2), external(3), call(6, 3, 21), call(3, 1, 55), call(6, 3, 22)];
    assert!(reader.read_buffer(&records.concat(), &NEW));
    assert_eq!(reader.launches.unfinished_count(), 1, "a kernel is owed, a copy is not");
    assert!(reader.read_buffer(&kernel(0, 0), &NEW));
    assert_eq!(reader.launches.unfinished_count(), 0);
    let found = Findings::of_sink(&sink);
    let calls: Vec<_> = found.records.iter().filter(|row| row.thread.is_some()).collect();
    let told: Vec<_> = calls.iter().map(|row| (&*row.name, row.kind, row.launches)).collect();
    assert_eq!(
        told,
        [
            ("urEnqueueKernelLaunch", ActivityType::XpuRuntime, true),
            ("zeCommandListAppendLaunchKernel", ActivityType::XpuDriver, false),
            ("urEnqueueUSMMemcpy", ActivityType::XpuRuntime, true),
        ]
    );
    assert!(calls.iter().all(|row| row.thread == Some(Thread::Id(42)) && pairs(row) == [("correlation", "18")]));
    let externals: Vec<_> =
        found.of(ActivityType::ExternalCorrelation).map(|it| (it.correlation, it.external)).collect();
    assert_eq!(externals, [(18, 5)], "others have ids of their own");
    assert_eq!(found.of(ActivityType::ConcurrentKernel).next().unwrap().name, "unknown kernel");
}

#[test]
fn other_records_have_libkinetos_arguments() {
    let sync = [(4, 4, 4), (8, 8, 1), (16, 8, 2), (24, 8, 3), (32, 8, 10), (40, 8, 20), (48, 4, 42), (52, 4, 18)];
    let sync = [&sync[..], &[(56, 4, 6), (60, 4, 7), (64, 4, 32), (68, 4, 1)]].concat();
    let name = *b"allreduce\0";
    let fields = [(8, 8, 1), (16, 8, 9), (28, 4, 42), (48, 8, 5), (56, 8, address(&name))];
    let overhead = make_record(5, 56, &[(8, 8, 1000), (16, 8, 2000), (32, 8, 3), (40, 8, 251), (48, 4, 5)]);
    let found = read(&[make_record(11, 72, &sync), make_record(12, 64, &fields), overhead]);
    let [collective, sync, overhead] = &found.records[..] else { panic!("{found:?}") };
    assert_eq!(
        (&*sync.name, sync.kind, sync.device, sync.stream),
        ("zeCommandQueueSynchronize", ActivityType::XpuSync, -1, 42)
    );
    assert_eq!(
        pairs(sync),
        [
            ("correlation", "18"),
            ("Type", "\"HOST_EVENT\""),
            ("Context_handle", "\"0x0000000000000001\""),
            ("Queue_handle", "\"0x0000000000000002\""),
            ("Event_handle", "\"0x0000000000000003\""),
            ("Number_wait_events", "6"),
            ("Return_code", "7"),
        ]
    );
    assert_eq!((&*collective.name, collective.kind), ("xccl::allreduce", ActivityType::CollectiveComm));
    assert_eq!((collective.thread, pairs(collective)), (Some(Thread::Id(42)), vec![("Communicator_id", "5")]));
    assert_eq!((&*overhead.name, overhead.kind), ("Instrumentation", ActivityType::Overhead));
    assert_eq!(pairs(overhead), [("overhead cost", "251"), ("overhead occupancy", "\"25%\""), ("overhead count", "3")]);
    // As written by 0.17.
    let (mut reader, sink) = reader(false);
    let old = make_record(12, 56, &[(8, 8, 1), (16, 8, 9), (28, 4, 42), (40, 8, 6), (48, 8, 1)]);
    assert!(reader.read_buffer(&old, &PtiRecordSizes { is_1_0: false }));
    let found = Findings::of_sink(&sink);
    assert_eq!((&*found.records[0].name, found.records[0].arg("Communicator_id")), ("xccl::unknown", Some("6")));
}

#[test]
fn work_queued_in_a_pause_is_dropped() {
    let (mut reader, sink) = reader(true);
    sink.pauses().begin_pause(1_000_000_000_800);
    sink.pauses().end_pause(1_000_000_001_000);
    assert!(reader.read_buffer(&kernel(0, 0), &NEW));
    assert_eq!((reader.take_kernel_place(7), reader.take_kernel_place(7)), (Some(None), None));
    let found = Findings::of_sink(&sink);
    assert_eq!((found.records.len(), found.lost(Loss::OutOfWindow)), (0, 1));
}

#[test]
fn work_ended_before_the_recording_is_dropped() {
    let found =
        read(&[make_record(9, 152, &[(88, 8, 400), (96, 8, 499)]), make_record(9, 152, &[(88, 8, 400), (96, 8, 500)])]);
    assert_eq!((found.records.len(), found.losses), (1, vec![]));
}

#[test]
fn unreadable_records_are_counted() {
    let (mut reader, sink) = reader(false);
    let launch = make_record(6, 48, &[(8, 8, 600), (16, 8, 700), (24, 4, 3), (28, 4, 21), (40, 4, 5)]);
    assert!(reader.read_buffer(&launch, &NEW));
    assert_eq!(reader.launches.unfinished_count(), 1);
    assert!(!reader.read_buffer(&make_record(99, 64, &[]), &NEW), "the walker knows no such view");
    assert_eq!(reader.launches.unfinished_count(), 0, "its kernel may have been behind that");
    assert!(reader.read_buffer(&kernel(0, 0)[..100], &NEW), "cut");
    assert!(reader.read_buffer(&[], &NEW));
    assert_eq!(Findings::of_sink(&sink).lost(Loss::DeviceRecordsUnread), 3);
}

/// A walker that returns arbitrary offsets, as a broken library may.
#[derive(Debug)]
struct BrokenWalker(Vec<usize>);

impl Walker for BrokenWalker {
    fn next_offset(&self, _: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let next = |at: usize| self.0.iter().copied().find(|next| *next > at);
        Ok(at.map_or(Some(0), next))
    }
}

fn any_record() -> impl Strategy<Value = Vec<u8>> {
    let views = prop::sample::select(vec![0u32, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, u32::MAX]);
    (views, proptest::collection::vec(any::<u8>(), 0..200)).prop_map(|(view, bytes)| {
        let mut record = view.to_ne_bytes().to_vec();
        record.extend(bytes);
        record
    })
}

proptest! {
    #[test]
    fn any_bytes_are_tolerated(
        records in proptest::collection::vec(any_record(), 0..8),
        cuts in proptest::collection::vec(0usize..1200, 0..12),
    ) {
        let bytes = records.concat();
        for is_1_0 in [false, true] {
            let (mut reader, sink) = reader(true);
            reader.read_buffer(&bytes, &PtiRecordSizes { is_1_0 });
            reader.read_buffer(&bytes, &BrokenWalker(cuts.clone()));
            reader.finish_recording();
            let found = Findings::of_sink(&sink);
            prop_assert!(found.records.len() <= 2 * bytes.len());
            prop_assert!(reader.streams.devices().len() == 2);
        }
    }

    #[test]
    fn any_fields_are_tolerated(
        records in proptest::collection::vec((0usize..10, proptest::collection::vec(any::<u8>(), 192)), 0..6),
        is_1_0: bool,
    ) {
        const VIEWS: [u32; 10] = [1, 3, 5, 6, 7, 8, 9, 10, 11, 12];
        let walker = PtiRecordSizes { is_1_0 };
        let whole = |(nth, bytes): &(usize, Vec<u8>)| {
            let view = VIEWS[*nth];
            let mut record = bytes[..walker.size(view).unwrap()].to_vec();
            record[..4].copy_from_slice(&view.to_ne_bytes());
            record
        };
        let (mut reader, sink) = reader(false);
        let bytes: Vec<u8> = records.iter().flat_map(whole).collect();
        prop_assert!(reader.read_buffer(&bytes, &walker));
        let found = Findings::of_sink(&sink);
        // Ids of other profilers make no record; everything else makes one.
        let foreign = records.iter().filter(|(nth, _)| VIEWS[*nth] == 7).count();
        prop_assert!(found.records.len() + foreign >= records.len());
    }
}
