//! Tests of the records of each version, by the offsets in their headers.

use super::*;
use crate::records::fields::make_record as record;

/// The fields of a kernel: offset, size, value. Version 1.0 appends a device handle and an engine.
const KERNEL: [(usize, usize, u64); 17] = [
    (8, 8, 0x51),
    (16, 8, 0xC1),
    (24, 8, 0xABCD),
    (32, 8, 0xF11E),
    (40, 8, 33),
    (48, 8, 7),
    (56, 4, 18),
    (60, 4, 4242),
    (80, 8, 0x0101),
    (96, 8, 900),
    (104, 8, 1000),
    (112, 8, 2000),
    (120, 8, 950),
    (128, 8, 700),
    (136, 8, 800),
    (144, 8, 21),
    (152, 8, 3),
];

#[test]
fn kernels_of_every_version_are_read() {
    for (version, size) in [("0.12", 168), ("1.0", 184)] {
        let mut fields = KERNEL.to_vec();
        fields.push((160, 4, 5));
        if size == 184 {
            fields.extend([(168, 8, 0xDEAD), (176, 4, 1), (180, 4, 2)]);
        }
        let bytes = record(1, size, &fields);
        let Some(Record::Kernel(kernel)) = Record::from_bytes(&bytes) else { panic!("{version}") };
        assert_eq!(
            [kernel.queue(), kernel.context(), kernel.name(), kernel.source_file()],
            [0x51, 0xC1, 0xABCD, 0xF11E]
        );
        assert_eq!([kernel.source_line(), kernel.id(), kernel.node(), kernel.sycl_queue()], [33, 7, 21, 3]);
        assert_eq!([kernel.appended(), kernel.submitted(), kernel.start(), kernel.end()], [900, 950, 1000, 2000]);
        assert_eq!([kernel.task_begin(), kernel.enqueue_begin()], [700, 800]);
        assert_eq!((kernel.correlation(), kernel.invocation(), kernel.uuid()[..2].to_vec()), (18, 5, vec![1, 1]));
    }
}

#[test]
fn copies_of_every_version_are_read() {
    for size in [136, 152] {
        let fields = [
            (4, 4, 2),
            (8, 4, 1),
            (12, 4, 3),
            (16, 8, 0x51),
            (24, 8, 0xC1),
            (32, 8, 0xAB),
            (56, 8, 9),
            (72, 8, 77),
            (80, 4, 18),
            (84, 4, 4242),
            (88, 8, 900),
            (96, 8, 1000),
            (104, 8, 2000),
            (112, 8, 950),
            (120, 8, 4096),
            (128, 8, 3),
        ];
        let bytes = record(8, size, &fields);
        let Some(Record::Memcpy(copy)) = Record::from_bytes(&bytes) else { panic!("{size}") };
        assert_eq!([copy.what(), copy.source_kind(), copy.target_kind(), copy.correlation()], [2, 1, 3, 18]);
        assert_eq!([copy.queue(), copy.context(), copy.name(), copy.id(), copy.bytes()], [0x51, 0xC1, 0xAB, 77, 4096]);
        assert_eq!(
            [copy.appended(), copy.start(), copy.end(), copy.submitted(), copy.sycl_queue()],
            [900, 1000, 2000, 950, 3]
        );
        assert_eq!(copy.uuid()[0], 9);
    }
    for size in [168, 192] {
        let fields = [
            (4, 4, 10),
            (8, 4, 2),
            (12, 4, 2),
            (16, 8, 0x51),
            (24, 8, 0xC1),
            (32, 8, 0xAB),
            (72, 8, 1),
            (88, 8, 2),
            (104, 8, 77),
            (112, 4, 18),
            (120, 8, 900),
            (128, 8, 1000),
            (136, 8, 2000),
            (144, 8, 950),
            (152, 8, 4096),
            (160, 8, 3),
        ];
        let bytes = record(10, size, &fields);
        let Some(Record::PeerMemcpy(copy)) = Record::from_bytes(&bytes) else { panic!("{size}") };
        assert_eq!([copy.what(), copy.source_kind(), copy.target_kind(), copy.correlation()], [10, 2, 2, 18]);
        assert_eq!([copy.queue(), copy.context(), copy.name(), copy.id(), copy.bytes()], [0x51, 0xC1, 0xAB, 77, 4096]);
        assert_eq!(
            [copy.appended(), copy.start(), copy.end(), copy.submitted(), copy.sycl_queue()],
            [900, 1000, 2000, 950, 3]
        );
        assert_eq!((copy.uuid()[0], copy.target_uuid()[0]), (1, 2));
    }
}

