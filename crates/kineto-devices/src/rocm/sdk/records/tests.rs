//! Builds records field by field, and tests reading them.

use super::*;

/// Writes a value at an offset.
pub(crate) fn put(record: &mut [u8], at: usize, value: &[u8]) {
    record[at..at + value.len()].copy_from_slice(value);
}

/// The fields of a record made by [`dispatch`].
#[derive(Clone, Copy)]
pub(crate) struct DispatchFields {
    pub correlation: u64,
    pub start: u64,
    pub end: u64,
    pub agent: u64,
    pub queue: u64,
    pub kernel: u64,
}

pub(crate) const FIELDS: DispatchFields =
    DispatchFields { correlation: 7, start: 1000, end: 2000, agent: 0xA1, queue: 3, kernel: 5 };

/// A kernel of 4 x 2 x 1 blocks of 64 x 2 x 1 threads.
pub(crate) fn dispatch(fields: &DispatchFields) -> Vec<u8> {
    let mut record = vec![0xEE; 184];
    put(&mut record, 0, &184_u64.to_le_bytes());
    put(&mut record, 8, &KERNEL_DISPATCH.to_le_bytes());
    put(&mut record, 12, &2_u32.to_le_bytes());
    for (at, value) in [(16, fields.correlation), (24, 0), (32, 99), (40, fields.start), (48, fields.end), (56, 72)] {
        put(&mut record, at, &value.to_le_bytes());
    }
    for (at, value) in [(64, fields.agent), (72, fields.queue), (80, fields.kernel), (88, 1)] {
        put(&mut record, at, &value.to_le_bytes());
    }
    for (at, value) in [64_u32, 2, 1, 250, 4, 1].into_iter().enumerate() {
        put(&mut record, 104 + 4 * at, &value.to_le_bytes());
    }
    record
}

/// A copy of 4096 bytes.
pub(crate) fn copy(operation: u32, correlation: u64, [target, source]: [u64; 2]) -> Vec<u8> {
    let mut record = vec![0xEE; 96];
    put(&mut record, 8, &MEMORY_COPY.to_le_bytes());
    put(&mut record, 12, &operation.to_le_bytes());
    let words =
        [(0, 96), (16, correlation), (24, 0), (32, 99), (40, 1000), (48, 3000), (56, target), (64, source), (72, 4096)];
    for (at, value) in words {
        put(&mut record, at, &u64::to_le_bytes(value));
    }
    record
}

const fn header(kind: u32) -> Kind {
    Kind { category: TRACING, kind }
}

#[test]
fn kernel_fields_are_read_by_offset() {
    let bytes = dispatch(&FIELDS);
    let Some(Record::Dispatch(kernel)) = Record::from_bytes(header(KERNEL_DISPATCH), &bytes) else { panic!() };
    assert_eq!((kernel.correlation(), kernel.start(), kernel.end()), (7, 1000, 2000));
    assert_eq!((kernel.agent(), kernel.queue(), kernel.kernel()), (0xA1, 3, 5));
    assert_eq!((kernel.block(), kernel.grid_in_blocks()), ([64, 2, 1], [4, 2, 1]));
}

#[test]
fn copy_fields_are_read_by_offset() {
    let bytes = copy(2, 9, [0xA1, 0xC0]);
    let Some(Record::Copy(copy)) = Record::from_bytes(header(MEMORY_COPY), &bytes) else { panic!() };
    assert_eq!((copy.operation(), copy.correlation(), copy.start(), copy.end()), (2, 9, 1000, 3000));
    assert_eq!((copy.target(), copy.source(), copy.bytes_copied()), (0xA1, 0xC0, 4096));
}

#[test]
fn truncated_and_mismatched_records_are_rejected() {
    let mut bytes = dispatch(&FIELDS);
    assert_eq!(Record::from_bytes(header(KERNEL_DISPATCH), &bytes[..183]), None, "cut");
    assert_eq!(Record::from_bytes(header(MEMORY_COPY), &bytes), None, "its header contradicts it");
    put(&mut bytes, 0, &176_u64.to_le_bytes());
    assert_eq!(Record::from_bytes(header(KERNEL_DISPATCH), &bytes), None, "it claims a shorter size");
    put(&mut bytes, 0, &u64::MAX.to_le_bytes());
    assert_eq!(Record::from_bytes(header(KERNEL_DISPATCH), &bytes), None, "it claims an endless size");
    // A record before version 1.0, which lacks addresses.
    let mut old = copy(1, 1, [1, 2]);
    put(&mut old, 0, &80_u64.to_le_bytes());
    assert_eq!(Record::from_bytes(header(MEMORY_COPY), &old), None);
    let mut grown = [copy(1, 1, [1, 2]), vec![0; 32]].concat();
    put(&mut grown, 0, &128_u64.to_le_bytes());
    assert!(matches!(Record::from_bytes(header(MEMORY_COPY), &grown), Some(Record::Copy(_))), "a newer one's");
    let other = Kind { category: 3, kind: KERNEL_DISPATCH };
    assert_eq!(Record::from_bytes(other, &[]), Some(Record::Other));
}

#[test]
fn callback_fields_are_read_by_offset() {
    let callback = Callback::new([1, 42, 7, 0, 0, 5 | 107 << 32, 2, 0xF00]);
    assert_eq!((callback.thread_id(), callback.correlation()), (42, 7));
    assert_eq!((callback.kind(), callback.operation(), callback.phase()), (5, 107, Phase::Exit));
    assert_eq!(callback.payload_address(), 0xF00);
    assert_eq!(size_of::<Callback>(), 64);
}

#[test]
fn kernel_symbol_has_id_and_name() {
    let mut record = vec![0; 88];
    for (at, value) in [(0, 88), (8, 5), (16, 1), (24, 0xBEEF)] {
        put(&mut record, at, &u64::to_le_bytes(value));
    }
    assert_eq!(kernel_symbol(&record), Some((5, 0xBEEF)));
    assert_eq!((kernel_symbol(&record[..80]), kernel_symbol(&[])), (None, None));
}

#[test]
fn failed_call_is_detected_at_its_return() {
    let mut record = vec![0xFF; 96];
    put(&mut record, 0, &96_u64.to_le_bytes());
    put(&mut record, 72, &101_u64.to_le_bytes());
    assert!(has_failed(&record));
    put(&mut record, 72, &0_u64.to_le_bytes());
    assert!(!has_failed(&record) && !has_failed(&record[..40]) && !has_failed(&[]));
}
