//! Tests of `reader.rs`.

use super::super::records::kind;
use super::*;
use crate::buffered::walk::{Unreadable, Walker};
use crate::records::fields::{kind_of, make_record};
use crate::trial::{self, Findings, TrialRecord as Found};
use proptest::prelude::*;
use std::time::Instant;

/// The length of all records here: each has the fields of every version.
const LENGTH: usize = 256;

/// Walks records of [`LENGTH`] bytes; returns an error at a kind that is unknown, as CUPTI does.
#[derive(Debug)]
struct EqualSteps;

impl Walker for EqualSteps {
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let Some(at) = at else { return Ok(Some(0)) };
        let number = buffer.get(at..).and_then(kind_of).ok_or(Unreadable)?;
        let is_known = kind::ALL.iter().any(|(known, ..)| *known == number);
        let next = at + LENGTH;
        if is_known { Ok((next < buffer.len()).then_some(next)) } else { Err(Unreadable) }
    }
}

fn record(number: u32, fields: &[(usize, usize, u64)]) -> Vec<u8> {
    make_record(number, LENGTH, fields)
}

fn kernel(correlation: u64, name: u64) -> Vec<u8> {
    let place =
        [(40, 4, 0), (44, 4, 1), (48, 4, 7), (52, 4, 8), (56, 4, 1), (60, 4, 1), (64, 4, 256), (68, 4, 1), (72, 4, 1)];
    let own =
        [(6, 2, 32), (16, 8, 1000 + correlation), (24, 8, 1010 + correlation), (92, 4, correlation), (104, 8, name)];
    record(10, &[&place[..], &own].concat())
}

fn call(number: u32, function: u64, correlation: u64, result: u64) -> Vec<u8> {
    record(
        number,
        &[
            (4, 4, function),
            (8, 8, 900 + correlation),
            (16, 8, 950 + correlation),
            (28, 4, 5),
            (32, 4, correlation),
            (36, 4, result),
        ],
    )
}

fn external(correlation: u64, id: u64) -> Vec<u8> {
    record(39, &[(4, 4, 3), (8, 8, id), (16, 4, correlation)])
}

fn reader(sink: &RecordSink) -> Reader {
    Reader::new(sink.clone(), ActivityTypes::ALL, Box::new(|_, _| None))
}

fn read(records: &[Vec<u8>]) -> (Findings, Reader) {
    let sink = trial::unbounded_sink();
    let mut reader = reader(&sink);
    reader.read_buffer(&records.concat(), &EqualSteps);
    (Findings::of_sink(&sink), reader)
}

#[test]
fn id_joins_its_call_or_is_kept_alone() {
    let (found, _) = read(&[
        external(1, 71),
        call(4, 307, 1, 0),
        external(2, 72),
        external(3, 73),
        external(4, 74),
        call(5, 211, 3, 0),
        call(4, 307, 3, 0),
        call(4, 307, 4, 0),
    ]);
    let ids = |found: &Findings| -> Vec<_> {
        let id = |record: &Found| (record.name.clone(), record.correlation, record.external);
        found.records.iter().map(id).collect()
    };
    let (driver, runtime) = ("cuLaunchKernel".to_owned(), "cudaLaunchKernel".to_owned());
    let expected = [
        (driver.clone(), 1, 71),
        (runtime, 3, 73),
        (driver.clone(), 3, 73),
        (driver.clone(), 4, 74),
        (String::new(), 2, 72),
    ];
    assert_eq!(ids(&found), expected);
    let many: Vec<_> =
        (1..=9).map(|id| external(id, 70 + id)).chain([call(4, 307, 1, 0), call(4, 307, 2, 0)]).collect();
    let (found, _) = read(&many);
    assert_eq!(ids(&found)[..3], [(driver.clone(), 1, 0), (driver, 2, 72), (String::new(), 1, 71)]);
    let (found, _) = read(&[record(39, &[(4, 4, 4), (8, 8, 9), (16, 4, 1)]), call(4, 307, 1, 0)]);
    assert_eq!(found.records[0].external, 0, "another profiler's id");
}

#[test]
fn only_calls_that_reach_a_device_are_launches() {
    let (found, reader) = read(&[
        call(4, 307, 1, 0),
        call(4, 307, 2, 700),
        call(4, 539, 3, 0),
        call(4, 307, 4, 0),
        call(4, 497, 5, 0),
        call(4, 277, 6, 0),
        call(4, 304, 7, 0),
    ]);
    let launches: Vec<_> = found.records.iter().map(|call| (call.correlation, call.launches)).collect();
    assert_eq!(launches, [(1, true), (2, false), (3, false), (4, false), (5, false), (6, true)]);
    assert_eq!(reader.launches.unfinished_count(), 1, "a copy may be empty, and is not waited for");
}

