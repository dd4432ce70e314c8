//! Reads the fields of roctracer's records of device work.

use super::ffi::HIP_OPS;
use crate::records::fields::records;
use crate::rocm::hip::Direction;

/// The size of a record, in every version.
pub(super) const SIZE: usize = 64;

/// A kind of device work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    /// A kernel: the address of its name, 0 if the version does not report it, and whether it is part of a graph.
    Kernel { name: u64, is_task: bool },
    /// A copy.
    Copy { direction: Direction, bytes: u64 },
    /// A fill.
    Fill { bytes: u64 },
    /// A marker in a stream, which is not work.
    Mark,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) what: WorkKind,
    pub(super) correlation: u64,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Since ROCm 5.4 the number of the agent's node, counting processors too; before, HIP's number of the device.
    pub(super) device: i32,
    pub(super) queue: u64,
}

records! {
    /// A record's fields. The last is a name or a number of bytes.
    RawRecord, 64 bytes {
        domain: u32 = 0, kind: u32 = 4, operation: u32 = 8, correlation: u64 = 16, begin: u64 = 24, end: u64 = 32,
        device: u32 = 40, queue: u64 = 48, last: u64 = 56,
    }
}

/// Operations of the domain.
const DISPATCH: u32 = 0;
const COPY: u32 = 1;
const BARRIER: u32 = 2;

/// The most devices; a greater number is corrupt.
const DEVICES: i32 = 1 << 12;

impl Record {
    /// Reads a record; returns `None` if it is invalid.
    pub(super) fn from_bytes(bytes: &[u8; SIZE]) -> Option<Record> {
        let raw = RawRecord::new(bytes).filter(|raw| raw.domain() == HIP_OPS)?;
        let (kind, last) = (raw.kind(), raw.last());
        let what = match raw.operation() {
            DISPATCH => WorkKind::Kernel { name: last, is_task: kind == kind::TASK },
            COPY if matches!(kind, kind::FILL_BUFFER | kind::FILL_IMAGE) => WorkKind::Fill { bytes: last },
            COPY => WorkKind::Copy { direction: copy_direction(kind), bytes: last },
            BARRIER => WorkKind::Mark,
            _ => return None,
        };
        let (correlation, begin, end) = (raw.correlation(), raw.begin(), raw.end());
        let record = Record { what, correlation, begin, end, device: raw.device().cast_signed(), queue: raw.queue() };
        record.is_valid().then_some(record)
    }

    fn is_valid(&self) -> bool {
        let has_times = self.begin != 0 && self.begin <= self.end;
        (has_times || self.what == WorkKind::Mark) && (0..DEVICES).contains(&self.device)
    }
}

/// Kinds of work, by OpenCL's command numbers.
mod kind {
    pub(super) const TASK: u32 = 0x11F1;
    pub(super) const READ_BUFFER: u32 = 0x11F3;
    pub(super) const WRITE_BUFFER: u32 = 0x11F4;
    pub(super) const COPY_BUFFER: u32 = 0x11F5;
    pub(super) const READ_IMAGE: u32 = 0x11F6;
    pub(super) const WRITE_IMAGE: u32 = 0x11F7;
    pub(super) const COPY_IMAGE: u32 = 0x11F8;
    pub(super) const COPY_IMAGE_TO_BUFFER: u32 = 0x11F9;
    pub(super) const COPY_BUFFER_TO_IMAGE: u32 = 0x11FA;
    pub(super) const READ_BUFFER_RECT: u32 = 0x1201;
    pub(super) const WRITE_BUFFER_RECT: u32 = 0x1202;
    pub(super) const COPY_BUFFER_RECT: u32 = 0x1203;
    pub(super) const FILL_BUFFER: u32 = 0x1207;
    pub(super) const FILL_IMAGE: u32 = 0x1208;
}

fn copy_direction(kind: u32) -> Direction {
    match kind {
        kind::READ_BUFFER | kind::READ_BUFFER_RECT | kind::READ_IMAGE => Direction::DeviceToHost,
        kind::WRITE_BUFFER | kind::WRITE_BUFFER_RECT | kind::WRITE_IMAGE => Direction::HostToDevice,
        kind::COPY_BUFFER
        | kind::COPY_BUFFER_RECT
        | kind::COPY_IMAGE
        | kind::COPY_IMAGE_TO_BUFFER
        | kind::COPY_BUFFER_TO_IMAGE => Direction::DeviceToDevice,
        _ => Direction::Unknown,
    }
}