#[test]
fn fills_of_every_version_are_read() {
    for size in [136, 152] {
        let fields = [
            (4, 4, 2),
            (8, 8, 0x51),
            (16, 8, 0xC1),
            (24, 8, 0xAB),
            (48, 8, 9),
            (64, 8, 77),
            (72, 4, 18),
            (80, 8, 900),
            (88, 8, 1000),
            (96, 8, 2000),
            (104, 8, 950),
            (112, 8, 4096),
            (120, 8, 255),
            (128, 8, 3),
        ];
        let bytes = record(9, size, &fields);
        let Some(Record::Memset(fill)) = Record::from_bytes(&bytes) else { panic!("{size}") };
        assert_eq!((fill.memory_kind(), fill.correlation(), fill.uuid()[0]), (2, 18, 9));
        assert_eq!([fill.queue(), fill.context(), fill.name(), fill.id()], [0x51, 0xC1, 0xAB, 77]);
        assert_eq!([fill.appended(), fill.start(), fill.end(), fill.submitted()], [900, 1000, 2000, 950]);
        assert_eq!([fill.bytes(), fill.value(), fill.sycl_queue()], [4096, 255, 3]);
    }
}

#[test]
fn host_records_are_read() {
    let fields = [(8, 8, 1), (16, 8, 2), (24, 4, 3), (28, 4, 21), (32, 4, 99), (36, 4, 4242), (40, 4, 18), (44, 4, 7)];
    let bytes = record(6, 48, &fields);
    let Some(Record::Runtime(call)) = Record::from_bytes(&bytes) else { panic!() };
    assert_eq!([call.group(), call.function(), call.thread(), call.correlation()], [3, 21, 4242, 18]);
    assert_eq!([call.start(), call.end()], [1, 2]);
    assert!(matches!(Record::from_bytes(&record(3, 48, &fields)), Some(Record::Driver(_))));
    let fields = [
        (4, 4, 4),
        (8, 8, 0xC1),
        (16, 8, 0x51),
        (24, 8, 0xE1),
        (32, 8, 1),
        (40, 8, 2),
        (48, 4, 4242),
        (52, 4, 18),
        (56, 4, 6),
        (60, 4, 7),
        (64, 4, 32),
        (68, 4, 1),
    ];
    let bytes = record(11, 72, &fields);
    let Some(Record::Synchronization(sync)) = Record::from_bytes(&bytes) else { panic!() };
    assert_eq!([sync.what(), sync.thread(), sync.correlation(), sync.events(), sync.result()], [4, 4242, 18, 6, 7]);
    assert_eq!([sync.context(), sync.queue(), sync.event(), sync.start(), sync.end()], [0xC1, 0x51, 0xE1, 1, 2]);
    assert_eq!((sync.function(), sync.group()), (32, 1));
    let bytes = record(7, 24, &[(4, 4, 18), (8, 8, 1 << 40), (16, 4, 2)]);
    let Some(Record::ExternalCorrelation(external)) = Record::from_bytes(&bytes) else { panic!() };
    assert_eq!((external.correlation(), external.id(), external.id_kind()), (18, 1 << 40, 2));
    let bytes = record(5, 56, &[(8, 8, 1), (16, 8, 2), (24, 4, 4242), (28, 4, 9), (32, 8, 3), (40, 8, 4), (48, 4, 5)]);
    let Some(Record::Overhead(overhead)) = Record::from_bytes(&bytes) else { panic!() };
    assert_eq!([overhead.start(), overhead.end(), overhead.count(), overhead.duration()], [1, 2, 3, 4]);
    assert_eq!(overhead.what(), 5);
}

#[test]
fn moved_fields_of_communication_are_read() {
    let old =
        record(12, 56, &[(8, 8, 1), (16, 8, 2), (24, 4, 99), (28, 4, 42), (32, 8, 64), (40, 8, 5), (48, 8, 0xAB)]);
    let new =
        record(12, 64, &[(8, 8, 1), (16, 8, 2), (28, 4, 42), (32, 8, 64), (40, 8, 65), (48, 8, 5), (56, 8, 0xAB)]);
    for bytes in [old, new] {
        let Some(Record::Communication(it)) = Record::from_bytes(&bytes) else { panic!() };
        assert_eq!((it.start(), it.end(), it.thread(), it.communicator_and_name()), (1, 2, 42, (5, 0xAB)));
    }
}

#[test]
fn short_and_unknown_records_are_rejected() {
    for (view, size) in
        [(1, 168), (3, 48), (5, 56), (6, 48), (7, 24), (8, 136), (9, 136), (10, 168), (11, 72), (12, 56)]
    {
        let whole = record(view, size, &[]);
        assert!(Record::from_bytes(&whole).is_some(), "{view}");
        assert!((0..size).all(|length| Record::from_bytes(&whole[..length]).is_none()), "{view}");
    }
    for view in [0, 2, 4, 13, u32::MAX] {
        assert!(Record::from_bytes(&record(view, 1000, &[])).is_none(), "{view}");
    }
}