#[test]
fn device_memory_is_recorded_at_alloc_and_free() {
    let memory = |operation: u64, kind: u64| {
        record(49, &[(4, 4, operation), (8, 4, kind), (12, 4, 9), (16, 8, 0x10), (24, 8, 64), (32, 8, 7), (52, 4, 2)])
    };
    // Host memory, pageable or pinned, and an unknown operation.
    let (found, _) = read(&[memory(1, 3), memory(2, 5), memory(1, 1), memory(2, 2), memory(0, 3), memory(3, 3)]);
    let shown = |it: &Found| (it.start, it.correlation, it.device, it.arg("bytes").unwrap().to_owned());
    let found: Vec<_> = found.records.iter().map(shown).collect();
    assert_eq!(found, [(7, 9, 2, "64".to_owned()), (7, 9, 2, "-64".to_owned())]);
}

#[test]
fn work_and_overhead_have_libkinetos_names() {
    let (found, _) = read(&[
        record(1, &[(4, 1, 1), (5, 1, 2), (6, 1, 3)]),
        record(1, &[(4, 1, 99), (5, 1, 0), (6, 1, 8)]),
        record(22, &[(4, 1, 10), (5, 1, 3), (6, 1, 3)]),
        record(2, &[(50, 2, 5)]),
        record(17, &[(4, 4, 1)]),
        record(17, &[(4, 4, 7 << 16)]),
        record(17, &[(4, 4, 3)]),
        record(38, &[(4, 4, 3)]),
        record(38, &[(4, 4, 77)]),
        record(36, &[(40, 8, 5)]),
        record(51, &[]),
    ]);
    let names: Vec<_> = found.records.iter().map(|record| record.name.as_str()).collect();
    let expected = [
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy <unknown> (Unknown -> Unrecognized)",
        "Memcpy PtoP (Device -> Device)",
        "Memset (Managed)",
        // All device work comes first.
        "CUDA graph",
        "Driver Compiler",
        "Activity Buffer Request",
        "Unrecognized",
        "Stream Sync",
        "Unknown Sync",
        "cudaEvent",
    ];
    assert_eq!(names, expected);
}

#[test]
fn unreadable_records_are_counted() {
    let unknown = record(77, &[]);
    let (found, _) = read(&[call(4, 307, 1, 0), unknown, call(4, 307, 2, 0)]);
    assert_eq!(
        (found.records.len(), found.lost(Loss::DeviceRecordsUnread)),
        (1, 2),
        "the record and all records behind it"
    );
    let (found, _) = read(&[call(4, 307, 1, 0), vec![5, 0]]);
    assert_eq!((found.records.len(), found.lost(Loss::DeviceRecordsUnread)), (1, 2));
}