/// Splits bytes into records, `None` for unreadable ones; also returns how many were truncated.
pub(super) fn split_records(bytes: &[u8]) -> (impl Iterator<Item = Option<Record>> + '_, u64) {
    let (whole, rest) = bytes.as_chunks::<SIZE>();
    (whole.iter().map(Record::from_bytes), u64::from(!rest.is_empty()))
}

/// Makes a record from fields: offset, width and value.
#[cfg(test)]
pub(super) fn make_record(fields: &[(usize, usize, u64)]) -> [u8; SIZE] {
    *crate::records::fields::make_record(HIP_OPS, SIZE, fields).first_chunk().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes a record of an operation and a kind, with valid common fields.
    fn of(op: u64, kind: u64, last: u64) -> [u8; SIZE] {
        make_record(&[
            (0, 4, 2),
            (4, 4, kind),
            (8, 4, op),
            (16, 8, 505_113),
            (24, 8, 1000),
            (32, 8, 2000),
            (40, 4, 2),
            (48, 8, 7),
            (56, 8, last),
        ])
    }

    #[test]
    fn fields_are_where_the_header_puts_them() {
        let record = Record::from_bytes(&of(0, 0x11F0, 0xABCD)).unwrap();
        let what = WorkKind::Kernel { name: 0xABCD, is_task: false };
        assert_eq!(record, Record { what, correlation: 505_113, begin: 1000, end: 2000, device: 2, queue: 7 });
    }

    #[test]
    fn kinds_are_classified() {
        let what = |op, kind| Record::from_bytes(&of(op, kind, 64)).map(|record| record.what);
        let copy = |direction| Some(WorkKind::Copy { direction, bytes: 64 });
        assert_eq!(what(0, 0x11F1), Some(WorkKind::Kernel { name: 64, is_task: true }));
        assert_eq!([0x11F3, 0x1201].map(|kind| what(1, kind)), [copy(Direction::DeviceToHost); 2]);
        assert_eq!([0x11F4, 0x1202].map(|kind| what(1, kind)), [copy(Direction::HostToDevice); 2]);
        assert_eq!([0x11F5, 0x1203].map(|kind| what(1, kind)), [copy(Direction::DeviceToDevice); 2]);
        assert_eq!(what(1, 0x1207), Some(WorkKind::Fill { bytes: 64 }));
        assert_eq!((what(1, 5), what(2, 0x11FE)), (copy(Direction::Unknown), Some(WorkKind::Mark)));
    }

    #[test]
    fn invalid_records_are_rejected() {
        let changed = |fields: &[(usize, usize, u64)]| {
            let mut bytes = of(0, 0x11F0, 0);
            let other = make_record(fields);
            fields.iter().for_each(|(at, width, _)| bytes[*at..at + width].copy_from_slice(&other[*at..at + width]));
            Record::from_bytes(&bytes)
        };
        assert!(changed(&[]).is_some());
        for (what, field) in [
            ("another domain", (0, 4, 3)),
            ("an operation that is not known", (8, 4, 3)),
            ("no beginning", (24, 8, 0)),
            ("an end before the beginning", (32, 8, 999)),
            ("a device that cannot be", (40, 4, 0xFFFF_FFFF)),
            ("another", (40, 4, 1 << 20)),
        ] {
            assert_eq!(changed(&[field]), None, "{what}");
        }
    }

    #[test]
    fn truncated_records_are_counted() {
        let bytes = [of(0, 0x11F0, 0), of(1, 0x11F4, 8)].concat();
        for (length, whole, unread) in [(0, 0, 0), (63, 0, 1), (64, 1, 0), (100, 1, 1), (128, 2, 0)] {
            let (records, split_records) = split_records(&bytes[..length]);
            assert_eq!((records.flatten().count(), split_records), (whole, unread), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
            let (records, unread) = split_records(&bytes);
            let records: Vec<_> = records.collect();
            prop_assert_eq!((records.len(), unread), (bytes.len() / SIZE, u64::from(bytes.len() % SIZE != 0)));
            for record in records.into_iter().flatten() {
                prop_assert!(record.what == WorkKind::Mark || record.begin <= record.end);
                prop_assert!(record.device >= 0);
            }
        }
    }
}