/// Returns the arguments of a record, as text.
fn args(record: &Found) -> Vec<(&str, &str)> {
    record.args.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[test]
fn arguments_match_libkinetos_order() {
    let more = [
        (76, 4, 1024),
        (80, 4, 512),
        (120, 8, 9),
        (144, 8, 3 << 32 | 1),
        (156, 4, 4),
        (168, 4, 6),
        (172, 4, 2),
        (216, 4, 0xFFFF_FFFE),
        (56, 4, 65_535),
        (60, 4, 3),
        (68, 4, 2),
        (72, 4, 2),
        (52, 4, 0x7FFF_FFFF),
        (64, 4, 256),
        (6, 2, 255),
        (48, 4, 7),
        (44, 4, 1),
        (92, 4, 11),
    ];
    let (found, _) = read(&[record(10, &more)]);
    let expected = [
        ("queued", "9"),
        ("device", "0"),
        ("context", "1"),
        ("stream", "7"),
        ("correlation", "11"),
        ("registers per thread", "255"),
        ("shared memory", "1536"),
        ("grid", "[2147483647, 65535, 3]"),
        ("block", "[256, 2, 2]"),
        ("graph id", "4"),
        ("graph node id", "12884901889"),
        ("priority", "-2"),
        ("channel", "6"),
        ("channel_type", "2"),
    ];
    assert_eq!(args(&found.records[0]), expected);
    let copy = [(8, 8, 1000), (16, 8, 100), (24, 8, 600), (32, 4, 1), (36, 4, 2), (40, 4, 3), (44, 4, 4)];
    let (found, _) = read(&[
        record(1, &copy),
        call(5, 41, 4, 0),
        record(38, &[(4, 4, 2), (28, 4, 2), (32, 4, u64::MAX), (36, 4, 8)]),
    ]);
    let expected = [
        ("device", "1"),
        ("context", "2"),
        ("stream", "3"),
        ("correlation", "4"),
        ("bytes", "1000"),
        ("memory bandwidth (GB/s)", "2.0"),
        ("graph id", "0"),
        ("graph node id", "0"),
        ("channel", "0"),
        ("channel_type", "0"),
    ];
    let of = |kind| found.of(kind).next().unwrap();
    assert_eq!(args(of(ActivityType::GpuMemcpy)), expected);
    assert_eq!(args(of(ActivityType::CudaRuntime)), [("cbid", "41"), ("correlation", "4")]);
    let expected = [
        ("cuda_sync_kind", "\"Stream Wait Event\""),
        ("wait_on_stream", "-1"),
        ("wait_on_cuda_event_record_corr_id", "-1"),
        ("wait_on_cuda_event_id", "8"),
        ("stream", "-1"),
        ("correlation", "0"),
        ("device", "1"),
        ("context", "2"),
    ];
    assert_eq!(args(of(ActivityType::CudaSync)), expected);
}

/// A kind that does not exist.
const UNKNOWN: u32 = 4000;

/// Returns any known kind, or [`UNKNOWN`].
fn any_kind() -> impl Strategy<Value = u32> {
    (0..=kind::ALL.len()).prop_map(|at| kind::ALL.get(at).map_or(UNKNOWN, |(number, ..)| *number))
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore)]
    fn corrupt_records_are_counted(
        pieces in proptest::collection::vec((any_kind(), proptest::collection::vec(any::<u8>(), 0..260)), 0..30),
    ) {
        let mut bytes = Vec::new();
        for (number, noise) in &pieces {
            let mut record = record(*number, &[]);
            for (byte, noise) in record.iter_mut().skip(4).zip(noise) {
                *byte = *noise;
            }
            bytes.extend(record);
        }
        let sink = trial::unbounded_sink();
        let whole = reader(&sink).read_buffer(&bytes, &EqualSteps);
        let found = Findings::of_sink(&sink);
        let unknown = pieces.iter().position(|(number, ..)| *number == UNKNOWN);
        prop_assert_eq!(whole, unknown.is_none());
        prop_assert!(found.records.len() <= pieces.len());
        prop_assert_eq!(found.lost(Loss::DeviceRecordsUnread), unknown.map_or(0, |_| 2));
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn random_bytes_are_tolerated(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let sink = trial::unbounded_sink();
        reader(&sink).read_buffer(&bytes, &EqualSteps);
        let found = Findings::of_sink(&sink);
        prop_assert!(bytes.is_empty() || found.lost(Loss::DeviceRecordsUnread) + found.records.len() as u64 > 0);
    }
}

/// Measures the time of a kernel's record, its call and its id, from the buffer into the recording.
#[test]
#[ignore = "measures: cargo test --release --lib collector::cupti::reader -- --ignored --nocapture"]
#[allow(clippy::print_stderr, reason = "it prints its measurement")]
fn time_of_a_record() {
    let names: Vec<_> = (0..50).map(|n| format!("_ZN2at6native6kernel{n:02}ILi4EEEvPKfS3_Pfi\0")).collect();
    let address = |n: u64| names[usize::try_from(n).unwrap() % names.len()].as_ptr().expose_provenance() as u64;
    let one = |n: u64| [external(n, n + 7), call(4, 307, n, 0), kernel(n, address(n))].concat();
    let all: Vec<_> = (1..1_000_000u64).map(one).collect();
    let buffers: Vec<_> = all.chunks(4 << 20 >> 9).map(<[Vec<u8>]>::concat).collect();
    for round in 0..3 {
        let sink = trial::unbounded_sink();
        let mut reader = reader(&sink);
        let begun = Instant::now();
        assert!(buffers.iter().all(|buffer| reader.read_buffer(buffer, &EqualSteps)));
        let each = begun.elapsed().as_nanos() as f64 / 3e6;
        eprintln!(
            "{round}: {each:.1} ns a record, {:.1} bytes each in memory",
            sink.collect_records(false).record_bytes() as f64 / 3e6
        );
    }
}
